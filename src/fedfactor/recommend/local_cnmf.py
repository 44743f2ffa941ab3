"""CNMF: ratings of one client, factored whole; and single users against factors that are already there."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np

from fedfactor.core.pytree import Array
from fedfactor.recommend.rating_model import (
    bias_step,
    factor_step,
    item_counts,
    move_item_biases,
    move_items,
    small_steps,
)

__all__ = ["Model", "RatingPenalty", "bilinear", "cnmf", "fold_bilinear", "fold_users", "starting_factors"]


class RatingPenalty(NamedTuple):
    """Regularisation and learning rates of CNMF, named as in the paper; the values are those of Surprise's NMF."""

    alpha: float = 0.06
    beta: float = 0.06
    gamma: float = 0.02
    delta: float = 0.02
    eta_user: float = 0.005
    eta_item: float = 0.005
    by_count: bool = True

    def check(self) -> None:
        """Refuse what would push factors or biases away from zero, or from the ratings."""
        for name in self._fields[:-1]:
            if not 0 <= getattr(self, name) < np.inf:
                raise ValueError(f"{name}={getattr(self, name)} must be a number of at least 0.")


PLAIN = RatingPenalty()


class Model(NamedTuple):
    """User factors, item factors, user biases, item biases, and the squared error before the last step of V."""

    U: Array
    V: Array
    user: Array
    item: Array
    sse: float


def starting_factors(
    n: int, m: int, k: int, rng: np.random.Generator, scale: float = 1.0, dtype: Any = np.float64
) -> tuple[np.ndarray, np.ndarray]:
    """Draw U and V uniformly from 0 to `scale`.

    Examples
    --------
    >>> [A.shape for A in starting_factors(3, 4, 2, np.random.default_rng(0))]
    [(3, 2), (2, 4)]
    """
    return (scale * rng.random((n, k))).astype(dtype), (scale * rng.random((k, m))).astype(dtype)


def cnmf(
    R: Array,
    U: Array,
    V: Array,
    mu: float,
    *,
    penalty: RatingPenalty = PLAIN,
    iterations: int = 100,
    tol: float = 0.0,
    user: Array | None = None,
    item: Array | None = None,
    item_steps: bool = True,
) -> Model:
    r"""Factor ratings with biases, from a start.

    .. math:: \min_{U, V \ge 0} \sum_{ij \text{ rated}} (x_{ij} - \mu - b_i - c_j - U_i V_j)^2
              + \alpha\|U\|^2 + \beta\|V\|^2 + \gamma\|b\|^2 + \delta\|c\|^2

    Parameters
    ----------
    R : CSR matrix of shape (n, m)
        Ratings; what is not stored was not rated.
    U, V : arrays of shapes (n, k) and (k, m)
        Start, positive.
    mu : float
        Mean rating.
    penalty : RatingPenalty
        Regularisation and learning rates.
    iterations : int
        Iterations at most.
    tol : float
        Stop when an iteration lowers the squared error by less than this share of it; 0 runs all.
    user, item : arrays of shapes (n,) and (m,), optional
        Biases to start from; zero by default.
    item_steps : bool
        Whether item biases move; False keeps those given.

    Returns
    -------
    Model

    Notes
    -----
    Where this differs from the printed updates: biases take the normalised step of
    :func:`~fedfactor.recommend.rating_model.bias_rate` (the printed batch sums overshoot for users with many ratings);
    the biases are split by sign so that no denominator can vanish; U moves before V; the regularisation is
    multiplied by the number of ratings, as Surprise does (``by_count=False``: as printed).
    O(k) per rating and iteration.

    References
    ----------
    .. [1] M. E. Eren et al., "One-Shot Federated Group Collaborative Filtering" (FedSPLIT), ICMLA 2022.
       doi:10.1109/ICMLA55696.2022.00107

    Examples
    --------
    >>> import scipy.sparse
    >>> R = scipy.sparse.csr_array(np.array([[5.0, 1.0, 0.0], [4.0, 0.0, 2.0]]))
    >>> U, V = starting_factors(2, 3, 1, np.random.default_rng(0))
    >>> cnmf(R, U, V, 3.0, iterations=50).sse < cnmf(R, U, V, 3.0, iterations=1).sse
    True
    """
    user = np.zeros(len(U), U.dtype) if user is None else user
    item = np.asarray(np.zeros(V.shape[1], U.dtype) if item is None else item)
    counts = item_counts(R)
    sse = np.inf
    rated = counts > 0
    if 0 < 4 * np.count_nonzero(rated) <= 3 * len(rated):  # nothing else moves, and a small group rates few items
        within = cnmf(
            R[:, rated],
            U,
            np.ascontiguousarray(V[:, rated]),
            mu,
            user=user,
            item=item[rated],
            penalty=penalty,
            iterations=iterations,
            tol=tol,
            item_steps=item_steps,
        )
        V = np.array(V)
        item = np.array(item)
        V[:, rated] = within.V
        item[rated] = within.item
        return Model(within.U, V, within.user, item, within.sse)
    if tol == 0 and (quick := small_steps(R, U, V, user, item, mu, counts, penalty, item_steps)) is not None:
        for _ in range(iterations):
            sse = quick.step()
        return Model(*quick.factors(), sse)
    for _ in range(iterations):
        user, errors = bias_step(R, U, V, user, item, mu, eta=penalty.eta_user, decay=penalty.gamma)
        if item_steps:
            item = move_item_biases(item, errors, counts, eta=penalty.eta_item, decay=penalty.delta)
        U, N, D, new = factor_step(R, U, V, user, item, mu, alpha=penalty.alpha, by_count=penalty.by_count)
        V = move_items(V, N, D, counts, beta=penalty.beta, by_count=penalty.by_count)
        sse, before = new, sse
        if tol > 0 and before - sse <= tol * sse:
            break
    return Model(U, V, user, item, sse)


