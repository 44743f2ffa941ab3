"""Who owns which rows: a federation from rows that come with their clients, or from one matrix and labels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedfactor.core.client_data import Federation, Missing, Shard
from fedfactor.core.errors import DataError
from fedfactor.core.input_validation import is_frame
from fedfactor.core.printable_text import listed
from fedfactor.core.pytree import Array, is_list, is_mapping
from fedfactor.io.partition import split_evenly, split_rows


def is_owned(X: Any) -> bool:
    """Distinguish rows that come with their clients (a federation, a mapping, a list of matrices) from one plain
    matrix.

    Examples
    --------
    >>> import numpy as np
    >>> is_owned([[1.0, 2.0], [3.0, 4.0]]), is_owned([np.ones((2, 2)), np.ones((3, 2))])
    (False, True)
    """
    if isinstance(X, Federation) or is_mapping(X):
        return not hasattr(X, "shape")  # a sparse matrix of the kind "dictionary of keys" is a mapping, too
    # Only what has a shape of its own can be a client's matrix: lists within a list are rows.
    return is_list(X) and any(isinstance(x, Shard) or len(getattr(x, "shape", ())) == 2 for x in X)


def federation_of(X: Any, missing_values: Missing) -> Federation:
    """Make a federation of rows that come with their clients."""
    if not isinstance(X, Federation):
        return Federation(X, missing_values=missing_values)
    if missing_values is not None and not _same(missing_values, X.missing_values):
        raise DataError(
            f"The estimator has missing_values={missing_values!r} but the federation was made with "
            f"{X.missing_values!r}. Say it once: Federation(..., missing_values=...), and None here."
        )
    return X


def _same(a: Any, b: Any) -> bool:
    return a == b or (a != a and b != b)


def owner_labels(n_rows: int, groups: Any, n_clients: int, seed: int) -> Any:
    """Return who owns each row: ``groups``, else rows dealt at random to ``n_clients``; None: all belong to one."""
    if groups is None:
        return None if n_clients == 1 else split_evenly(n_rows, n_clients, seed)
    if isinstance(groups, (str, bytes)) or not hasattr(groups, "__len__"):
        raise DataError(f"groups={groups!r} is a single value. Give each row its owner: one label per row, in order.")
    return groups


def column_of_groups(X: Any, groups: Any) -> tuple[Any, Any]:
    """Take the client of each row out of a column of X, if ``groups`` is the name of one.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"site": ["a", "b"], "dose": [1.0, 2.0]})
    >>> rows, labels = column_of_groups(frame, "site")
    >>> list(rows.columns), list(labels)
    (['dose'], ['a', 'b'])
    """
    if not isinstance(groups, str):
        return X, groups
    about = getattr(X, "obs", None)  # AnnData: columns about rows stand beside the matrix
    table = X if about is None else about
    if not is_frame(table):
        return X, groups
    if groups not in list(table.columns):
        raise DataError(
            f"groups={groups!r}: X has no column {groups!r} (it has {listed([str(each) for each in table.columns])}). "
            "Name a column, or give one label per row."
        )
    labels = np.asarray(table[groups])
    if about is not None:
        return X, labels
    return (X.drop(columns=[groups]) if hasattr(X, "iloc") else X.drop(groups)), labels


def split(X: Array, labels: Any, missing_values: Missing, features: Any) -> Federation:
    """Give each client its rows; no labels: one client named ``"0"``."""
    names = None if features is None else tuple(features)
    parts = {"0": X} if labels is None else split_rows(X, labels)
    shards = {name: replace(Shard.of(rows, missing_values), features=names) for name, rows in parts.items()}
    return Federation(shards, missing_values=missing_values)
