"""Sums over rows from which principal components follow: Gram matrices, whole or multiplied with a few directions."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import scipy.linalg
import scipy.sparse

from fedfactor.core.pytree import Array
from fedfactor.linalg.products import cross, sums
from fedfactor.linalg.row_clipping import doubles, row_squares

__all__ = [
    "CONSTANT",
    "ROW_NORM",
    "clipped_moments",
    "column_sums",
    "diagonal",
    "gram_half",
    "half_size",
    "leading_eigenvectors",
    "rounding_of_sums",
    "scatter_product",
    "symmetric",
    "unclipped_moments",
    "with_positive_peaks",
]

BLOCK_ROWS = 8192
"""Rows that are multiplied at a time: in single precision, blocks are added in double precision."""

CONSTANT = 0.5
"""Weight of the sums of columns beside the Gram matrix where noise protects rows, in units of the largest row norm."""

ROW_NORM = math.sqrt(1 + 2 * CONSTANT**2)
"""Largest norm of what one row adds to :func:`clipped_moments`: ``sqrt(|z|⁴ + 2 c² |z|²)`` with ``|z| = 1``."""


@lru_cache(maxsize=4)
def _upper(m: int) -> np.ndarray:
    """Mark the upper half of a square matrix, its diagonal included."""
    marked = np.triu(np.ones((m, m), bool))
    marked.flags.writeable = False
    return marked


def half_size(m: int) -> int:
    """Count the entries of the upper half of an m × m matrix, its diagonal included.

    Examples
    --------
    >>> half_size(3)
    6
    """
    return m * (m + 1) // 2


def _order(half: Array) -> int:
    return (math.isqrt(8 * len(half) + 1) - 1) // 2


def diagonal(half: Array) -> np.ndarray:
    """Return the diagonal of the symmetric matrix whose upper half is given row by row.

    Examples
    --------
    >>> diagonal(np.array([1.0, 2.0, 4.0]))
    array([1., 4.])
    """
    row = np.arange(_order(half))
    m = _order(half)
    return np.asarray(half, np.float64)[row * m - row * (row - 1) // 2]


def symmetric(half: Array) -> np.ndarray:
    """Return the symmetric matrix, in double precision, whose upper half is given row by row.

    Examples
    --------
    >>> symmetric(np.array([1.0, 2.0, 4.0]))
    array([[1., 2.],
           [2., 4.]])
    """
    m = _order(half)
    G = np.zeros((m, m))
    G[_upper(m)] = half
    G += np.triu(G, 1).T
    return G


def gram_half(X: Array) -> np.ndarray:
    """Return the upper half of ``XᵀX``, row by row, of dense or sparse rows, in the precision of X.

    Sparse rows are not made dense; single precision is added up in double precision.

    Examples
    --------
    >>> gram_half(np.array([[1.0, 2.0]]))
    array([1., 2., 4.])
    """
    n, m = X.shape
    if scipy.sparse.issparse(X):
        G = (X.T @ X).toarray()
    elif n <= BLOCK_ROWS:
        G = X.T @ X
    else:
        G = np.zeros((m, m))
        for start in range(0, n, BLOCK_ROWS):
            block = X[start : start + BLOCK_ROWS]
            G += block.T @ block
    return G[_upper(m)].astype(X.dtype, copy=False)


def column_sums(X: Array) -> np.ndarray:
    """Return the sum of each column, in the precision of X.

    Examples
    --------
    >>> column_sums(scipy.sparse.csr_array(np.array([[1.0, 2.0], [0.0, 3.0]])))
    array([1., 5.])
    """
    return np.asarray(X.sum(axis=0, dtype=np.float64)).ravel().astype(X.dtype)


def scatter_product(X: Array, Q: Array) -> np.ndarray:
    """Return ``Q XᵀX`` for a few directions, the rows of Q; neither ``XᵀX`` nor a dense copy of X is made.

    Examples
    --------
    >>> scatter_product(np.array([[1.0, 2.0]]), np.eye(2)[:1])
    array([[1., 2.]])
    """
    return sums(cross(X, Q), X)


def clipped_moments(X: Array, bound: float) -> tuple[np.ndarray, np.ndarray]:
    """Return sums over shortened rows that one row changes by at most :data:`ROW_NORM`.

    Rows become ``z = x / max(bound, |x|)``. The first result is the upper half of ``Σ zᵀz`` with entries off the
    diagonal times √2, so that its norm is that of the whole matrix; the second is ``√2 c Σ z`` with c =
    :data:`CONSTANT`. Both are in double precision: a bound that holds up to rounding of single precision is no bound.

    Examples
    --------
    >>> half, total = clipped_moments(np.array([[30.0, 40.0]]), 5.0)
    >>> round(float(half @ half), 6), round(float(np.sqrt(half @ half + total @ total)), 6) == round(ROW_NORM, 6)
    (1.0, True)
    """
    X = doubles(X)
    squares = row_squares(X)
    with np.errstate(over="ignore"):
        scale = 1.0 / np.maximum(bound, np.sqrt(squares))
    scale = np.where(np.isfinite(squares), scale, 0.0) * (1 - 2.0**-40)  # the last bits are room for rounding
    Z = scipy.sparse.diags_array(scale) @ X if scipy.sparse.issparse(X) else X * scale[:, None]
    half = gram_half(Z) * _isometric(X.shape[1])
    return half, math.sqrt(2) * CONSTANT * column_sums(Z)


def unclipped_moments(half: Array, total: Array, bound: float) -> tuple[np.ndarray, np.ndarray]:
    """Turn sums of :func:`clipped_moments` back into the upper half of ``Σ xᵀx`` and ``Σ x`` of the shortened rows.

    Examples
    --------
    >>> half, total = unclipped_moments(*clipped_moments(np.array([[3.0, 4.0]]), 10.0), 10.0)
    >>> half.round(6), total.round(6)
    (array([ 9., 12., 16.]), array([3., 4.]))
    """
    whole = np.asarray(half, np.float64) / _isometric(len(total)) * bound**2
    return whole, np.asarray(total, np.float64) * (bound / (math.sqrt(2) * CONSTANT))


def _isometric(m: int) -> np.ndarray:
    """Return the weight of each entry of the upper half that makes its norm that of the whole matrix."""
    weight = np.full((m, m), math.sqrt(2))
    np.fill_diagonal(weight, 1.0)
    return weight[_upper(m)]


def rounding_of_sums(n_rows: float) -> float:
    r"""Bound how far rounding can move the norm of :func:`clipped_moments` when one of `n_rows` rows comes or goes.

    Each entry is a sum of at most n products, whose absolute values add up to a matrix of norm at most n
    :data:`ROW_NORM`: in whatever order it is taken, its error has norm at most :math:`\gamma_{n+4}` times that (Higham,
    Accuracy and Stability, §3.1), with and without the row.

    Examples
    --------
    >>> rounding_of_sums(20_000) < 1e-6
    True
    """
    steps = (n_rows + 4) * 2.0**-53
    return 2 * steps / (1 - steps) * n_rows * ROW_NORM


def leading_eigenvectors(C: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the k largest eigenvalues of a symmetric matrix, none below 0, and their eigenvectors as rows.

    Examples
    --------
    >>> leading_eigenvectors(np.diag([1.0, 3.0]), 1)
    (array([3.]), array([[0., 1.]]))
    """
    m = len(C)
    if not k:
        return np.zeros(0), np.zeros((0, m))
    if 4 * k < m:  # of few eigenvectors, those alone
        values, vectors = scipy.linalg.eigh(C, subset_by_index=(m - k, m - 1), check_finite=False)
    else:
        values, vectors = np.linalg.eigh(C)
        values = values[m - k :]
        vectors = vectors[:, m - k :]
    return np.maximum(values[::-1], 0.0), with_positive_peaks(vectors[:, ::-1].T)


def with_positive_peaks(V: np.ndarray) -> np.ndarray:
    """Give each row the sign that makes its entry of largest absolute value positive, as scikit-learn does.

    Examples
    --------
    >>> with_positive_peaks(np.array([[0.6, -0.8]]))
    array([[-0.6,  0.8]])
    """
    if not V.size:
        return V
    peak = V[np.arange(len(V)), np.abs(V).argmax(axis=1)]
    return np.ascontiguousarray(V * np.where(peak < 0, -1.0, 1.0)[:, None])
