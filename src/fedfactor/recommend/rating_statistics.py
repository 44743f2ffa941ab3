"""Statistics of a client's ratings before a factorization, and whether factoring them is worthwhile."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from fedfactor.core.pytree import Array
from fedfactor.linalg.products import stored_rows
from fedfactor.recommend.local_cnmf import RatingPenalty, cnmf, starting_factors
from fedfactor.recommend.rating_model import predict_cells, user_counts

__all__ = ["hold_out", "item_residuals", "own_error", "pooled_item_biases", "user_means"]

DAMPING = 3.0
"""How many ratings at the mean every user and every item is given beside its own."""


def user_means(R: Array, damping: float = DAMPING) -> np.ndarray:
    """Return each user's mean rating, drawn to the mean of all ratings here.

    Examples
    --------
    >>> user_means(scipy.sparse.csr_array(np.array([[5.0], [1.0]])), damping=1.0)
    array([4., 2.])
    """
    mean = R.data.mean() if R.nnz else 0.0
    totals = np.add.reduceat(np.append(R.data, 0), R.indptr[:-1]) if R.shape[0] else np.zeros(0)
    counts = user_counts(R)
    return (np.where(counts > 0, totals, 0) + damping * mean) / (counts + damping)


def item_residuals(R: Array) -> np.ndarray:
    """Return, for each item, the sum of what its ratings exceed their users' means by.

    Examples
    --------
    >>> item_residuals(scipy.sparse.csr_array(np.array([[5.0, 1.0], [0.0, 3.0]])))
    array([ 2., -2.])
    """
    off = R.data - np.repeat(user_means(R), np.diff(R.indptr))
    return np.bincount(R.indices, weights=off, minlength=R.shape[1]).astype(R.dtype)


def pooled_item_biases(residuals: Array, counts: Array, damping: float = DAMPING) -> np.ndarray:
    """Return item biases from summed residuals and numbers of ratings; few ratings have little weight.

    Examples
    --------
    >>> pooled_item_biases(np.array([3.0, 0.0]), np.array([3.0, 0.0]))
    array([0.5, 0. ])
    """
    return (residuals / (counts + damping)).astype(np.asarray(residuals).dtype)


def hold_out(R: Array, share: float, rng: np.random.Generator, *, keep_items: bool = True) -> tuple[Any, Any]:
    """Split ratings into two matrices of one shape at random; every user and item that has ratings keeps at least one.

    Parameters
    ----------
    R : CSR matrix of shape (n, m)
    share : float
        Of the ratings, for the second matrix, as far as the rule allows.
    rng : Generator
    keep_items : bool
        False: items may lose all their ratings, as they may in small groups, where most have one.

    Returns
    -------
    kept, held : csr_array

    Examples
    --------
    >>> kept, held = hold_out(scipy.sparse.csr_array(np.ones((4, 5))), 0.25, np.random.default_rng(0))
    >>> kept.nnz, held.nnz
    (15, 5)
    """
    rows = stored_rows(R)
    out = np.zeros(R.nnz, bool)
    users = user_counts(R).astype(int)
    items = np.bincount(R.indices, minlength=R.shape[1])
    left = round(share * R.nnz)
    for p in rng.permutation(R.nnz):
        if left == 0:
            break
        i = rows[p]
        j = R.indices[p]
        if users[i] > 1 and (items[j] > 1 or not keep_items):
            out[p] = True
            users[i] -= 1
            items[j] -= 1
            left -= 1
    return _part(R, rows, ~out), _part(R, rows, out)


def _part(R: Array, rows: Array, which: Array) -> scipy.sparse.csr_array:
    indptr = np.concatenate(([0], np.cumsum(np.bincount(rows[which], minlength=R.shape[0])))).astype(R.indptr.dtype)
    return scipy.sparse.csr_array((R.data[which], R.indices[which], indptr), shape=R.shape)


def own_error(
    R: Array, mu: float, item: Array, k: int, penalty: RatingPenalty, iterations: int, rng: np.random.Generator
) -> float:
    """Return the root mean square error of a model of four fifths of these ratings on the last fifth.

    Examples
    --------
    >>> R = scipy.sparse.csr_array(np.full((4, 4), 3.0))
    >>> own_error(R, 3.0, np.zeros(4), 1, RatingPenalty(), 50, np.random.default_rng(0)) < 1
    True
    """
    kept, held = hold_out(R, 0.2, rng)
    if not held.nnz:
        return float("inf")
    start = starting_factors(R.shape[0], R.shape[1], k, rng, dtype=R.dtype)
    model = cnmf(kept, *start, mu, item=item, penalty=penalty, iterations=iterations)
    rows = stored_rows(held)
    fitted = predict_cells(model.U, model.V, model.user, model.item, mu, rows, held.indices)
    off: np.ndarray = np.subtract(held.data, fitted)
    return float(np.sqrt(np.mean(np.square(off, dtype=np.float64))))
