r"""Steps for counts: the Kullback-Leibler loss ``D(X ‖ UV) = Σ x log(x / uv) − x + uv`` over observed cells.

`X` is dense (NumPy, torch) or SciPy CSR, whose unstored cells are zero counts; `mask` is as in
:mod:`fedfactor.linalg.missing_values`. For sparse counts only stored cells are touched.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
from array_api_compat import array_namespace

from fedfactor.core.pytree import Array
from fedfactor.linalg.compiled.compile import kernel
from fedfactor.linalg.cuda import divergence as gpu
from fedfactor.linalg.missing_values import row_blocks
from fedfactor.linalg.products import (
    as_like,
    cross,
    csr_parts,
    is_sparse,
    over_rows,
    scatter_blocks,
    stored_rows,
    sums,
    total,
    values,
)

__all__ = [
    "boldly",
    "count_error",
    "count_rows",
    "count_step",
    "count_sums",
    "first_rows",
    "flat_divergence",
    "row_mass",
]


def count_rows(
    U: Array, X: Array, V: Array, mask: Any = None, *, sweeps: int, l1: Any = 0.0, l2: float = 0.0, bold: bool = False
) -> Array:
    r"""Improve each row of `U` by multiplicative steps ``U ∗ (X / UV) Vᵀ / (1 Vᵀ + l1 + l2 U)``.

    `bold`: go further along every step, see :func:`boldly`; with an `l2` steps stay plain. A row of zeros begins again,
    from the same share of every component: what a row becomes depends on that row, on its counts and on V alone.

    Examples
    --------
    >>> import numpy as np
    >>> count_rows(np.zeros((1, 1)), np.array([[1.0, 3.0]]), np.array([[0.5, 0.5]]), sweeps=1)
    array([[4.]])
    """
    mass = row_mass(X, V, mask)
    U = first_rows(U, X, mass, mask)
    if np.ndim(l1):  # one for each component
        mass = mass + as_like(l1, mass)[None, :]
        l1 = 0.0
    if scipy.sparse.issparse(X):
        run = kernel("count_rows", U.dtype, X.indices.dtype)
        if run is not None:
            parts, Vt, out = csr_parts(X, U.dtype), np.ascontiguousarray(as_like(V, U).T), np.empty_like(U)
            blocks = 1 if X.nnz * U.shape[1] * sweeps < 200_000 else 16
            wide = np.ascontiguousarray(mass, dtype=U.dtype)
            far = bold and l2 == 0
            over_rows(lambda _, a, b: run(*parts, U, Vt, wide, a, b, sweeps, far, l1, l2, out), parts[0], blocks)
            return out
    elif gpu.fits(X, mask, U.shape[1]):
        far = bold and l2 == 0
        return gpu.improve_rows(X, U, V, mask, order=1, sweeps=sweeps, penalties=(l1, l2), mass=mass, further=far)
    xp = array_namespace(U)
    for _ in range(sweeps):
        step = xp.concat([_ratio_cross(X[rows], U[rows], V, _part(mask, rows)) for rows in _blocks(X)], axis=0)
        cost = mass + l1 + l2 * U
        ratio = xp.where(cost > 0, step / xp.where(cost > 0, cost, xp.ones_like(cost)), xp.zeros_like(U))
        U = U * (boldly(ratio) if bold and l2 == 0 else ratio)
    return U


def boldly(ratio: Array) -> Array:
    """Return the factor of a step that goes further than `ratio`, the factor of a plain one.

    The bound behind multiplicative steps is separable. Multiplied by ``r^p``, an entry lowers its part of the bound as
    long as ``p r log r ≥ r^p − 1``: for p = 7/4 up to r = 2.72, for p = 3/2 up to r = 21.7. So the loss never rises,
    and it takes about half as many steps. These powers need square roots only.

    Examples
    --------
    >>> boldly(np.array([0.0, 1.0, 2.0, 4.0, 30.0])).round(3).tolist()
    [0.0, 1.0, 3.364, 8.0, 30.0]
    """
    xp = array_namespace(ratio)
    root = xp.sqrt(ratio)
    return ratio * xp.where(ratio <= 2.72, root * xp.sqrt(root), xp.where(ratio <= 21.7, root, xp.ones_like(ratio)))


def count_sums(U: Array, X: Array, V: Array, mask: Any = None) -> tuple[Array, Array, float]:
    r"""Return ``N = Uᵀ(X / UV)`` (k × m), ``D = Uᵀ M`` (k × m, or k × 1 when no cell is missing), and ``D(X ‖ UV)``.

    Examples
    --------
    >>> import numpy as np
    >>> N, D, loss = count_sums(np.array([[4.0]]), np.array([[1.0, 3.0]]), np.array([[0.5, 0.5]]))
    >>> N.tolist(), D.tolist(), round(loss, 6)
    ([[2.0, 6.0]], [[4.0]], 0.523248)
    """
    xp = array_namespace(U)
    if gpu.fits(X, mask, U.shape[1]):
        N, D, loss = gpu.sum_rows(X, U, V, mask, order=1)
        D = xp.sum(U, axis=0)[:, None] if D is None else D
        if is_sparse(X):
            loss += float(xp.sum(D[:, 0] * xp.sum(V, axis=1))) - total(X)
        return N, D, max(loss, 0.0)
    if scipy.sparse.issparse(X):
        N, logs, mass = _stored(U, X, V)
    else:
        N = xp.zeros_like(V)
        logs = 0.0
        mass = 0.0
        for rows in _blocks(X):
            part, more, fitted = _dense(U[rows], X[rows], V, _part(mask, rows))
            N = N + part
            logs = logs + more
            mass = mass + fitted
    D = xp.sum(U, axis=0)[:, None]
    if mask is None:
        mass = float(xp.sum(D[:, 0] * xp.sum(V, axis=1)))
    else:
        D = sums(U, _pattern(X, mask, U))
    seen = total(X) if mask is None or isinstance(mask, str) else total(X[mask])
    return N, D, max(logs - seen + mass, 0.0)


def count_step(
    V: Array, N: Array, D: Array, *, l1: float = 0.0, l2: float = 0.0, bold: bool = False
) -> tuple[Array, float]:
    """Take the multiplicative step ``V ∗ N / (D + l1 + l2 V)``, and return a lower bound of the decrease of the loss.

    `bold` as in :func:`count_rows`.

    Examples
    --------
    >>> import numpy as np
    >>> V, gain = count_step(np.array([[0.5, 0.5]]), np.array([[2.0, 6.0]]), np.array([[4.0]]))
    >>> V.tolist(), round(gain, 6)
    ([[0.25, 0.75]], 0.523248)
    """
    xp = array_namespace(V)
    N = xp.maximum(N, xp.zeros_like(N))  # never below zero, but for noise
    cost = D + l1 + l2 * V
    ratio = xp.where(cost > 0, N / xp.where(cost > 0, cost, xp.ones_like(cost)), xp.ones_like(V))
    new = V * (boldly(ratio) if bold and l2 == 0 else ratio)
    both = (new > 0) & (V > 0)
    one = xp.ones_like(V)
    logs = V * N * xp.log(xp.where(both, new, one) / xp.where(both, V, one))
    gain = logs - (D + l1) * (new - V) - 0.5 * l2 * (new * new - V * V)
    return new, float(xp.sum(xp.astype(gain, xp.float64)))


def count_error(X: Array, U: Array, V: Array, mask: Any = None, *, background: float = 0.0) -> tuple[float, int, float]:
    """Return twice ``D(X ‖ UV)``, the number of cells, and :func:`flat_divergence`.

    Twice, so that its root is what scikit-learn calls the reconstruction error. With a `background`, that share of what
    is predicted comes from a flat row instead: ``(1 − b) UV + b`` times the row's mean over these cells.

    Examples
    --------
    >>> import numpy as np
    >>> count_error(np.array([[1.0, 3.0]]), np.array([[2.0]]), np.ones((1, 2)))[1]
    2
    >>> count_error(np.array([[1.0, 3.0]]), np.ones((1, 1)), np.array([[0.0, 3.0]]), background=0.1)[0] < np.inf
    True
    """
    xp = array_namespace(U)
    flat, ones = _flat_rows(X, mask, U)
    base = 2 * count_sums(flat, X, ones, mask)[2]
    if background:
        U, V = xp.concat([(1 - background) * U, background * flat], axis=1), xp.concat([V, ones], axis=0)
    cells = X.shape[0] * X.shape[1] if mask is None else X.nnz if isinstance(mask, str) else int(mask.sum())
    return 2 * count_sums(U, X, V, mask)[2], int(cells), base


def flat_divergence(X: Array, mask: Any = None) -> float:
    """Return twice the divergence of rows that are flat.

    A flat row has its own mean in every observed cell: the rank-one prediction of a row without knowledge of others.

    Examples
    --------
    >>> import numpy as np
    >>> flat_divergence(np.array([[2.0, 2.0]])), round(flat_divergence(np.array([[1.0, 3.0]])), 6)
    (0.0, 1.046496)
    """
    flat, ones = _flat_rows(X, mask, as_like(np.zeros(0), X))
    return 2 * count_sums(flat, X, ones, mask)[2]


def _flat_rows(X: Array, mask: Any, like: Array) -> tuple[Array, Array]:
    ones = as_like(np.ones((1, X.shape[1])), like)
    return count_rows(as_like(np.zeros((X.shape[0], 1)), like), X, ones, mask, sweeps=1), ones


def first_rows(U: Array, X: Array, mass: Array, mask: Any) -> Array:
    """Give rows of zeros the same share of every component: their counts over what the components sum to."""
    xp = array_namespace(U)
    ones = as_like(np.ones((1, X.shape[1])), U)
    all_mass = xp.sum(mass, axis=1, keepdims=True)
    seen = X if mask is None or isinstance(mask, str) else xp.where(mask, X, xp.zeros_like(X))
    counts = cross(seen, ones)
    # Where a penalty left next to nothing of V, a share would be beyond all numbers, or its square: then there is none.
    able = all_mass > float(xp.finfo(U.dtype).smallest_normal) ** 0.4 * counts
    share = xp.where(able, counts, xp.zeros_like(counts)) / xp.where(able, all_mass, xp.ones_like(all_mass))
    empty = xp.sum(U, axis=1, keepdims=True) == 0
    return xp.where(empty, share + xp.zeros_like(U), U)


def row_mass(X: Array, V: Array, mask: Any) -> Array:
    """Return what each component sums to over a row's observed cells: one row for all, or one for each."""
    if mask is None:
        return array_namespace(V).sum(V, axis=1)[None, :]
    return cross(_pattern(X, mask, V), V)


