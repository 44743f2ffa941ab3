"""U for a given V, and the sums that the next V depends on, from one pass over the rows.

A block of rows is multiplied with V, its rows of U are swept, and their sums are taken while the block is in cache;
then the next one. Blocks are cut by the shape alone and their sums are added in a fixed order, in double precision, so
the bits of the result do not depend on the number of threads; a free thread takes the next block.
"""

from __future__ import annotations

import functools
import math
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
import scipy.sparse
from array_api_compat import array_namespace

from fedfactor.core.memory_mapped import in_turn, read_ahead
from fedfactor.core.pytree import Array, is_numpy
from fedfactor.core.threads import for_blocks, in_order
from fedfactor.linalg.compiled.compile import aligned, kernel, scratch
from fedfactor.linalg.cuda import launch as cuda
from fedfactor.linalg.memoize import once
from fedfactor.linalg.nnls import inverse_diagonal, solve_rows, with_l2
from fedfactor.linalg.products import as_like, cross, csr_parts, gram, gram_rows, row_bounds, streamed, zeros
from fedfactor.linalg.products import sums as products

__all__ = ["Pass", "go_together", "one_pass", "passes", "sums_of_rows"]
T = TypeVar("T")

_CHUNKS = 32
"""Most parts that are summed apart: enough for as many threads, and to let a free thread take what a slow one left."""

_CACHE = 1 << 19
"""Bytes of rows that are worked on together."""

_MANY = 1 << 25
"""Stored cells of which no second copy, by columns, is kept beside the rows."""

_FEW = 32
"""Stored cells to a column, on average, below which a small client's columns are not visited one by one."""

_LIGHT = 16_000_000
"""Multiplications with stored cells of such a client, at most: one thread does them."""

_SMALL = 200_000
"""Multiplications below which handing work to another thread costs more than it brings."""

_KEPT = 1 << 22
"""Numbers of sums that a thread keeps the memory of."""

_COUNTED = 1 << 22
"""Stored cells that are counted in one go."""

_STEP = 1 << 14
"""Numbers by which that memory grows: clients with a few rows more or less share it."""


class Pass(NamedTuple):
    """What a pass leaves: U, ``UᵀU`` and ``UᵀX`` (None where sums were not asked for)."""

    U: Array
    G: Array | None
    A: Array | None


def one_pass(
    X: Array,
    V: Array,
    U: Array,
    *,
    sweeps: int,
    tol: float = 0.0,
    l1: float = 0.0,
    l2: Any = 0.0,
    sums: bool = True,
) -> Pass:
    r"""Sweep over U for a fixed V, and sum over its rows, reading X once.

    .. math:: \min_{U \ge 0} \tfrac12 \|X - UV\|^2 + l_1 \sum U + \tfrac{l_2}{2} \|U\|^2, \qquad
        G = U^\top U,\; A = U^\top X

    Parameters
    ----------
    X : array or sparse matrix, shape (n, m)
    V : array, shape (k, m)
    U : array, shape (n, k)
        Where the sweeps begin.
    sweeps, tol, l1, l2
        As in :func:`~fedfactor.linalg.nnls.solve_rows`.
    sums : bool
        Whether to sum.

    Returns
    -------
    Pass
        U, G, A.

    Notes
    -----
    Row i of U depends on row i of `X` and `U` and on `V` only. Sums of single-precision rows are taken in double
    precision and rounded once. Time: 4 n m k operations (4 k for a stored cell of sparse rows) and 2 k² for each row
    and sweep; beside the results, some copies of A. Sparse rows are kept a second time, by columns, for as long as `X`
    lives (which must not be written to meanwhile), up to 33 million stored cells.

    Examples
    --------
    >>> X = np.array([[2.0, 2.0], [0.0, 4.0]])
    >>> one_pass(X, np.ones((1, 2)), np.zeros((2, 1)), sweeps=1)
    Pass(U=array([[2.],
           [2.]]), G=array([[8.]]), A=array([[ 4., 12.]]))
    """
    prepared = _prepared(X, V, U, sweeps, tol, l1, l2, sums)
    if prepared is not None:
        return prepared.done()
    if cuda.alike([X], V.shape[0]):
        return next(iter(passes([X], V, [U], sweeps=sweeps, tol=tol, l1=l1, l2=l2, sums=sums)))
    if cuda.ready(X, V.shape[0]):
        Ut = cuda.sweep(U.T, with_l2(gram_rows(V), l2), cuda.cross(X, V), sweeps=sweeps, tol=tol, l1=l1)
        return Pass(Ut.T, *(_card_sums(Ut, X) if sums else (None, None)))
    if streamed(X):
        parts = (
            one_pass(block, V, U[a:b], sweeps=sweeps, tol=tol, l1=l1, l2=l2, sums=sums) for a, b, block in X.blocks()
        )
        return _stacked(parts, U)
    U = solve_rows(U, gram_rows(V), cross(X, V), sweeps=sweeps, tol=tol, l1=l1, l2=l2)
    return Pass(U, *(sums_of_rows(U, X) if sums else (None, None)))


