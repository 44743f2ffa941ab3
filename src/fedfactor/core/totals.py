"""Totals of rows on which a result depends, and their change when rows come or leave."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from fedfactor.core.pytree import Array, tree_map

T = TypeVar("T")
S = TypeVar("S")


@dataclass(frozen=True, slots=True, eq=False)
class Held(Generic[T]):
    """Totals of earlier rows, to which those of further rows are added (sign 1), or from which they leave (−1)."""

    totals: T
    sign: int

    def changed(self, before: S, rows: S) -> S:
        """Return sums after the change, leaf by leaf.

        Examples
        --------
        >>> import numpy as np
        >>> Held(None, -1).changed({"n": np.array([5.0])}, {"n": np.array([2.0])})
        {'n': array([3.])}
        """

        def added(held: Array, new: Array) -> Array:
            return held + self.sign * new

        return tree_map(added, before, rows)
