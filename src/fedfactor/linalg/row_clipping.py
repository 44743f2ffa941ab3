"""Row-wise bounds: how much one row can add to a shared sum, whatever the row holds.

With V fixed and public, row i contributes the rank-one matrix ``u_iᵀ(u_i V − x_i)`` to the gradient of
``½‖X − U V‖²``. Its Frobenius norm is ``‖u_i‖·‖u_i V − x_i‖``, so clipping row by row takes two products with X and no
matrix per row.

Everything here is double precision on the host: a bound that holds up to single-precision rounding is no bound.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse

from fedfactor.core.pytree import Array
from fedfactor.linalg.nnls import solve_rows
from fedfactor.linalg.products import cross, gram_rows, stored_rows, sums

__all__ = [
    "CURVE_WEIGHT",
    "ROW_CAP",
    "ROW_CLIP",
    "clipped_gradient",
    "curved_round",
    "curves",
    "doubles",
    "noisy_round",
    "row_squares",
    "split_rows",
    "summation_error",
]

ROW_CAP = 2.0 / 3.0
"""Largest norm of a row of U, when rows of X have norm at most 1 and rows of V norm 1."""

ROW_CLIP = 0.2
"""Largest norm of what one row adds to the gradient. Of 0.1, 0.15, 0.2, 1/3 and 0.4 the most useful at ε = 1 and 4."""

ROW_ROUNDING = 2.0**-36
"""How far the part of a row may move when other rows come or go: 2¹⁷ roundings of a number of size 1."""

CURVE_WEIGHT = 0.1
"""What ``UᵀU`` counts beside the gradients: one row moves both together by 2.4 % more than the gradient alone. Better
than 0.3 at ε = 1 on faces of 361 pixels; on mushrooms they did not differ."""

DAMPING = 1.0
"""Added to ``UᵀU`` before it is divided by, in units of the largest eigenvalue that its noise would have by itself."""

FIRST_STEP = 5.0
"""Length of the first step along summed row gradients, in units of components per row."""

_UNSURE = (
    1e-12  # squared norms come with cancellation: this, or more for many columns, covers it, so that none is short
)


def doubles(X: Array) -> Array:
    """Return X in double precision on the host, sparse rows as CSR; NaN and infinity become 0.

    Examples
    --------
    >>> doubles(np.array([[1.0, np.inf]], dtype=np.float32))
    array([[1., 0.]])
    """
    if hasattr(X, "detach"):
        X = (X.to_dense() if X.layout.__str__() != "torch.strided" else X).detach().cpu().numpy()
    if scipy.sparse.issparse(X):
        X = scipy.sparse.csr_array(X, dtype=np.float64)
        if np.isfinite(X.data).all():
            return X
        return scipy.sparse.csr_array((np.nan_to_num(X.data, nan=0, posinf=0, neginf=0), X.indices, X.indptr), X.shape)
    X = np.asarray(X, dtype=np.float64)
    return X if np.isfinite(X).all() else np.nan_to_num(X, nan=0.0, posinf=0.0, neginf=0.0)


def row_squares(X: Array) -> np.ndarray:
    """Return ``‖x_i‖²`` of every row, for dense and CSR rows alike; infinity where a square overflows.

    Examples
    --------
    >>> row_squares(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([25.,  0.])
    """
    with np.errstate(over="ignore", under="ignore"):
        if scipy.sparse.issparse(X):
            rows = stored_rows(X)
            return np.bincount(rows, weights=np.asarray(X.data, np.float64) ** 2, minlength=X.shape[0])
        return np.einsum("ij,ij->i", X, X, dtype=np.float64)


def clipped_gradient(U: Array, X: Array, V: Array, *, bound: float, sweeps: int) -> tuple[np.ndarray, np.ndarray]:
    r"""Fit U to rows of bounded norm, and sum the rows' gradients of V, each of norm at most :data:`ROW_CLIP`.

    Rows are scaled to :math:`\tilde x_i = x_i / \max(R, \|x_i\|)`; :math:`u_i` takes `sweeps` of coordinate descent
    from where it stands and is cut to norm 2/3; the sum is

    .. math:: D = \sum_i \min\bigl(1, C / \|g_i\|\bigr)\, g_i, \qquad g_i = u_i^\top (u_i V - \tilde x_i).

    Parameters
    ----------
    U : array, shape (n, k)
        Where the rows of U stand, non-negative.
    X : array or CSR matrix, shape (n, m), double precision
        The rows, any values.
    V : array, shape (k, m)
        Public, rows of norm 1.
    bound : float
        R, a public bound: longer rows are cut.
    sweeps : int
        Passes over U; fixed, since a stopping rule across rows would mix them.

    Returns
    -------
    U : array, shape (n, k)
        In units of the scaled rows.
    D : array, shape (k, m)

    Notes
    -----
    Given V and the start, row i of U and term i of D depend on row i of X only: adding or removing a row moves D by at
    most :data:`ROW_CLIP` in norm, plus the rounding that :func:`summation_error` bounds.

    Examples
    --------
    >>> U, D = clipped_gradient(np.zeros((1, 1)), np.array([[1e9, 0.0]]), np.array([[0.6, 0.8]]), bound=1.0, sweeps=1)
    >>> round(float(np.linalg.norm(D)), 6)
    0.2
    """
    V = np.asarray(V, np.float64)
    squares = row_squares(X)
    scale = 1.0 / np.maximum(bound, np.sqrt(squares))  # 0 for a row whose norm overflows: it then says nothing
    G = gram_rows(V)
    with np.errstate(over="ignore", invalid="ignore"):
        B = cross(X, V) * scale[:, None]
    usable = np.isfinite(B).all(axis=1) & np.isfinite(squares)
    B = np.where(usable[:, None], B, 0.0)
    U = solve_rows(np.asarray(U, np.float64), G, B, sweeps=sweeps)
    U = U * np.minimum(1.0, ROW_CAP / np.maximum(_norms(U), 1e-300))[:, None]
    with np.errstate(invalid="ignore"):
        inner = np.where(usable, scale**2 * squares, 0.0)
    residual = inner - 2 * np.einsum("ij,ij->i", U, B) + np.einsum("ij,ij->i", U @ G, U)
    norms = _norms(U) * np.sqrt(np.maximum(residual, 0.0) + max(_UNSURE, 16 * 2.0**-53 * sum(V.shape)))
    factor = np.where(usable, np.minimum(1.0, ROW_CLIP / np.maximum(norms, 1e-300)), 0.0)
    weighted = U * factor[:, None]
    return U, (weighted.T @ U) @ V - sums(weighted * np.where(usable, scale, 0.0)[:, None], X)


def _norms(U: np.ndarray) -> np.ndarray:
    return np.sqrt(np.einsum("ij,ij->i", U, U))


def summation_error(n_rows: float, n_components: int, n_features: int) -> float:
    r"""Bound how far rounding can move the norm of D when one of `n_rows` rows comes or goes.

    Each entry of D is a sum of at most ``n + k + 4`` products, whose absolute values add up to at most
    :math:`n (c + c^2 \sqrt k)` with c = :data:`ROW_CAP`; in whatever order it is taken, its error is at most
    :math:`\gamma_{n+k+4}` times that (Higham, Accuracy and Stability, §3.1), at both neighbours. The last bits of a
    row's own part may depend on where in a block of rows a product finds it, and so on the rows before it: every row is
    given :data:`ROW_ROUNDING` for that.

    Examples
    --------
    >>> summation_error(20000, 10, 500) < 1e-4 * ROW_CLIP
    True
    """
    steps = (n_rows + n_components + 4) * 2.0**-53
    terms = n_rows * (ROW_CAP + ROW_CAP**2 * math.sqrt(n_components))
    return 2 * steps / (1 - steps) * terms * math.sqrt(n_components * n_features) + n_rows * ROW_ROUNDING


def noisy_round(sent: Array, mean: Array, D: Array, *, index: int, rows: float) -> tuple[np.ndarray, np.ndarray]:
    """Take a projected gradient step of public length, scale rows to norm 1, and move the running mean of iterates.

    Parameters
    ----------
    sent, mean : array, shape (k, m)
        Where the gradients were taken, and the mean so far.
    D : array, shape (k, m)
        The sum of clipped gradients, noise and all.
    index : int
        Round, from 0: steps shorten as 1/(1 + index/10), and the mean leans on the last quarter of the rounds.
    rows : float
        Public number of rows.

    Returns
    -------
    sent, mean : array, shape (k, m)
        In the precision of the old ones. A row that the noise wipes out stays as it was.

    Examples
    --------
    >>> noisy_round(np.array([[0.6, 0.8]]), np.array([[0.6, 0.8]]), np.array([[0.0, 0.8]]), index=0, rows=5.0)[0]
    array([[1., 0.]])
    """
    V = np.asarray(sent, np.float64)
    step = FIRST_STEP / (1 + index / 10) * V.shape[0] / rows
    new = np.clip(V - step * np.asarray(D), 0.0, None)
    return _moved(new, V, sent, mean, index)


def _moved(new: np.ndarray, V: np.ndarray, sent: Array, mean: Array, index: int) -> tuple[np.ndarray, np.ndarray]:
    """Scale rows to norm 1 (one of zeros stays as it was in V), and move the running mean of the iterates to them."""
    norms = np.sqrt(np.sum(new * new, axis=1, keepdims=True))
    new = np.where(norms > 0, new / np.where(norms > 0, norms, 1.0), V)
    weight = 4 / (index + 4)
    moved = (1 - weight) * np.asarray(mean, np.float64) + weight * new
    return new.astype(sent.dtype), moved.astype(mean.dtype)


def curves(U: Array) -> np.ndarray:
    """Lay out :data:`CURVE_WEIGHT` times ``UᵀU`` as its upper half, so that lengths stay what they are for the whole.

    The part of one row has norm at most ``CURVE_WEIGHT * ROW_CAP**2``.

    Examples
    --------
    >>> (curves(np.array([[0.5, 0.5]])) / CURVE_WEIGHT).round(4)
    array([0.25  , 0.3536, 0.25  ])
    """
    G = CURVE_WEIGHT * (np.asarray(U, np.float64).T @ U)
    rows, columns = np.triu_indices(len(G))
    return np.where(rows == columns, 1.0, math.sqrt(2)) * G[rows, columns]


def curved_round(
    sent: Array, mean: Array, D: Array, half: Array, *, index: int, noise: float, sweeps: int
) -> tuple[np.ndarray, np.ndarray]:
    """Take a damped Newton step from noisy sums, scale rows to norm 1, and move the running mean of iterates.

    The squared error has the same curvature ``UᵀU`` in every column of V: k(k + 1)/2 further numbers of each sum are
    enough to step as far as each direction allows, where one length for all of them is too short for most.

    Parameters
    ----------
    sent, mean : array, shape (k, m)
        Where the gradients were taken, and the mean so far.
    D : array, shape (k, m)
        The sum of clipped gradients, noise and all.
    half : array, shape (k (k + 1) / 2,)
        The sum of :func:`curves`, noise and all.
    index : int
        Round, from 0: the mean leans on the last quarter of the rounds.
    noise : float
        Standard deviation of the noise in each of these numbers, which is public.
    sweeps : int
        Passes over the rows of V.

    Returns
    -------
    sent, mean : array, shape (k, m)
        In the precision of the old ones. A row that the noise wipes out stays as it was.

    Examples
    --------
    >>> V = np.array([[0.6, 0.8]])
    >>> curved_round(V, V, np.array([[0.0, 40.0]]), np.array([1.0]), index=0, noise=0.0, sweeps=1)[0]
    array([[1., 0.]])
    """
    V = np.asarray(sent, np.float64)
    k = len(sent)
    rows, columns = np.triu_indices(k)
    H = np.zeros((k, k))
    H[rows, columns] = np.asarray(half) / CURVE_WEIGHT / np.where(rows == columns, 1.0, math.sqrt(2))
    values, vectors = np.linalg.eigh(np.triu(H) + np.triu(H, 1).T)
    damping = DAMPING * math.sqrt(2 * k) * noise / CURVE_WEIGHT
    H = (vectors * np.maximum(values, 0.0)) @ vectors.T + max(damping, 1e-9 * float(values.max(initial=1.0))) * np.eye(
        k
    )
    new = V.copy()
    for _ in range(sweeps):
        for j in range(k):
            new[j] = np.maximum(new[j] - (np.asarray(D)[j] + H[j] @ (new - V)) / H[j, j], 0.0)
    return _moved(new, V, sent, mean, index)


def split_rows(V: Array) -> np.ndarray:
    """Turn each row into zeros and ones at the cut that leaves the least spread within the two (Otsu).

    Examples
    --------
    >>> split_rows(np.array([[0.1, 0.9, 0.0, 0.8]]))
    array([[0., 1., 0., 1.]])
    """
    ordered = np.sort(V, axis=1)
    m: int = V.shape[1]
    if m < 2:
        return (V > 0).astype(V.dtype)
    low = np.cumsum(ordered, axis=1)[:, :-1]
    n_low = np.arange(1, m)
    high = ordered.sum(axis=1, keepdims=True) - low
    between = low**2 / n_low + high**2 / (m - n_low)
    cut = np.take_along_axis(ordered, between.argmax(axis=1)[:, None], axis=1)
    return (V > cut).astype(V.dtype)
