"""Rows in the coordinates of components, and the error that components leave."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from fedfactor.core.algorithm import Score
from fedfactor.core.pytree import Array
from fedfactor.linalg.products import cross


def odd_directions(Q: Array) -> str:
    """Return why rows are not orthonormal, or nothing; rows of zeros stand for fewer directions than were asked for.

    Examples
    --------
    >>> odd_directions(np.eye(3)[:2]), odd_directions(np.ones((1, 2)))
    ('', 'directions are not orthonormal')
    """
    Q = np.asarray(Q, np.float64)
    there = (np.abs(Q).max(axis=1, initial=0.0) > 0).astype(np.float64)
    return "" if np.abs(Q @ Q.T - np.diag(there)).max(initial=0.0) < 1e-3 else "directions are not orthonormal"


def coordinates(X: Array, V: np.ndarray, mean: np.ndarray | None, scale: np.ndarray | None) -> np.ndarray:
    """Return the rows in the coordinates of the components, centered and scaled where that is asked for."""
    U = cross(X, V)
    if mean is not None:
        U -= V @ mean
    return U if scale is None else U / scale


def score_of_cells(X: Array, mask: Any, fitted: np.ndarray, mean: np.ndarray | None) -> Score:
    """Measure the squared error over some cells: those that are marked, or the stored ones of sparse rows."""
    fitted = fitted if mean is None else fitted + mean
    if scipy.sparse.issparse(X):
        cells = X.tocoo()
        true = cells.data
        found = fitted[cells.coords]
    else:
        true = np.asarray(X)[mask]
        found = fitted[mask]
    true = true.astype(np.float64)
    return Score.of(float(((true - found) ** 2).sum()), true.size, float((true**2).sum()))