def passes(
    Xs: Sequence[Array],
    V: Array,
    Us: Sequence[Array],
    *,
    sweeps: int,
    tol: float = 0.0,
    l1: float = 0.0,
    l2: Any = 0.0,
    sums: bool = True,
) -> Iterable[Pass]:
    """Do the same for several clients at once; see :func:`go_together`. X and U are one for each client.

    On a GPU one launch serves all of them. In main memory threads take one client after the other, for which everything
    has been prepared: the less of the interpreter they need, the less do they wait for each other. What is done with
    one client's sums goes on while those of others are computed.
    """
    if not cuda.alike(Xs, V.shape[0]):
        works = [_prepared(X, V, U, sweeps, tol, l1, l2, sums) for X, U in zip(Xs, Us, strict=True)]
        assert all(works)
        return in_order(lambda i: cast("_Work", works[i]).done(), len(works))
    Ut = cuda.sweep(_side_by_side(Us), with_l2(gram_rows(V), l2), cuda.cross(Xs, V), sweeps=sweeps, tol=tol, l1=l1)
    begins, _ = cuda.starts([X.shape[0] for X in Xs])
    rows = [Ut[:, begin : begin + X.shape[0]].T for X, begin in zip(Xs, begins, strict=True)]
    if not sums:
        return [Pass(U, None, None) for U in rows]
    G, A = cuda.sums_each(Ut, rows).to(Ut.dtype), cuda.sums_each(Ut, Xs).to(Ut.dtype)
    return [Pass(U, G[i], A[i]) for i, U in enumerate(rows)]


def go_together(Xs: Sequence[Array], k: int) -> bool:
    """Return whether :func:`passes` takes these rows: alike on one GPU, or in main memory, where the loops are
    compiled.

    Examples
    --------
    >>> go_together([np.ones((2, 2)), np.ones((3, 2))], 1), go_together([np.ones((2, 2), int)], 1)
    (True, False)
    """
    if cuda.alike(Xs, k):
        return True
    plain = all(is_numpy(X) or (scipy.sparse.issparse(X) and X.format == "csr") for X in Xs)
    return plain and len({X.dtype for X in Xs}) == 1 and kernel("dense_rows", Xs[0].dtype) is not None


class _Work(NamedTuple):
    """A pass that has been prepared: memory for its sums, what is done for each part, and what is made of the sums."""

    parts: int
    memory: Callable[[], np.ndarray]
    part: Callable[[int, np.ndarray], None]
    finish: Callable[[np.ndarray], Pass]
    reads: Callable[[int], list[np.ndarray]]

    def done(self) -> Pass:
        """Do it, on several threads when allowed."""
        memory = self.memory()
        with read_ahead(self.parts, self.reads) as arrive:

            def part(place: int, _: int) -> None:
                arrive(place)
                self.part(place, memory)

            for_blocks(part, self.parts, 1)
        return self.finish(memory)


def _prepared(
    X: Array, V: Array, U: Array, sweeps: int, tol: float, l1: float, l2: Any, sums: bool, *, fit: bool = True
) -> _Work | None:
    """Prepare a pass over rows in main memory; None where there is no compiled loop for them."""
    if is_numpy(X):
        run = kernel("dense_rows", X.dtype)
        prepare: Callable[..., _Work] = _dense
    elif scipy.sparse.issparse(X) and X.format == "csr":
        run = kernel("sparse_rows", X.dtype, X.indices.dtype)
        prepare = _sparse
    else:
        return None
    if run is None or not X.dtype == V.dtype == U.dtype:
        return None
    return prepare(run, X, V, U, sweeps, tol, l1, l2, fit=fit, sums=sums)


