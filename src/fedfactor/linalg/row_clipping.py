"""Row-wise bounds: how much one row can add to a shared sum, whatever the row holds.

With V fixed and public, row i contributes the rank-one matrix ``u_iᵀ(u_i V − x_i)`` to the gradient of
``½‖X − U V‖²``. Its Frobenius norm is ``‖u_i‖·‖u_i V − x_i‖``, so clipping row by row takes two products with X and no
matrix per row.

Everything here is double precision on the host: a bound that holds up to single-precision rounding is no bound.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import scipy.sparse

from fedfactor.core.pytree import Array
from fedfactor.linalg.missing_values import Penalty, solve_rows_masked
from fedfactor.linalg.nnls import solve_rows
from fedfactor.linalg.products import cross, gram_rows, stored_rows, sums

__all__ = [
    "CURVED_NORM",
    "FIRST_CLIP",
    "LEAST_CLIP",
    "MOST_CLIP",
    "ROW_CLIP",
    "RowSums",
    "clipped_gradient",
    "clipped_sums",
    "curved_error",
    "curved_round",
    "doubles",
    "noisy_round",
    "observed",
    "row_squares",
    "split_rows",
    "summation_error",
    "useful_rounds",
]

ROW_CAP = 2.0 / 3.0
"""Largest norm of a row of U, when rows of X have norm at most 1 and rows of V norm 1."""

ROW_CLIP = 0.2
"""Largest norm of what one row adds to the gradient. Of 0.1, 0.15, 0.2, 1/3 and 0.4 the most useful at ε = 1 and 4."""

ROW_ROUNDING = 2.0**-36
"""How far the part of a row may move when other rows come or go: 2¹⁷ roundings of a number of size 1."""

CURVE_WEIGHT = 0.2
"""Largest norm of a row's part of ``UᵀU``, in units of its part of the gradient. This and the next four numbers were
chosen on faces, mushrooms, digits and Reuters stories, at ε = 1 and 4."""

SHARE_WEIGHT = 0.05
"""Largest part of a row in the share of rows within the clip, in the same units."""

FIRST_CLIP = 0.2
LEAST_CLIP = 0.05
MOST_CLIP = 0.5
WITHIN = 0.6
"""Share of rows within the clip that it is moved towards, by at most a fifth in a round."""

CURVE_DAMPING = 0.1
STEP_DAMPING = 1.0
"""Added to ``UᵀU`` before it is divided by: the first in units of the largest eigenvalue that its noise would have by
itself; the second so that the noise of one step is no longer than a row of V."""

MASKED_CELLS = 1 << 21
"""Cells of the dense blocks in which rows with missing values are taken."""

SUMMED_ROWS = 8192
"""Rows that are summed in one product: sums of blocks are added after that, which bounds rounding."""

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


def observed(X: Array, mask: Array | str | None) -> Array:
    """Return X in double precision on the host with zeros in the place of missing values.

    Examples
    --------
    >>> observed(np.array([[1.0, 7.0]]), np.array([[True, False]]))
    array([[1., 0.]])
    """
    if mask is None or isinstance(mask, str):  # of sparse rows, what is not stored is zero
        return doubles(X)
    return np.where(doubles(mask) > 0, doubles(X), 0.0)


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
    scale = 1.0 / np.maximum(bound, np.sqrt(squares))  # 0 for a row whose norm overflows: it then contributes nothing
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


def summation_error(n_rows: float, n_components: int, n_features: int, *, blocks: bool = False) -> float:
    r"""Bound how far rounding can move the norm of D when one of `n_rows` rows comes or goes.

    Each entry of D is a sum of at most ``n + k + 4`` products, whose absolute values add up to at most
    :math:`n (c + c^2 \sqrt k)` with c = :data:`ROW_CAP`; in whatever order it is taken, its error is at most
    :math:`\gamma_{n+k+4}` times that (Higham, Accuracy and Stability, §3.1), at both neighbours; of sums over blocks of
    rows that are added afterwards, γ of the rows of a block and the number of blocks. The last bits of a row's own part
    may depend on where in a block of rows a product finds it, and so on the rows before it: every row is given
    :data:`ROW_ROUNDING` for that.

    Examples
    --------
    >>> summation_error(20000, 10, 500) < 1e-4 * ROW_CLIP
    True
    """
    fewest = min(SUMMED_ROWS, max(1, MASKED_CELLS // n_features))
    added = min(n_rows, SUMMED_ROWS + n_rows / fewest + 1) if blocks else n_rows
    steps = (added + n_components + 4) * 2.0**-53
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


class RowSums(NamedTuple):
    """Sums over rows, each row's part bounded: gradients in units of the clip, curvature, rows within the clip."""

    D: np.ndarray
    half: np.ndarray
    within: np.ndarray


