"""Vector code of rows with missing cells, each with a Gram matrix of its own."""

from __future__ import annotations

import functools
import math

import llvmlite.ir as ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from fedfactor.linalg.compiled.vector_code.dense import products
from fedfactor.linalg.compiled.vector_code.registers import GROUP, TILE, Code, rows_of_tile, switch, width

LANES = 64
"""Rows with a Gram matrix of their own that are swept side by side: those matrices stay in cache."""


TOGETHER = (3, 4, 5, 6)
"""Rows with missing cells whose Gram matrices are summed together: a column counts once for all that see it."""


MASKED = 60
"""Rows with missing cells that are worked on together, at most LANES: whole tiles, and whatever stands together."""


def _fitted(columns: int):
    """Return the code of TILE rows of ``U V``, so many registers of columns, zero where no cell was seen."""

    def codegen(context, builder, signature, args):
        _, V, ldv, k, U, ldu, seen, lds, out, ldo, X, ldx, squares = args
        code = Code(builder, signature.args[0].dtype)
        sums = products(code, k, V, ldv, U, ldu, columns)
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
        code = Code(builder, signature.args[0].dtype)
        bytes_ = ir.VectorType(ir.IntType(8), code.width)
        with cgutils.for_range(builder, whole) as loop:
            at = builder.mul(loop.index, code.number(code.width))
            here = code.marks(marks, at)
            code.store(builder.select(here, code.load(X, at), code.zero), out, at)
            target = builder.inttoptr(builder.add(seen, at), ir.PointerType())
            builder.store(builder.zext(here, bytes_), target, align=1)
        return context.get_dummy_value()

    return types.none(like, *[types.int64] * 5), codegen


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
        code = Code(builder, signature.args[0].dtype, least=TILE)
        side = blocks_of_grams(code.size)
        triangles = [(size, size, True) for size in range(1, side + 1)]
        cases = triangles + [(size, side, False) for size in range(1, side + 1)]
        switch(code, shape, [(i, functools.partial(_gram_tile, code, rest, *case)) for i, case in enumerate(cases)])
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
        code = Code(builder, signature.args[0].dtype)

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

        switch(code, together, [(rows, functools.partial(write, rows)) for rows in TOGETHER])
        return context.get_dummy_value()

    return types.none(like, *[types.int64] * 8), codegen


@intrinsic
def own_coordinate(typingctx, like, W, B, own, places, inverse, t, k, live, moved):
    """Take the step on coordinate t of LANES rows that each have a Gram matrix of their own.

    Where the matrices hold the product of t with component q, is the q-th number at `places`. `inverse` is one over
    that of t with itself and what is added to it, or zero for rows that do not see t. `live` and `moved` are as in
    :func:`coordinate`.
    """

    def codegen(context, builder, signature, args):
        _, W, B, own, places, inverse, t, k, live, moved = args
        code = Code(builder, signature.args[0].dtype)
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
