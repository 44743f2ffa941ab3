"""A whole federation on one machine under a virtual clock: who finishes when is computed, not waited for."""

from __future__ import annotations

import heapq
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from fedfactor.core.errors import IncompatibleError
from fedfactor.core.federation import Federation
from fedfactor.core.protocol import Algorithm, LocalFactors, Meta, Round, Scatter, Score, download_for
from fedfactor.core.run import RoundRecord, Run, Status
from fedfactor.core.tree import Tree, freeze, nbytes, tree_sum
from fedfactor.core.wire import Spec, check_message
from fedfactor.engines import client
from fedfactor.engines.base import AnyCallback, Inbox, Participation, check_fit
from fedfactor.engines.checkpoint import environment
from fedfactor.engines.watch import Watchers
from fedfactor.threads import limit_threads

Durations = Mapping[str, float] | Literal["rows", "equal"]


@dataclass(frozen=True, slots=True)
class VirtualEngine:
    """Runs clients one after the other, each upload at the moment a virtual clock gives it: the same every time.

    Parameters
    ----------
    barrier : bool
        False: each upload is merged when it arrives, and only its sender gets an answer (algorithms that say they are
        ``asynchronous``). True: rounds, each as long as its slowest client; any algorithm.
    durations : {"rows", "equal"} or mapping of name to float
        Virtual seconds of one client step: the client's share of all rows, alike for all, or as given.
    latency : float
        Virtual seconds that an exchange takes on the wire.
    evaluate : int
        Measure the error of all clients after every so many arrivals (rounds, with a barrier) and put it in the
        history as ``relative_error``. Takes no virtual time; 0 measures at the end only.

    Notes
    -----
    The history has one record for each arrival (each round, with a barrier) and tells ``virtual_time``. ``rounds``
    counts a client's steps on average: with N clients, N times as many arrivals, of which the fast clients have more.

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> from fedfactor.algorithms import AsynSD
    >>> X = np.random.default_rng(0).random((40, 6))
    >>> engine = VirtualEngine(durations={"fast": 1.0, "slow": 3.0})
    >>> run = fedfactor.run(AsynSD(2), {"fast": X[:10], "slow": X[10:]}, engine=engine, rounds=4, seed=0)
    >>> [record.participants[0] for record in run.history]
    ['fast', 'fast', 'fast', 'slow', 'fast', 'fast', 'fast', 'slow']
    """

    barrier: bool = False
    durations: Durations = "rows"
    latency: float = 0.0
    evaluate: int = 0

    simulation: ClassVar[bool] = True

    def run(
        self,
        algorithm: Algorithm,
        federation: Federation,
        *,
        rounds: int | None = None,
        seed: int = 0,
        participation: Participation = 1.0,
        checkpoint: Any = None,
        callbacks: Sequence[AnyCallback] = (),
        channel: Any = None,
    ) -> Run:
        """Run until clients have taken ``rounds`` steps on average."""
        if channel is not None:
            raise IncompatibleError("A virtual clock carries plain uploads only. Use the local engine for privacy.")
        self._refuse(algorithm, participation, checkpoint)
        meta = federation.prepare(algorithm.domain)
        expected = check_fit(algorithm, meta)
        rounds = algorithm.default_rounds if rounds is None else rounds
        if rounds < 1:
            raise ValueError(f"rounds={rounds} must be at least 1.")
        watch = Watchers(callbacks)
        run: Run | None = None
        try:
            with limit_threads(1):
                play = _Play(self, algorithm, federation, meta, expected, seed)
                run = play.run(rounds if self.barrier else rounds * meta.n_clients, watch)
            return run
        finally:
            watch.end(run)

    def _refuse(self, algorithm: Algorithm, participation: Participation, checkpoint: Any) -> None:
        if not self.barrier and not getattr(type(algorithm), "asynchronous", False):
            raise IncompatibleError(
                f"{type(algorithm).__name__} needs the uploads of all clients together. Use "
                "VirtualEngine(barrier=True), or a method made for single uploads, such as AsynSD."
            )
        if participation != 1.0:
            raise IncompatibleError("A virtual clock decides who takes part when; participation must stay 1.")
        if checkpoint is not None:
            raise IncompatibleError("A run under a virtual clock is short and repeatable: it keeps no checkpoint.")

    def seconds(self, federation: Federation) -> dict[str, float]:
        """Tell the virtual seconds of one step for each client."""
        names = federation.names
        if isinstance(self.durations, str):
            if self.durations == "equal":
                return dict.fromkeys(names, 1.0)
            if self.durations != "rows":
                raise ValueError(f"durations={self.durations!r} is not known. Use 'rows', 'equal' or a mapping.")
            return {name: federation.shard(name).n_rows / federation.n_rows for name in names}
        absent = [name for name in names if not self.durations.get(name, 0) > 0]
        if absent:
            raise ValueError(f"durations gives no positive time for client {absent[0]!r}.")
        return {name: float(self.durations[name]) for name in names}


