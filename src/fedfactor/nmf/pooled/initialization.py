"""Where V begins: two ways to bring PooledNMF near its end in a few rounds.

*Wide*: two rounds with three times the components, of which the server sees the sums as in any other round; it then
folds them into k (:func:`~fedfactor.nmf.pooled.fold_components.fold_components`). *Stacked*: every client factors
its own rows once and the server sees each client's sums, stacks them, and folds those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import scipy.sparse
from array_api_compat import array_namespace

from fedfactor.core.algorithm import Meta, Round, Uplink
from fedfactor.core.pytree import Array, is_numpy, record, telemetry, to_numpy
from fedfactor.core.wire import Leaf, Spec
from fedfactor.linalg.factors import fit_rows, unit_rows
from fedfactor.linalg.nnls import solve_rows
from fedfactor.linalg.products import as_like, cross, row_bounds, zeros
from fedfactor.linalg.single_pass import one_pass, sums_of_rows
from fedfactor.nmf.local_nmf import alternate
from fedfactor.nmf.pooled.fold_components import fold_components
from fedfactor.nmf.pooled.losses.loss import Loss

WIDTH = 3
"""Components of the wide rounds, and of all clients' stacks together, for each that is wanted."""

ALONE_STEPS = 60
"""Alternations of a client on its own rows for a stacked start."""

STACK_SWEEPS = 100
"""Sweeps by which the server finds a client's components from their sums."""

FIRST_STEPS = 20
"""Sweeps on U when it starts from zero."""

BALANCING_STEPS = 50
"""Alternations between the levels of rows and of columns of the wide components."""

LEAST_LEVEL = 1e-6
"""Share of the mean level below which that of no column is taken to be."""

_CELLS = 1 << 24
"""Cells of rows that are turned into others at a time."""

_WORK = 2e9
"""Multiplications that the server may spend on folding, on top of the least that is of use."""


@record("pooled_nmf.Wide")
class Wide:
    """Down, at a wide start: more components than are wanted."""

    V: Array


@record("pooled_nmf.WideSums")
class WideSums:
    """Up, at a wide start: ``UᵀU`` and ``UᵀX`` for more components than are wanted, and ``‖X‖²``."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    G: Array
    A: Array
    total: Array | None = telemetry(default=None)


@record("pooled_nmf.Alone")
class Alone:
    """Down, at a stacked start: where every client begins to factor its own rows."""

    V: Array


@record("pooled_nmf.Components")
class Components:
    """Up, at a stacked start: ``UᵀU`` and ``UᵀX`` of a client's own factorization."""

    uplink: ClassVar[Uplink] = Uplink.GATHER

    G: Array
    A: Array


