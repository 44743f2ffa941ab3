"""Small pieces of vector code that compiled loops call: numbers stay in registers where plain loops would store them.

Each piece is an intrinsic of numba, written in the compiler's own vector types, so that what it costs does not depend
on what the compiler makes of a loop. All take addresses and distances in elements. Sizes follow the processor: `width`
numbers fill a register, and a tile of ``TILE × rows`` sums leaves room for what is multiplied.
"""

from __future__ import annotations

import functools
import math

import llvmlite.binding
import llvmlite.ir as ir
from numba.core import cgutils, types
from numba.extending import intrinsic

TILE = 4
"""Components that are worked on together; ranks are padded to a multiple of it."""

GROUP = 8
"""Registers of rows that are swept side by side: as many chains of additions as two units need to stay busy."""


LANES = 64
"""Rows with a Gram matrix of their own that are swept side by side: those matrices stay in cache."""

TOGETHER = (3, 4, 5, 6)
"""Rows with missing cells whose Gram matrices are summed together: a column counts once for all that see it."""

MASKED = 60
"""Rows with missing cells that are worked on together, at most LANES: whole tiles, and whatever stands together."""


@functools.cache
def _machine() -> tuple[int, int]:
    """Return the bytes of a vector register, and the rows of a tile."""
    features = llvmlite.binding.get_host_cpu_features()
    if features.get("avx512f"):
        return 64, 6  # 32 registers: 24 sums, 4 + 1 factors
    if features.get("avx2"):
        return 32, 3  # 16 registers: 12 sums, 3 + 1 factors
    return 16, 3 if llvmlite.binding.get_default_triple().startswith("x86") else 6


def width(itemsize: int) -> int:
    """Return how many numbers of this size fill a register."""
    return _machine()[0] // itemsize


def rows_of_tile() -> int:
    """Return how many rows (or registers of columns) a tile has."""
    return _machine()[1]