class _Play:
    """One run under the clock."""

    def __init__(
        self,
        engine: VirtualEngine,
        algorithm: Algorithm,
        federation: Federation,
        meta: Meta,
        expected: dict[type, Spec],
        seed: int,
    ) -> None:
        self.engine, self.algorithm, self.federation = engine, algorithm, federation
        self.meta, self.expected, self.seed = meta, expected, seed
        server, down = algorithm.init_server(meta, Round(seed, 0))
        self.server, self.down = freeze(server), self._checked(down)
        self.states = {n: client.begin(algorithm, federation.shard(n), meta, seed, n) for n in meta.clients}
        self.steps = dict.fromkeys(meta.clients, 0)

    def run(self, total: int, watch: Watchers) -> Run:
        watch.start(self.algorithm, self.meta, total, 0)
        history: list[RoundRecord] = []
        status: Status = "rounds"
        moments = self._rounds(total) if self.engine.barrier else self._arrivals(total)
        for record in moments:
            if self.engine.evaluate and (record.index + 1) % self.engine.evaluate == 0:
                error = tree_sum(score for _, _, score in self._measure()).relative_error
                record = replace(record, metrics={**record.metrics, "relative_error": error})
            history.append(record)
            stop = watch.round(record)
            if self.algorithm.converged(self.server) or stop:
                status = "stopped" if stop else "converged"
                break
        factors: dict[str, LocalFactors] = {}
        scores: dict[str, Score] = {}
        for name, kept, score in self._measure():
            factors[name], scores[name] = kept, score
        about, features = environment(1), self.federation.feature_names
        down = self._settled()
        return Run(self.algorithm, self.seed, status, tuple(history), factors, scores, down, about, features)

    def _arrivals(self, total: int) -> Iterator[RoundRecord]:
        """Pop the next client to finish, merge its upload, and let it go on from the answer."""
        seconds = self.engine.seconds(self.federation)
        took = {name: seconds[name] + self.engine.latency for name in self.meta.clients}
        queue = [(took[name], name) for name in self.meta.clients]
        heapq.heapify(queue)
        received = dict.fromkeys(self.meta.clients, self.down)
        for index in range(total):
            began = time.perf_counter()
            now, name = heapq.heappop(queue)
            at = Round(self.seed, index, participants=(name,))
            down = received[name]
            inbox = Inbox(self.expected)
            self._work(name, down, at, inbox)
            self._merge(inbox, at)
            received[name] = self.down
            heapq.heappush(queue, (now + took[name], name))
            yield self._record(index, inbox, nbytes(download_for(down, name)), began, now)

    def _rounds(self, total: int) -> Iterator[RoundRecord]:
        """Let everybody work, wait for the slowest, merge."""
        slowest = max(self.engine.seconds(self.federation).values()) + self.engine.latency
        for index in range(total):
            began, down = time.perf_counter(), self.down
            at = Round(self.seed, index, participants=self.meta.clients)
            inbox = Inbox(self.expected)
            for name in self.meta.clients:
                self._work(name, down, at, inbox)
            self._merge(inbox, at)
            bytes_down = sum(nbytes(download_for(down, name)) for name in self.meta.clients)
            yield self._record(index, inbox, bytes_down, began, (index + 1) * slowest)

    def _work(self, name: str, down: Tree, at: Round, inbox: Inbox) -> None:
        # A client counts its own steps; only the server counts arrivals.
        here = replace(at, client=name, index=self.steps[name])
        shard, part = self.federation.shard(name), download_for(down, name)
        self.states[name], up = client.step(self.algorithm, shard, self.states[name], part, here)
        self.steps[name] += 1
        if up is not None:
            inbox.add(name, up)

    def _merge(self, inbox: Inbox, at: Round) -> None:
        if inbox.present:
            at = replace(at, participants=tuple(inbox.present))
            server, down = self.algorithm.server_step(self.server, freeze(inbox.combined), at)
            self.server, self.down = freeze(server), self._checked(down)

    def _record(self, index: int, inbox: Inbox, bytes_down: int, began: float, now: float) -> RoundRecord:
        metrics = {"virtual_time": now, **self.algorithm.report(self.server)}
        seconds = time.perf_counter() - began
        return RoundRecord(index, tuple(inbox.present), inbox.bytes_up, bytes_down, seconds, metrics)

    def _checked(self, down: Tree) -> Tree:
        if isinstance(down, Scatter):
            down = Scatter({name: freeze(part) for name, part in down.items.items()})
        else:
            down = freeze(down)
        for name in self.meta.clients:
            check_message(download_for(down, name), self.expected)
        return down

    def _settled(self) -> Tree:
        return self._checked(self.algorithm.settle(self.server, self.down))

    def _measure(self) -> Iterator[tuple[str, LocalFactors, Score]]:
        down = self._settled()
        for name in self.meta.clients:
            shard, part = self.federation.shard(name), download_for(down, name)
            yield name, *client.end(self.algorithm, shard, self.states[name], part)
