"""What the faces are given: rows in many dresses, labels, seeds. Everything odd is refused here, before any work."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data

from fedfactor.core.checks import as_matrix, check_features, check_frame, is_frame, is_named, real_dtype, refuse_masked
from fedfactor.core.errors import DataError
from fedfactor.core.federation import Federation, Missing, Shard
from fedfactor.core.tree import Array
from fedfactor.data.partition import split_evenly, split_rows


def is_owned(X: Any) -> bool:
    """Tell rows that come with their owners (a federation, a mapping, a list of matrices) from one plain matrix.

    Examples
    --------
    >>> is_owned([[1.0, 2.0], [3.0, 4.0]]), is_owned([np.ones((2, 2)), np.ones((3, 2))])
    (False, True)
    """
    if isinstance(X, (Federation, Mapping)):
        return not hasattr(X, "shape")  # a sparse matrix of the kind "dictionary of keys" is a mapping, too
    # Only what has a shape of its own can be an owner's matrix: lists within a list are rows.
    return isinstance(X, (list, tuple)) and any(isinstance(x, Shard) or len(getattr(x, "shape", ())) == 2 for x in X)


def federation_of(X: Any, missing_values: Missing) -> Federation:
    """Make a federation of rows that come with their owners."""
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


def matrix(estimator: BaseEstimator, X: Any, *, reset: bool) -> Array:
    """Turn one matrix into floating rows, set or compare its features as scikit-learn does; values come later."""
    if "sparse" in str(getattr(X, "layout", "")):
        raise DataError(
            "This is a sparse tensor of torch, which cannot be cut into rows. Pass a SciPy CSR matrix, a dense tensor, "
            "or a mapping from owner to sparse CSR tensor."
        )
    if hasattr(X, "detach") or hasattr(X, "__cuda_array_interface__"):
        X, _ = as_matrix(X.detach() if hasattr(X, "detach") else X)
        validate_data(estimator, X=X, reset=reset, skip_check_array=True)
        return X
    refuse_masked(X)
    if is_named(X):
        return _named_matrix(estimator, X, reset=reset)
    _check_unique(list(getattr(X, "columns", ())))
    if is_frame(X):
        check_frame(X)
    # Finite or not is looked at when shards are checked, with a message that knows the owner and the remedy.
    kinds = [np.float32] if _fits_single(X) else [np.float64, np.float32]
    return validate_data(estimator, X=X, reset=reset, accept_sparse="csr", dtype=kinds, ensure_all_finite=False)


def _fits_single(X: Any) -> bool:
    """Tell values that the one rule for dtypes keeps in single precision; scikit-learn would double them."""
    kinds = list(X.dtypes) if is_frame(X) and hasattr(X, "dtypes") else [getattr(X, "dtype", None)]
    return bool(kinds) and all(
        isinstance(kind, np.dtype) and kind.kind in "biuf" and real_dtype(kind.kind, kind.itemsize) == "float32"
        for kind in kinds
    )


def _named_matrix(estimator: Any, X: Any, *, reset: bool) -> Array:
    """Take a matrix with names beside it (a table as read, AnnData) as scikit-learn takes a frame."""
    rows, features = as_matrix(X)
    known = getattr(estimator, "feature_names_in_", None)
    if not reset and features is not None and known is not None:
        order = check_features("X", features, "fit", tuple(known))
        rows = rows if order is None else rows[:, np.asarray(order)]
    validate_data(estimator, X=rows, reset=reset, skip_check_array=True)
    if reset and features is not None:
        vars(estimator)["feature_names_in_"] = np.array(features, dtype=object)
    return rows


def _check_unique(names: list[Any]) -> None:
    if len(set(names)) < len(names):
        twice = next(name for position, name in enumerate(names) if name in names[:position])
        raise DataError(f"The column name {twice!r} occurs more than once. Give every feature its own name.")


def split(X: Array, labels: Any, missing_values: Missing, features: Any) -> Federation:
    """Give each owner its rows; no labels: one owner named ``"0"``."""
    names = None if features is None else tuple(features)
    parts = {"0": X} if labels is None else split_rows(X, labels)
    shards = {name: replace(Shard.of(rows, missing_values), features=names) for name, rows in parts.items()}
    return Federation(shards, missing_values=missing_values)


def owner_labels(n_rows: int, groups: Any, n_clients: int, seed: int) -> Any:
    """Say who owns each row: ``groups``, else rows dealt at random to ``n_clients``; None: all belong to one."""
    if groups is None:
        return None if n_clients == 1 else split_evenly(n_rows, n_clients, seed)
    if isinstance(groups, (str, bytes)) or not hasattr(groups, "__len__"):
        raise DataError(f"groups={groups!r} is a single value. Give each row its owner: one label per row, in order.")
    return groups


def check_whole(name: str, value: Any, least: int = 1) -> None:
    """Refuse anything but a whole number of at least ``least``."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name}={value!r} must be a whole number of at least {least}.")


def check_missing(missing_values: Any) -> None:
    """Refuse a rule for missing cells that nothing here knows."""
    if not (missing_values is None or missing_values == "unstored" or isinstance(missing_values, Real)):
        raise DataError(f"missing_values={missing_values!r} is not known. Use None, nan, a number or 'unstored'.")


def draw_seed(random_state: Any) -> int:
    """Turn what scikit-learn calls a random state into one seed.

    Examples
    --------
    >>> draw_seed(3), draw_seed(np.random.RandomState(0)) == draw_seed(np.random.RandomState(0))
    (3, True)
    """
    if random_state is None:
        return secrets.randbits(63)
    if isinstance(random_state, Integral):
        check_whole("random_state", random_state, least=0)
        return int(random_state)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    return int(check_random_state(random_state).randint(2**31))
