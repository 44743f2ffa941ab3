"""A run without rounds: every upload is merged when it arrives, and only its sender gets an answer."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedfactor.core.algorithm import download_for
from fedfactor.core.pytree import Tree
from fedfactor.engines.checkpoint import Snapshot
from fedfactor.engines.round import Receiving, Rounds
from fedfactor.network.backoff import Backoff
from fedfactor.network.exchange import Asking, NotEnough
from fedfactor.network.remote_clients import RemoteClients

if TYPE_CHECKING:
    from fedfactor.network.server import Server


class Stream(RemoteClients):
    """Questions on their way, one per client.

    What each client is working on is kept beside the server's state: a restarted server asks the same again, and a
    client that had answered gives the same bytes.
    """

    def __init__(self, server: Server) -> None:
        super().__init__(server)
        self._work: dict[str, dict[str, Tree]] = {}
        self._asking: dict[str, Asking] = {}
        self._arrived: deque[str] = deque()
        self._heard = server.exchange.clock()
        self._wait = Backoff(server.policy.poll)

    def begin(self, seed: int) -> None:
        """Let columns be added up; first states are made by the parties themselves."""
        super().begin(seed)
        self._heard = self.server.exchange.clock()

    def restore(self, states: Mapping[str, Tree]) -> None:
        """Ask again what each client was working on."""
        super().restore(states)
        self._work, self._heard = dict(states), self.server.exchange.clock()

    def states(self) -> dict[str, Tree]:
        """Hand out what each client works on."""
        return dict(self._work)

    def _ask(self, name: str) -> Asking:
        work = self._work[name]
        server = self.server
        head = replace(server.head("step", int(work["step"])), participants=(name,))
        payload = server.agreement.payload
        since = {name: last_step(work)}
        return Asking(server.exchange, head, {name: work["down"]}, server.ups, payload, payload, since)

    def turn(self, loop: Rounds, snapshot: Snapshot) -> Snapshot:
        """Look for messages once: merge one that came and answer it, or ask the silent again and wait a little."""
        exchange = self.server.exchange
        names = self.server.meta.clients
        there = exchange.transport.present()
        if not self._work:
            self._work = {name: _work(snapshot.down, name, 0, -1) for name in names}
        for name in names:
            if name not in self._asking:  # only now: what its last answer led to has been kept
                self._asking[name] = self._ask(name)
                self._asking[name].again(there)
        if not self._arrived:
            self._listen(there)
        if self._arrived:
            return self._merge(loop, snapshot, self._arrived.popleft())
        if exchange.clock() - self._heard > self.server.policy.deadline:
            raise NotEnough(f"No party answered for {self.server.policy.deadline:g} s. Start the run again later.")
        self.server.tick({"state": f"upload {snapshot.next_round} of {loop.rounds}"})
        exchange.sleep(self._wait.next())
        return snapshot

    def _listen(self, there: Mapping[str, str]) -> None:
        exchange = self.server.exchange
        for asking in self._asking.values():
            asking.again(there)
        for arrival in exchange.transport.collect():
            asking = self._asking.get(arrival.client)
            if asking is None:
                exchange.tally.count("unknown", arrival.client)
                continue
            asking.take(arrival)
            came = arrival.client in asking.answers or arrival.client in asking.left_out
            if came and arrival.client not in self._arrived:
                self._arrived.append(arrival.client)

    def _merge(self, loop: Rounds, snapshot: Snapshot, name: str) -> Snapshot:
        began = time.perf_counter()
        asking = self._asking.pop(name)
        work = self._work[name]

        def hand(receiver: Receiving) -> None:
            if name in asking.answers:
                receiver.add(name, asking.answers[name])
            else:
                receiver.reject(name, asking.left_out[name])

        merged = loop.arrival(snapshot, name, hand, began)
        step = int(work["step"])
        # A step that was left out never happened: the client goes on from the one before.
        since = step if merged.history[-1].participants else last_step(work)
        self._work[name] = _work(merged.down, name, step + 1, since)
        self._heard = self.server.exchange.clock()
        self._wait.hurry()
        return replace(merged, clients=self.states())


def last_step(work: Mapping[str, Any]) -> int:
    """Return the last step of a client that went into the server's state; -1 when none did."""
    return int(work.get("since", work["step"] - 1))


def _work(down: Tree, name: str, step: int, since: int) -> dict[str, Tree]:
    return {"down": download_for(down, name), "step": np.asarray(step), "since": np.asarray(since)}
