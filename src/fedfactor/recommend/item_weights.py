"""Items predicted from items: weights from a Gram matrix, whole or of low rank."""

from __future__ import annotations

import numpy as np
import scipy.linalg
import scipy.sparse

from fedfactor.core.pytree import Array

__all__ = [
    "balanced_rows",
    "chosen_ridge",
    "common_pairs",
    "gram_half",
    "gram_pairs",
    "item_weights",
    "likely_pairs",
    "pair_weights",
    "pairs_within",
    "units",
    "unlikely_pairs",
    "which_pairs",
]

HEAVIEST = 3000
"""Columns of largest weight that a regularization is chosen on: eigenvalues of more would take minutes."""


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


def likely_pairs(weight: Array, d: int) -> tuple[np.ndarray, np.ndarray]:
    """Choose pairs of items: those that chance alone would make as frequent as any pair of the d heaviest items.

    Parameters
    ----------
    weight : array of shape (m,)
        How often each item occurs; what differs by rounding alone is taken to be equal.
    d : int

    Returns
    -------
    order : array of int of shape (m,)
        Items, the heaviest first.
    depth : array of int of shape (m,)
        Along that order: with how many of the first items this one is paired, at most d.

    Examples
    --------
    >>> likely_pairs(np.array([1.0, 4.0, 2.0]), 2)
    (array([1, 2, 0]), array([2, 2, 1]))
    """
    heavy = np.asarray(weight, np.float64)
    heavy = np.maximum(np.round(heavy / max(float(heavy.max(initial=0.0)), 1e-300), 6), 1e-6)
    order = np.argsort(-heavy, kind="stable")
    heavy = heavy[order]
    if not d:
        return order, np.zeros(len(order), np.int64)
    least = heavy[d - 1] ** 2 * (1 - 1e-9)
    least_partner: np.ndarray = -least / heavy
    count = np.searchsorted(-heavy, least_partner, side="right")
    return order, np.minimum(np.maximum(count, 1), d)


def which_pairs(depth: Array) -> np.ndarray:
    """Mark which entries of the first d rows of a Gram matrix, items in order, are sent: each pair once.

    Examples
    --------
    >>> which_pairs(np.array([2, 2, 1])).astype(int)
    array([[1, 1, 1],
           [0, 1, 0]])
    """
    depth = np.asarray(depth)
    row = np.arange(int(depth.max(initial=0)))[:, None]
    return (row < depth[None, :]) & (row <= np.arange(len(depth))[None, :])


def pairs_within(weight: Array, most: float) -> int:
    """Return the largest d for which :func:`likely_pairs` are at most so many numbers; at least 1.

    Examples
    --------
    >>> pairs_within(np.array([1.0, 4.0, 2.0]), 5)
    2
    """

    def size(d: int) -> int:
        depth = likely_pairs(weight, d)[1]
        return int(np.minimum(depth, np.arange(1, len(depth) + 1)).sum())

    low = 1
    high = len(weight) + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if size(middle) <= most else (low, middle)
    return low


def gram_pairs(Z: Array, order: Array, depth: Array) -> np.ndarray:
    """Return the chosen entries of ``ZᵀZ``, row by row.

    Examples
    --------
    >>> gram_pairs(scipy.sparse.csr_array(np.array([[1.0, 2.0]])), np.array([1, 0]), np.array([1, 1]))
    array([4., 2.])
    """
    marked = which_pairs(depth)
    return (Z[:, order[: len(marked)]].T @ Z[:, order]).toarray()[marked]


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
    Zeros in their place would mean that such items exclude each other, and the matrix would no longer be one of inner
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


