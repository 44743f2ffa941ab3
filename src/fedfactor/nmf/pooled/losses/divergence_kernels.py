r"""Multiplicative steps for any divergence ``Σ d(x, uv)`` whose slope is a difference of two positive weights.

With ``∂d/∂y = below(y) − above(x, y)``, both sides of a factorization are improved by ``F ∗ (N / D)^p``, where N and D
are products of the weights with the other factor, and p is what keeps the divergence from rising. `X` is dense (NumPy,
torch) or SciPy CSR, and `mask` is as in :mod:`fedfactor.linalg.missing_values`. Stored cells alone are touched when
the others are missing; when they are zeros, rows are written out block by block.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple, Protocol

import numpy as np
import scipy.sparse
from array_api_compat import array_namespace

from fedfactor.core.pytree import Array
from fedfactor.linalg.cuda import divergence as gpu
from fedfactor.linalg.missing_values import observed_count, row_blocks
from fedfactor.linalg.products import as_like, cross, stored_rows, sums, total, values
from fedfactor.nmf.pooled.losses.kullback_leibler_kernels import first_rows, row_mass

__all__ = ["Divergence", "divergence_error", "divergence_rows", "divergence_step", "divergence_sums", "floor_of"]


class Divergence(Protocol):
    """What the steps need to know: cell by cell, for ``x ≥ 0`` and ``y > 0``."""

    def beta_order(self) -> float | None:
        """Return the β of a β-divergence; None for any other divergence."""
        ...

    @property
    def pole(self) -> float:
        """The highest power of ``1 / y`` in the weights."""
        ...

    def cells(self, x: Array, y: Array) -> Array:
        """Return ``d(x, y)``."""
        ...

    def weights(self, x: Array, y: Array) -> tuple[Array, Array]:
        """Return ``above`` and ``below``, with ``∂d/∂y = below − above``."""
        ...

    def power(self, squares: bool) -> float:
        """Return p, with or without a penalty on squares."""
        ...

    def fall(self, ratio: Array, N: Array, D: Array) -> Array:
        """Return by how much, for each unit of V, the divergence falls at least when V is multiplied by `ratio`."""
        ...


def floor_of(kind: Divergence, dtype: Any) -> float:
    """Return the least ``y`` that is reckoned with: small enough for any data, large enough for no weight to overflow.

    Examples
    --------
    >>> class Reciprocal:
    ...     pole = 2.0
    >>> floor_of(Reciprocal(), np.dtype("float64")) < 1e-100
    True
    """
    tiny = 2.2e-308 if "64" in str(dtype) else 1.2e-38
    return tiny ** (0.75 / max(1.0, kind.pole))


def divergence_rows(
    kind: Divergence, U: Array, X: Array, V: Array, mask: Any = None, *, sweeps: int, l1: float = 0.0, l2: float = 0.0
) -> Array:
    """Improve each row of `U` by multiplicative steps; a row of zeros begins again, as in counts.

    What a row becomes depends on that row, on its observed cells and on V alone. The divergence, with ``l1 Σ U`` and
    ``l2 ‖U‖² / 2``, never rises. O(n m k) per step for dense rows, O(stored k) where only stored cells are observed.
    """
    power = kind.power(l2 > 0)
    parts: list[Array] = []
    order = _gpu_order(kind, X, mask, U.shape[1])
    if order is not None:
        U = first_rows(U, X, row_mass(X, V, mask), mask)
        floor = floor_of(kind, X.dtype)
        return gpu.improve_rows(X, U, V, mask, order=order, sweeps=sweeps, penalties=(l1, l2), power=power, floor=floor)
    for rows, block in _blocks(kind, X, mask):
        u = first_rows(U[rows], block.X, row_mass(block.X, V, block.mask), block.mask)
        for _ in range(sweeps):
            above, below = block.weights(u, V)
            u = _times(u, cross(above, V), cross(below, V) + l1 + l2 * u, power, empty=0.0)
        parts.append(u)
    return array_namespace(U).concat(parts, axis=0)


def divergence_sums(kind: Divergence, U: Array, X: Array, V: Array, mask: Any = None) -> tuple[Array, Array, float]:
    """Return ``N = Uᵀ above``, ``D = Uᵀ below`` (both k × m, over observed cells), and the divergence."""
    order = _gpu_order(kind, X, mask, U.shape[1])
    if order is not None:
        N, D, loss = gpu.sum_rows(X, U, V, mask, order=order, floor=floor_of(kind, X.dtype))
        return N, D, max(loss, 0.0)
    xp = array_namespace(U)
    N = xp.zeros_like(V)
    D = xp.zeros_like(V)
    loss = 0.0
    for rows, block in _blocks(kind, X, mask):
        above, below = block.weights(U[rows], V)
        N = N + sums(U[rows], above)
        D = D + sums(U[rows], below)
        loss = loss + block.divergence(U[rows], V)
    return N, D, loss


def divergence_step(
    kind: Divergence, V: Array, N: Array, D: Array, *, l1: float = 0.0, l2: float = 0.0
) -> tuple[Array, float]:
    """Take the multiplicative step on V, and return a lower bound of the decrease of the loss, penalties included."""
    xp = array_namespace(V)
    N = xp.maximum(N, xp.zeros_like(N))  # never below zero, but for noise
    new = _times(V, N, D + l1 + l2 * V, kind.power(l2 > 0), empty=1.0)
    ratio = xp.where(V > 0, new / xp.where(V > 0, V, xp.ones_like(V)), xp.ones_like(V))
    # A bound at the millionth of an entry that is gone altogether: a little less, and no power of it is infinite.
    gain = V * kind.fall(xp.clip(ratio, 1e-6, None), N, D) - l1 * (new - V) - 0.5 * l2 * (new * new - V * V)
    return new, float(xp.sum(xp.astype(gain, xp.float64)))


def divergence_error(
    kind: Divergence, X: Array, U: Array, V: Array, mask: Any = None, *, background: float = 0.0
) -> tuple[float, int, float]:
    """Return twice the divergence, the number of cells, and twice the divergence of rows that are flat.

    A flat row has its own mean in every observed cell, which for β-divergences is the nearest of all flat rows. With a
    `background`, that share of what is predicted comes from the flat row.
    """
    xp = array_namespace(U)
    ones = as_like(np.ones((1, X.shape[1])), U)
    empty = xp.zeros_like(U[:, :1])
    parts = [(empty[rows], block) for rows, block in _blocks(kind, X, mask)]
    flat = xp.concat([first_rows(u, b.X, row_mass(b.X, ones, b.mask), b.mask) for u, b in parts], axis=0)
    base = _divergence(kind, flat, X, ones, mask)
    if background:
        U = xp.concat([(1 - background) * U, background * flat], axis=1)
        V = xp.concat([V, ones], axis=0)
    loss = _divergence(kind, U, X, V, mask)
    cells = X.shape[0] * X.shape[1] if mask is None else observed_count(X, mask)
    return 2 * loss, int(cells), 2 * base


def _divergence(kind: Divergence, U: Array, X: Array, V: Array, mask: Any) -> float:
    order = _gpu_order(kind, X, mask, U.shape[1])
    if order is not None:
        return max(gpu.sum_rows(X, U, V, mask, order=order, floor=floor_of(kind, X.dtype))[2], 0.0)
    return sum(block.divergence(U[rows], V) for rows, block in _blocks(kind, X, mask))


def _gpu_order(kind: Divergence, X: Array, mask: Any, k: int) -> float | None:
    """Return the β of a divergence whose steps are taken in one launch on a GPU, else None."""
    return kind.beta_order() if gpu.fits(X, mask, k) else None


def _times(F: Array, N: Array, cost: Array, power: float, *, empty: float) -> Array:
    """Return ``F ∗ (N / cost)^power``; where nothing costs, nothing was seen, and F is multiplied by `empty`."""
    xp = array_namespace(F)
    able = cost > 0
    ratio = xp.where(able, N / xp.where(able, cost, xp.ones_like(cost)), xp.full_like(cost, empty))
    return F * (ratio if power == 1 else xp.sqrt(ratio) if power == 0.5 else ratio**power)


class _Dense(NamedTuple):
    """A block of dense rows."""

    kind: Divergence
    X: Array
    mask: Any

    def _cells(self, U: Array, V: Array) -> tuple[Array, Array]:
        xp = array_namespace(U)
        y = xp.clip(U @ V, floor_of(self.kind, U.dtype), None)
        return self.X if self.mask is None else xp.where(self.mask, self.X, y), y

    def _seen(self, weights: Array) -> Array:
        xp = array_namespace(weights)
        return weights if self.mask is None else xp.where(self.mask, weights, xp.zeros_like(weights))

    def weights(self, U: Array, V: Array) -> tuple[Array, Array]:
        above, below = self.kind.weights(*self._cells(U, V))
        return self._seen(above), self._seen(below)

    def divergence(self, U: Array, V: Array) -> float:
        return max(total(self._seen(self.kind.cells(*self._cells(U, V)))), 0.0)


class _Stored(NamedTuple):
    """Rows of which only stored cells were observed."""

    kind: Divergence
    X: Any
    mask: str

    def _cells(self, U: np.ndarray, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = stored_rows(self.X)
        y = np.zeros(self.X.nnz, U.dtype)
        for t in range(V.shape[0]):
            y += U[:, t][rows] * V[t][self.X.indices]
        return values(self.X), np.maximum(y, floor_of(self.kind, U.dtype))

    def weights(self, U: np.ndarray, V: np.ndarray) -> tuple[Any, Any]:
        above, below = self.kind.weights(*self._cells(U, V))
        return self._rows_of(above), self._rows_of(below)

    def _rows_of(self, cells: np.ndarray) -> Any:
        return scipy.sparse.csr_array((cells, self.X.indices, self.X.indptr), shape=self.X.shape)

    def divergence(self, U: np.ndarray, V: np.ndarray) -> float:
        return max(total(self.kind.cells(*self._cells(U, V))), 0.0)


def _blocks(kind: Divergence, X: Array, mask: Any) -> Iterator[tuple[slice, _Dense | _Stored]]:
    if isinstance(mask, str):
        yield slice(0, X.shape[0]), _Stored(kind, X, mask)
        return
    sparse = scipy.sparse.issparse(X)
    for rows in row_blocks(X):
        yield rows, _Dense(kind, X[rows].toarray() if sparse else X[rows], None if mask is None else mask[rows])
