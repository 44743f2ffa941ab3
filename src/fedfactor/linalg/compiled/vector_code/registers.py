"""Vector instructions for one number type, and the sizes that follow the processor."""

from __future__ import annotations

import functools

import llvmlite.binding
import llvmlite.ir as ir
from numba.core import cgutils, types

TILE = 4
"""Components that are worked on together; ranks are padded to a multiple of it."""


GROUP = 8
"""Registers of rows that are swept side by side: as many chains of additions as two units need to stay busy."""


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


class Code:
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
        """Return a whole number."""
        return ir.Constant(self.word, value)

    def pointer(self, address, offset=None):
        """Return a pointer to the element `offset` after an address."""
        if offset is not None:
            address = self.builder.add(address, self.builder.mul(offset, self.number(self.size)))
        return self.builder.inttoptr(address, ir.PointerType())

    def load(self, address, offset=None):
        """Load a register."""
        return self.builder.load(self.pointer(address, offset), typ=self.vector, align=self.size)

    def store(self, value, address, offset=None):
        """Store a register."""
        self.builder.store(value, self.pointer(address, offset), align=self.size)

    def splat(self, address, offset=None):
        """Load one number into every lane."""
        return self.spread(self.builder.load(self.pointer(address, offset), typ=self.scalar, align=self.size))

    def spread(self, value):
        """Put one number into every lane."""
        one = self.builder.insert_element(ir.Constant(self.vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), self.width), [0] * self.width)
        return self.builder.shuffle_vector(one, ir.Constant(self.vector, ir.Undefined), mask)

    def fma(self, a, b, c):
        """Return ``a b + c``, rounded once."""
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
        count = len(values)
        held = self.width
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
        """Load as many bytes as a register has numbers; state which are not zero."""
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
        """Return what a variable holds."""
        return self.builder.load(cell, typ=self.vector)


def switch(code, value, cases) -> None:
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
