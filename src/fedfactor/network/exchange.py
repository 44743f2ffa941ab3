"""The server of a real federation: asks, waits, checks, adds up, and writes everything down before it goes on.

It knows clients by name and messages by bytes; how they travel is up to a :class:`Transport`. Everything that a
restarted server needs lies in its folder, so a kill at any moment costs at most the answers of one round, which clients
then give again, byte for byte.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from fedfactor.core.errors import FedfactorError, ProtocolError
from fedfactor.core.pytree import Tree
from fedfactor.core.wire import Spec
from fedfactor.network.backoff import Backoff
from fedfactor.network.message_format import Head, Payload, most_bytes, read_head, seal, unseal
from fedfactor.network.waiting_rules import WaitingRules


class NotEnough(FedfactorError, RuntimeError):
    """Too few clients answered in time. The run is kept, and resumes when it is started again.

    Parameters
    ----------
    message : str
    refusing, unavailable : sequence of str
        Clients that refuse to answer, and clients that did not answer in time.
    """

    def __init__(self, message: str, refusing: Sequence[str] = (), unavailable: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.refusing = tuple(refusing)
        self.unavailable = tuple(unavailable)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A received message: its sender, and its bytes, or why there are none."""

    client: str
    data: bytes = b""
    failure: str = ""


class Transport(Protocol):
    """Carries messages. Names are authentic: a transport knows who wrote what."""

    def present(self) -> Mapping[str, str]:
        """Name the clients that are there now, each with a mark that changes when it comes back."""
        ...

    def send(self, messages: Iterable[tuple[str, bytes]], most: int) -> None:
        """Send messages, to which no right answer has more bytes than ``most``."""
        ...

    def collect(self) -> Sequence[Arrival]:
        """Return what has come since; may wait a moment for the first."""
        ...


@dataclass(slots=True)
class Tally:
    """Failures, counted by kind and by client, and the last message."""

    rejected: Counter[str] = field(default_factory=Counter[str])
    reasons: dict[str, str] = field(default_factory=dict[str, str])

    def count(self, kind: str, client: str, why: str = "") -> None:
        """Count one."""
        self.rejected[kind] += 1
        self.rejected[f"{kind} {client}"] += 1
        if why:
            self.reasons[client] = why


class Exchange:
    """Sends one question to several clients and collects one valid answer each: the first one counts."""

    def __init__(
        self,
        transport: Transport,
        policy: WaitingRules,
        tally: Tally,
        *,
        tick: Callable[[Mapping[str, Any]], None] = lambda about: None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        removed: Callable[[], Collection[str]] = tuple,
    ) -> None:
        self.transport = transport
        self.policy = policy
        self.tally = tally
        self.tick = tick
        self.clock = clock
        self.sleep = sleep
        self.removed = removed
        self.bytes_up = self.bytes_down = 0
        self.left_out: dict[str, str] = {}

    def gather(self, names: Sequence[str]) -> None:
        """Wait until everyone is there, or until time is up and enough are."""
        end = self.clock() + self.policy.gather
        while True:
            there = set(self.transport.present()) & set(names)
            self.tick({"state": "waiting for clients", "present": sorted(there)})
            if there >= set(names) - set(self.removed()):
                return
            if self.clock() >= end:
                need = len(names) if self.policy.dropouts == "wait" else self.policy.minimum
                if len(there) >= need:
                    return
                away = ", ".join(sorted(set(names) - there))
                raise NotEnough(
                    f"{len(there)} of {len(names)} clients came in {self.policy.gather:g} s; missing: {away}.",
                    unavailable=sorted(set(names) - there),
                )
            self.sleep(min(1.0, self.policy.poll * 5))

    def ask(
        self,
        head: Head,
        messages: Mapping[str, Tree],
        expected: Mapping[type, Spec],
        payload: Payload = "exact",
        *,
        sent: Payload | None = None,
        since: Mapping[str, int] | None = None,
    ) -> dict[str, Tree]:
        """Ask every client named in ``messages``; return valid answers in name order, when all came or time is up."""
        asking = Asking(self, head, messages, expected, payload, sent or payload, since or {})
        end = self.clock() + self.policy.deadline
        asking.push(messages, self.transport.present())
        wait = Backoff(self.policy.poll)
        while True:
            for arrival in self.transport.collect():
                asking.take(arrival)
                wait.hurry()
            if not asking.open:
                break
            there = self.transport.present()
            if self.clock() >= end or self._go_on(asking, there):
                break
            asking.again(there)
            self.tick({"state": f"{head.kind} {head.index}", "answered": sorted(asking.answers)})
            self.sleep(wait.next())
        self.left_out = asking.left_out
        self._judge(head, asking, messages)
        return {name: asking.answers[name] for name in sorted(asking.answers)}

    def _go_on(self, asking: Asking, there: Mapping[str, str]) -> bool:
        """Return whether all who owe an answer are known to be gone, and enough answered to go on without them."""
        away = [asking.away(name, there) for name in asking.open]
        if self.policy.dropouts == "wait" or len(asking.answers) < self.policy.minimum:
            return False
        removed = self.removed()
        return all(
            name in removed or seconds > self.policy.absent for name, seconds in zip(asking.open, away, strict=True)
        )

    def take_bytes(self) -> tuple[int, int]:
        """Return the bytes that came and went since the last call."""
        counted = self.bytes_up, self.bytes_down
        self.bytes_up = self.bytes_down = 0
        return counted

    def _judge(self, head: Head, asking: Asking, messages: Mapping[str, Tree]) -> None:
        answered = len(asking.answers)
        asked = len(messages)
        fixed = self.policy.dropouts == "wait"
        if answered == asked or (not fixed and answered >= self.policy.minimum):
            return
        refusing = sorted(asking.refusing)
        unavailable = sorted(set(messages) - set(asking.answers) - asking.refusing)
        why = "; ".join(f"{name}: {self.tally.reasons.get(name, 'no answer')}" for name in (*refusing, *unavailable))
        need = f"all {asked}" if fixed else str(self.policy.minimum)
        raise NotEnough(
            f"{head.kind} {head.index} got {answered} answers, but {need} are needed ({why}). The run is kept as it "
            f"was before this round. {advice(refusing, unavailable)}",
            refusing,
            unavailable,
        )


