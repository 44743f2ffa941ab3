"""A round on a GPU, recorded once as a CUDA graph and replayed: Python takes longer for a round than the GPU does.

A CUDA graph holds every launch of a round: the steps of all clients, their sum, the server's step. It reads and writes
fixed places, so there are three of each, and three graphs, each from one place to the next: while the last round is
looked at, the next one is already being played, and the one before it is still there.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from fedfactor.core.algorithm import Algorithm, Round
from fedfactor.core.pytree import Tree, leaves, tree_map, tree_sum
from fedfactor.core.wire import checksum

Steps = Callable[[Mapping[str, Tree], Tree, Round], list[tuple[str, tuple[Tree, Tree]]]]
"""The steps of all clients: states and a download in; names, new states and uploads out, in name order."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a round leaves: states of clients and server, the download, and its record."""

    states: dict[str, Tree]
    server: Tree
    down: Tree
    numbers: Any = None


class Tape:
    """The rounds of a run whose every launch is known.

    Parameters
    ----------
    algorithm : Algorithm
        One with :class:`~fedfactor.engines.capabilities.HasSteadyRounds`, of this server and this download.
    steps : function
        The steps of all clients.
    states, server, down
        What the last round left; they belong to the tape from now on.
    at : Round
        Who takes part.
    """

    def __init__(
        self, algorithm: Algorithm, steps: Steps, states: dict[str, Tree], server: Tree, down: Tree, at: Round
    ) -> None:
        torch: Any = import_module("torch")
        self._algorithm = algorithm
        self._steps = steps
        self._torch = torch
        self._names = at.participants
        first = Place(dict(states), server, down)
        self._places = [first]
        self._graphs = list[Any]()
        for step in range(3):
            with _recording(torch) as graph:
                place = self._round(self._places[-1], at)
                if step == 2:
                    for (_, old), (_, new) in zip(_on_card(first), _on_card(place), strict=True):
                        old.copy_(new)
                    place = Place(first.states, server, down, place.numbers)
            self._graphs.append(graph)
            self._places.append(place)
        self._places = [self._places[3], *self._places[1:3]]
        self._host = [torch.empty(place.numbers.shape, dtype=torch.float64, pin_memory=True) for place in self._places]
        self._told: list[Any] = [None] * 3
        self._at = 0
        self._ahead = False

    def _round(self, before: Place, at: Round) -> Place:
        """Take a round; its plain numbers are put together, to be fetched in one go."""
        found = self._steps(before.states, before.down, at)
        combined = tree_sum(up for _, (_, up) in found)
        server, down = self._algorithm.server_step(before.server, combined, at)
        numbers = [leaf for _, leaf in leaves(server) if _single(leaf)]
        told = self._torch.stack([*(leaf.double() for leaf in numbers), checksum(combined), checksum(down)])
        return Place({name: state for name, (state, _) in found}, server, down, told)

    def serves(self, names: tuple[str, ...]) -> bool:
        """Return whether these clients take part in the recorded round."""
        return names == self._names

    def play(self, *, ahead: bool) -> tuple[Place, Tree, bool]:
        """Replay a round and start the next; return its result, with the server's numbers in main memory, if all is
        finite.
        """
        if not self._ahead:
            self._launch(self._at)
        now = self._at = (self._at + 1) % 3
        self._ahead = ahead
        if ahead:
            self._launch(now)
        self._told[now].synchronize()
        place = self._places[now]
        numbers = self._host[now].tolist()
        told = iter(numbers)

        def seen(leaf: Any) -> Any:
            return np.float64(next(told)) if _single(leaf) else leaf

        return place, tree_map(seen, place.server), bool(np.isfinite(numbers[-2:]).all())

    def _launch(self, at: int) -> None:
        self._graphs[at].replay()
        to = (at + 1) % 3
        self._host[to].copy_(self._places[to].numbers, non_blocking=True)
        self._told[to] = self._torch.cuda.current_stream().record_event()


@contextmanager
def _recording(torch: Any) -> Generator[Any]:
    """Record operations instead of running them; no memory may be freed meanwhile."""
    graph = torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    collects = gc.isenabled()
    side.wait_stream(torch.cuda.current_stream())
    gc.disable()
    try:
        with torch.cuda.stream(side):
            graph.capture_begin(capture_error_mode="relaxed")
            try:
                yield graph
            finally:
                graph.capture_end()
    finally:
        if collects:
            gc.enable()
    torch.cuda.current_stream().wait_stream(side)


def _on_card(place: Place) -> list[tuple[str, Any]]:
    whole = {"states": place.states, "server": place.server, "down": place.down}
    return [(path, leaf) for path, leaf in leaves(whole) if getattr(leaf, "is_cuda", False)]


def _single(leaf: Any) -> bool:
    return bool(getattr(leaf, "is_cuda", False)) and len(leaf.shape) == 0
