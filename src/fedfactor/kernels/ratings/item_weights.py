"""Items predicted from items: weights from a Gram matrix, whole or of low rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse

__all__ = [
    "balanced_rows",
    "common_pairs",
    "gram_half",
    "gram_strip",
    "item_weights",
    "strip_size",
    "strip_weights",
    "unexplained",
    "units",
    "unlikely_pairs",
]  # fmt: skip

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


def gram_strip(Z: Array, chosen: Array) -> tuple[np.ndarray, np.ndarray]:
    """Return the chosen rows of ``ZᵀZ``, and what its diagonal has at the others.

    Examples
    --------
    >>> gram_strip(scipy.sparse.csr_array(np.array([[1.0, 2.0]])), np.array([1]))
    (array([[2., 4.]]), array([1.]))
    """
    rows = (Z[:, chosen].T @ Z).toarray()
    squares = np.asarray(Z.multiply(Z).sum(axis=0)).ravel()
    return rows, np.delete(squares, chosen)


def strip_size(items: int, counted: int, share: float) -> int:
    """Return how many rows of a Gram matrix make an upload of this share of the whole one; at least 1.

    Parameters
    ----------
    items : int
        Size of the Gram matrix, of which half would travel.
    counted : int
        Numbers that travel before, in either case.
    share : float

    Examples
    --------
    >>> rows = strip_size(1000, 1200, 0.1)
    >>> rows, bool(1200 + rows * 1000 + 1000 - rows <= 0.1 * (1200 + 1000 * 1001 / 2))
    (48, True)
    """
    allowed = share * (counted + items * (items + 1) / 2) - counted - items
    return max(1, int(allowed // max(items - 1, 1)))


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
    factor, ridge = _safe_cholesky(A, ridge)
    P = scipy.linalg.cho_solve((factor, True), np.eye(len(A)), check_finite=False)
    B = -P / np.diag(P)
    np.fill_diagonal(B, 0.0)
    return B, ridge


def _safe_cholesky(A: np.ndarray, shift: float) -> tuple[np.ndarray, float]:
    """Factor ``A + shift I``, the shift doubled until that is safely positive definite."""
    raised = False
    while True:
        try:
            factor = scipy.linalg.cholesky(A + shift * np.eye(len(A)), lower=True, check_finite=False)
            if not raised:
                return factor, shift
            raised = False  # once more beyond the first that works: just positive definite is not yet well posed
        except scipy.linalg.LinAlgError:
            raised = True
        shift *= 2


def unexplained(rows: Array, chosen: Array, diagonal: Array) -> np.ndarray:
    r"""Return what the chosen rows C of a Gram matrix leave of its diagonal: that of :math:`G - C^\top T^{-1} C`.

    Parameters
    ----------
    rows : array of shape (d, m)
    chosen : array of int of shape (d,)
        Which rows; T is made of these rows and columns.
    diagonal : array of shape (m,)

    Examples
    --------
    >>> unexplained(np.array([[4.0, 2.0]]), np.array([0]), np.array([4.0, 3.0])).round(6)
    array([0., 2.])
    """
    C, factor, _ = _strip(rows, chosen)
    explained = np.square(scipy.linalg.solve_triangular(factor, C, lower=True, check_finite=False)).sum(axis=0)
    D = np.maximum(np.asarray(diagonal, np.float64) - explained, 0.0)
    D[chosen] = 0.0
    return D


def _strip(rows: Array, chosen: Array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the rows C in double precision, a factor of T, and T."""
    C = np.asarray(rows, np.float64)
    T = (C[:, chosen] + C[:, chosen].T) / 2
    # Items that the same users touched make T singular; a shift within rounding mends that, and noise asks for more.
    factor, shift = _safe_cholesky(T, 1e-10 * max(float(np.diag(T).mean()), 1e-300))
    return C, factor, T + shift * np.eye(len(T))


def strip_weights(rows: Array, chosen: Array, diagonal: Array, ridge: float) -> tuple[np.ndarray, np.ndarray]:
    r"""Return F (m × d) and H (d × m) whose product is B off its diagonal, from d rows of the Gram matrix.

    Parameters
    ----------
    rows : array of shape (d, m)
        The chosen rows C of G.
    chosen : array of int of shape (d,)
        Which ones.
    diagonal : array of shape (m,)
        That of G.
    ridge : float

    Notes
    -----
    G is known at all pairs with a chosen item, and on its diagonal. What the other items have in common is taken to be
    what the chosen ones explain: :math:`G \approx C^\top T^{-1} C + \mathrm{diag}(D)`, T the chosen rows and columns
    and D what is missing on the diagonal. Its inverse with λ follows by the Woodbury identity, without T⁻¹.

    Examples
    --------
    >>> G = np.array([[2.0, 1.0], [1.0, 2.0]])
    >>> F, H = strip_weights(G[:1], np.array([0]), np.diag(G), 1.0)
    >>> (F @ H)[0, 1].round(3)
    np.float64(0.333)
    """
    if not np.size(rows):
        return np.zeros(np.shape(rows)[::-1]), np.zeros(np.shape(rows))
    C, _, T = _strip(rows, chosen)
    D = unexplained(rows, chosen, diagonal) + ridge
    F = (C / D).T
    whole = scipy.linalg.cho_factor(T + C @ F, lower=True, check_finite=False)
    M = scipy.linalg.cho_solve(whole, F.T, check_finite=False).T
    return M, (F / (1 / D - np.einsum("id,id->i", F, M))[:, None]).T


def common_pairs(R: Array) -> np.ndarray:
    """Return the upper half of how many users touched both of two items.

    Examples
    --------
    >>> common_pairs(scipy.sparse.csr_array(np.array([[5.0, 2.0], [1.0, 0.0]])))
    array([2., 1., 1.])
    """
    ones = scipy.sparse.csr_array((np.ones(R.nnz), R.indices, R.indptr), shape=R.shape)
    return gram_half(ones)