CURVED_NORM = math.sqrt(1 + CURVE_WEIGHT**2 + SHARE_WEIGHT**2)
"""Largest norm of the three parts of one row together."""


def curved_error(n_rows: float, n_components: int, n_features: int) -> float:
    """Bound how far rounding can move :class:`RowSums` when a row comes or goes, whatever clip the server sent."""
    return 3 / LEAST_CLIP * summation_error(n_rows, n_components, n_features, blocks=True)


def clipped_sums(
    U: Array,
    X: Array,
    V: Array,
    mask: Array | str | None = None,
    *,
    clip: float,
    bound: float,
    sweeps: int,
    penalty: Penalty | None = None,
) -> tuple[np.ndarray, RowSums]:
    r"""Fit U to rows of bounded norm, and sum the rows' clipped gradients, their curvature, and how many are not cut.

    As :func:`clipped_gradient`, but gradients are clipped to norm `clip` and divided by it, so that what one row can
    change does not depend on `clip`, which the server moves (Andrew et al., 2021). Of rows with missing values,
    observed cells alone count, in their norm as in their gradient: ``g_i = u_iᵀ(M_i ∗ (u_i V − x_i))``.

    Parameters
    ----------
    U, X, V, bound, sweeps : as in :func:`clipped_gradient`
    mask : boolean array, "stored" or None
        Observed cells.
    clip : float
        Between :data:`LEAST_CLIP` and :data:`MOST_CLIP`.
    penalty : Penalty, optional
        On rows of U with missing values.

    Returns
    -------
    U : array, shape (n, k)
        In units of the scaled rows.
    sums : RowSums
        One row changes them by at most :data:`CURVED_NORM`, plus :func:`curved_error`. The share of rows within the
        clip is a ramp from half the clip to one and a half of it: a step would let the rounding of one row's norm
        move many counts.

    Examples
    --------
    >>> U, found = clipped_sums(np.zeros((1, 1)), np.array([[1e9, 0.0]]), np.array([[0.6, 0.8]]),
    ...                         clip=0.1, bound=1.0, sweeps=1)
    >>> round(float(np.linalg.norm(found.D)), 6)
    1.0
    """
    V = np.asarray(V, np.float64)
    k, m = V.shape
    G = gram_rows(V)
    total = RowSums(np.zeros((k, m)), np.zeros(k * (k + 1) // 2), np.zeros(()))
    fitted = [np.zeros((0, k))]
    rows = SUMMED_ROWS if mask is None else min(SUMMED_ROWS, max(1, MASKED_CELLS // m))
    for first in range(0, len(U), rows):
        part = slice(first, first + rows)
        observed = mask if mask is None or isinstance(mask, str) else mask[part]
        Z, squares = _scaled(X[part], observed, bound)
        start = np.asarray(U[part], np.float64)
        if mask is None:
            B = cross(Z, V)
            found = _capped(solve_rows(start, G, B, sweeps=sweeps))
            inner = np.einsum("ij,ij->i", found @ G - 2 * B, found) + squares
            inner += max(_UNSURE, 16 * 2.0**-53 * (k + m))  # squared norms come with cancellation
        else:
            cells = _pattern(X[part], observed)
            Z = Z.toarray() if scipy.sparse.issparse(Z) else Z
            found = _capped(solve_rows_masked(start, Z, cells, V, sweeps=sweeps, penalty=penalty))
            Z = np.where(cells, found @ V - Z, 0.0)
            inner = np.einsum("ij,ij->i", Z, Z)
        norms = _norms(found) * np.sqrt(np.maximum(inner, 0.0))
        weighted = found / np.maximum(norms, clip)[:, None]
        D = weighted.T @ Z if mask is not None else (weighted.T @ found) @ V - sums(weighted, Z)
        share = np.clip(1.5 - norms / clip, 0.0, 1.0).sum() * SHARE_WEIGHT
        total = RowSums(total.D + D, total.half + _curves(found), total.within + share)
        fitted.append(found)
    return np.concatenate(fitted), total


def _scaled(X: Array, mask: Array | str | None, bound: float) -> tuple[Array, np.ndarray]:
    """Return rows of norm 1 at most, zeros where nothing was observed or a norm overflows, and their squared norms."""
    X = observed(X, mask)
    squares = row_squares(X)
    scale = 1.0 / np.maximum(bound, np.sqrt(squares))  # 0 for a row whose norm overflows: it then contributes nothing
    if scipy.sparse.issparse(X):
        return scipy.sparse.csr_array(scipy.sparse.diags_array(scale) @ X), _times_squares(scale, squares)
    return X * scale[:, None], _times_squares(scale, squares)


def _times_squares(scale: np.ndarray, squares: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(squares), scale**2 * squares, 0.0)


def _pattern(X: Array, mask: Array | str) -> np.ndarray:
    if not isinstance(mask, str):
        return doubles(mask) > 0
    return scipy.sparse.csr_array((np.ones(X.nnz, bool), X.indices, X.indptr), X.shape).toarray()


def _capped(U: np.ndarray) -> np.ndarray:
    return U * np.minimum(1.0, ROW_CAP / np.maximum(_norms(U), 1e-300))[:, None]


def _curves(U: np.ndarray) -> np.ndarray:
    """Lay out the weighted ``UᵀU`` as its upper half: norms stay those of the whole, one row adds CURVE_WEIGHT at most.

    Examples
    --------
    >>> (_curves(np.array([[0.4, 0.4]])) / CURVE_WEIGHT).round(4)
    array([0.36  , 0.5091, 0.36  ])
    """
    G = CURVE_WEIGHT / ROW_CAP**2 * (U.T @ U)
    rows, columns = np.triu_indices(len(G))
    return np.where(rows == columns, 1.0, math.sqrt(2)) * G[rows, columns]


def curved_round(
    sent: Array, mean: Array, found: RowSums, *, clip: float, index: int, noise: float, rows: float, sweeps: int
) -> tuple[np.ndarray, np.ndarray, float]:
    """Take a damped Newton step from noisy sums, scale rows to norm 1, and move the mean of iterates and the clip.

    The squared error has the same curvature ``UᵀU`` in every column of V (with missing values: at most that), so
    k(k + 1)/2 further numbers are enough to step as far as each direction allows.

    Parameters
    ----------
    sent, mean : array, shape (k, m)
        Where the gradients were taken, and the mean so far.
    found : RowSums
        Noise and all.
    clip : float
        That of the gradients.
    index : int
        Round, from 0: the mean leans on the last quarter of the rounds.
    noise : float
        Standard deviation of the noise in each of these numbers, which is public.
    rows : float
        Public number of rows.
    sweeps : int
        Passes over the rows of V.

    Returns
    -------
    sent, mean : array, shape (k, m)
        In the precision of the old ones. A row that the noise wipes out stays as it was.
    clip : float
        Of the next round, moved towards the :data:`WITHIN` quantile of the gradients' norms.

    Examples
    --------
    >>> V = np.array([[0.6, 0.8]])
    >>> sums = RowSums(np.array([[0.0, 400.0]]), np.array([4.5]), np.array(0.05))
    >>> new, _, clip = curved_round(V, V, sums, clip=0.1, index=0, noise=0.0, rows=1.0, sweeps=1)
    >>> new, round(clip, 3)
    (array([[1., 0.]]), 0.089)
    """
    V = np.asarray(sent, np.float64)
    k, m = V.shape
    D = clip * np.asarray(found.D)
    unit = ROW_CAP**2 / CURVE_WEIGHT
    rows_of, columns_of = np.triu_indices(k)
    H = np.zeros((k, k))
    H[rows_of, columns_of] = np.asarray(found.half) * unit / np.where(rows_of == columns_of, 1.0, math.sqrt(2))
    values, vectors = np.linalg.eigh(np.triu(H) + np.triu(H, 1).T)
    damping = CURVE_DAMPING * math.sqrt(2 * k) * noise * unit + STEP_DAMPING * math.sqrt(m) * noise * clip
    H = (vectors * np.maximum(values, 0.0)) @ vectors.T
    H += max(damping, 1e-9 * float(values.max(initial=1.0))) * np.eye(k)
    new = V.copy()
    for _ in range(sweeps):
        for j in range(k):
            new[j] = np.maximum(new[j] - (D[j] + H[j] @ (new - V)) / H[j, j], 0.0)
    share = min(max(float(found.within) / (SHARE_WEIGHT * rows), 0.0), 1.0)
    moved = min(max(clip * math.exp(0.3 * (WITHIN - share)), LEAST_CLIP), MOST_CLIP)
    return (*_moved(new, V, sent, mean, index), moved)


def useful_rounds(noise: float, rows: float, n_components: int, n_features: int) -> int:
    """Return how many Newton steps to spread a budget over, from public numbers.

    Few where noise is large beside the rows of a component, since each further round makes all of them noisier; many
    where it is small, since then the steps themselves are what limits the error.

    Parameters
    ----------
    noise : float
        Noise multiplier that the budget buys for a single round.
    rows : float
        Public number of rows.
    n_components, n_features : int

    Examples
    --------
    >>> [useful_rounds(z, 20_000, 10, 784) for z in (40.0, 4.9, 1.3, 0.1)]
    [8, 23, 44, 60]
    """
    return round(min(max(6 / math.sqrt(n_components * noise * math.sqrt(n_features) / rows), 8), 60))


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
