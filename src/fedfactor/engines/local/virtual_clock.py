"""A federation on one machine under a virtual clock: the time at which each client finishes is computed."""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar, Literal

from fedfactor.core.algorithm import Algorithm, Meta, Round, download_for
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.parameters import setting
from fedfactor.core.pytree import Tree, tree_sum
from fedfactor.core.run import RoundRecord, Run
from fedfactor.core.threads import limit_threads
from fedfactor.engines import client_step as client
from fedfactor.engines.checkpoint import Snapshot
from fedfactor.engines.client_sampling import Participation
from fedfactor.engines.engine import check_fit
from fedfactor.engines.engine_base import Asked, Carrier
from fedfactor.engines.local.thread_pool import ThreadPool
from fedfactor.engines.round import Receiving, Rounds

Durations = Mapping[str, float] | Literal["rows", "equal"]


@dataclass(frozen=True, slots=True)
class VirtualEngine(Carrier):
    """Runs clients one after the other, each upload at the moment a virtual clock gives it: the same every time.

    Parameters
    ----------
    barrier : bool
        False: each upload is merged when it arrives, and only its sender gets an answer (algorithms that declare
        themselves ``asynchronous``). True: rounds, each as long as its slowest client; any algorithm.
    durations : {"rows", "equal"} or mapping of name to float
        Virtual seconds of one client step: the client's share of all rows, alike for all, or as given.
    latency : float
        Virtual seconds that an exchange takes on the wire.
    evaluate : int
        Measure the error of all clients after every so many arrivals (rounds, with a barrier) and put it in the
        history as ``relative_error``. Takes no virtual time; 0 measures at the end only.

    Notes
    -----
    The history has one record for each arrival (each round, with a barrier) and contains ``virtual_time``. ``rounds``
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
    latency: float = setting("", default=0.0, at_least=0)
    evaluate: int = setting("", default=0, at_least=0)

    simulation: ClassVar[bool] = True

    @property
    def channels(self) -> bool:
        """Whether uploads can be protected: without rounds each is merged alone, and nothing protects that."""
        return self.barrier

    def _carry(self, asked: Asked) -> Run:
        """Run until clients have taken ``rounds`` steps on average."""
        algorithm = asked.algorithm
        federation = asked.federation
        self._refuse(algorithm, asked.participation, asked.checkpoint, asked.channel)
        meta = federation.prepare(algorithm.domain)
        check_fit(algorithm, meta)
        with limit_threads(1):
            clients = _Clocked(self, algorithm, federation, meta)
            loop = asked.loop(meta, clients, rounds=asked.rounds * (1 if self.barrier else meta.n_clients))
            status = loop.run() if self.barrier else loop.stream(clients.next)
            return loop.finish(status, 1, federation.feature_names)

    def _refuse(self, algorithm: Algorithm, participation: Participation, checkpoint: Any, channel: Any) -> None:
        if channel is not None and not self.channels:
            raise IncompatibleError("Without rounds no channel protects an upload: use VirtualEngine(barrier=True).")
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
        """Return the virtual seconds of one step for each client."""
        names = federation.names
        if isinstance(self.durations, str):
            if self.durations == "equal":
                return dict.fromkeys(names, 1.0)
            return {name: federation.shard(name).n_rows / federation.n_rows for name in names}
        given = {name: self.durations.get(name, 0) for name in names}
        absent = [name for name, time in given.items() if not isinstance(time, Real) or not 0 < time < math.inf]
        if absent:
            raise ValueError(f"durations gives no positive time for client {absent[0]!r}.")
        return {name: float(self.durations[name]) for name in names}


class _Clocked(ThreadPool):
    """Clients under the clock: what each was sent last, how many steps it took, and what time it is."""

    def __init__(self, engine: VirtualEngine, algorithm: Algorithm, federation: Federation, meta: Meta) -> None:
        super().__init__(algorithm, federation, meta, 1)
        seconds = engine.seconds(federation)
        self.took = {name: seconds[name] + engine.latency for name in meta.clients}
        self.evaluate = engine.evaluate
        self.now = 0.0
        self.queue = sorted((took, name) for name, took in self.took.items())
        self.received: dict[str, Tree] = {}
        self.taken = dict.fromkeys(meta.clients, 0)

    def exchange(self, down: Tree, at: Round, receiver: Receiving) -> None:
        """Let every worker compute, and wait for the slowest."""
        super().exchange(down, at, receiver)
        self.now = (at.index + 1) * max(self.took.values())

    def next(self, loop: Rounds, snapshot: Snapshot) -> Snapshot:
        """Take the next client to finish, merge its upload, and let it go on from the answer."""
        began = time.perf_counter()
        self.received = self.received or dict.fromkeys(self.meta.clients, snapshot.down)
        self.now, name = heapq.heappop(self.queue)
        # A client counts its own steps; only the server counts arrivals.
        at = Round(loop.seed, self.taken[name], participants=(name,))
        up = self.step(name, self.received[name], at)
        self.taken[name] += 1
        merged = loop.arrival(snapshot, name, lambda to: None if up is None else to.add(name, up), began)
        self.received[name] = merged.down
        heapq.heappush(self.queue, (self.now + self.took[name], name))
        return merged

    def note(self, record: RoundRecord, server: Tree, down: Tree) -> RoundRecord:
        """Record the time, and now and then the error of all clients."""
        metrics = {"virtual_time": self.now, **record.metrics}
        if self.evaluate and (record.index + 1) % self.evaluate == 0:
            down = self.algorithm.settle(server, down)
            parts = (
                client.end(self.algorithm, self.shard(n), state, download_for(down, n))
                for n, state in self.states().items()
            )
            metrics["relative_error"] = tree_sum(score for _, score in parts).relative_error
        return replace(record, metrics=metrics)
