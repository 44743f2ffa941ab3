r"""Ratings: non-negative factors with user and item biases, on the observed cells only.

The model is :math:`\hat x_{ij} = \mu + b_i + c_j + U_i V_{\cdot j}`. One iteration is two passes over the users, each
of which leaves sums over users for the items, so that the same functions serve one matrix and many clients. Nothing
here is ever as large as users × items.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import scipy.sparse

from fedfactor.core.pytree import Array
from fedfactor.linalg.compiled.compile import kernel
from fedfactor.linalg.products import csr_parts, over_rows, stored_rows

__all__ = [
    "bias_rate",
    "bias_step",
    "factor_step",
    "item_counts",
    "move_item_biases",
    "move_items",
    "observed",
    "predict_cells",
    "small_steps",
    "user_counts",
]

SMALL = 200_000
"""Below this many multiplications handing work to other threads costs more than it saves."""

FLOOR = 1e-9
"""Least value of a factor: a multiplicative step never leaves an exact zero."""


def observed(X: Array, mask: Array | str | None = None) -> scipy.sparse.csr_array:
    """Return the rated cells as a CSR matrix.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, m)
    mask : bool array, "stored" or None
        The cells marked True, all stored cells, or (None) those that are not zero: in ratings a zero is no rating.

    Examples
    --------
    >>> observed(np.array([[0.0, 4.0]])).nnz
    1
    """
    if scipy.sparse.issparse(X):
        R = X if X.format == "csr" else X.tocsr()
        if mask is None and R.nnz and not R.data.all():
            R = R.copy()
            R.eliminate_zeros()
        return R
    if hasattr(X, "detach"):
        X = X.detach().cpu().numpy()
    seen = (X != 0) if mask is None else np.asarray(mask)
    rows, columns = np.nonzero(seen)
    indptr = np.concatenate(([0], np.cumsum(seen.sum(axis=1)))).astype(np.int32)
    return scipy.sparse.csr_array((X[rows, columns], columns.astype(np.int32), indptr), shape=X.shape)


def user_counts(R: Array) -> np.ndarray:
    """Return the number of ratings of each user, in the element type of `R`."""
    return np.diff(R.indptr).astype(R.dtype)


def item_counts(R: Array) -> np.ndarray:
    """Return the number of ratings of each item, in the element type of `R`."""
    return np.bincount(R.indices, minlength=R.shape[1]).astype(R.dtype)


def bias_rate(counts: Array, eta: float, decay: float) -> np.ndarray:
    r"""Return the step that does what `counts` small gradient steps in a row do.

    :math:`(1 - (1 - \eta(1+\gamma))^n) / (1+\gamma)`: exactly n sequential steps with everything else frozen. A plain
    sum over n ratings diverges as soon as :math:`\eta n > 2`.

    Examples
    --------
    >>> bias_rate(np.array([0.0, 1.0, 1e6]), 0.005, 0.02).round(4)
    array([0.    , 0.005 , 0.9804])
    """
    counts = np.asarray(counts)
    return ((1 - (1 - eta * (1 + decay)) ** counts) / (1 + decay)).astype(counts.dtype)


def bias_step(
    R: Array, U: Array, V: Array, user: Array, item: Array, mu: float, *, eta: float, decay: float
) -> tuple[np.ndarray, np.ndarray]:
    """Move the user biases; return them and, for each item, the sum of what its ratings are then off by.

    Parameters
    ----------
    R : CSR matrix of shape (n, m)
        Ratings; what is not stored was not rated.
    U : array of shape (n, k)
    V : array of shape (k, m)
    user : array of shape (n,)
        User biases.
    item : array of shape (m,)
        Item biases.
    mu : float
        Mean rating.
    eta, decay : float
        Learning rate and regularisation of the user biases.

    Returns
    -------
    user : array of shape (n,)
    errors : array of shape (m,)

    Examples
    --------
    >>> R = scipy.sparse.csr_array(np.array([[4.0, 0.0], [2.0, 3.0]]))
    >>> zero = np.zeros((2, 1))
    >>> bias_step(R, zero, zero.T, np.zeros(2), np.zeros(2), 3.0, eta=0.0, decay=0.0)
    (array([0., 0.]), array([0., 0.]))
    """
    rate = bias_rate(user_counts(R), eta, decay)
    run = kernel("rating_biases", U.dtype, R.indices.dtype)
    if run is None:
        return _bias_step(R, U, V, user, item, mu, rate, decay)
    parts = csr_parts(R, U.dtype)
    k = U.shape[1]
    args = (_padded(U), _padded(V.T), *_vectors(U.dtype, user, item, rate))
    out = np.empty(U.shape[0], U.dtype)
    buffers = np.zeros((_blocks(R, k, 1), R.shape[1]), U.dtype)
    over_rows(
        lambda b, start, stop: run(*parts, *args, mu, decay, start, stop, out, buffers[b]), parts[0], len(buffers)
    )
    return out, _added(buffers)


def factor_step(
    R: Array,
    U: Array,
    V: Array,
    user: Array,
    item: Array,
    mu: float,
    *,
    alpha: float,
    by_count: bool = True,
    items: bool = True,
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None, float]:
    r"""Update U, and return the sums that V depends on.

    With :math:`o = \mu + b_i + c_j` split into its positive and negative parts, both sides of the ratio stay
    non-negative whatever the biases are:

    .. math:: U_{if} \leftarrow U_{if} \frac{\sum_j V_{fj}(x_{ij} + o^-_{ij})}
              {\sum_j V_{fj}((UV)_{ij} + o^+_{ij}) + \alpha n_i U_{if}}

    Parameters
    ----------
    R, U, V, user, item, mu
        As in :func:`bias_step`.
    alpha : float
        Regularisation of U.
    by_count : bool
        Multiply it by the user's number of ratings.
    items : bool
        Whether the item sums are wanted.

    Returns
    -------
    U : array of shape (n, k)
    N, D : arrays of shape (k, m), or None
        Numerator and denominator of V, less its regularisation.
    sse : float
        Squared error of the ratings with the new U and the old V.

    Examples
    --------
    >>> R = scipy.sparse.csr_array(np.array([[2.0]]))
    >>> one = np.ones((1, 1))
    >>> factor_step(R, one, one, np.zeros(1), np.zeros(1), 0.0, alpha=0.0)[0]
    array([[2.]])
    """
    weight = alpha * (user_counts(R) if by_count else np.ones(R.shape[0], R.dtype))
    run = kernel("rating_factors", U.dtype, R.indices.dtype)
    if run is None:
        return _factor_step(R, U, V, user, item, mu, weight, items)
    k, parts, U, Vt = U.shape[1], csr_parts(R, U.dtype), _padded(U), _padded(V.T)
    vectors = _vectors(U.dtype, user, item, weight)
    out = np.empty_like(U)
    width = U.shape[1]
    blocks = _blocks(R, k, 2 * width)
    buffers = np.zeros((blocks, Vt.shape[0] if items else 1, 2 * width), U.dtype)
    errors = np.zeros(blocks)

    def share(b: int, start: int, stop: int) -> None:
        errors[b] = run(*parts, U, Vt, *vectors, mu, FLOOR, start, stop, int(items), out, buffers[b])

    over_rows(share, parts[0], blocks)
    out = np.ascontiguousarray(out[:, :k])
    if not items:
        return out, None, None, float(errors.sum())
    both = _added(buffers).T
    N = np.ascontiguousarray(both[:k])
    D = np.ascontiguousarray(both[width : width + k])
    return out, N, D, float(errors.sum())


def move_item_biases(item: Array, errors: Array, counts: Array, *, eta: float, decay: float) -> np.ndarray:
    """Move the item biases by the summed errors of their ratings; items without ratings stay.

    Examples
    --------
    >>> move_item_biases(np.zeros(2), np.array([8.0, 0.0]), np.array([2.0, 0.0]), eta=1.0, decay=0.0)
    array([4., 0.])
    """
    counts = np.asarray(counts)
    mean = errors / np.maximum(counts, 1)
    return (item + bias_rate(counts, eta, decay) * (mean - decay * item)).astype(item.dtype)


def move_items(V: Array, N: Array, D: Array, counts: Array, *, beta: float, by_count: bool = True) -> np.ndarray:
    """Multiply V by numerator over denominator; items without ratings stay.

    Examples
    --------
    >>> move_items(np.ones((1, 2)), np.array([[2.0, 0]]), np.array([[1.0, 0]]), np.array([1, 0]), beta=0.0)
    array([[2., 1.]])
    """
    counts = np.asarray(counts)
    bottom = D + beta * (np.maximum(counts, 0) if by_count else 1) * V
    ratio = np.divide(N, bottom, out=np.ones_like(V), where=bottom > 0)
    moved: np.ndarray = np.maximum(V * ratio, FLOOR)
    return np.where(counts > 0, moved, np.asarray(V)).astype(V.dtype)


Start = tuple[np.ndarray, np.ndarray, Array, Array, float]
"""U, V, the biases of users and of items, and the mean rating."""


class SmallSteps:
    """One iteration of CNMF after another on few ratings, where arguments made again would take longer than the sums.

    The same kernels in the same order as :func:`bias_step`, :func:`move_item_biases`, :func:`factor_step` and
    :func:`move_items`, so the same bits.
    """

    def __init__(
        self, R: Array, start: Start, counts: Array, penalty: Any, item_steps: bool, runs: Sequence[Callable[..., Any]]
    ) -> None:
        U, V, user, item, self.mu = start
        kind = U.dtype
        self.biases, self.move = runs
        self.k = U.shape[1]
        self.penalty = penalty
        self.parts = csr_parts(R, kind)
        self.rows: int = R.shape[0]
        self.U = _padded(U).copy()
        self.Vt = _padded(V.T).copy()
        self.user = np.array(user, kind)
        self.item = np.array(item, kind)
        by_user = user_counts(R)
        by_item = np.asarray(counts)
        weighted = penalty.by_count
        self.user_rate = bias_rate(by_user, penalty.eta_user, penalty.gamma).astype(kind)
        self.item_rate = bias_rate(by_item, penalty.eta_item, penalty.delta) if item_steps else None
        self.weight = (penalty.alpha * (by_user if weighted else np.ones(self.rows, R.dtype))).astype(kind)
        self.beta = penalty.beta * (np.maximum(by_item, 0) if weighted else np.ones_like(by_item))[:, None]
        self.most: np.ndarray = np.maximum(by_item, 1)
        self.rated = by_item > 0
        self.errors, self.sums = np.zeros(len(self.Vt), kind), np.zeros((len(self.Vt), 2 * self.U.shape[1]), kind)

    def step(self) -> float:
        """Move user biases, item biases, U and V; return the squared error before V moved."""
        pad = self.U.shape[1]
        new_user = np.empty_like(self.user)
        new_U = np.empty_like(self.U)
        self.errors[:] = 0
        self.sums[:] = 0
        vectors = (self.user, self.item, self.user_rate, self.mu, self.penalty.gamma, 0, self.rows)
        self.biases(*self.parts, self.U, self.Vt, *vectors, new_user, self.errors)
        self.user = new_user
        if self.item_rate is not None:
            item = self.item + self.item_rate * (self.errors / self.most - self.penalty.delta * self.item)
            self.item = item.astype(self.item.dtype)
        vectors = (self.user, self.item, self.weight, self.mu, FLOOR, 0, self.rows, 1)
        sse = self.move(*self.parts, self.U, self.Vt, *vectors, new_U, self.sums)
        N = self.sums[:, :pad]
        bottom = self.sums[:, pad:] + self.beta * self.Vt
        ratio = np.divide(N, bottom, out=np.ones_like(self.Vt), where=bottom > 0)
        moved: np.ndarray = np.maximum(self.Vt * ratio, FLOOR)
        moved = np.where(self.rated[:, None], moved, self.Vt).astype(self.Vt.dtype)
        moved[:, self.k :] = 0
        self.U = new_U
        self.Vt = moved
        return float(sse)

    def factors(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return U, V and the biases of users and of items."""
        U, V = (np.ascontiguousarray(A) for A in (self.U[:, : self.k], self.Vt[:, : self.k].T))
        return U, V, self.user, self.item


