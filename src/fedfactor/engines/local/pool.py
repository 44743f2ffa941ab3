"""Those who serve the clients of a simulation: threads of this process, or processes of their own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Protocol, TypeVar

from fedfactor.core.federation import Federation
from fedfactor.core.protocol import Algorithm, LocalFactors, Meta, Round, Score, download_for
from fedfactor.core.tree import Tree
from fedfactor.engines import client

A = TypeVar("A")
B = TypeVar("B")


class ClientPool(Protocol):
    """Holds client states and works on them; answers always come in the order of the names asked for."""

    def begin(self, seed: int) -> None:
        """Make every client's first state."""
        ...

    def restore(self, states: Mapping[str, Tree]) -> None:
        """Take up states that were saved."""
        ...

    def states(self) -> dict[str, Tree]:
        """Hand out all states, to be saved."""
        ...

    def step(self, names: Sequence[str], down: Tree, at: Round) -> Iterator[tuple[str, Tree]]:
        """Let these clients take one step; yields (name, upload or None)."""
        ...

    def end(self, down: Tree) -> Iterator[tuple[str, LocalFactors, Score]]:
        """Let every client finish."""
        ...

    def close(self) -> None:
        """Let go of everything."""
        ...


class ThreadPool:
    """Clients served by threads; with one worker, by this thread alone."""

    def __init__(self, algorithm: Algorithm, federation: Federation, meta: Meta, workers: int) -> None:
        self._algorithm = algorithm
        self._federation = federation
        self._meta = meta
        self._states: dict[str, Tree] = {}
        self._workers = workers
        self._pool = ThreadPoolExecutor(workers, "fedfactor-client") if workers > 1 else None

    def begin(self, seed: int) -> None:
        """Make every client's first state."""

        def first(name: str) -> Tree:
            return client.begin(self._algorithm, self._federation.shard(name), self._meta, seed, name)

        self._states = dict(zip(self._meta.clients, self._map(first, self._meta.clients), strict=True))

    def restore(self, states: Mapping[str, Tree]) -> None:
        """Take up states that were saved."""
        self._states = dict(states)

    def states(self) -> dict[str, Tree]:
        """Hand out all states, to be saved."""
        return dict(self._states)

    def step(self, names: Sequence[str], down: Tree, at: Round) -> Iterator[tuple[str, Tree]]:
        """Let these clients take one step, a few at a time, and yield uploads in name order."""

        def work(name: str) -> tuple[Tree, Tree]:
            here = replace(at, client=name)
            shard = self._federation.shard(name)
            return client.step(self._algorithm, shard, self._states[name], download_for(down, name), here)

        for name, (state, up) in zip(names, self._map(work, names), strict=True):
            self._states[name] = state
            yield name, up

    def end(self, down: Tree) -> Iterator[tuple[str, LocalFactors, Score]]:
        """Let every client finish; its state is let go at once, so that U is held once."""

        def work(name: str) -> tuple[LocalFactors, Score]:
            shard = self._federation.shard(name)
            return client.end(self._algorithm, shard, self._states.pop(name), download_for(down, name))

        names = self._meta.clients
        for name, (factors, score) in zip(names, self._map(work, names), strict=True):
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
