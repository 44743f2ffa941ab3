"""Exact non-negative least squares for many right-hand sides: block principal pivoting."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedfactor.core.pytree import Array
from fedfactor.linalg.products import as_like

__all__ = ["pivot_rows"]

_FULL_EXCHANGES = 3
"""Exchanges of whole sets that may fail to help before a row goes over to one index at a time, which always ends."""


def pivot_rows(G: Array, B: Array, *, start: Array | None = None, tol: float | None = None) -> Array:
    r"""Solve ``min ½⟨W G, W⟩ − ⟨W, B⟩`` over ``W ≥ 0`` exactly, all rows at once.

    Parameters
    ----------
    G : array, shape (k, k)
        Gram matrix, positive semi-definite. A singular one is helped by 1e-12 of its mean diagonal.
    B : array, shape (n, k)
    start : array, shape (n, k), optional
        Its positive cells are the first guess of the passive set, which saves exchanges; it does not change the result.
    tol : float, optional
        What counts as zero; by default some thousand roundings of the largest entry of B.

    Returns
    -------
    array, shape (n, k)

    Notes
    -----
    Rows with the same passive set share one factorization. Full exchanges first; a row that does not improve three
    times exchanges its last wrong index only (Murty's rule), which cannot cycle.

    References
    ----------
    .. [1] J. Kim, H. Park, "Fast nonnegative matrix factorization: an active-set-like method and comparisons", SIAM J.
       Sci. Comput. 33 (2011). doi:10.1137/110821172

    Examples
    --------
    >>> pivot_rows(np.eye(2), np.array([[3.0, -1.0]]))
    array([[3., 0.]])
    """
    H = np.asarray(as_like(G, np.zeros(0)))
    R = np.asarray(as_like(B, np.zeros(0)))
    n, k = R.shape
    H = H + (1e-12 * float(np.trace(H)) / k or 1.0) * np.eye(k)
    tol = 1e3 * float(np.finfo(np.float64).eps) * float(np.abs(R).max(initial=0.0)) if tol is None else tol
    passive = np.zeros((n, k), bool) if start is None else np.asarray(as_like(start, np.zeros(0))) > 0
    W, Y = _solve(H, R, passive)
    left = np.full(n, _FULL_EXCHANGES)
    fewest = np.full(n, k + 1)
    for _ in range(5 * k + 50):
        wrong = np.where(passive, W < -tol, Y < -tol)
        count = wrong.sum(axis=1)
        rows = np.flatnonzero(count)
        if rows.size == 0:
            break
        passive[rows] ^= _exchange(wrong[rows], count[rows], rows, left, fewest)
        W[rows], Y[rows] = _solve(H, R[rows], passive[rows])
    return as_like(np.maximum(W, 0.0), B)


def _exchange(wrong: np.ndarray, count: np.ndarray, rows: np.ndarray, left: np.ndarray, fewest: np.ndarray) -> Any:
    """Return which cells change sides; rows that keep failing change their last wrong one only."""
    better = count < fewest[rows]
    fewest[rows[better]] = count[better]
    left[rows[better]] = _FULL_EXCHANGES
    whole = better | (left[rows] > 0)
    left[rows[~better]] -= 1
    k = wrong.shape[1]
    last = np.zeros_like(wrong)
    last[np.arange(rows.size), k - 1 - wrong[:, ::-1].argmax(axis=1)] = True
    return np.where(whole[:, None], wrong, last)


def _solve(H: np.ndarray, R: np.ndarray, passive: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Solve each row on its passive set; rows with one set share the work. Return W and the gradient off the set."""
    W = np.zeros_like(R)
    packed = np.packbits(passive, axis=1)
    _, first, which = np.unique(packed, axis=0, return_index=True, return_inverse=True)
    order = np.argsort(which.ravel(), kind="stable")
    bounds = np.searchsorted(which.ravel()[order], np.arange(first.size + 1))
    for group, example in enumerate(first):
        rows = order[bounds[group] : bounds[group + 1]]
        free = np.flatnonzero(passive[example])
        if free.size:
            W[np.ix_(rows, free)] = np.linalg.solve(H[np.ix_(free, free)], R[np.ix_(rows, free)].T).T
    Y = W @ H - R
    return W, np.where(passive, 0.0, Y)