class _Code:
    """Writes vector instructions for one number type."""

    def __init__(self, builder, number, share: int = 1, least: int = 1) -> None:
        """Work on whole registers, or on a half or a quarter of one; or on as many as hold `least` numbers."""
        self.builder = builder
        self.scalar = ir.FloatType() if number == types.float32 else ir.DoubleType()
        self.suffix = "f32" if number == types.float32 else "f64"
        self.size = 4 if number == types.float32 else 8
        self.width = max(width(self.size) // share, least)
        self.vector = ir.VectorType(self.scalar, self.width)
        self.zero = ir.Constant(self.vector, None)
        self.word = ir.IntType(64)

    def number(self, value: int):
        return ir.Constant(self.word, value)

    def pointer(self, address, offset=None):
        """Return a pointer to the element `offset` after an address."""
        if offset is not None:
            address = self.builder.add(address, self.builder.mul(offset, self.number(self.size)))
        return self.builder.inttoptr(address, ir.PointerType())

    def load(self, address, offset=None):
        return self.builder.load(self.pointer(address, offset), typ=self.vector, align=self.size)

    def store(self, value, address, offset=None):
        self.builder.store(value, self.pointer(address, offset), align=self.size)

    def splat(self, address, offset=None):
        """Load one number into every lane."""
        return self.spread(self.builder.load(self.pointer(address, offset), typ=self.scalar, align=self.size))

    def spread(self, value):
        one = self.builder.insert_element(ir.Constant(self.vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), self.width), [0] * self.width)
        return self.builder.shuffle_vector(one, ir.Constant(self.vector, ir.Undefined), mask)

    def fma(self, a, b, c):
        name = f"llvm.fma.v{self.width}{self.suffix}"
        fn = cgutils.get_or_insert_function(self.builder.module, ir.FunctionType(self.vector, [self.vector] * 3), name)
        return self.builder.call(fn, [a, b, c])

    def fetch(self, address, offset):
        """Ask for a register's worth of memory, to be found in the second cache."""
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [ir.PointerType(), number, number, number])
        ask = cgutils.get_or_insert_function(self.builder.module, kind, "llvm.prefetch.p0")
        self.builder.call(ask, [self.pointer(address, offset), *(ir.Constant(number, each) for each in (0, 2, 1))])

    def totals(self, values):
        """Add up the lanes of each of several vectors: halves onto each other, of two vectors at a time.

        Lane i meets lane i + width / 2, their sums meet at half that distance, and so on: turning the lanes of a vector
        changes no bit of its sum, so that it does not matter where in memory a row begins.
        """
        count, held = len(values), self.width
        while held > 1:
            if len(values) % 2:
                values = [*values, self.zero]
            starts = range(0, self.width, held)
            low = [start + i + side for side in (0, self.width) for start in starts for i in range(held // 2)]
            masks = [
                ir.Constant(ir.VectorType(ir.IntType(32), self.width), [lane + more for lane in low])
                for more in (0, held // 2)
            ]
            values = [
                self.builder.fadd(*(self.builder.shuffle_vector(a, b, mask) for mask in masks))
                for a, b in zip(values[::2], values[1::2], strict=True)
            ]
            held //= 2
        return [
            self.builder.extract_element(values[i // self.width], ir.Constant(ir.IntType(32), i % self.width))
            for i in range(count)
        ]

    def marks(self, address, offset):
        """Load as many bytes as a register has numbers; tell which are not zero."""
        bytes_ = ir.VectorType(ir.IntType(8), self.width)
        place = self.builder.inttoptr(self.builder.add(address, offset), ir.PointerType())
        return self.builder.icmp_unsigned(
            "!=", self.builder.load(place, typ=bytes_, align=1), ir.Constant(bytes_, None)
        )

    def cells(self, count: int, first=None):
        """Return variables that the compiler keeps in registers."""
        made = [cgutils.alloca_once(self.builder, self.vector) for _ in range(count)]
        for cell in made:
            self.builder.store(self.zero if first is None else first, cell)
        return made

    def get(self, cell):
        return self.builder.load(cell, typ=self.vector)


@intrinsic
def dot_tile(typingctx, like, X, ldx, row, last, whole, ends, V, out, ldo, start, stop, kept, soon, later_on):
    """Write the products of a few rows with a packed tile of V to ``out[t * ldo + row]``, for rows from `row` on.

    `X` is where the whole registers of the first row begin, `whole` how many there are; what lies before and after them
    is in `ends`, two registers for each row, padded with zeros. Rows after `last` are taken to be `last`. The tile of V
    has ``whole + 2`` times one register of each component: before, whole, after. Only registers ``start:stop`` are
    taken: a sum that has not come to its end is left at `kept`, where the next call finds it. Meanwhile the same
    registers of two other rows, at `soon` and `later_on`, are fetched into the cache.
    """

    def codegen(context, builder, signature, args):
        _, X, ldx, row, last, whole, ends, V, out, ldo, start, stop, kept, soon, later_on = args
        code = _Code(builder, signature.args[0].dtype)
        R = rows_of_tile()
        sums = code.cells(R * TILE)
        size = code.number(code.size)
        starts, borders = [], []
        for r in range(R):
            here = builder.add(row, code.number(r))
            here = builder.select(builder.icmp_signed("<", here, last), here, last)
            starts.append(builder.add(X, builder.mul(builder.mul(here, ldx), size)))
            borders.append(builder.add(ends, builder.mul(here, code.number(2 * code.width * code.size))))

        def step(sources, offset, place):
            v = [code.load(V, builder.add(place, code.number(q * code.width))) for q in range(TILE)]
            for r in range(R):
                x = code.load(sources[r], offset)
                for q in range(TILE):
                    cell = sums[r * TILE + q]
                    builder.store(code.fma(x, v[q], code.get(cell)), cell)

        with builder.if_else(builder.icmp_signed("==", start, code.number(0))) as (first, later):
            with first:
                step(borders, code.number(0), code.number(0))
            with later:
                for i, cell in enumerate(sums):
                    builder.store(code.load(kept, code.number(i * code.width)), cell)
        with cgutils.for_range(builder, builder.sub(stop, start)) as loop:
            at = builder.add(start, loop.index)
            register = builder.mul(at, code.number(code.width))
            place = builder.mul(builder.add(at, code.number(1)), code.number(TILE * code.width))
            code.fetch(soon, register)
            code.fetch(later_on, register)
            step(starts, register, place)
        with builder.if_else(builder.icmp_signed("<", stop, whole)) as (more, over):
            with more:
                for i, cell in enumerate(sums):
                    code.store(code.get(cell), kept, code.number(i * code.width))
            with over:
                place = builder.mul(builder.add(whole, code.number(1)), code.number(TILE * code.width))
                step(borders, code.number(code.width), place)
                totals = code.totals([code.get(cell) for cell in sums])
                for r in range(R):
                    for q in range(TILE):
                        offset = builder.add(builder.mul(code.number(q), ldo), builder.add(row, code.number(r)))
                        builder.store(totals[r * TILE + q], code.pointer(out, offset), align=code.size)
        return context.get_dummy_value()

    return types.none(like, *[types.int64] * 14), codegen


def _outer(columns: int):
    """Return the code of a tile of TILE components and so many registers of columns."""

    def codegen(context, builder, signature, args):
        _, _, X, ldx, rows, U, ldu, A, lda, soon = args
        code, target = (_Code(builder, kind.dtype) for kind in signature.args[:2])
        wide = ir.VectorType(target.scalar, code.width)
        sums = code.cells(TILE * columns)
        with cgutils.for_range(builder, rows) as loop:
            start = builder.mul(loop.index, ldx)
            if columns > 1:
                code.fetch(soon, builder.mul(loop.index, code.number(code.width)))
            x = [code.load(X, builder.add(start, code.number(c * code.width))) for c in range(columns)]
            for q in range(TILE):
                u = code.splat(U, builder.add(loop.index, builder.mul(code.number(q), ldu)))
                for c in range(columns):
                    cell = sums[q * columns + c]
                    builder.store(code.fma(u, x[c], code.get(cell)), cell)
        for q in range(TILE):
            for c in range(columns):
                offset = builder.add(builder.mul(code.number(q), lda), code.number(c * code.width))
                place, value = target.pointer(A, offset), code.get(sums[q * columns + c])
                if target.size > code.size:
                    value = builder.fpext(value, wide)
                before = builder.load(place, typ=wide, align=target.size)
                builder.store(builder.fadd(before, value), place, align=target.size)
        return context.get_dummy_value()

    return codegen


@intrinsic
def outer_tile(typingctx, like, kind, X, ldx, rows, U, ldu, A, lda, soon):
    """Add ``UᵀX`` of TILE components and a few registers of columns to `A`, whose numbers are as those of `kind` are.

    Meanwhile a line of memory for each row, from `soon` on, is fetched into the cache.
    """
    return types.none(like, kind, *[types.int64] * 8), _outer(rows_of_tile())


@intrinsic
def outer_column(typingctx, like, kind, X, ldx, rows, U, ldu, A, lda):
    """Do the same for one register of columns; nothing is fetched."""

    def codegen(context, builder, signature, args):
        return _outer(1)(context, builder, signature, (*args, None))

    return types.none(like, kind, *[types.int64] * 7), codegen


def _fitted(columns: int):
    """Return the code of TILE rows of ``U V``, so many registers of columns, zero where no cell was seen."""

    def codegen(context, builder, signature, args):
        _, V, ldv, k, U, ldu, seen, lds, out, ldo, X, ldx, squares = args
        code = _Code(builder, signature.args[0].dtype)
        sums = code.cells(TILE * columns)
        with cgutils.for_range(builder, k) as loop:
            start = builder.mul(loop.index, ldv)
            v = [code.load(V, builder.add(start, code.number(c * code.width))) for c in range(columns)]
            for q in range(TILE):
                u = code.splat(U, builder.add(loop.index, builder.mul(code.number(q), ldu)))
                for c in range(columns):
                    cell = sums[q * columns + c]
                    builder.store(code.fma(u, v[c], code.get(cell)), cell)
        totals = [code.load(squares, code.number(q * code.width)) for q in range(TILE)]
        for q in range(TILE):
            for c in range(columns):
                step = code.number(c * code.width)
                here = code.marks(seen, builder.add(builder.mul(code.number(q), lds), step))
                value = builder.select(here, code.get(sums[q * columns + c]), code.zero)
                code.store(value, out, builder.add(builder.mul(code.number(q), ldo), step))
                away = builder.fsub(code.load(X, builder.add(builder.mul(code.number(q), ldx), step)), value)
                totals[q] = code.fma(away, away, totals[q])
        for q in range(TILE):
            code.store(totals[q], squares, code.number(q * code.width))
        return context.get_dummy_value()

    return codegen


@intrinsic
def fitted_tile(typingctx, like, V, ldv, k, U, ldu, seen, lds, out, ldo, X, ldx, squares):
    """Write ``U V`` of TILE rows and a few registers of columns to `out`, zero where a byte of `seen` is zero.

    The squares of what X, which is zero there too, has more or less are added to TILE registers at `squares`.
    """
    return types.none(like, *[types.int64] * 12), _fitted(rows_of_tile())


@intrinsic
def fitted_column(typingctx, like, V, ldv, k, U, ldu, seen, lds, out, ldo, X, ldx, squares):
    """Do the same for one register of columns."""
    return types.none(like, *[types.int64] * 12), _fitted(1)


@intrinsic
def take_seen(typingctx, like, X, marks, whole, out, seen):
    """Copy `whole` registers of cells and as many bytes that mark them; a cell whose byte is zero becomes zero."""

    def codegen(context, builder, signature, args):
        _, X, marks, whole, out, seen = args
        code = _Code(builder, signature.args[0].dtype)
        bytes_ = ir.VectorType(ir.IntType(8), code.width)
        with cgutils.for_range(builder, whole) as loop:
            at = builder.mul(loop.index, code.number(code.width))
            here = code.marks(marks, at)
            code.store(builder.select(here, code.load(X, at), code.zero), out, at)
            target = builder.inttoptr(builder.add(seen, at), ir.PointerType())
            builder.store(builder.zext(here, bytes_), target, align=1)
        return context.get_dummy_value()

    return types.none(like, *[types.int64] * 5), codegen


def _switch(code, value, cases) -> None:
    """Write the code of each case, of which the one whose number `value` is runs."""
    builder = code.builder
    end = builder.append_basic_block("done")
    choice = builder.switch(value, end)
    for number, write in cases:
        block = builder.append_basic_block(f"case{number}")
        choice.add_case(code.number(number), block)
        builder.position_at_end(block)
        write()
        builder.branch(end)
    builder.position_at_end(end)


def blocks_of_grams(itemsize: int) -> int:
    """Return how many blocks of TILE components a tile of a Gram matrix has on a side: its sums stay in registers."""
    room = 25 if rows_of_tile() == 6 else 10
    return max(1, math.isqrt(room * width(itemsize) // (TILE * TILE)))


def _gram_tile(code, args, rows: int, columns: int, below: bool) -> None:
    """Write the code of `rows` by `columns` blocks; with `below`, of those on and below the diagonal.

    A block is TILE components times TILE others: a register that repeats these, times one in which every component
    fills its share. So no lane multiplies what another one does.
    """
    cells, count, V, ldv, a, b, out = args
    builder = code.builder
    pairs = [(i, j) for i in range(rows) for j in range(columns) if j <= i or not below]
    parts = TILE * TILE // code.width  # registers of a block
    sets = max(1, GROUP // (len(pairs) * parts))  # cells at a time: chains of additions to keep both units busy
    sums = code.cells(sets * len(pairs) * parts)
    short, lanes = ir.VectorType(code.scalar, TILE), ir.VectorType(ir.IntType(32), code.width)
    repeat = ir.Constant(lanes, list(range(TILE)) * (code.width // TILE))
    shares = [[(part * code.width + lane) // TILE for lane in range(code.width)] for part in range(parts)]
    across, down = builder.mul(b, code.number(TILE)), builder.mul(a, code.number(TILE))

    def cell(at, which):
        place = builder.inttoptr(builder.add(cells, builder.mul(at, code.number(4))), ir.PointerType())
        row = builder.mul(builder.sext(builder.load(place, typ=ir.IntType(32)), code.word), ldv)

        def four(first, block, mask):
            place = code.pointer(V, builder.add(builder.add(row, first), code.number(block * TILE)))
            found = builder.load(place, typ=short, align=code.size)
            return builder.shuffle_vector(found, ir.Constant(short, ir.Undefined), mask)

        x = [four(across, j, repeat) for j in range(columns)]
        for part in range(parts):
            held = [four(down, i, ir.Constant(lanes, shares[part])) for i in range(rows)]
            for p, (i, j) in enumerate(pairs):
                here = sums[(which * len(pairs) + p) * parts + part]
                builder.store(code.fma(held[i], x[j], code.get(here)), here)

    rounds = builder.sdiv(count, code.number(sets))
    with cgutils.for_range(builder, rounds) as loop:
        first = builder.mul(loop.index, code.number(sets))
        for which in range(sets):
            cell(builder.add(first, code.number(which)), which)
    done = builder.mul(rounds, code.number(sets))
    with cgutils.for_range(builder, builder.sub(count, done)) as loop:
        cell(builder.add(done, loop.index), 0)
    for p, (i, j) in enumerate(pairs):
        above = builder.add(a, code.number(i))  # blocks lie in the order of the lower half, row by row
        before = builder.udiv(builder.mul(above, builder.add(above, code.number(1))), code.number(2))
        block = builder.add(before, builder.add(b, code.number(j)))
        for part in range(parts):
            total = code.get(sums[p * parts + part])
            for which in range(1, sets):
                total = builder.fadd(total, code.get(sums[(which * len(pairs) + p) * parts + part]))
            place = builder.add(builder.mul(block, code.number(TILE * TILE)), code.number(part * code.width))
            code.store(total, out, place)


@intrinsic
def gram_tile(typingctx, like, shape, cells, count, V, ldv, a, b, out):
    """Write products of components with each other, summed over some cells: blocks from row `a` and column `b` on.

    `V` has the components of a cell side by side; `cells` are the numbers of those that count. With s the most blocks
    to a side, a shape below s is a triangle of ``shape + 1`` of them to a side, others are ``shape - s + 1`` by s.
    """

    def codegen(context, builder, signature, args):
        _, shape, *rest = args
        code = _Code(builder, signature.args[0].dtype, least=TILE)
        side = blocks_of_grams(code.size)
        triangles = [(size, size, True) for size in range(1, side + 1)]
        cases = triangles + [(size, side, False) for size in range(1, side + 1)]
        _switch(code, shape, [(i, functools.partial(_gram_tile, code, rest, *case)) for i, case in enumerate(cases)])
        return context.get_dummy_value()

    return types.none(like, *[types.int64] * 8), codegen


@intrinsic
def add_kinds(typingctx, like, together, kinds, step, G, base, sign, out, count):
    """Write the Gram matrices of a few rows, `count` registers of each, from those of the kinds of cells.

    Kind e, `step` after the one before, has the cells that the rows b with bit b in e count. Row b of the result, as
    far after the one before, is ``base[b] G + sign[b]`` times the sum of its kinds. How many rows stand `together` is
    one of TOGETHER.
    """

    def codegen(context, builder, signature, args):
        _, together, kinds, step, G, base, sign, out, count = args
        code = _Code(builder, signature.args[0].dtype)

        def plus(one, other):
            return other if one is None else builder.fadd(one, other)

        def added(at, first, bits):
            """Return the sum of ``2 ** bits`` kinds, and for each bit that of those which have it."""
            if bits == 0:
                place = builder.add(builder.mul(code.number(first), step), at)
                return (code.load(kinds, place) if first else None), []
            low, lows = added(at, first, bits - 1)
            high, highs = added(at, first + (1 << bits - 1), bits - 1)
            return plus(low, high), [*map(plus, lows, highs), high]

        def write(rows):
            with cgutils.for_range(builder, count) as loop:
                at = builder.mul(loop.index, code.number(code.width))
                curve = code.load(G, at)
                for b, own in enumerate(added(at, 0, rows)[1]):
                    value = builder.fmul(code.splat(base, code.number(b)), curve)
                    value = code.fma(code.splat(sign, code.number(b)), own, value)
                    code.store(value, out, builder.add(builder.mul(code.number(b), step), at))

        _switch(code, together, [(rows, functools.partial(write, rows)) for rows in TOGETHER])
        return context.get_dummy_value()

    return types.none(like, *[types.int64] * 8), codegen


@intrinsic
def turn_tile(typingctx, like, source, lds, out, ldo):
    """Write as many numbers of as many rows as fill a register to `out`, rows and columns exchanged."""

    def codegen(context, builder, signature, args):
        _, source, lds, out, ldo = args
        code = _Code(builder, signature.args[0].dtype)
        rows = [code.load(source, builder.mul(code.number(r), lds)) for r in range(code.width)]
        # Halves of rows half a register apart change places, then quarters of those a quarter apart, and so on.
        half = code.width // 2
        while half:
            masks = [
                ir.Constant(
                    ir.VectorType(ir.IntType(32), code.width),
                    [(c if c & half == 0 else c - half + code.width) + first for c in range(code.width)],
                )
                for first in (0, half)
            ]
            for r in range(code.width):
                if r & half == 0:
                    pair = rows[r], rows[r + half]
                    rows[r], rows[r + half] = (builder.shuffle_vector(*pair, mask) for mask in masks)
            half //= 2
        for r, row in enumerate(rows):
            code.store(row, out, builder.mul(code.number(r), ldo))
        return context.get_dummy_value()

    return types.none(like, *[types.int64] * 4), codegen


@intrinsic
def own_coordinate(typingctx, like, W, B, own, places, inverse, t, k, live, moved):
    """Take the step on coordinate t of LANES rows that each have a Gram matrix of their own.

    Where the matrices hold the product of t with component q, the q-th number at `places` tells. `inverse` is one over
    that of t with itself and what is added to it, or zero for rows that do not see t. `live` and `moved` are as in
    :func:`coordinate`.
    """

    def codegen(context, builder, signature, args):
        _, W, B, own, places, inverse, t, k, live, moved = args
        code = _Code(builder, signature.args[0].dtype)
        count = LANES // code.width
        lanes, steps = code.number(LANES), [code.number(g * code.width) for g in range(count)]
        start = builder.mul(t, lanes)
        slope = code.cells(2 * count)

        def place(q):
            told = builder.inttoptr(builder.add(places, builder.mul(q, code.number(8))), ir.PointerType())
            return builder.mul(builder.load(told, typ=code.word), lanes)

        def take(q, which):
            here, base = place(q), builder.mul(q, lanes)
            for g in range(count):
                cell = slope[which * count + g]
                u = builder.fneg(code.load(W, builder.add(base, steps[g])))
                builder.store(code.fma(code.load(own, builder.add(here, steps[g])), u, code.get(cell)), cell)

        for g in range(count):
            builder.store(code.load(B, builder.add(start, steps[g])), slope[g])
        # Two chains of additions for each register, so that none waits for itself.
        rounds = builder.sdiv(k, code.number(2))
        with cgutils.for_range(builder, rounds) as loop:
            first = builder.mul(loop.index, code.number(2))
            take(first, 0)
            take(builder.add(first, code.number(1)), 1)
        done = builder.mul(rounds, code.number(2))
        with builder.if_then(builder.icmp_signed("<", done, k)):
            take(done, 0)
        tracked = builder.icmp_signed("!=", live, code.number(0))
        wide = ir.VectorType(ir.DoubleType(), code.width)
        name = f"llvm.maxnum.v{code.width}{code.suffix}"
        most = cgutils.get_or_insert_function(builder.module, ir.FunctionType(code.vector, [code.vector] * 2), name)
        diagonal = place(t)
        for g in range(count):
            at = builder.add(start, steps[g])
            old, less = code.load(W, at), code.load(inverse, steps[g])
            total = builder.fadd(code.get(slope[g]), code.get(slope[count + g]))
            total = code.fma(old, code.load(own, builder.add(diagonal, steps[g])), total)
            new = builder.call(most, [builder.fmul(total, less), code.zero])
            new = builder.select(builder.fcmp_ordered(">", less, code.zero), new, old)
            held = cgutils.alloca_once_value(builder, new)
            with builder.if_then(tracked):
                step = builder.fmul(builder.fsub(new, old), code.load(live, steps[g]))
                builder.store(builder.fadd(old, step), held)
                far = step if code.size == 8 else builder.fpext(step, wide)
                gone = builder.inttoptr(builder.add(moved, code.number(8 * g * code.width)), ir.PointerType())
                square = builder.fadd(builder.load(gone, typ=wide, align=8), builder.fmul(far, far))
                builder.store(square, gone, align=8)
            code.store(code.get(held), W, at)
        return context.get_dummy_value()

    return types.none(like, *[types.int64] * 9), codegen


@intrinsic
def group_gram(typingctx, like, W, lanes, t, q, out, ldo, mirror):
    """Add the products of TILE components of a group, from `t` on, with TILE others, from `q` on, to `out`.

    `W` is k × lanes, which fill registers; `out` is in double precision. With `mirror` they are added there with rows
    and columns exchanged, too.
    """

    def codegen(context, builder, signature, args):
        _, W, lanes, t, q, out, ldo, mirror = args
        code = _Code(builder, signature.args[0].dtype)
        double = ir.DoubleType()
        rows = [builder.mul(builder.add(t, code.number(i)), lanes) for i in range(TILE)]
        others = [builder.mul(builder.add(q, code.number(i)), lanes) for i in range(TILE)]
        sums = code.cells(TILE * TILE)
        with cgutils.for_range(builder, builder.sdiv(lanes, code.number(code.width))) as loop:
            step = builder.mul(loop.index, code.number(code.width))
            a, b = ([code.load(W, builder.add(row, step)) for row in each] for each in (rows, others))
            for i, cell in enumerate(sums):
                builder.store(code.fma(a[i // TILE], b[i % TILE], code.get(cell)), cell)

        def add(row, column, value):
            place = builder.add(builder.mul(builder.add(row[0], code.number(row[1])), ldo),
                                builder.add(column[0], code.number(column[1])))  # fmt: skip
            here = builder.inttoptr(builder.add(out, builder.mul(place, code.number(8))), ir.PointerType())
            builder.store(builder.fadd(builder.load(here, typ=double, align=8), value), here, align=8)

        found = code.totals([code.get(cell) for cell in sums])
        found = found if code.size == 8 else [builder.fpext(value, double) for value in found]
        for i, value in enumerate(found):
            add((t, i // TILE), (q, i % TILE), value)
        with builder.if_then(builder.icmp_signed("!=", mirror, code.number(0))):
            for i, value in enumerate(found):
                add((q, i % TILE), (t, i // TILE), value)
        return context.get_dummy_value()

    return types.none(like, *[types.int64] * 7), codegen


@intrinsic
def coordinate(typingctx, like, W, B, G, inverse, t, k, live, moved):
    """Take the step on coordinate t of GROUP registers of rows.

    `W` and `B` are k × (GROUP · width); `G` is the row t of the Gram matrix and `inverse` is ``1 / G_tt``. Where
    `live` is an address, there lies a one for each row that moves and a zero for each that rests, and at `moved` the
    squared distances gone, in double precision, to which this step is added.
    """

    def codegen(context, builder, signature, args):
        _, W, B, G, inverse, t, k, live, moved = args
        code = _Code(builder, signature.args[0].dtype)
        lanes = code.number(GROUP * code.width)
        start = builder.mul(t, lanes)
        steps = [code.number(g * code.width) for g in range(GROUP)]
        slope = code.cells(GROUP)
        for g in range(GROUP):
            builder.store(code.load(B, builder.add(start, steps[g])), slope[g])
        with cgutils.for_range(builder, k) as loop:
            minus = builder.fneg(code.splat(G, loop.index))
            base = builder.mul(loop.index, lanes)
            for g in range(GROUP):
                builder.store(code.fma(minus, code.load(W, builder.add(base, steps[g])), code.get(slope[g])), slope[g])
        scale = code.spread(inverse)
        tracked = builder.icmp_signed("!=", live, code.number(0))
        wide = ir.VectorType(ir.DoubleType(), code.width)
        name = f"llvm.maxnum.v{code.width}{code.suffix}"
        most = cgutils.get_or_insert_function(builder.module, ir.FunctionType(code.vector, [code.vector] * 2), name)
        with builder.if_else(tracked) as (yes, no):
            with yes:
                for g in range(GROUP):
                    place = builder.add(start, steps[g])
                    old = code.load(W, place)
                    new = builder.call(most, [code.fma(code.get(slope[g]), scale, old), code.zero])
                    step = builder.fmul(builder.fsub(new, old), code.load(live, steps[g]))
                    code.store(builder.fadd(old, step), W, place)
                    far = step if code.size == 8 else builder.fpext(step, wide)
                    gone = builder.inttoptr(builder.add(moved, code.number(8 * g * code.width)), ir.PointerType())
                    square = builder.fadd(builder.load(gone, typ=wide, align=8), builder.fmul(far, far))
                    builder.store(square, gone, align=8)
            with no:
                for g in range(GROUP):
                    place = builder.add(start, steps[g])
                    new = builder.call(most, [code.fma(code.get(slope[g]), scale, code.load(W, place)), code.zero])
                    code.store(new, W, place)
        return context.get_dummy_value()

    return types.none(like, *[types.int64] * 3, like.dtype, *[types.int64] * 4), codegen


def _position(code, context, builder, indices, kind, at):
    """Load a column number and widen it."""
    place = builder.add(indices, builder.mul(at, code.number(kind.bitwidth // 8)))
    value = builder.load(builder.inttoptr(place, ir.PointerType()), typ=context.get_value_type(kind))
    return value if kind.bitwidth == 64 else builder.sext(value, code.word)


def _pieces(builder, number, registers: int, share: int) -> list:
    """Return whole registers, and a half or a quarter of one after them (1: none), each with its place in a row."""
    whole = _Code(builder, number)
    pieces = [(whole, whole.number(c * whole.width)) for c in range(registers)]
    if share > 1:
        pieces.append((_Code(builder, number, share), whole.number(registers * whole.width)))
    return pieces


def _gather(registers: int, share: int = 1):
    """Return the code that sums stored cells times rows of D, so many registers wide, and of E, a share of one."""

    def codegen(context, builder, signature, args):
        _, _, indices, data, begin, end, D, ldd, E, out = args
        number, kind = signature.args[:2]
        pieces = _pieces(builder, number, registers, share)
        code, many = pieces[0][0], len(pieces)
        sets = max(1, GROUP // many)
        sums = [piece.cells(1)[0] for _ in range(sets) for piece, _ in pieces]

        def cell(at, which):
            value = builder.load(code.pointer(data, at), typ=code.scalar, align=code.size)
            column = _position(code, context, builder, indices, kind, at)
            row = builder.mul(column, ldd)
            for c, (piece, place) in enumerate(pieces):
                here = sums[which * many + c]
                if c < registers:
                    factor = piece.load(D, builder.add(row, place))
                else:
                    factor = piece.load(E, builder.mul(column, code.number(piece.width)))
                builder.store(piece.fma(piece.spread(value), factor, piece.get(here)), here)

        size = builder.sub(end, begin)
        rounds = builder.sdiv(size, code.number(sets))
        with cgutils.for_range(builder, rounds) as loop:
            first = builder.add(begin, builder.mul(loop.index, code.number(sets)))
            for which in range(sets):
                cell(builder.add(first, code.number(which)), which)
        done = builder.add(begin, builder.mul(rounds, code.number(sets)))
        with cgutils.for_range(builder, builder.sub(end, done)) as loop:
            cell(builder.add(done, loop.index), 0)
        for c, (piece, place) in enumerate(pieces):
            total = piece.get(sums[c])
            for which in range(1, sets):
                total = builder.fadd(total, piece.get(sums[which * many + c]))
            piece.store(total, out, place)
        return context.get_dummy_value()

    return codegen


def _scatter(registers: int, share: int = 1):
    """Return the code that adds stored cells times a row to rows of D, so many registers wide, and of E, a share."""

    def codegen(context, builder, signature, args):
        _, _, indices, data, begin, end, row, D, ldd, E = args
        number, kind = signature.args[:2]
        pieces = _pieces(builder, number, registers, share)
        code = pieces[0][0]
        u = [piece.load(row, place) for piece, place in pieces]
        with cgutils.for_range(builder, builder.sub(end, begin)) as loop:
            at = builder.add(begin, loop.index)
            value = builder.load(code.pointer(data, at), typ=code.scalar, align=code.size)
            column = _position(code, context, builder, indices, kind, at)
            first = builder.mul(column, ldd)
            for c, ((piece, place), factor) in enumerate(zip(pieces, u, strict=True)):
                out, here = (D, builder.add(first, place)) if c < registers else (
                    E, builder.mul(column, code.number(piece.width))
                )  # fmt: skip
                piece.store(piece.fma(piece.spread(value), factor, piece.load(out, here)), out, here)
        return context.get_dummy_value()

    return codegen


@intrinsic
def gather_four(typingctx, number, kind, indices, data, begin, end, D, ldd, E, out):
    """Write the sum of stored cells ``begin:end`` times rows of `D`, and of `E`, to `out`: four registers."""
    return types.none(number, kind, *[types.int64] * 8), _gather(4)


@intrinsic
def gather_two(typingctx, number, kind, indices, data, begin, end, D, ldd, E, out):
    """Do the same for two registers."""
    return types.none(number, kind, *[types.int64] * 8), _gather(2)


@intrinsic
def gather_more(typingctx, number, kind, indices, data, begin, end, D, ldd, E, out):
    """Do the same for one register and a quarter, which is in E."""
    return types.none(number, kind, *[types.int64] * 8), _gather(1, 4)


@intrinsic
def gather_one(typingctx, number, kind, indices, data, begin, end, D, ldd, E, out):
    """Do the same for one register."""
    return types.none(number, kind, *[types.int64] * 8), _gather(1)


@intrinsic
def gather_half(typingctx, number, kind, indices, data, begin, end, D, ldd, E, out):
    """Do the same for half a register, in E."""
    return types.none(number, kind, *[types.int64] * 8), _gather(0, 2)


@intrinsic
def gather_quarter(typingctx, number, kind, indices, data, begin, end, D, ldd, E, out):
    """Do the same for a quarter of one, in E."""
    return types.none(number, kind, *[types.int64] * 8), _gather(0, 4)


@intrinsic
def scatter_four(typingctx, number, kind, indices, data, begin, end, row, D, ldd, E):
    """Add stored cells ``begin:end`` times `row` to the rows of `D`, and of `E`: four registers."""
    return types.none(number, kind, *[types.int64] * 8), _scatter(4)


@intrinsic
def scatter_two(typingctx, number, kind, indices, data, begin, end, row, D, ldd, E):
    """Do the same for two registers."""
    return types.none(number, kind, *[types.int64] * 8), _scatter(2)


@intrinsic
def scatter_more(typingctx, number, kind, indices, data, begin, end, row, D, ldd, E):
    """Do the same for one register and a quarter, which is in E."""
    return types.none(number, kind, *[types.int64] * 8), _scatter(1, 4)


@intrinsic
def scatter_one(typingctx, number, kind, indices, data, begin, end, row, D, ldd, E):
    """Do the same for one register."""
    return types.none(number, kind, *[types.int64] * 8), _scatter(1)


@intrinsic
def scatter_half(typingctx, number, kind, indices, data, begin, end, row, D, ldd, E):
    """Do the same for half a register, in E."""
    return types.none(number, kind, *[types.int64] * 8), _scatter(0, 2)


@intrinsic
def scatter_quarter(typingctx, number, kind, indices, data, begin, end, row, D, ldd, E):
    """Do the same for a quarter of one, in E."""
    return types.none(number, kind, *[types.int64] * 8), _scatter(0, 4)
