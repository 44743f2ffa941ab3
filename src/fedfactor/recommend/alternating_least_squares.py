r"""Alternating least squares in which the items' side needs sums over users only.

For an item the normal equations are :math:`(\sum_i w_i x_i x_i^\top + \Lambda) y = \sum_i t_i x_i` over the users who
rated it: both sums add up over clients. A Gram matrix is symmetric, so that one half of it stands for it everywhere.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse

from fedfactor.core.pytree import Array

__all__ = ["half_size", "item_sums", "pair_products", "ridge_solve", "solve_users", "whole"]

CELLS = 1 << 22
"""Entries of halves of Gram matrices that exist at one time beside the items' own."""


def half_size(k: int) -> int:
    """Return how many numbers one half of a symmetric k × k matrix has, its diagonal included.

    Examples
    --------
    >>> half_size(3)
    6
    """
    return k * (k + 1) // 2


def pair_products(F: Array) -> np.ndarray:
    """Return one half of ``f fᵀ`` for every row of `F`, row by row of the upper triangle.

    Examples
    --------
    >>> pair_products(np.array([[2.0, 3.0]]))
    array([[4., 6., 9.]])
    """
    one, two = np.triu_indices(F.shape[1])
    return F[:, one] * F[:, two]


def whole(halves: Array, k: int) -> np.ndarray:
    """Return symmetric matrices from their halves.

    Examples
    --------
    >>> whole(np.array([[4.0, 6.0, 9.0]]), 2)
    array([[[4., 6.],
            [6., 9.]]])
    """
    one, two = np.triu_indices(k)
    out = np.empty((len(halves), k, k), halves.dtype)
    out[:, one, two] = halves
    out[:, two, one] = halves
    return out


def ridge_solve(halves: Array, right: Array, ridge: Array) -> np.ndarray:
    """Solve ``(A + diag(ridge)) x = right`` for every row; ``A`` is given by its half.

    Parameters
    ----------
    halves : array of shape (n, k (k + 1) / 2)
    right : array of shape (n, k)
    ridge : array of shape (n, k)
        Positive wherever a matrix may be singular.

    Examples
    --------
    >>> ridge_solve(np.array([[1.0]]), np.array([[4.0]]), np.array([[1.0]]))
    array([[2.]])
    """
    k = right.shape[1]
    out = np.empty(right.shape)
    for some in _slices(len(right), k * k):
        A = whole(np.asarray(halves[some], np.float64), k)
        A[:, np.arange(k), np.arange(k)] += ridge[some]
        out[some] = solve_all(A, np.asarray(right[some], np.float64))
    return out


def solve_all(A: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Solve many small systems; where one is singular, all get their least solution instead of an error.

    A client that ends in an error on some V's reveals to the server, which chose V, that its rows are of the kind that
    makes them so.

    Examples
    --------
    >>> solve_all(np.array([[[2.0, 0.0], [0.0, 0.0]]]), np.array([[4.0, 0.0]]))
    array([[2., 0.]])
    """
    try:
        return np.linalg.solve(A, right[..., None])[..., 0]
    except np.linalg.LinAlgError:
        large = np.finfo(np.float64).max ** 0.25
        A, right = (np.nan_to_num(part, posinf=large, neginf=-large).clip(-large, large) for part in (A, right))
        return (np.linalg.pinv(A, hermitian=True) @ right[..., None])[..., 0]


def solve_users(W: Array, targets: Array, items: Array, ridge: Array, base: Array | None = None) -> np.ndarray:
    r"""Solve every user's least squares on the stored cells, a few users at a time.

    .. math:: (B + \sum_j w_{ij} y_j y_j^\top + \mathrm{diag}(\rho_i))\, x_i = \sum_j t_{ij} y_j

    Parameters
    ----------
    W : CSR matrix of shape (n, m)
        Weights of the stored cells.
    targets : array of shape (nnz,)
        Weights times wishes, in the order of the stored cells.
    items : array of shape (m, k)
    ridge : array of shape (n, k), or (c, n, k) for c answers
    base : array of shape (k, k), optional
        Added to the matrix of every user: the part of the cells that are not stored.

    Returns
    -------
    array of the shape of `ridge`

    Examples
    --------
    >>> W = scipy.sparse.csr_array(np.array([[1.0, 1.0]]))
    >>> solve_users(W, np.array([1.0, 3.0]), np.ones((2, 1)), np.zeros((1, 1)))
    array([[2.]])
    """
    n = W.shape[0]
    k = items.shape[1]
    out = np.empty(ridge.shape)
    items = np.asarray(items, np.float64)
    pairs = pair_products(items)
    offset = 0.0 if base is None else np.asarray(base, np.float64)[np.triu_indices(k)]
    for some in _slices(n, k * k):
        part = _cut(W, W.data, some)
        wished = _cut(W, targets, some)
        halves = np.asarray(part @ pairs) + offset
        right = np.asarray(wished @ items)
        for answer, strength in zip(out.reshape(-1, n, k), ridge.reshape(-1, n, k), strict=True):
            answer[some] = ridge_solve(halves, right, strength[some])
    return out


def item_sums(W: Array, targets: Array, users: Array) -> np.ndarray:
    """Return, for each item, one half of ``Σ w x xᵀ`` and behind it ``Σ t x`` over the users with a stored cell.

    Parameters
    ----------
    W : CSR matrix of shape (n, m)
    targets : array of shape (nnz,)
    users : array of shape (n, k)

    Returns
    -------
    array of shape (m, k (k + 1) / 2 + k)

    Examples
    --------
    >>> W = scipy.sparse.csr_array(np.array([[1.0], [2.0]]))
    >>> item_sums(W, np.array([5.0, 1.0]), np.array([[1.0], [3.0]]))
    array([[19.,  8.]])
    """
    n, k = users.shape
    half = half_size(k)
    out = np.zeros((W.shape[1], half + k))
    for some in _slices(n, half):
        mine = np.asarray(users[some], np.float64)
        out[:, :half] += _cut(W, W.data, some).T @ pair_products(mine)
        out[:, half:] += _cut(W, targets, some).T @ mine
    return out


def _slices(n: int, width: int) -> list[slice]:
    step = max(1, CELLS // max(1, width))
    return [slice(start, min(start + step, n)) for start in range(0, n, step)]


def _cut(W: Array, data: Array, some: slice) -> scipy.sparse.csr_array:
    """Return some rows with other values, without a copy of the cells."""
    begin = W.indptr[some.start]
    end = W.indptr[some.stop]
    indptr = W.indptr[some.start : some.stop + 1] - begin
    values = np.asarray(data[begin:end], np.float64)
    return scipy.sparse.csr_array((values, W.indices[begin:end], indptr), shape=(some.stop - some.start, W.shape[1]))