def _pattern(X: Array, mask: Any, like: Array) -> Array:
    """Return the observed cells as ones."""
    if isinstance(mask, str):
        return scipy.sparse.csr_array((np.ones(X.nnz, X.dtype), X.indices, X.indptr), shape=X.shape)
    return array_namespace(like).astype(mask, like.dtype)


def _blocks(X: Array) -> list[slice]:
    return [slice(0, X.shape[0])] if scipy.sparse.issparse(X) else row_blocks(X)


def _part(mask: Any, rows: slice) -> Any:
    return mask if mask is None or isinstance(mask, str) else mask[rows]


def _ratios(U: Array, X: Array, V: Array, mask: Any) -> tuple[Array, Array]:
    """Return X / UV, zero where either is, and UV; both over observed cells of dense rows."""
    xp = array_namespace(U)
    fitted = U @ V
    able = (fitted > 0) if mask is None else (fitted > 0) & mask
    ratio = xp.where(able, X / xp.where(able, fitted, xp.ones_like(fitted)), xp.zeros_like(fitted))
    return ratio, fitted if mask is None else xp.where(mask, fitted, xp.zeros_like(fitted))


def _ratio_cross(X: Array, U: Array, V: Array, mask: Any) -> Array:
    if scipy.sparse.issparse(X):
        return cross(_sparse_ratios(U, X, V)[0], V)
    return cross(_ratios(U, X, V, mask)[0], V)


