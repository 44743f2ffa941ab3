"""The server's state as every party computes it for itself, so that a coordinator cannot choose what it asks.

Algorithms are pure functions of the totals: a party that knows the totals takes the server's step, and admits no other
download than the one that follows. Between machines floating-point results differ by rounding: such leaves may differ
by the tolerance that their specification declares; all others must be equal. Then the values of the coordinator are
adopted by every party, so that rounding does not accumulate.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fedfactor.core.algorithm import Algorithm, Meta, Round
from fedfactor.core.pytree import Tree, freeze, kind_of, leaves, to_numpy, tree_map
from fedfactor.core.wire import Leaf, Spec

__all__ = ["Replica", "difference"]

ROUNDING = 2.0**-42
"""Relative error of a total that stands for rounding where a decision of the server hangs on it (a loss that rose)."""


@dataclass(frozen=True, slots=True)
class Replica:
    """What a party computes in the server's place.

    Parameters
    ----------
    algorithm, meta
        Of the run.
    seed : int
        Of the run, from which the server's random numbers follow.
    expected : mapping
        The specification of all messages, with the tolerance of each leaf.
    """

    algorithm: Algorithm
    meta: Meta
    seed: int
    expected: Mapping[type, Spec]

    def first(self, down: Tree) -> tuple[Tree, Tree, str]:
        """Return the first state of the server with the download adopted, and why the download is not right, if so."""
        server, mine = self.algorithm.init_server(self.meta, Round(self.seed, 0))
        return self._adopt(freeze(server), freeze(mine), down)

    def following(self, server: Tree, total: Tree, index: int, down: Tree) -> tuple[Tree, Tree, str]:
        """Take the server's step of a round, and compare its download with the next question."""
        first = ""
        for combined in _rounded(total):
            after, mine = self.step(server, combined, index)
            if self.algorithm.converged(after):
                reason = "the run has converged, and another round was asked for"
            else:
                found, adopted, reason = self._adopt(after, mine, down)
                if not reason:
                    return found, adopted, ""
            first = first or reason
        return None, None, first

    def last(self, server: Tree, total: Tree, index: int, down: Tree) -> tuple[Tree, Tree, str]:
        """Take the server's step of the last round, and compare what clients are to finish with."""
        reason = ""
        for combined in _rounded(total):
            after, mine = self.step(server, combined, index)
            settled = freeze(self.algorithm.settle(after, mine))
            wrong = difference(settled, down, self.expected)
            if not wrong:
                return after, down, ""
            reason = reason or wrong
        return None, None, reason

    def step(self, server: Tree, combined: Tree, index: int) -> tuple[Tree, Tree]:
        """Take the server's step of a round in which all parties took part."""
        at = Round(self.seed, index, None, self.meta.clients)
        after, mine = self.algorithm.server_step(server, freeze(combined), at)
        return freeze(after), freeze(mine)

    def _adopt(self, server: Tree, mine: Tree, down: Tree) -> tuple[Tree, Tree, str]:
        reason = difference(mine, down, self.expected)
        return (None, None, reason) if reason else (adopt(server, mine, down), down, "")


def difference(mine: Tree, theirs: Tree, expected: Mapping[type, Spec]) -> str:
    """Return how a download differs from the one that a party computed, beyond rounding; or nothing."""
    kind = kind_of(mine)
    if kind_of(theirs) is not kind:
        return f"a {kind_of(theirs).__name__} was sent where a {kind.__name__} follows from the totals"
    one = dict(leaves(mine))
    other = dict(leaves(theirs))
    if one.keys() != other.keys():
        return f"{kind.__name__} has other parts than what follows from the totals"
    for path, leaf in one.items():
        if not _agree(to_numpy(leaf), to_numpy(other[path]), expected[kind][path]):
            return f"{kind.__name__}.{path} is not what follows from the totals"
    return ""


def _agree(mine: np.ndarray, theirs: np.ndarray, leaf: Leaf) -> bool:
    if mine.dtype != theirs.dtype or mine.shape != theirs.shape:
        return False
    if np.array_equal(mine, theirs):
        return True
    if mine.dtype.kind != "f":
        return False
    relative, absolute = leaf.rounding
    whole = mine.astype(np.float64)
    room = relative * np.abs(whole) + absolute * float(np.abs(whole).max(initial=0.0))
    return bool((np.abs(whole - theirs.astype(np.float64)) <= room).all())


def adopt(server: Tree, mine: Tree, theirs: Tree) -> Tree:
    """Put the coordinator's values into a party's own state of the server, wherever it holds the download's own."""
    other = dict(leaves(theirs))
    swaps: list[tuple[np.ndarray, np.ndarray]] = []
    for path, leaf in leaves(mine):
        own, new = to_numpy(leaf), to_numpy(other[path])
        if own.dtype.kind == "f" and not np.array_equal(own, new):
            swaps.append((own, new))
    if not swaps:
        return server

    def swapped(leaf: Any) -> Any:
        held = to_numpy(leaf)
        for own, new in swaps:
            if held.shape == own.shape and held.dtype == own.dtype and np.array_equal(held, own):
                return new
        return leaf

    return freeze(tree_map(swapped, server))


def _rounded(total: Tree) -> Iterator[Tree]:
    """Return a total, and what it might be on another machine: a decision of the server may hang on its rounding."""
    yield total
    for scale in (1.0 + ROUNDING, 1.0 - ROUNDING):
        yield tree_map(partial(_scaled, scale), total)


def _scaled(scale: float, leaf: Any) -> Any:
    array = to_numpy(leaf)
    return array * array.dtype.type(scale) if array.dtype == np.float64 else leaf
