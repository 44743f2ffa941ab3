"""Feedback without ratings, and least squares on stored cells: what iterative recommenders are made of.

In implicit feedback every cell counts: a stored one wishes for 1 with its own weight, all others for 0 with weight 1.
The cells that are not stored are never visited; Gram matrices account for them.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse

from fedfactor.core.pytree import Array
from fedfactor.linalg.compiled.compile import kernel
from fedfactor.linalg.products import csr_parts, over_rows, scatter_blocks, stored_rows, sums
from fedfactor.recommend.alternating_least_squares import solve_all
from fedfactor.recommend.rating_model import FLOOR

__all__ = ["confidence", "implicit_gradient", "implicit_step", "ridge_rows", "stored_residuals"]


def confidence(R: Array, weight: float) -> scipy.sparse.csr_array:
    """Return the weights ``1 + weight · r`` of the stored cells.

    Examples
    --------
    >>> confidence(scipy.sparse.csr_array(np.array([[2.0, 0.0]])), 10.0).data
    array([21.])
    """
    return scipy.sparse.csr_array(((1 + weight * R.data).astype(R.dtype), R.indices, R.indptr), shape=R.shape)


def implicit_step(C: Array, U: Array, V: Array, *, alpha: float) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    r"""Update non-negative U for implicit feedback, and return the sums that V depends on.

    .. math:: \min_{U, V \ge 0} \sum_{ij} c_{ij} (p_{ij} - U_i V_j)^2 + \alpha\|U\|^2

    with :math:`p = 1` and weight :math:`c` where a cell is stored, :math:`p = 0` and :math:`c = 1` elsewhere.

    Parameters
    ----------
    C : CSR matrix of shape (n, m)
        Weights of the stored cells, at least 1.
    U, V : arrays of shapes (n, k) and (k, m)
        Positive.
    alpha : float

    Returns
    -------
    U : array of shape (n, k)
    N, D : arrays of shape (k, m)
        The numerator of V; its denominator is ``UᵀU V + D``.
    loss : float
        Of all cells, with the new U and the old V.

    Examples
    --------
    >>> C = confidence(scipy.sparse.csr_array(np.eye(2)), 10.0)
    >>> U, N, D, loss = implicit_step(C, np.ones((2, 1)), np.ones((1, 2)), alpha=0.0)
    >>> U.round(3).ravel()
    array([0.917, 0.917])
    """
    G = np.ascontiguousarray(V @ V.T)
    run = kernel("implicit_factors", U.dtype, C.indices.dtype)
    if run is None:
        return _implicit_step(C, U, V, G, alpha)
    parts, U, Vt = csr_parts(C, U.dtype), np.ascontiguousarray(U), np.ascontiguousarray(V.T)
    out, blocks = np.empty_like(U), max(1, scatter_blocks(C, U.shape[1]) // 2)
    buffers, errors = np.zeros((2, blocks, *Vt.shape), U.dtype), np.zeros(blocks)

    def share(b: int, start: int, stop: int) -> None:
        errors[b] = run(*parts, U, Vt, G, alpha, FLOOR, 1.0, start, stop, 1, out, buffers[0, b], buffers[1, b])

    over_rows(share, parts[0], blocks)
    N, D = (np.ascontiguousarray(buffer.sum(axis=0).T) for buffer in buffers)
    return out, N, D, float(errors.sum())


def _implicit_step(
    C: Array, U: np.ndarray, V: np.ndarray, G: np.ndarray, alpha: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Do the same without numba."""
    fitted = _fitted(C, U, V)
    top: np.ndarray = C @ V.T
    bottom: np.ndarray = U @ G + alpha * U + _like(C, (C.data - 1) * fitted) @ V.T
    moved: np.ndarray = np.maximum(U * top / np.where(bottom > 0, bottom, 1), FLOOR)
    new = np.where(bottom > 0, moved, U).astype(U.dtype)
    fitted = _fitted(C, new, V)
    N = sums(new, C)
    D = sums(new, _like(C, (C.data - 1) * fitted))
    loss = float((C.data * np.square(1 - fitted, dtype=np.float64) - np.square(fitted, dtype=np.float64)).sum())
    return new, N, D, loss + float(np.sum((new.T @ new) * G, dtype=np.float64))


def ridge_rows(W: Array, targets: Array, V: Array, *, lam: float, G: Array | None = None) -> np.ndarray:
    r"""Solve each row of U by weighted least squares on its stored cells.

    .. math:: (G + \sum_j w_{ij} v_j v_j^\top + \lambda I)\, u_i = \sum_j t_{ij} v_j

    Parameters
    ----------
    W : CSR matrix of shape (n, m)
        Weights.
    targets : CSR matrix with the same cells
        Weights times wishes.
    V : array of shape (k, m)
    lam : float
        Positive.
    G : array of shape (k, k), optional
        Added to every row's matrix.

    Examples
    --------
    >>> W = scipy.sparse.csr_array(np.array([[1.0]]))
    >>> ridge_rows(W, 4 * W, np.array([[2.0]]), lam=0.0)
    array([[2.]])
    """
    k, m = V.shape
    pairs = (V[:, None, :] * V[None, :, :]).reshape(k * k, m)
    A = np.asarray(W @ np.ascontiguousarray(pairs.T)).reshape(-1, k, k) + lam * np.eye(k, dtype=V.dtype)
    if G is not None:
        A = A + G
    return solve_all(A, np.asarray(targets @ np.ascontiguousarray(V.T))).astype(V.dtype)


def stored_residuals(
    R: Array, U: Array, V: Array, user: Array | None = None, item: Array | None = None, mu: float = 0.0
) -> scipy.sparse.csr_array:
    """Return what the stored cells exceed the model by, in their places.

    Examples
    --------
    >>> R = scipy.sparse.csr_array(np.array([[4.0]]))
    >>> stored_residuals(R, np.ones((1, 1)), np.ones((1, 1)), mu=2.0).data
    array([1.])
    """
    off = R.data - mu - _fitted(R, U, V)
    if user is not None:
        off = off - np.repeat(user, np.diff(R.indptr))
    if item is not None:
        off = off - item[R.indices]
    return _like(R, off.astype(R.dtype))


def implicit_gradient(C: Array, U: Array, V: Array) -> np.ndarray:
    """Return ``Σ_i c_ij (p_ij − u_i v_j) u_i`` over all cells: half the negative gradient of V, k × m.

    Examples
    --------
    >>> C = scipy.sparse.csr_array(np.array([[3.0, 0.0]]))
    >>> implicit_gradient(C, np.ones((1, 1)), np.zeros((1, 2)))
    array([[3., 0.]])
    """
    fitted = _fitted(C, U, V)
    return sums(U, _like(C, C.data - (C.data - 1) * fitted)) - (U.T @ U) @ V


def _like(R: Array, data: Array) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array((np.asarray(data, R.dtype), R.indices, R.indptr), shape=R.shape)


def _fitted(R: Array, U: Array, V: Array) -> np.ndarray:
    rows = stored_rows(R)
    total = np.zeros(R.nnz, U.dtype)
    for u, v in zip(U.T, V, strict=True):
        total += u[rows] * v[R.indices]
    return total
