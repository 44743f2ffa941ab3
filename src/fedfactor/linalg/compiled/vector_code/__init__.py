"""Small pieces of vector code that compiled loops call: numbers stay in registers where plain loops would store them.

Each piece is an intrinsic of numba, written in the compiler's own vector types, so that what it costs does not depend
on what the compiler makes of a loop. All take addresses and distances in elements. Sizes follow the processor: `width`
numbers fill a register, and a tile of ``TILE × rows`` sums leaves room for what is multiplied.
"""

from __future__ import annotations

from fedfactor.linalg.compiled.vector_code.dense import (
    coordinate,
    dot_tile,
    group_gram,
    outer_column,
    outer_tile,
    turn_tile,
)
from fedfactor.linalg.compiled.vector_code.missing_values import (
    LANES,
    MASKED,
    TOGETHER,
    add_kinds,
    blocks_of_grams,
    fitted_column,
    fitted_tile,
    gram_tile,
    own_coordinate,
    take_seen,
)
from fedfactor.linalg.compiled.vector_code.registers import (
    GROUP,
    TILE,
    rows_of_tile,
    width,
)
from fedfactor.linalg.compiled.vector_code.sparse import (
    gather_four,
    gather_half,
    gather_more,
    gather_one,
    gather_quarter,
    gather_two,
    scatter_four,
    scatter_half,
    scatter_more,
    scatter_one,
    scatter_quarter,
    scatter_two,
)

__all__ = [
    "GROUP",
    "LANES",
    "MASKED",
    "TILE",
    "TOGETHER",
    "add_kinds",
    "blocks_of_grams",
    "coordinate",
    "dot_tile",
    "fitted_column",
    "fitted_tile",
    "gather_four",
    "gather_half",
    "gather_more",
    "gather_one",
    "gather_quarter",
    "gather_two",
    "gram_tile",
    "group_gram",
    "outer_column",
    "outer_tile",
    "own_coordinate",
    "rows_of_tile",
    "scatter_four",
    "scatter_half",
    "scatter_more",
    "scatter_one",
    "scatter_quarter",
    "scatter_two",
    "take_seen",
    "turn_tile",
    "width",
]
