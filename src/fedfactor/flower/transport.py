"""Flower's grid as a transport of the request/response protocol."""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from flwr.app import Message, MessageType

from fedfactor.core.errors import ProtocolError
from fedfactor.flower.records import Envelope, Kind, from_record, to_record
from fedfactor.flower.signatures import is_signed, statement
from fedfactor.network.exchange import Arrival
from fedfactor.network.message_format import Head, read_head

logger = logging.getLogger("fedfactor")

FRESH = 1.0
"""Seconds for which a list of nodes is good."""

AGAIN = 20.0
"""Seconds after which a node that did not answer is asked again. A question that is repeated waits twice as long each
time: a node works on its messages one after the other, and a slow one would only get further behind."""

KEPT = 4
"""Questions per node whose answers are still collected: answers to older ones are of no use."""

UNSIGNED = b"no signed answer"
"""Stands for an answer that is not signed by the party of its node: the server rejects and counts it as malformed."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A question whose answer is awaited; ``head`` is that of its first attempt."""

    node: int
    kind: Kind
    question: bytes
    name: str = ""
    most: int = 0
    head: Head | None = None
    when: float = 0.0


class GridTransport:
    """Carries messages over a Flower grid.

    A node is asked once which party answers there. Its answer, and each later one, counts only with a signature by the
    party's key in the terms: neither another node nor the SuperLink can answer in a party's name.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        What Flower passes to a ServerApp.
    run_id : int
        Of the Flower run.
    keys : mapping of str to bytes
        Public key of each party, as PEM.
    terms : str
        Fingerprint of the terms.
    ttl : float
        Seconds after which Flower may forget a message.
    """

    def __init__(self, grid: Any, run_id: int, keys: Mapping[str, bytes], terms: str, ttl: float = 3600.0) -> None:
        self._grid = grid
        self._run_id = run_id
        self._keys = dict(keys)
        self._terms = terms
        self._ttl = ttl
        self._asked: dict[str, Asked] = {}
        self._names: dict[int, tuple[str, bool]] = {}
        self._since: dict[int, float] = {}
        self._tried: dict[int, tuple[float, int]] = {}
        self._present: dict[str, str] = {}
        self._addresses: dict[str, int] = {}
        self._looked = float("-inf")

    def present(self) -> Mapping[str, str]:
        """Return the parties whose nodes are online, each with a mark that changes when its node comes back."""
        if time.monotonic() - self._looked >= FRESH:
            self._look()
        return self._present

    def _look(self) -> None:
        now = time.monotonic()
        online = {int(node) for node in self._grid.get_node_ids()}
        for known in (self._since, self._names, self._tried):
            for node in [node for node in known if node not in online]:
                del known[node]
        for node in online:
            self._since.setdefault(node, now)
        for answer in self._pull("identify"):
            self._identify(*answer)
        found: dict[str, tuple[bool, float, int]] = {}
        for node, (name, agreed) in self._names.items():  # of two nodes of one party, the one that came last
            if agreed or now - self._since[node] >= AGAIN:  # a relay to another federation must not be first
                found[name] = max(found.get(name, (False, float("-inf"), 0)), (agreed, self._since[node], node))
        self._addresses = {name: node for name, (_, _, node) in found.items()}
        self._present = {name: f"{node} {since}" for name, (_, since, node) in found.items()}
        settled = {node for node, (_, agreed) in self._names.items() if agreed}
        due = [node for node in sorted(online - settled) if self._is_due(node, now)]
        self._tried |= {node: (now, self._tried.get(node, (now, 0))[1] + 1) for node in due}
        self._push([Asked(node, "identify", secrets.token_bytes(32)) for node in due])
        self._looked = time.monotonic()

    def _is_due(self, node: int, now: float) -> bool:
        """Return whether a node is to be asked who it is: first at once, and later the more seldom it answers."""
        when, times = self._tried.get(node, (float("-inf"), 0))
        return now - when >= AGAIN * 2 ** max(times - 1, 0)

    def _identify(self, asked: Asked, message: Message) -> None:
        """Learn which party answers at a node; one that signed other terms is asked too, and refuses."""
        if asked.node in self._tried:
            self._tried[asked.node] = self._tried[asked.node][0], 1
        if message.has_error():
            logger.warning("Node %d cannot answer: see the log of its SuperNode.", asked.node)
            return
        try:
            answer = from_record(message.content)
            about: dict[str, Any] = json.loads(answer.data)
            name = str(about["party"])
            terms = str(about["terms"])
        except (ProtocolError, ValueError, KeyError, TypeError, RecursionError):
            logger.warning("Node %d does not answer as a party. Does it run the ClientApp of fedfactor?", asked.node)
            return
        if name not in self._keys or not self._is_signed(name, asked, answer):
            logger.warning("Node %d does not hold the key of a party of these terms. It is not asked.", asked.node)
            return
        if terms != self._terms:
            logger.warning("%s signed other terms (%.12s) than these (%.12s).", name, terms, self._terms)
        self._names[asked.node] = name, terms == self._terms

    def _is_signed(self, name: str, asked: Asked, answer: Envelope) -> bool:
        said = statement(self._run_id, asked.node, asked.question, answer.data)
        return answer.kind == asked.kind and is_signed(self._keys[name], answer.signature, said)

    def send(self, messages: Iterable[tuple[str, bytes]], most: int) -> None:
        """Push each message to its party's node, unless the node has that question already and may still answer it."""
        nodes = self._addresses
        now = time.monotonic()
        due: list[Asked] = []
        for name, data in messages:
            if name not in nodes:
                continue
            node = nodes[name]
            head = replace(read_head(data), attempt=0)
            earlier = [old.when for old in self._asked.values() if (old.node, old.head) == (node, head)]
            earlier = [when for when in earlier if when >= self._since[node]]
            if not earlier or now - max(earlier) >= AGAIN * 2 ** len(earlier):
                due.append(Asked(node, "message", data, name, most, head, now))
        self._push(due)

    def _push(self, questions: Sequence[Asked]) -> None:
        if not questions:
            return
        wrapped = [
            Message(to_record(Envelope(asked.kind, asked.question)), asked.node, MessageType.QUERY, ttl=self._ttl)
            for asked in questions
        ]
        for asked, ticket in zip(questions, self._grid.push_messages(wrapped), strict=True):
            if ticket:
                self._asked[ticket] = asked
        for asked in questions:
            same = [key for key, old in self._asked.items() if (old.node, old.kind) == (asked.node, asked.kind)]
            for ticket in same[:-KEPT]:
                del self._asked[ticket]

    def _pull(self, kind: Kind) -> list[tuple[Asked, Message]]:
        tickets = [ticket for ticket, asked in self._asked.items() if asked.kind == kind]
        if not tickets:
            return []
        found = list(self._grid.pull_messages(tickets))
        tied = [(self._asked.pop(message.metadata.reply_to_message_id, None), message) for message in found]
        return [(asked, message) for asked, message in tied if asked is not None]

    def collect(self) -> Sequence[Arrival]:
        """Pull the answers that came."""
        return [self._arrival(asked, message) for asked, message in self._pull("message")]

    def _arrival(self, asked: Asked, message: Message) -> Arrival:
        if message.has_error():
            return Arrival(asked.name, failure=str(message.error.reason)[:500])
        try:
            answer = from_record(message.content)
        except ProtocolError:
            return Arrival(asked.name, UNSIGNED)
        if len(answer.data) > asked.most or not self._is_signed(asked.name, asked, answer):
            logger.warning("An answer from %s was too long or not signed by its key. It was rejected.", asked.name)
            return Arrival(asked.name, UNSIGNED)
        return Arrival(asked.name, answer.data)
