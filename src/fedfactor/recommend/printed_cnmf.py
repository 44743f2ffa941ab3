"""Collaborative NMF by the updates that the FedSPLIT paper prints, eqs. 7 and 10 to 13, without our changes to them."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from fedfactor.core.pytree import Array
from fedfactor.linalg.products import stored_rows
from fedfactor.recommend.local_cnmf import Model, RatingPenalty
from fedfactor.recommend.rating_model import item_counts, user_counts

__all__ = ["printed_cnmf"]


def printed_cnmf(R: Array, U: Array, V: Array, mu: float, *, penalty: RatingPenalty, iterations: int) -> Model:
    """Update user biases, item biases, U and V in the printed order, each with the newest estimates.

    Parameters
    ----------
    R : CSR matrix of shape (n, m)
        Ratings; what is not stored was not rated.
    U, V : arrays of shapes (n, k) and (k, m)
        Initial factors, positive.
    mu : float
        Mean rating.
    penalty : RatingPenalty
        Regularization and learning rates.
    iterations : int
        Iterations.

    Returns
    -------
    Model
        ``sse`` is the squared error of the result.

    Notes
    -----
    Sums run over rated cells, as in the text below eq. 9. A bias step adds the errors of all ratings at once and
    overshoots for a user (or item) with more than ``2 / η`` ratings; the steps of U and V, which divide by the
    estimate, take most of that back. Negative factors are projected to zero ("we modify
    Surprise with non-negative projections"); 0/0 counts as zero, and so the factors of an item without ratings become
    zero in the first iteration. O(k) per rating and iteration.

    References
    ----------
    .. [1] M. E. Eren et al., "One-Shot Federated Group Collaborative Filtering" (FedSPLIT), ICMLA 2022.
       doi:10.1109/ICMLA55696.2022.00107

    Examples
    --------
    >>> R = sparse.csr_array(np.array([[5.0, 1.0, 0.0]]))
    >>> model = printed_cnmf(R, np.ones((1, 1)), np.ones((1, 3)), 3.0, penalty=RatingPenalty(), iterations=1)
    >>> model.V[0, 2], bool(model.V[0, 0] > model.V[0, 1])
    (np.float64(0.0), True)
    """
    n, m = R.shape
    rows = stored_rows(R)
    columns = R.indices
    by_user = user_counts(R)
    by_item = item_counts(R)
    user, item = np.zeros(n, U.dtype), np.zeros(m, U.dtype)

    def estimate() -> Array:
        return np.einsum("rk,rk->r", U[rows], V.T[columns]) + user[rows] + item[columns] + mu

    def of_ratings(values: Array) -> Array:
        return sparse.csr_array((values, R.indices, R.indptr), shape=R.shape)

    with np.errstate(over="ignore", invalid="ignore"):  # a divergent client reports it itself
        for _ in range(iterations):
            error = R.data - estimate()
            user = user + penalty.eta_user * (_summed(rows, error, n) - penalty.gamma * by_user * user)
            error = R.data - estimate()
            item = item + penalty.eta_item * (_summed(columns, error, m) - penalty.delta * by_item * item)
            weight = (by_user if penalty.by_count else 1) * penalty.alpha
            U = _ratio(U, R @ V.T, of_ratings(estimate()) @ V.T + np.reshape(weight, (-1, 1)) * U)
            weight = (by_item if penalty.by_count else 1) * penalty.beta
            V = _ratio(V.T, R.T @ U, of_ratings(estimate()).T @ U + np.reshape(weight, (-1, 1)) * V.T).T
        sse = float(np.sum((R.data - estimate()) ** 2))
    return Model(np.ascontiguousarray(U), np.ascontiguousarray(V), user, item, sse)


def _summed(places: Array, values: Array, size: int) -> Array:
    return np.bincount(places, weights=values, minlength=size).astype(values.dtype)


def _ratio(W: Array, numerator: Array, denominator: Array) -> Array:
    ratio = np.divide(numerator, denominator, out=np.zeros_like(W), where=denominator != 0)
    return np.maximum(W * ratio, 0).astype(W.dtype)
