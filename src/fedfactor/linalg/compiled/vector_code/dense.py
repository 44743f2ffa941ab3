"""Vector code of dense rows: products with V, sums with U, the step on a coordinate."""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from fedfactor.linalg.compiled.vector_code.registers import GROUP, TILE, Code, rows_of_tile


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
        code = Code(builder, signature.args[0].dtype)
        R = rows_of_tile()
        sums = code.cells(R * TILE)
        size = code.number(code.size)
        starts = []
        borders = []
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


def products(code: Code, rows, X, ldx, U, ldu, columns: int, soon=None) -> list[Any]:
    """Return the sums over `rows` of TILE numbers of U, `ldu` apart, times so many registers of a row of X.

    Meanwhile a line of memory for each row, from `soon` on, is fetched into the cache.
    """
    builder, sums = code.builder, code.cells(TILE * columns)
    with cgutils.for_range(builder, rows) as loop:
        start = builder.mul(loop.index, ldx)
        if soon is not None:
            code.fetch(soon, builder.mul(loop.index, code.number(code.width)))
        x = [code.load(X, builder.add(start, code.number(c * code.width))) for c in range(columns)]
        for q in range(TILE):
            u = code.splat(U, builder.add(loop.index, builder.mul(code.number(q), ldu)))
            for c in range(columns):
                cell = sums[q * columns + c]
                builder.store(code.fma(u, x[c], code.get(cell)), cell)
    return sums


def _outer(columns: int):
    """Return the code of a tile of TILE components and so many registers of columns."""

    def codegen(context, builder, signature, args):
        _, _, X, ldx, rows, U, ldu, A, lda, soon = args
        code, target = (Code(builder, kind.dtype) for kind in signature.args[:2])
        wide = ir.VectorType(target.scalar, code.width)
        sums = products(code, rows, X, ldx, U, ldu, columns, soon if columns > 1 else None)
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


@intrinsic
def turn_tile(typingctx, like, source, lds, out, ldo):
    """Write as many numbers of as many rows as fill a register to `out`, rows and columns exchanged."""

    def codegen(context, builder, signature, args):
        _, source, lds, out, ldo = args
        code = Code(builder, signature.args[0].dtype)
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
def group_gram(typingctx, like, W, lanes, t, q, out, ldo, mirror):
    """Add the products of TILE components of a group, from `t` on, with TILE others, from `q` on, to `out`.

    `W` is k × lanes, which fill registers; `out` is in double precision. With `mirror` they are added there with rows
    and columns exchanged, too.
    """

    def codegen(context, builder, signature, args):
        _, W, lanes, t, q, out, ldo, mirror = args
        code = Code(builder, signature.args[0].dtype)
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
            place = builder.add(
                builder.mul(builder.add(row[0], code.number(row[1])), ldo),
                builder.add(column[0], code.number(column[1])),
            )
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
        code = Code(builder, signature.args[0].dtype)
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