def fold_users(
    R: Array,
    V: Array,
    item: Array,
    mu: float,
    *,
    U: Array | None = None,
    user: Array | None = None,
    penalty: RatingPenalty = PLAIN,
    iterations: int = 50,
) -> tuple[np.ndarray, np.ndarray]:
    """Find U and the user biases for fixed item factors and item biases.

    Parameters
    ----------
    R : CSR matrix of shape (n, m)
    V : array of shape (k, m)
    item : array of shape (m,)
    mu : float
    U, user : arrays, optional
        Start; by default the same small constant for every user, and no bias, so that a user's row depends on that
        user alone.
    penalty : RatingPenalty
    iterations : int

    Returns
    -------
    U : array of shape (n, k)
    user : array of shape (n,)

    Examples
    --------
    >>> import scipy.sparse
    >>> R = scipy.sparse.csr_array(np.array([[5.0, 5.0]]))
    >>> U, user = fold_users(R, np.ones((1, 2)), np.zeros(2), 3.0, iterations=300)
    >>> bool(user[0] + U[0, 0] > 1)
    True
    """
    U = np.full((R.shape[0], V.shape[0]), 0.1, V.dtype) if U is None else U
    user = np.zeros(R.shape[0], V.dtype) if user is None else user
    for _ in range(iterations):
        user, _ = bias_step(R, U, V, user, item, mu, eta=penalty.eta_user, decay=penalty.gamma)
        U = factor_step(R, U, V, user, item, mu, alpha=penalty.alpha, by_count=penalty.by_count, items=False)[0]
    return cast("np.ndarray", U), cast("np.ndarray", user)


def bilinear(U: Array, V: Array, user: Array, item: Array, mu: float) -> tuple[np.ndarray, np.ndarray]:
    """Write the model as one product: ``[U | b | 1] [V; 1; c + μ]``, so that whatever knows U V knows the ratings.

    Examples
    --------
    >>> left, right = bilinear(np.ones((1, 1)), np.ones((1, 2)), np.ones(1), np.array([0.0, 1.0]), 2.0)
    >>> left @ right
    array([[4., 5.]])
    """
    left = np.concatenate([U, np.asarray(user)[:, None], np.ones((len(U), 1))], axis=1)
    right = np.concatenate([V, np.ones((1, V.shape[1])), (np.asarray(item) + mu)[None, :]])
    return left.astype(U.dtype), right.astype(V.dtype)


def fold_bilinear(R: Array, V: Array, penalty: RatingPenalty = PLAIN, iterations: int = 100) -> np.ndarray:
    """Find the left factor of :func:`bilinear` for new users, given its right factor.

    Examples
    --------
    >>> import scipy.sparse
    >>> R = scipy.sparse.csr_array(np.array([[5.0, 5.0]]))
    >>> fold_bilinear(R, np.array([[1.0, 1.0], [1.0, 1.0], [3.0, 3.0]])).shape
    (1, 3)
    """
    items = np.ascontiguousarray(V[:-2])
    level = np.ascontiguousarray(V[-1])
    U, user = fold_users(R, items, level, 0.0, penalty=penalty, iterations=iterations)
    return bilinear(U, items, user, level, 0.0)[0]
