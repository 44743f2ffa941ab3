"""Flower's grid as a transport: names are tied to registered keys, and replies are pulled as often as we like."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from flwr.app import Message, MessageType

from fedfactor.core.errors import ProtocolError
from fedfactor.network.exchange import Arrival
from fedfactor.network.flower.records import from_record, to_record

FRESH = 1.0
"""Seconds for which a list of nodes is good."""

KEPT = 4
"""Tickets per client that are still looked after: replies to older ones are of no use to anybody."""


class FlowerTransport:
    """Carries messages over a Flower grid.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        What Flower hands to a ServerApp.
    keys : mapping of name to bytes
        Public key of every party, as Flower stores it. Nodes with other keys are never spoken to.
    ttl : float
        Seconds after which Flower may forget a message.
    """

    def __init__(self, grid: Any, keys: Mapping[str, bytes], ttl: float = 3600.0) -> None:
        self._grid, self._ttl = grid, ttl
        self._names = {key.strip(): name for name, key in keys.items()}
        self._nodes: dict[str, int] = {}
        self._tickets: dict[str, str] = {}
        self._seen: tuple[float, dict[str, str]] = (float("-inf"), {})

    def present(self) -> Mapping[str, str]:
        """Name the parties whose nodes are online, with the moment they came online; looked up once a second."""
        if time.monotonic() - self._seen[0] >= FRESH:
            self._seen = (time.monotonic(), self._look())
        return self._seen[1]

    def _look(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for node in self._grid.get_nodes():
            name = self._names.get(bytes(node.public_key).strip())
            if name is not None and node.status == "online":
                self._nodes[name] = node.node_id
                found[name] = f"{node.node_id} {node.last_activated_at}"
        return found

    def send(self, messages: Iterable[tuple[str, bytes]], most: int) -> None:
        """Push each as a Flower message."""
        batch = [(name, data) for name, data in messages if name in self._nodes]
        wrapped = [
            Message(to_record(data), self._nodes[name], MessageType.QUERY, ttl=self._ttl) for name, data in batch
        ]
        for (name, _), ticket in zip(batch, self._grid.push_messages(wrapped), strict=True):
            if ticket:
                self._tickets[ticket] = name
        for name, _ in batch:
            for old in [ticket for ticket, owner in self._tickets.items() if owner == name][:-KEPT]:
                del self._tickets[old]

    def collect(self) -> Sequence[Arrival]:
        """Pull what has come."""
        if not self._tickets:
            return ()
        arrivals: list[Arrival] = []
        for message in self._grid.pull_messages(list(self._tickets)):
            name = self._tickets.pop(message.metadata.reply_to_message_id, None)
            if name is None:
                continue
            if message.has_error():
                arrivals.append(Arrival(name, failure=str(message.error.reason)[:500]))
                continue
            try:
                arrivals.append(Arrival(name, from_record(message.content)))
            except ProtocolError:
                arrivals.append(Arrival(name, b"no message"))
        return arrivals