def chosen_ridge(G: Array, n_rows: float) -> float | None:
    r"""Return the λ of least generalized cross-validation error; None where it is undefined.

    Each item is a ridge regression on the others. Its squared residual and its degrees of freedom follow from
    :math:`P = (X^\top X + \lambda I)^{-1}`, hence from the Gram matrix, whose eigenvalues serve every λ:

    .. math:: \sum_j \frac{(P\, X^\top X\, P)_{jj} / P_{jj}^2}{(1 - \mathrm{df}_j / n)^2}, \quad
              \mathrm{df}_j = m - 1 - \lambda \Big(\mathrm{tr} P - \frac{(P^2)_{jj}}{P_{jj}}\Big)

    References
    ----------
    .. [1] G. H. Golub, M. Heath, G. Wahba, "Generalized cross-validation as a method for choosing a good ridge
       parameter", Technometrics 21 (1979). doi:10.1080/00401706.1979.10489751

    Examples
    --------
    >>> X = np.random.default_rng(0).random((50, 8))
    >>> X[:, 4:] = X[:, :4]  # each item has a twin: little is to be shrunk
    >>> chosen_ridge(X.T @ X, 50) < chosen_ridge(50 * np.eye(8) + X.T @ X / 50, 50)
    True
    """
    A = np.asarray(G, np.float64)
    weight = np.diag(A)
    if len(A) > HEAVIEST:
        heaviest = np.sort(np.argsort(-weight, kind="stable")[:HEAVIEST])
        A = A[np.ix_(heaviest, heaviest)]
    if len(A) < 2 or not n_rows > 1 or not np.trace(A) > 0:
        return None
    values, Q = scipy.linalg.eigh(A, check_finite=False)
    values = np.maximum(values, 0)
    squares = Q * Q
    best = np.inf
    chosen = None
    for ridge in values.mean() * 2.0 ** np.arange(-8, 8.5, 0.5):
        shrunk = 1 / (values + ridge)
        diagonal = squares @ shrunk
        residual = squares @ (shrunk**2 * values) / diagonal**2
        freedom = len(A) - 1 - ridge * (shrunk.sum() - squares @ shrunk**2 / diagonal)
        if (freedom >= n_rows).any():
            continue
        error = float((residual / (1 - freedom / n_rows) ** 2).sum())
        if error < best:
            best = error
            chosen = float(ridge)
    return chosen


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


def pair_weights(
    entries: Array, diagonal: Array, order: Array, depth: Array, ridge: float, *, noisy: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    r"""Return F (m × d) and H (d × m) whose product is B off its diagonal, from some entries of the Gram matrix.

    Parameters
    ----------
    entries : array
        As :func:`gram_pairs` gives them.
    diagonal : array of shape (m,)
        That of the Gram matrix.
    order, depth : arrays of int of shape (m,)
    ridge : float
    noisy : bool
        Whether entries carry noise: pairs among the first items are then shrunk by λ before others are explained by
        them, and λ is doubled as in :func:`item_weights`.

    Notes
    -----
    An incomplete Cholesky factor: :math:`G \approx L L^\top + \mathrm{diag}(D)` has all known entries.
    Two items of which no pair is known have in common what their pairs with the first items explain. The inverse with λ
    follows by the Woodbury identity.

    Examples
    --------
    >>> F, H = pair_weights(np.array([2.0, 1.0]), np.array([2.0, 2.0]), np.array([0, 1]), np.array([1, 1]), 1.0)
    >>> (F @ H)[0, 1].round(3)
    np.float64(0.333)
    """
    marked = which_pairs(depth)
    d, m = marked.shape
    F = np.zeros((m, d))
    H = np.zeros((d, m))
    if not d:
        return F, H
    rows = np.zeros((d, m))
    rows[marked] = entries
    T = rows[:, :d] + np.triu(rows[:, :d], 1).T
    # Items that the same users touched make T singular; a small shift mends that.
    factor, shift = _safe_cholesky(T, float(ridge) if noisy else 1e-8 * max(float(np.diag(T).mean()), 1e-300))
    ridge = max(float(ridge), shift) if noisy else ridge
    rest = scipy.linalg.solve_triangular(factor, rows[:, d:], lower=True, check_finite=False)
    L = np.vstack([factor, np.where(marked[:, d:], rest, 0.0).T])
    D = np.full(m, float(ridge))
    D[d:] += np.maximum(np.asarray(diagonal, np.float64)[order[d:]] - np.square(L[d:]).sum(axis=1), 0.0)
    scaled = L / D[:, None]
    M = scipy.linalg.cho_solve(scipy.linalg.cho_factor(np.eye(d) + L.T @ scaled), scaled.T, check_finite=False).T
    F[order] = M
    H[:, order] = (scaled / (1 / D - np.einsum("id,id->i", scaled, M))[:, None]).T
    return F, H


def common_pairs(R: Array) -> np.ndarray:
    """Return the upper half of how many users touched both of two items.

    Examples
    --------
    >>> common_pairs(scipy.sparse.csr_array(np.array([[5.0, 2.0], [1.0, 0.0]])))
    array([2., 1., 1.])
    """
    ones = scipy.sparse.csr_array((np.ones(R.nnz), R.indices, R.indptr), shape=R.shape)
    return gram_half(ones)