def advice(refusing: Sequence[str], unavailable: Sequence[str]) -> str:
    """Return what to do about clients that refuse, and about clients that are unavailable.

    Examples
    --------
    >>> advice([], ["south"])
    'Start it again when south is connected.'
    """
    said: list[str] = []
    if refusing:
        verb = "refuses" if len(refusing) == 1 else "refuse"
        said.append(
            f"{', '.join(refusing)} {verb} to answer, and starting again does not change that: ask for the reason, "
            "which is in their own log (such as a spent budget, or a limit of the terms). Then start the run again, or "
            "end it with fedfactor stop, which keeps what was reached."
        )
    if unavailable:
        verb = "is" if len(unavailable) == 1 else "are"
        said.append(f"Start it again when {', '.join(unavailable)} {verb} connected.")
    return " ".join(said)


class Asking:
    """One question on its way: who still owes an answer, and what came."""

    def __init__(
        self,
        exchange: Exchange,
        head: Head,
        messages: Mapping[str, Tree],
        expected: Mapping[type, Spec],
        payload: Payload,
        sent: Payload,
        since: Mapping[str, int],
    ) -> None:
        self.since = since
        self.head = head
        self.messages = messages
        self.expected = expected
        self.payload: Payload = payload
        self.sent: Payload = sent
        self.ex = exchange
        self.open = set(messages)
        self.answers: dict[str, Tree] = {}
        self.left_out: dict[str, str] = {}
        self.refusing: set[str] = set()
        self._attempts: Counter[str] = Counter()
        self._marks: dict[str, str] = {}
        self._when: dict[str, float] = {}
        self._seen = dict.fromkeys(messages, exchange.clock())

    def away(self, name: str, there: Mapping[str, str]) -> float:
        """Return for how many seconds a client has not been there, since it was asked."""
        now = self.ex.clock()
        if name in there:
            self._seen[name] = now
        return now - self._seen[name]

    def push(self, names: Iterable[str], there: Mapping[str, str]) -> None:
        """Send the question to these clients, as far as they are there."""
        batch: list[tuple[str, bytes]] = []
        for name in sorted(names):
            if name not in there:
                continue
            since = self.since.get(name, -1)
            head = replace(self.head, client=name, attempt=self._attempts[name], since=since)
            data = seal(head, self.messages[name], self.sent)
            self._attempts[name] += 1
            self._marks[name], self._when[name] = there[name], self.ex.clock()
            self.ex.bytes_down += len(data)
            batch.append((name, data))
        if batch:
            self.ex.transport.send(batch, most_bytes(self.expected))

    def again(self, there: Mapping[str, str]) -> None:
        """Ask those again who came back since, or were silent for long."""
        now = self.ex.clock()
        due = [
            name
            for name in self.open
            if name in there
            and (self._marks.get(name) != there[name] or now - self._when[name] >= self.ex.policy.resend)
        ]
        if due:
            self.push(due, there)

    def take(self, arrival: Arrival) -> None:
        """Look at what came, and take it in when it is right."""
        name = arrival.client
        tally = self.ex.tally
        self.ex.bytes_up += len(arrival.data)
        if name not in self.messages:
            tally.count("unknown", name)
        elif arrival.failure:
            tally.count("failed", name, arrival.failure)
            self._when[name] = float("-inf")  # ask again at the next look
        else:
            self._read(name, arrival.data)

    def _read(self, name: str, data: bytes) -> None:
        tally = self.ex.tally
        try:
            head = read_head(data)
            # A party under other terms reports under those terms.
            terms = self.head.terms if head.kind == "refusal" else head.terms
            if (head.run, terms, head.client) != (self.head.run, self.head.terms, name):
                tally.count("foreign", name, "an answer of another run, of other terms, or in another name")
            elif head.index < self.head.index or (head.kind not in (self.head.kind, "refusal")):
                tally.count("stale", name)
            elif head.index > self.head.index:
                tally.count("early", name)
            elif head.session != self.head.session:
                tally.count("stale", name)
            elif name not in self.open:
                tally.count("duplicate", name)
            elif head.attempt or head.since != self.since.get(name, -1):
                tally.count("unasked", name, "an answer to a question that was not asked like this")
            elif head.kind == "refusal":
                apart = " (it signed up for other terms)" if head.terms != self.head.terms else ""
                tally.count("refused", name, head.reason + apart)
                self.refusing.add(name)
                self.open.discard(name)
            else:
                self.answers[name] = unseal(data, head, self.expected, self.payload)
                self.open.discard(name)
                tally.reasons.pop(name, None)
        except ProtocolError as error:
            tally.count("malformed", name, str(error))
            self.left_out[name] = str(error)
            self.open.discard(name)
