"""A run without rounds: every upload is merged when it arrives, and only its sender gets an answer."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedfactor.core.protocol import Round, download_for
from fedfactor.core.run import RoundRecord
from fedfactor.core.tree import Tree, freeze
from fedfactor.engines.base import Inbox
from fedfactor.engines.checkpoint import Snapshot
from fedfactor.engines.remote.backoff import Backoff
from fedfactor.engines.remote.exchange import Asking, NotEnough

if TYPE_CHECKING:
    from fedfactor.engines.remote.server import Server


class Stream:
    """Questions on their way, one per client.

    What each client is working on is kept beside the server's state: a restarted server asks the same again, and a
    client that had answered gives the same bytes.
    """

    def __init__(self, server: Server, snapshot: Snapshot) -> None:
        self.server, self.snapshot = server, snapshot
        self.total = server.agreement.rounds * server.meta.n_clients
        if not snapshot.clients:
            first = {name: _work(snapshot.down, name, 0) for name in server.meta.clients}
            self.snapshot = replace(snapshot, clients=first)
        self.asking = {name: self._ask(name) for name in server.meta.clients}
        self.heard = server.exchange.clock()
        self.pace = Backoff(server.policy.poll)

    def _ask(self, name: str) -> Asking:
        work = self.snapshot.clients[name]
        head = replace(self.server.head("step", int(work["step"])), participants=(name,))
        payload = self.server.agreement.payload
        since = {name: int(work["step"]) - 1}
        return Asking(self.server.exchange, head, {name: work["down"]}, self.server.ups, payload, payload, since)

    def turn(self) -> None:
        """Look into the mail once: merge what came, answer it, and ask the silent again."""
        exchange = self.server.exchange
        there = exchange.post.present()
        for asking in self.asking.values():
            asking.again(there)
        for arrival in exchange.post.collect():
            asking = self.asking.get(arrival.client)
            if asking is None:
                exchange.tally.count("unknown", arrival.client)
                continue
            asking.take(arrival)
            if arrival.client in asking.answers and not self.ended:
                self._merge(arrival.client, asking.answers[arrival.client])
                self.heard = exchange.clock()
                self.pace.hurry()
                self.asking[arrival.client] = self._ask(arrival.client)
                self.asking[arrival.client].again(there)
        if exchange.clock() - self.heard > self.server.policy.deadline:
            raise NotEnough(f"Nobody answered for {self.server.policy.deadline:g} s. Start the run again later.")

    @property
    def ended(self) -> bool:
        """Whether no further upload is wanted."""
        return bool(self.snapshot.ended) or self.snapshot.next_round >= self.total

    def _merge(self, name: str, up: Tree) -> None:
        began, server, index = time.perf_counter(), self.server, self.snapshot.next_round
        inbox = Inbox(server.expected)
        inbox.add(name, up)
        at = Round(server.agreement.seed, index, participants=(name,))
        state, sent = server.algorithm.server_step(self.snapshot.server, freeze(inbox.combined), at)
        state, down = freeze(state), server.checked(sent)
        traffic = server.exchange.take_bytes()
        record = RoundRecord(index, (name,), *traffic, time.perf_counter() - began, server.algorithm.report(state))
        work = {**self.snapshot.clients, name: _work(down, name, int(self.snapshot.clients[name]["step"]) + 1)}
        history = (*self.snapshot.history, record)
        self.snapshot = replace(
            self.snapshot, next_round=index + 1, server=state, down=down, clients=work, history=history
        )
        if server.algorithm.converged(state):
            self.snapshot = replace(self.snapshot, ended="converged")
        server.checkpoint.save(self.snapshot)
        server.snapshot = self.snapshot


def flow(server: Server, snapshot: Snapshot) -> Snapshot:
    """Merge uploads as they come until clients have taken the agreed steps on average."""
    stream = Stream(server, snapshot)
    while not stream.ended:
        if (server.folder / "stop").exists():
            stream.snapshot = replace(stream.snapshot, ended="stopped")
            server.checkpoint.save(stream.snapshot)
            break
        stream.turn()
        server.tick({"state": f"upload {stream.snapshot.next_round} of {stream.total}"})
        if not stream.ended:
            server.exchange.sleep(stream.pace.next())
    return stream.snapshot


def _work(down: Tree, name: str, step: int) -> dict[str, Tree]:
    return {"down": download_for(down, name), "step": np.asarray(step)}