def width(start: str, k: int, meta: Meta) -> int:
    """Return how many components the first rounds have."""
    if start == "wide":
        return wide_width(k, meta.n_features)
    return min(max(-(-WIDTH * k // meta.n_clients), -(-k // 4)), meta.n_features)


def wide_width(k: int, m: int) -> int:
    """Return how many components wide rounds have."""
    return min(WIDTH * k, m)


def messages(start: str, k: int, meta: Meta) -> dict[type, Spec]:
    """List what a start sends."""
    if start == "random":
        return {}
    size = width(start, k, meta)
    square = Leaf(meta.dtype, (size, size))
    wide = Leaf(meta.dtype, (size, meta.n_features))
    if start == "wide":
        return {Wide: {"V": wide}, WideSums: {"G": square, "A": wide, "total": Leaf("float64", ())}}
    return {Alone: {"V": wide}, Components: {"G": square, "A": wide}}


def first_download(start: str, k: int, meta: Meta, at: Round) -> Wide | Alone:
    """Draw the first components, from a stream that all clients know."""
    V = unit_rows(at.shared_rng(start).exponential(size=(width(start, k, meta), meta.n_features))).astype(meta.dtype)
    return Wide(V) if start == "wide" else Alone(V)


def wide_sums(X: Array, V: Array, total: Array, turned: Callable[[Array, slice], Array] | None = None) -> WideSums:
    """Sum over a wide U, swept from zero in both rounds and not kept: all clients' together would dwarf sparse rows.

    Where rows are to be `turned` into others first, a part of them is at a time: they may lie in a file.
    """
    G: Any = None
    A: Any = None
    for rows in _parts(X) if turned else [slice(0, X.shape[0])]:
        part = X if rows == slice(0, X.shape[0]) else X[rows]
        part = turned(part, rows) if turned else part
        _, g, a = one_pass(part, V, zeros((part.shape[0], V.shape[0]), X), sweeps=FIRST_STEPS)
        G, A = (g, a) if G is None else (G + g, A + a)
    return WideSums(G, A, total)


def filled_sums(X: Array, mask: Any, V: Array, total: Array) -> WideSums:
    """Sum as :func:`wide_sums` does over rows whose missing values are what V predicts from the observed ones.

    Where only stored cells are observed, the others are zero: rows stay sparse.
    """

    def filled(part: Array, rows: slice) -> Array:
        observed = mask[rows]
        U = fit_rows(zeros((part.shape[0], V.shape[0]), part), part, V, observed, sweeps=FIRST_STEPS)
        return array_namespace(part).where(observed, part, U @ V)

    return wide_sums(X, V, total, None if mask is None or isinstance(mask, str) else filled)


def turned_sums(X: Array, mask: Any, V: Array, total: Array, loss: Loss) -> WideSums:
    """Sum as :func:`wide_sums` does over the rows whose squared error is near this loss; `V` is as it was sent.

    Cells are taken to a power. Where the loss looks at ratios, they are divided by the level of their row, which its
    client knows, and of their column, which V contains. A missing cell is the mean of its row here, or zero where only
    stored cells are observed: these rounds choose the initialization, not the result.
    """

    def turned(part: Array, rows: slice) -> Array:
        seen = part if mask is None or isinstance(mask, str) else _filled(part, mask[rows])
        cells = loss.rows_for_start(seen)
        return cells if columns is None else _divided(cells, columns, loss.start_scaling)

    columns = column_levels(V, loss)
    return wide_sums(X, V if columns is None else V / columns, total, turned)


def column_levels(V: Array, loss: Loss) -> Array | None:
    """Return what wide rounds divide columns by, from the wide components that were sent; None: nothing."""
    if loss.start_scaling == 0:
        return None
    xp = array_namespace(V)
    means = xp.ones_like(V[:1])
    for _ in range(BALANCING_STEPS):
        # Rows have norm 1, so that one without the largest columns would outweigh the others in all the rest.
        own = xp.mean(V / means, axis=1, keepdims=True)
        means = xp.mean(V / xp.where(own > 0, own, xp.ones_like(own)), axis=0, keepdims=True)
        means = xp.clip(means, LEAST_LEVEL * float(xp.mean(means)), None)
    return means**loss.start_scaling


def _divided(cells: Array, columns: Array, power: float) -> Array:
    """Divide cells by the levels of their columns, then by those that their rows have there."""
    means = cross(cells, 1 / (columns * columns.shape[1]))
    xp = array_namespace(means)
    rows = xp.where(means > 0, means, xp.ones_like(means)) ** power
    if not scipy.sparse.issparse(cells):
        return cells / columns / rows
    data = cells.data / columns[0][cells.indices] / np.repeat(rows[:, 0], np.diff(cells.indptr))
    return cells.__class__((data, cells.indices, cells.indptr), shape=cells.shape)


def _filled(X: Array, mask: Array) -> Array:
    """Put the mean of a row's observed cells in place of the others."""
    xp = array_namespace(X)
    cells = xp.where(mask, X, xp.zeros_like(X))
    seen = xp.sum(xp.astype(mask, X.dtype), axis=1, keepdims=True)
    mean = xp.sum(cells, axis=1, keepdims=True) / xp.clip(seen, 1, None)
    return xp.where(mask, cells, mean)


def _parts(X: Array) -> Iterator[slice]:
    """Cut rows in main memory into parts of bounded size, by their shape or their stored cells alone."""
    if scipy.sparse.issparse(X):
        bounds = row_bounds(X.indptr, max(1, min(X.shape[0], -(-X.nnz // _CELLS))))
    elif is_numpy(X):
        n: int = X.shape[0]
        bounds = np.append(np.arange(0, n, max(1, _CELLS // max(1, int(X.shape[1])))), n)
    else:
        bounds = np.array([0, X.shape[0]])
    if len(bounds) <= 2:
        yield slice(0, X.shape[0])
        return
    yield from (slice(a, b) for a, b in pairwise(bounds.tolist()) if b > a)


def own_components(X: Array, V: Array) -> Components:
    """Factor a client's rows alone, by coordinate descent."""
    U = fit_rows(zeros((X.shape[0], V.shape[0]), X), X, V, sweeps=FIRST_STEPS)
    U, _, _ = alternate(X, U, V, steps=ALONE_STEPS, solver="hals")
    return Components(*sums_of_rows(U, X))


def wide_step(V: Array, up: WideSums, sweeps: int) -> Array:
    """Take the step on wide components that their sums allow, on the scale of these sums."""
    return solve_rows(V.T, up.G, up.A.T, sweeps=sweeps).T


def fold(up: WideSums, V: Array, k: int, seed: Array) -> np.ndarray:
    """Fold wide components into k."""
    return _fold(to_numpy(up.G), to_numpy(up.A), to_numpy(V), k, seed)


def fold_stack(ups: Mapping[str, Components], k: int, seed: Array) -> np.ndarray:
    """Fold the components of all clients into k: each client's U touches its own rows only, so G has a block for
    each.
    """
    parts = [(as_like(one.G, np.empty(0)), as_like(one.A, np.empty(0))) for one in ups.values()]
    G = np.zeros((sum(len(g) for g, _ in parts),) * 2)
    A = np.concatenate([a for _, a in parts])
    wide = np.concatenate([solve_rows(np.zeros(a.T.shape), g, a.T, sweeps=STACK_SWEEPS).T for g, a in parts])
    place = 0
    for g, _ in parts:
        G[place : place + len(g), place : place + len(g)] = g
        place += len(g)
    return _fold(G, A, wide, k, seed)


def _fold(G: np.ndarray, A: np.ndarray, wide: np.ndarray, k: int, seed: Array) -> np.ndarray:
    starts, steps = effort(A.shape[0], A.shape[1], k)
    return fold_components(G, A, wide, k, np.random.default_rng(int(seed)), starts=starts, steps=steps)


def effort(wide: int, m: int, k: int) -> tuple[int, tuple[int, int, int]]:
    """Share out the server's work between starts and steps, by the sizes alone.

    Examples
    --------
    >>> effort(60, 64, 20), effort(60, 20_000, 20)
    ((8, (20, 30, 50)), (1, (5, 7, 12)))
    """
    steps = min(450.0, max(25.0, _WORK / (m * k * (4 * wide + 6 * k))))
    starts = 8 if steps >= 225 else 4 if steps >= 125 else 2 if steps >= 50 else 1
    unit = steps / (5 * starts + 5)
    return starts, (int(2 * unit), int(3 * unit), int(5 * unit))