def _dense(U: Array, X: Array, V: Array, mask: Any) -> tuple[Array, float, float]:
    xp = array_namespace(U)
    ratio, fitted = _ratios(U, X, V, mask)
    counted = X > 0 if mask is None else (X > 0) & mask
    if bool(xp.any(counted & (ratio == 0))):
        return sums(U, ratio), float("inf"), total(fitted)
    safe = xp.where(counted, ratio, xp.ones_like(ratio))
    logs = xp.where(counted, X * xp.log(safe), xp.zeros_like(ratio))
    return sums(U, ratio), total(logs), total(fitted)


def _stored(U: np.ndarray, X: Array, V: np.ndarray) -> tuple[np.ndarray, float, float]:
    run = kernel("count_sums", U.dtype, X.indices.dtype)
    if run is None:
        ratio, fitted = _sparse_ratios(U, X, V)
        positive = X.data > 0
        if (positive & (ratio.data == 0)).any():
            return sums(U, ratio), float("inf"), float(fitted.sum(dtype=np.float64))
        logs = float((X.data[positive].astype(np.float64) * np.log(ratio.data[positive].astype(np.float64))).sum())
        return sums(U, ratio), logs, float(fitted.sum(dtype=np.float64))
    parts, U, Vt = csr_parts(X, U.dtype), np.ascontiguousarray(U), np.ascontiguousarray(as_like(V, U).T)
    blocks = scatter_blocks(X, U.shape[1])
    buffers, told = np.zeros((blocks, *Vt.shape), U.dtype), np.zeros((blocks, 2))

    def share(block: int, start: int, stop: int) -> None:
        told[block] = run(*parts, U, Vt, start, stop, buffers[block])

    over_rows(share, parts[0], blocks)
    for other in buffers[1:]:
        buffers[0] += other
    return np.ascontiguousarray(buffers[0].T), float(told[:, 0].sum()), float(told[:, 1].sum())


def _sparse_ratios(U: np.ndarray, X: Array, V: np.ndarray) -> tuple[Any, np.ndarray]:
    """Return X / UV on the stored cells, and UV there, without numba."""
    rows = stored_rows(X)
    fitted = np.zeros(X.nnz, U.dtype)
    for t in range(V.shape[0]):
        fitted += U[:, t][rows] * V[t][X.indices]
    ratio = np.divide(values(X), fitted, out=np.zeros_like(fitted), where=fitted > 0)
    return scipy.sparse.csr_array((ratio, X.indices, X.indptr), shape=X.shape), fitted
