"""Items predicted from items: weights from a Gram matrix, whole or of low rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse

__all__ = ["balanced_rows", "common_pairs", "gram_half", "item_weights", "low_rank_weights", "units", "unlikely_pairs"]

Array = Any


def units(R: Array, counts: str) -> scipy.sparse.csr_array:
    """Return what stored numbers stand for: ``"log"`` log₂(1 + r), ``"binary"`` 1, ``"raw"`` r.

    Examples
    --------
    >>> units(scipy.sparse.csr_array(np.array([[3.0, 1.0]])), "log").data
    array([2., 1.])
    """
    r = R.data
    if counts == "raw":
        return R
    data = np.log2(1 + r) if counts == "log" else np.ones_like(r)
    return scipy.sparse.csr_array((data.astype(R.dtype), R.indices, R.indptr), shape=R.shape)


def balanced_rows(R: Array, balance: float, clip: float | None = None) -> scipy.sparse.csr_array:
    """Divide rows by a power of their norm; with `clip`, shorten longer rows to this norm first.

    Parameters
    ----------
    R : CSR matrix of shape (n, m)
    balance : float
        0 leaves rows as they are, 1 makes them all of norm 1.
    clip : float, optional
        A row then has at most the norm ``clip ** (1 - balance)``.

    Examples
    --------
    >>> balanced_rows(scipy.sparse.csr_array(np.array([[3.0, 4.0]])), 1.0).data
    array([0.6, 0.8])
    """
    norms = np.sqrt(np.asarray(R.multiply(R).sum(axis=1), np.float64).ravel())
    short = np.ones_like(norms) if clip is None else np.minimum(1.0, clip / np.maximum(norms, 1e-300))
    scale = short * np.where(norms > 0, np.maximum(norms * short, 1e-300), 1.0) ** -balance
    data = R.data * np.repeat(scale, np.diff(R.indptr))
    return scipy.sparse.csr_array((data.astype(R.dtype), R.indices, R.indptr), shape=R.shape)


def gram_half(Z: Array) -> np.ndarray:
    """Return the upper half of ``ZᵀZ``, row by row, its diagonal included.

    Examples
    --------
    >>> gram_half(scipy.sparse.csr_array(np.array([[1.0, 2.0]])))
    array([1., 2., 4.])
    """
    G = (Z.T @ Z).toarray()
    return G[np.triu_indices(len(G))]


def unlikely_pairs(G: Array, pairs: Array, least: int, rows: float) -> np.ndarray:
    """Return a Gram matrix in which pairs of items that few users share are what chance would make them.

    Parameters
    ----------
    G : array of shape (m, m)
    pairs : array of shape (m, m)
        How many users touched both items; on the diagonal, each one.
    least : int
        Pairs of fewer users are replaced.
    rows : float
        Users in all.

    Notes
    -----
    Zeros in their place would say that such items exclude each other, and the matrix would no longer be one of inner
    products.

    Examples
    --------
    >>> pairs = np.array([[4.0, 1.0], [1.0, 2.0]])
    >>> unlikely_pairs(pairs, pairs, 3, rows=8.0)
    array([[4., 1.],
           [1., 2.]])
    """
    count = np.diag(pairs)
    away = ~np.eye(len(G), dtype=bool)
    kept = away & (pairs >= least)
    worth = float(G[kept].sum() / pairs[kept].sum()) if kept.any() else 1.0
    chance = worth * np.outer(count, count) / max(float(rows), 1.0)
    return np.where(away & ~kept, chance, G)


def item_weights(G: Array, ridge: float) -> tuple[np.ndarray, float]:
    r"""Return the weights B with a diagonal of zeros that minimise :math:`\|X - XB\|^2 + \lambda\|B\|^2`, and λ.

    Parameters
    ----------
    G : array of shape (m, m)
        ``XᵀX``, or what stands for it.
    ridge : float
        λ; doubled until ``G + λ I`` is safely positive definite, which noise or replaced pairs may prevent.

    References
    ----------
    .. [1] H. Steck, "Embarrassingly shallow autoencoders for sparse data", WWW 2019. doi:10.1145/3308558.3313710

    Examples
    --------
    >>> B, _ = item_weights(np.array([[2.0, 1.0], [1.0, 2.0]]), 1.0)
    >>> B.round(3)
    array([[0.   , 0.333],
           [0.333, 0.   ]])
    """
    A = np.asarray(G, np.float64)
    raised = False
    while True:
        try:
            factor = scipy.linalg.cholesky(A + ridge * np.eye(len(A)), lower=True, check_finite=False)
            if not raised:
                break
            raised = False  # once more beyond the first that works: just positive definite is not yet well posed
        except scipy.linalg.LinAlgError:
            raised = True
        ridge *= 2
    P = scipy.linalg.cho_solve((factor, True), np.eye(len(A)), check_finite=False)
    B = -P / np.diag(P)
    np.fill_diagonal(B, 0.0)
    return B, ridge


def low_rank_weights(Y: Array, Q: Array, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    r"""Return F (m × d) and H (d × m) whose product is B off its diagonal, for the Gram matrix that Y and Q tell of.

    Parameters
    ----------
    Y : array of shape (m, d)
        ``G Q``.
    Q : array of shape (m, d)
        Orthonormal columns.
    ridge : float

    Notes
    -----
    :math:`G \approx Y (Q^\top Y)^{-1} Y^\top` (Nyström); its inverse with λ follows by the Woodbury identity.

    Examples
    --------
    >>> G = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> F, H = low_rank_weights(G, np.eye(2), 1.0)
    >>> (F @ H)[0, 1].round(3)
    np.float64(0.333)
    """
    Y, Q = np.asarray(Y, np.float64), np.asarray(Q, np.float64)
    T = Q.T @ Y
    values, vectors = np.linalg.eigh((T + T.T) / 2)
    live = np.where(values > 1e-9 * max(float(values.max(initial=0.0)), 1e-300), values, np.inf)
    L = Y @ (vectors / np.sqrt(live))
    F = L / ridge
    M = np.linalg.inv(np.eye(L.shape[1]) + L.T @ F)
    M = (M + M.T) / 2
    diagonal = 1 / ridge - np.einsum("id,de,ie->i", F, M, F, optimize=True)
    return F @ M, (F / diagonal[:, None]).T


def common_pairs(R: Array) -> np.ndarray:
    """Return the upper half of how many users touched both of two items.

    Examples
    --------
    >>> common_pairs(scipy.sparse.csr_array(np.array([[5.0, 2.0], [1.0, 0.0]])))
    array([2., 1., 1.])
    """
    ones = scipy.sparse.csr_array((np.ones(R.nnz), R.indices, R.indptr), shape=R.shape)
    return gram_half(ones)