def small_steps(
    R: Array, U: Array, V: Array, user: Array, item: Array, mu: float, counts: Array, penalty: Any, item_steps: bool
) -> SmallSteps | None:
    """Return the steps of CNMF on these ratings, or None where there are many of them, or no compiled kernels."""
    biases, factors = (kernel(name, U.dtype, R.indices.dtype) for name in ("rating_biases", "rating_factors"))
    if biases is None or factors is None or R.nnz * max(U.shape[1], 1) >= SMALL:
        return None
    return SmallSteps(R, (U, V, user, item, mu), counts, penalty, item_steps, (biases, factors))


def predict_cells(U: Array, V: Array, user: Array, item: Array, mu: float, rows: Array, columns: Array) -> np.ndarray:
    """Return the model's ratings of single cells.

    Examples
    --------
    >>> predict_cells(np.ones((1, 1)), np.ones((1, 2)), np.ones(1), np.zeros(2), 3.0, [0], [1])
    array([5.])
    """
    rows = np.asarray(rows)
    columns = np.asarray(columns)
    return mu + user[rows] + item[columns] + np.einsum("pk,pk->p", U[rows], V.T[columns])


def _padded(A: Array) -> np.ndarray:
    """Return `A` with columns of zeros up to a multiple of eight: a ragged end costs the loops more than the zeros."""
    k = A.shape[1]
    if k % 8 == 0 or k < 4:
        return np.ascontiguousarray(A)
    wide = np.zeros((A.shape[0], -(-k // 8) * 8), A.dtype)
    wide[:, :k] = A
    return wide


def _vectors(real: np.dtype, *arrays: Array) -> tuple[np.ndarray, ...]:
    return tuple(np.ascontiguousarray(array, dtype=real) for array in arrays)


def _blocks(R: Array, k: int, width: int) -> int:
    """Return how many blocks of users own a buffer (m × width): 1, 2, 4 or 8, in all at most half the data's memory.

    A power of two: three equal blocks on two threads take as long as four.
    """
    if R.nnz * max(k, 1) < SMALL:
        return 1
    room = R.nnz * (R.data.itemsize + R.indices.itemsize) // (2 * max(1, R.shape[1] * width) * R.data.itemsize)
    return 1 << min(3, max(1, int(room)).bit_length() - 1)


def _added(buffers: np.ndarray) -> np.ndarray:
    """Add the blocks' buffers in their order, so that threads do not change a bit."""
    for other in buffers[1:]:
        buffers[0] += other
    return buffers[0]


def _cells(R: Array) -> tuple[np.ndarray, np.ndarray]:
    return stored_rows(R), R.indices


def _dots(U: Array, V: Array, rows: Array, columns: Array) -> np.ndarray:
    total = np.zeros(len(rows), U.dtype)
    for u, v in zip(U.T, V, strict=True):
        total += u[rows] * v[columns]
    return total


def _per(index: Array, weights: Array, size: int, like: Array) -> np.ndarray:
    return np.bincount(index, weights=weights, minlength=size).astype(like.dtype)


def _bias_step(
    R: Array, U: np.ndarray, V: np.ndarray, user: Array, item: Array, mu: float, rate: np.ndarray, decay: float
) -> tuple[np.ndarray, np.ndarray]:
    """Do the same without numba."""
    rows, columns = _cells(R)
    off: np.ndarray = R.data - mu - user[rows] - item[columns] - _dots(U, V, rows, columns)
    mean = _per(rows, off, R.shape[0], U) / np.maximum(user_counts(R), 1)
    step = rate * (mean - decay * user)
    return (user + step).astype(U.dtype), _per(columns, off - step[rows], R.shape[1], U)


def _factor_step(
    R: Array, U: np.ndarray, V: np.ndarray, user: Array, item: Array, mu: float, weight: np.ndarray, items: bool
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None, float]:
    """Do the same without numba."""
    rows, columns = _cells(R)
    offset: np.ndarray = mu + user[rows] + item[columns]
    wanted: np.ndarray = R.data + np.maximum(-offset, 0)
    base: np.ndarray = np.maximum(offset, 0)
    fitted = base + _dots(U, V, rows, columns)
    top = np.stack([_per(rows, v[columns] * wanted, len(U), U) for v in V], axis=1)
    bottom = np.stack([_per(rows, v[columns] * fitted, len(U), U) for v in V], axis=1) + weight[:, None] * U
    moved: np.ndarray = np.maximum(U * top / np.where(bottom > 0, bottom, 1), FLOOR)
    new = np.where(bottom > 0, moved, U)
    new = np.where(user_counts(R)[:, None] > 0, new, U).astype(U.dtype)
    fitted = base + _dots(new, V, rows, columns)
    sse = float(np.square(wanted - fitted, dtype=np.float64).sum())
    if not items:
        return new, None, None, sse
    m: int = R.shape[1]
    N = np.stack([_per(columns, u[rows] * wanted, m, U) for u in new.T])
    D = np.stack([_per(columns, u[rows] * fitted, m, U) for u in new.T])
    return new, N, D, sse
