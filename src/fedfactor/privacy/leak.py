"""How many exact equations about the rows a run hands out when nothing adds noise."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedfactor.core.protocol import Meta
from fedfactor.core.wire import Spec

__all__ = ["sum_account"]


def sum_account(spec: Spec, meta: Meta, rounds: int, rows_per_column: np.ndarray | None = None) -> dict[str, Any]:
    """Count what exact sums say: every round is so many more linear equations in the cells of each column.

    Parameters
    ----------
    spec : mapping
        Leaves of the upload.
    meta : Meta
        Of the federation.
    rounds : int
        Rounds that are summed exactly.
    rows_per_column : array, optional
        How many rows fill each column, where known.

    Returns
    -------
    dict
        ``equations_per_column`` against ``rows``; and, if known, the ``exposed_columns``, filled by no more rows than
        there are equations: whoever knew U could solve for their cells.

    Examples
    --------
    >>> from fedfactor.core.wire import Leaf
    >>> meta = Meta(n_features=50, clients=("a", "b", "c"), n_rows=400)
    >>> sum_account({"A": Leaf("float64", (20, 50))}, meta, rounds=60)["equations_per_column"]
    1200
    """
    wide = sum(math.prod(leaf.shape) for leaf in spec.values() if leaf.shape and leaf.shape[-1] == meta.n_features)
    equations = rounds * wide // max(1, meta.n_features)
    found: dict[str, Any] = {"equations_per_column": equations, "rows": meta.n_rows}
    if rows_per_column is not None:
        filled = rows_per_column[rows_per_column > 0]
        found["exposed_columns"] = int((filled <= equations).sum())
    return found