def _side_by_side(Us: Sequence[Array]) -> Array:
    """Return several U as one matrix (k × n): as they are where they were cut from one, else in a copy."""
    first, whole = Us[0], getattr(Us[0], "_base", None)
    begins, n = cuda.starts([U.shape[0] for U in Us])
    if whole is not None and whole.shape == (first.shape[1], n) and whole.is_contiguous():
        place, size = whole.data_ptr(), first.element_size()
        if all(U.data_ptr() == place + begin * size for U, begin in zip(Us, begins, strict=True)) and all(
            U.stride() == (1, n) for U in Us
        ):
            return whole
    out = zeros((first.shape[1], n), first)
    for U, begin in zip(Us, begins, strict=True):
        out[:, begin : begin + U.shape[0]] = U.T
    return out


def sums_of_rows(U: Array, X: Array) -> tuple[Array, Array]:
    """Return ``UᵀU`` and ``UᵀX`` as :func:`one_pass` sums them: NumPy's rows, and a GPU's, in double precision.

    Examples
    --------
    >>> sums_of_rows(np.array([[1.0], [2.0]]), np.eye(2))
    (array([[5.]]), array([[1., 2.]]))
    """
    if streamed(X):
        done = _stacked((Pass(U[a:b], *sums_of_rows(U[a:b], block)) for a, b, block in X.blocks()), U)
        return done.G, done.A
    dense = is_numpy(X)
    if dense or (scipy.sparse.issparse(X) and X.format == "csr"):
        V = np.zeros((U.shape[1], X.shape[1] if dense else 0), X.dtype)
        prepared = _prepared(X, V, U, 0, 0.0, 0.0, 0.0, True, fit=False)
        if prepared is not None:
            done = prepared.done()
            assert done.G is not None
            return done.G, done.A
    if cuda.ready(X, U.shape[1]):
        return _card_sums(U.T.contiguous(), X)
    return gram(U), products(U, X)


def _stacked(parts: Iterable[Pass], like: Array) -> Pass:
    """Put passes over blocks of rows together, their sums in double precision."""
    U: list[Array] = []
    G = None
    A = None
    for part in parts:
        U.append(part.U)
        if part.G is not None and part.A is not None:
            G, A = (part.G.double(), part.A.double()) if G is None else (G + part.G, A + part.A)
    rows = array_namespace(like).concat(U)
    return Pass(rows, None, None) if G is None else Pass(rows, as_like(G, like), as_like(A, like))


def _card_sums(Ut: Array, X: Array) -> tuple[Array, Array]:
    return cuda.sums(Ut, Ut.T).to(Ut.dtype), cuda.sums(Ut, X).to(Ut.dtype)


