"""Vector code of sparse rows: stored cells times rows of a factor, gathered or scattered."""

from __future__ import annotations

from typing import Any

import llvmlite.ir as ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from fedfactor.linalg.compiled.vector_code.registers import GROUP, Code


def _position(code, context, builder, indices, kind, at):
    """Load a column number and widen it."""
    place = builder.add(indices, builder.mul(at, code.number(kind.bitwidth // 8)))
    value = builder.load(builder.inttoptr(place, ir.PointerType()), typ=context.get_value_type(kind))
    return value if kind.bitwidth == 64 else builder.sext(value, code.word)


def _pieces(builder, number, registers: int, share: int) -> list[Any]:
    """Return whole registers, and a half or a quarter of one after them (1: none), each with its place in a row."""
    whole = Code(builder, number)
    pieces = [(whole, whole.number(c * whole.width)) for c in range(registers)]
    if share > 1:
        pieces.append((Code(builder, number, share), whole.number(registers * whole.width)))
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
                out, here = (
                    (D, builder.add(first, place))
                    if c < registers
                    else (E, builder.mul(column, code.number(piece.width)))
                )
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
