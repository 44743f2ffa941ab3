"""The clients of a simulation, served by threads of this process."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from fedfactor.core.algorithm import Algorithm, LocalFactors, Meta, Round, Score, download_for, one_of
from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.pytree import Tree, nbytes
from fedfactor.core.threads import limit_threads
from fedfactor.engines import client_step as client
from fedfactor.engines.capabilities import HasSteadyRounds
from fedfactor.engines.round import Clients, Receiving

if TYPE_CHECKING:
    from fedfactor.engines.local.cuda_graphs import Tape

logger = logging.getLogger("fedfactor")

MOST_HELD = 1 << 26
"""Bytes of uploads that are held at once, about: a thousand uploads must not be."""

A = TypeVar("A")
B = TypeVar("B")


class ThreadPool(Clients):
    """Clients served by threads, each by so many; with one worker, by this thread alone."""

    def __init__(
        self,
        algorithm: Algorithm,
        federation: Federation | None,
        meta: Meta,
        workers: int,
        threads: int = 1,
        *,
        plays: bool = False,
    ) -> None:
        self.algorithm = algorithm
        self.federation = federation
        self.meta = meta
        self.names = () if federation is None else federation.names  # a server's own process may have none
        self._states: dict[str, Tree] = {}
        self._plays = plays and workers == 1
        self._tape: Tape | None = None
        self._tried: tuple[str, ...] = ()
        self._workers = workers
        self._threads = workers * threads
        self._pool = ThreadPoolExecutor(workers, "fedfactor-client") if workers > 1 else None

    def shard(self, name: str) -> Shard:
        """Return one client's rows."""
        assert self.federation is not None
        return self.federation.shard(name)

    def begin(self, seed: int) -> None:
        """Make every client's first state."""

        def first(name: str) -> Tree:
            return client.begin(self.algorithm, self.shard(name), self.meta, seed, name)

        self._states = dict(zip(self.names, self._map(first, self.names), strict=True))

    def restore(self, states: Mapping[str, Tree]) -> None:
        """Take up states that were saved."""
        self._states = dict(states)

    def states(self) -> dict[str, Tree]:
        """Hand out all states, to be saved."""
        return dict(self._states)

    def step(self, name: str, down: Tree, at: Round) -> Tree:
        """Let one client take a step; returns its upload, or None when it stayed away."""
        here = replace(at, client=name)
        shard = self.shard(name)
        part = download_for(down, name)
        self._states[name], up = client.step(self.algorithm, shard, self._states[name], part, here)
        return up

    def steps(self, down: Tree, at: Round) -> Iterator[tuple[str, Tree]]:
        """Let those who are asked and are here take one step, a few at a time."""
        names = [name for name in at.participants if name in self._states]
        if self._pool is not None:
            size = self._at_once(down)
            served = 0
            while served < len(names) and (found := self._together(names[served : served + size], down, at)):
                with limit_threads(self._threads):
                    for name, (state, up) in found:
                        self._states[name] = state
                        yield name, up
                served += size
            rest = names[served:]
            yield from zip(rest, self._map(lambda name: self.step(name, down, at), rest), strict=True)
            return
        for name, (state, up) in self._in_turn({name: self._states[name] for name in names}, down, at):
            self._states[name] = state
            yield name, up

    def _at_once(self, down: Tree) -> int:
        """Return how many clients may be served in one go: their uploads, about as large as the download, are held."""
        return max(self._workers, min(8 * self._workers, MOST_HELD // max(1, nbytes(one_of(down)))))

    def _together(self, names: Sequence[str], down: Tree, at: Round) -> Iterable[tuple[str, tuple[Tree, Tree]]] | None:
        """Serve clients in one go, if the algorithm can: threads that do little else than compute wait less."""
        states, shards = [self._states[name] for name in names], [self.shard(name) for name in names]
        found = client.together(self.algorithm, shards, states, down, [replace(at, client=name) for name in names])
        return None if found is None else zip(names, found, strict=True)

    def _in_turn(self, states: Mapping[str, Tree], down: Tree, at: Round) -> Iterator[tuple[str, tuple[Tree, Tree]]]:
        shards = [self.shard(name) for name in states]
        ats = [replace(at, client=name) for name in states]
        yield from zip(states, client.steps(self.algorithm, shards, list(states.values()), down, ats), strict=True)

    def play(self, server: Tree, down: Tree, at: Round, *, ahead: bool) -> tuple[Tree, Tree, Tree] | None:
        """Replay a recorded round on a GPU; None where none was recorded, or where its result is not finite."""
        algorithm = self.algorithm
        everybody = tuple(at.participants) == self.names
        # Where another rank holds the server there is no state to ask about, and nothing is recorded.
        asked = self._plays and everybody
        if not (asked and isinstance(algorithm, HasSteadyRounds) and algorithm.steady(server, down)):
            self._tape = None
            return None
        if self._tape is None or not self._tape.serves(at.participants):
            if self._tried == at.participants:  # once in vain is enough
                return None
            self._tried = at.participants
            self._tape = self._recorded(server, down, at)
            if self._tape is None:
                return None
        place, seen, finite = self._tape.play(ahead=ahead)
        if not finite:
            self._plays = False
            self._tape = None
            return None
        self._states = dict(place.states)
        return place.server, place.down, seen

    def _recorded(self, server: Tree, down: Tree, at: Round) -> Tape | None:
        from fedfactor.engines.local.cuda_graphs import Tape  # late: it needs torch, and a GPU

        def steps(states: Mapping[str, Tree], down: Tree, at: Round) -> list[tuple[str, tuple[Tree, Tree]]]:
            return list(self._in_turn(states, down, at))

        try:
            return Tape(self.algorithm, steps, self._states, server, down, at)
        except Exception as error:  # whatever cannot be recorded is taken step by step
            logger.info("Rounds are not recorded: %s", error)
            return None

    def exchange(self, down: Tree, at: Round, receiver: Receiving) -> None:
        """Let clients take one step."""
        for name, up in self.steps(down, at):
            if up is not None:
                receiver.add(name, up)

    def end(self, down: Tree) -> Iterator[tuple[str, LocalFactors | None, Score]]:
        """Let every client finish; its state is let go at once, so that U is held once."""

        def work(name: str) -> tuple[LocalFactors, Score]:
            return client.end(self.algorithm, self.shard(name), self._states.pop(name), download_for(down, name))

        for name, (factors, score) in zip(self.names, self._map(work, self.names), strict=True):
            yield name, factors, score

    def close(self) -> None:
        """Stop the threads."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def _map(self, work: Callable[[A], B], items: Iterable[A]) -> Iterator[B]:
        """Map in order with few results waiting: a thousand uploads must not be held at once."""
        if self._pool is None:
            yield from map(work, items)
            return
        waiting: deque[Future[B]] = deque()
        for item in items:
            waiting.append(self._pool.submit(work, item))
            if len(waiting) > 2 * self._workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
