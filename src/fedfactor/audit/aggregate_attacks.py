"""Attacks on exact sums, with every client in them: secure aggregation does not stop these."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

__all__ = ["differencing_error", "singleton_columns", "singleton_exposure"]


def singleton_columns(X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns that exactly one row fills, and that row for each.

    Examples
    --------
    >>> singleton_columns(np.array([[1, 0, 2], [1, 0, 0]]))
    (array([2]), array([0]))
    """
    if scipy.sparse.issparse(X):
        X = scipy.sparse.csc_array(X)
        X.eliminate_zeros()
        columns = np.flatnonzero(np.diff(X.indptr) == 1)
        return columns, X.indices[X.indptr[columns]]
    filled = np.asarray(X) != 0
    columns = np.flatnonzero(filled.sum(axis=0) == 1)
    return columns, filled[:, columns].argmax(axis=0)


def singleton_exposure(A: np.ndarray, U: np.ndarray, X: Any) -> dict[str, Any]:
    """Compare columns of a summed ``A = UᵀX`` with the private u of the only row that fills them.

    Parameters
    ----------
    A : array, shape (k, m)
        The sum over all clients, as the server sees it.
    U : array, shape (n, k)
        The private factor of all rows at that moment, to compare with.
    X : array or sparse matrix, shape (n, m)
        All rows.

    Returns
    -------
    dict
        How many rows have their u shown (up to scale), out of those that alone fill a column.
    """
    columns, rows = singleton_columns(X)
    size = np.linalg.norm(A[:, columns], axis=0) * np.linalg.norm(U[rows], axis=1)
    live = size > 0
    cosine = np.zeros(columns.size)
    inner = np.einsum("kj,jk->j", A[:, columns], U[rows])
    cosine[live] = inner[live] / size[live]
    shown = np.unique(rows[cosine > 1 - 1e-6])
    return {
        "singleton_columns": int(columns.size),
        "rows_that_fill_one": int(np.unique(rows).size),
        "rows_exposed": int(shown.size),
    }


def differencing_error(before: np.ndarray, after: np.ndarray, upload: np.ndarray) -> float:
    """Return the relative error with which the difference of two sums gives the upload of the client that left.

    Examples
    --------
    >>> differencing_error(np.array([3.0]), np.array([1.0]), np.array([2.0]))
    0.0
    """
    return float(np.linalg.norm(before - after - upload) / max(np.linalg.norm(upload), 1e-300))