def _dense(
    run: Any,
    X: np.ndarray,
    V: np.ndarray,
    U: np.ndarray,
    sweeps: int,
    tol: float,
    l1: float,
    l2: Any,
    *,
    fit: bool,
    sums: bool,
) -> _Work:
    from fedfactor.linalg.compiled import vector_code as vectors

    n, m = X.shape
    k = U.shape[1]
    real = X.dtype
    across, lanes, padded = register_sizes(vectors, real, k)
    # The loops step from row to row by whole numbers: the rows of a packed record need not allow that.
    ready = X.flags.aligned and (X.strides[1] == real.itemsize or m <= 1)
    # Registers are read fastest from addresses that are a multiple of their size: where all rows begin alike, the
    # cells before the first such address are set apart.
    level = X.strides[0] % (across * real.itemsize) == 0 and ready
    head = min(m, -X.__array_interface__["data"][0] % (across * real.itemsize) // real.itemsize) if level else 0
    whole = (m - head) // across
    packed = once(packed_tiles, V, head, whole, across, padded, vectors.TILE)
    G, inverse = _curvature(V, l2) if fit else (np.zeros((k, k), real), np.zeros((1, k), real))
    U = np.ascontiguousarray(U)
    out = np.empty((n if fit else 0, k), real)
    # A group of rows is read for products, and again for sums: it shall stay in cache.
    few = max(5 * vectors.rows_of_tile(), min(lanes, _CACHE // max(1, m * real.itemsize)))
    group = few // vectors.rows_of_tile() * vectors.rows_of_tile()
    bounds = chunks(n, group, X.size * k, X.nbytes, padded * (whole + 2) * across * 8 if sums else 0)
    H = np.zeros((len(bounds) - 1, padded, padded))
    sizes = (len(bounds) - 1, padded, (whole + 2) * across) if sums else (len(bounds) - 1, 1, 1)
    order = in_turn(len(bounds) - 1, [X])

    def in_rows(a: int, b: int) -> np.ndarray:
        """Copy some rows, cell by cell; those of a frame, which lie by columns, tile by tile."""
        rows = scratch("rows", (group, m), real)[: b - a]
        if X.flags.f_contiguous and X.flags.aligned:
            turned(X.T, a, rows)
        else:
            rows[...] = X[a:b]
        return rows

    def part(place: int, A: np.ndarray) -> None:
        chunk = order[place]
        start = bounds[chunk]
        stop = bounds[chunk + 1]
        W, B = scratch("W", (padded, lanes), real), scratch("B", (padded, lanes), real)
        ends, kept = scratch("ends", (lanes, 2 * across), real), scratch("kept", (padded * lanes * across,), real)
        ends.fill(0)
        some = scratch("part", sizes[1:], real)  # zero before and after
        for a, b in _pieces(X, start, stop, group, ready):
            rows = X[a:b] if ready else in_rows(a, b)
            run(
                rows,
                packed,
                G,
                inverse,
                U[a:b],
                out[a:b],
                0,
                b - a,
                head,
                sweeps,
                l1,
                tol,
                fit,
                sums,
                a > start,
                A[chunk],
                H[chunk],
                some,
                W,
                B,
                ends,
                kept,
                group,
            )

    def finish(A: np.ndarray) -> Pass:
        if not sums:
            return Pass(out, None, None)
        total = np.empty((k, m), real)
        block = max(1, (1 << 16) // max(1, m * len(A)))
        for_blocks(lambda a, b: add(A.reshape(-1, sizes[2]), len(A), across - head, total, a, b), k, block)
        return Pass(out, added(H)[:k, :k].astype(real), total)

    def reads(place: int) -> list[np.ndarray]:
        return [X[bounds[order[place]] : bounds[order[place] + 1]]]

    add: Any = kernel("add_copies", real)
    turned: Any = kernel("turned_columns", real)
    return _Work(
        len(order),
        lambda: _memory("A", sizes, np.dtype(np.float64)) if n else np.zeros(sizes),  # no row, and nothing is written
        part,
        finish,
        reads,
    )


def _sparse(
    run: Any,
    X: Any,
    V: np.ndarray,
    U: np.ndarray,
    sweeps: int,
    tol: float,
    l1: float,
    l2: Any,
    *,
    fit: bool,
    sums: bool,
) -> _Work:
    from fedfactor.linalg.compiled import single_pass_loops as loops
    from fedfactor.linalg.compiled import vector_code as vectors

    n, m = X.shape
    k = U.shape[1]
    real = X.dtype
    across, lanes, _ = register_sizes(vectors, real, k)
    wide = sum(widths(k, across))
    indptr, indices, data = csr_parts(X, real)
    G, inverse = _curvature(V, l2) if fit else (np.zeros((k, k), real), np.zeros((1, k), real))
    D, E = panels(once(_side_by_side_cells, V, across) if fit else np.zeros(0, real), k, across)
    U = np.ascontiguousarray(U)
    out = np.empty((n if fit else 0, k), real)
    # Rows so many that they may lie in a file are read once, and summed apart, with a copy of A for each part. So are
    # those of a small client: there may be many, whose copies by columns would be all the rows a second time. With few
    # cells to a column it takes one part, whose single precision does unless one of them has very many.
    small = sums and X.nnz * k < _LIGHT
    by_rows = small or (sums and X.nnz > _MANY)
    often = by_rows and real.itemsize == 4 and n > loops.LONG and _most_in_a_column(X) > loops.LONG
    light = small and X.nnz < _FEW * m and not often
    apart = min(_CHUNKS, X.nnz // (loops.OFTEN * max(1, m)))
    parts = 1 if light else max(1, apart if by_rows else min(_CHUNKS, X.nnz * k // (5 * _SMALL)))
    bounds = row_bounds(indptr, int(min(parts, max(1, n))))
    count = len(bounds) - 1
    H = np.zeros((count, wide, wide))
    how = (1 if by_rows else 2) if sums else 0
    order = in_turn(count, [data, indices])
    none, no_copy = np.zeros((1, 0), real), np.zeros((0, 0))

    def memory() -> np.ndarray:
        """Sums of all rows, or of each part; or a copy of U."""
        if light:
            some = _memory("some", (1, m * wide), real)
            some[:] = 0
            return some
        if by_rows:
            return np.zeros((count, 1, m * wide))
        kept = n * wide if sums else 0
        return _memory("U", (1, -(-kept // _STEP) * _STEP), real)[:, :kept]

    def part(place: int, held: np.ndarray) -> None:
        chunk = order[place]
        W, B = scratch("W", (wide, lanes), real), scratch("B", (wide, lanes), real)
        own = held if light else aligned((1, m * wide), real) if by_rows else none
        P, Q = panels((none if by_rows else held)[0], k, across)
        counts = np.zeros(m if often else 0, np.int32)
        run(
            indptr,
            indices,
            data,
            D,
            E,
            G,
            inverse,
            U,
            out,
            P,
            Q,
            bounds[chunk],
            bounds[chunk + 1],
            sweeps,
            l1,
            tol,
            fit,
            how,
            across,
            held[chunk] if by_rows and not light else no_copy,
            H[chunk],
            W,
            B,
            own,
            *panels(own[0], k, across),
            counts,
        )

    def finish(held: np.ndarray) -> Pass:
        if not sums:
            return Pass(out, None, None)
        first, second = panels((added(held) if by_rows and not light else held)[0], k, across)
        if not by_rows:
            A = _by_columns(X, first, second, k, across)
        else:
            A, split = np.empty((k, m), real), min(k, first.shape[1])

            def turn(a: int, b: int) -> None:
                turned(first, A[:split], a, b)
                turned(second, A[split:], a, b)

            for_blocks(turn, m, max(1, _SMALL // k))
        return Pass(out, added(H)[:k, :k].astype(real), A)

    def cells(place: int) -> list[np.ndarray]:
        here = slice(indptr[bounds[order[place]]], indptr[bounds[order[place] + 1]])
        return [data[here], indices[here]]

    turned: Any = kernel("transpose" if light else "rounded", real)
    return _Work(count, memory, part, finish, cells)


def widths(k: int, across: int) -> tuple[int, int]:
    """Return how many of k components, padded, fill registers, and how many are set apart: see ``loops.gather``.

    Examples
    --------
    >>> widths(20, 16), widths(24, 16), widths(6, 16), widths(3, 16)
    ((16, 4), (32, 0), (0, 8), (0, 4))
    """
    whole = k - k % across
    rest = k % across
    for share in (4, 2) if not whole else (4,):
        if 0 < rest <= across // share:
            return whole, across // share
    return whole + (across if rest else 0), 0


def panels(flat: np.ndarray, k: int, across: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the two parts of a factor's rows that lie one after the other."""
    first, second = widths(k, across)
    n = flat.size // (first + second)
    return flat[: n * first].reshape(n, first), flat[n * first :].reshape(n, second)


def _side_by_side_cells(V: np.ndarray, across: int) -> np.ndarray:
    """Return Vᵀ in such parts."""
    k, m = V.shape
    flat = aligned((m * sum(widths(k, across)),), V.dtype)
    turn: Any = kernel("transpose", V.dtype)
    V = np.ascontiguousarray(V)
    place = 0
    for part in panels(flat, k, across):
        here = V[place : place + part.shape[1]]
        turn(here, part, 0, here.shape[0])
        place += part.shape[1]
    return flat


def _by_columns(X: Any, P: np.ndarray, Q: np.ndarray, k: int, across: int) -> np.ndarray:
    """Return UᵀX from X by columns, for each of which rows of U, in two parts, are gathered."""
    m = X.shape[1]
    real = P.dtype
    indptr, indices, data = _turned(X, real)
    run: Any = kernel("sparse_sums", real, indices.dtype)
    out = np.empty((k, m), real)
    bounds = row_bounds(indptr, max(1, min(_CHUNKS, m, int(indices.size) * k // (5 * _SMALL))))
    for_blocks(lambda b, _: run(indptr, indices, data, P, Q, bounds[b], bounds[b + 1], across, out), len(bounds) - 1, 1)
    return out


_known: dict[tuple[int, str], tuple[Any, tuple[np.ndarray, ...], Any]] = {}


def _of_rows(X: Any, what: str, make: Callable[[], T]) -> T:
    """Remember what follows from a CSR matrix for as long as X lives and has these arrays."""
    key = (id(X), what)
    now = (X.indptr, X.indices, X.data)
    found = _known.get(key)
    if found is not None and found[0]() is X and all(a is b for a, b in zip(found[1], now, strict=True)):
        return found[2]
    made = make()
    _known[key] = (weakref.ref(X, lambda _, known=_known: known.pop(key, None)), now, made)
    return made


def _turned(X: Any, real: np.dtype) -> tuple[np.ndarray, ...]:
    """Return a CSR matrix by columns."""

    def turn() -> tuple[np.ndarray, ...]:
        turned = X.tocsc()
        return np.asarray(turned.indptr, turned.indices.dtype), turned.indices, np.asarray(turned.data, real)

    return _of_rows(X, real.char, turn)


def _most_in_a_column(X: Any) -> int:
    """Return how many cells of a CSR matrix are stored in its fullest column."""

    def count() -> int:
        found = np.zeros(X.shape[1], np.int64)
        for start in range(0, X.nnz, _COUNTED):  # NumPy counts a copy in wide numbers
            found += np.bincount(X.indices[start : min(start + _COUNTED, X.nnz)], minlength=X.shape[1])
        return int(found.max(initial=0))

    return _of_rows(X, "most in a column", count)


def register_sizes(vectors: Any, real: np.dtype, k: int) -> tuple[int, int, int]:
    """Return the numbers in a register, the rows of a group, and the components padded to whole tiles."""
    across = vectors.width(real.itemsize)
    return across, vectors.GROUP * across, -(-k // vectors.TILE) * vectors.TILE


def _curvature(V: np.ndarray, l2: Any) -> tuple[np.ndarray, np.ndarray]:
    G = np.ascontiguousarray(with_l2(gram_rows(V), l2), dtype=V.dtype)
    return G, once(inverse_diagonal, G)


def packed_tiles(V: np.ndarray, head: int, whole: int, across: int, padded: int, tile: int) -> np.ndarray:
    """Put V into tiles of a few components, one register of each after the other: before, whole registers, after."""
    k, m = V.shape
    flat = np.zeros((padded, (whole + 2) * across), V.dtype)
    flat[:k, across - head : across - head + m] = V
    packed = aligned((padded // tile, whole + 2, tile, across), V.dtype)
    packed[...] = flat.reshape(padded // tile, tile, whole + 2, across).swapaxes(1, 2)
    return packed


@functools.lru_cache(256)
def chunks(n: int, group: int, work: int, held: int, copy: int) -> np.ndarray:
    """Cut n rows into parts of whole groups, by the problem alone: copies of A shall not outgrow a sixteenth of X."""
    groups = -(-n // group)
    room = max(1, held // (16 * copy)) if copy else groups
    parts = 1 if work < _SMALL else max(1, min(_CHUNKS, groups, room))
    return np.minimum(np.linspace(0, groups, parts + 1).astype(np.int64) * group, n)


def _pieces(X: np.ndarray, start: int, stop: int, group: int, ready: bool) -> list[tuple[int, int]]:
    """Cut a part further where rows are copied first, so that a copy stays small."""
    step = stop - start if ready else group
    return [(a, min(a + step, stop)) for a in range(start, stop, max(1, step))]


def _memory(name: str, shape: tuple[int, ...], kind: np.dtype) -> np.ndarray:
    """Return memory to work in; where it is not too much it is kept, as finding it again costs more than the sums."""
    return scratch(name, shape, kind) if math.prod(shape) <= _KEPT else aligned(shape, kind)


def added(parts: Any) -> np.ndarray:
    """Add up in order, in place of the first."""
    total = parts[0]
    for other in parts[1:]:
        total += other
    return total
