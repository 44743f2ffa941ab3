"""One queue for each party: the run puts requests in and takes answers out, the party does the opposite.

A request stays until the party confirms that it has it, so a lost connection loses nothing; an answer may arrive twice,
which its reader notices. Nothing is written to disk: a server that is started again asks again, and a party answers
with the same bytes.

A run works in a thread of its own, and requests of parties in the server's event loop.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedfactor.network.exchange import Arrival
from fedfactor.network.https.protocol import LIFE, QUEUED, SHORT

WAIT = 1.0
"""Seconds that a run waits for the first answer. In between it looks at the clock, and whether it is to stop."""


class RunInterrupted(SystemExit):
    """The server ends while a run goes on. The run is kept as it was after its last round."""


@dataclass(slots=True)
class PartyQueue:
    """What the server holds for one party."""

    session: str = ""
    since: float = 0.0
    seen: float = float("-inf")
    last: float = 0.0
    other_terms: float = float("-inf")
    request: bytes = b""
    ticket: str = ""
    answered: str = ""
    held: Any = None
    answers: deque[bytes] = field(default_factory=lambda: deque(maxlen=QUEUED))
    filled: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def alive(self) -> bool:
        """Whether the party is connected."""
        return self.held is not None or time.monotonic() - self.seen < LIFE


class PartyQueues:
    """The queues of all parties: the transport of the runs of this server.

    Parameters
    ----------
    names : callable
        Returns the names of the registered parties.
    """

    def __init__(self, names: Callable[[], Collection[str]]) -> None:
        self._names = names
        self._queues: dict[str, PartyQueue] = {}
        self._arrived = threading.Condition()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self.longest = SHORT
        """Most bytes of an answer that can be right."""

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Name the event loop in which parties wait."""
        self._loop = loop

    def of(self, name: str) -> PartyQueue:
        """Return the queue of a party."""
        with self._arrived:
            return self._queues.setdefault(name, PartyQueue())

    # ------------------------------------------------------------------------------------------------- for the parties
    def enter(self, queue: PartyQueue, session: str, after: str) -> bool | None:
        """Let a process of a party in: return whether it is a new one, and None when another one is connected."""
        new = session != queue.session
        if new and queue.alive and after != queue.session:
            return None
        with self._arrived:
            if new:
                # The run sees another session, and asks the new process what it had asked the former one.
                queue.session = session
                queue.since = time.time()
                queue.request = b""
                queue.ticket = ""
            queue.seen = time.monotonic()
            queue.last = time.time()
            queue.other_terms = float("-inf")
        return new

    def deliver(self, queue: PartyQueue, have: str, answer: bytes) -> None:
        """Hand the answer of a party to the run.

        Without a body a party waits for the next request, once it has answered the present one. Before that an empty
        body is its answer, which the run counts as malformed instead of waiting until its deadline.
        """
        with self._arrived:
            open_ticket = have == queue.ticket and have not in ("", queue.answered)
            if not answer and not open_ticket:
                return
            queue.answered = have
            queue.answers.append(answer)
            self._arrived.notify_all()

    async def next_request(self, queue: PartyQueue, have: str, seconds: float) -> tuple[str, bytes]:
        """Wait for a request that the party does not have; return its ticket and body, or empty ones in vain."""
        end = time.monotonic() + seconds
        while not self._closed:
            with self._arrived:
                if queue.ticket not in ("", have):
                    return queue.ticket, queue.request
                filled = queue.filled
            if (left := end - time.monotonic()) <= 0:
                break
            try:
                async with asyncio.timeout(left):
                    await filled.wait()
            except TimeoutError:
                break
        return "", b""

    @property
    def closed(self) -> bool:
        """Whether the server ends."""
        return self._closed

    # ------------------------------------------------------------------------------------------------------ for a run
    def present(self) -> Mapping[str, str]:
        """Return the connected parties, each with the session of its process."""
        known = set(self._names())
        with self._arrived:
            return {
                name: queue.session for name, queue in sorted(self._queues.items()) if name in known and queue.alive
            }

    def send(self, messages: Iterable[tuple[str, bytes]], most: int) -> None:
        """Put each request into the queue of its party; no right answer has more bytes than ``most``."""
        self._refuse_closed()
        with self._arrived:
            self.longest = max(self.longest, most)
            for name, data in messages:
                queue = self._queues.setdefault(name, PartyQueue())
                queue.request = data
                queue.ticket = secrets.token_hex(8)
                self._wake(queue)

    def collect(self, wait: float = WAIT) -> Sequence[Arrival]:
        """Return the answers that arrived; wait a moment for the first."""
        with self._arrived:
            self._arrived.wait_for(lambda: self._closed or any(q.answers for q in self._queues.values()), wait)
            self._refuse_closed()
            arrivals: list[Arrival] = []
            for name, queue in self._queues.items():
                while queue.answers:
                    arrivals.append(Arrival(name, queue.answers.popleft()))
            return arrivals

    def rest(self) -> None:
        """Forget requests and answers of a run that ended: until the next one there is nothing to upload."""
        with self._arrived:
            self.longest = SHORT
            for queue in self._queues.values():
                queue.request = b""
                queue.ticket = ""
                queue.answers.clear()

    def close(self) -> None:
        """End all waits; a run that goes on is interrupted."""
        with self._arrived:
            self._closed = True
            self._arrived.notify_all()
            for queue in self._queues.values():
                self._wake(queue)

    def _wake(self, queue: PartyQueue) -> None:
        filled = queue.filled
        queue.filled = asyncio.Event()
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(filled.set)

    def _refuse_closed(self) -> None:
        if self._closed:
            raise RunInterrupted

    # ---------------------------------------------------------------------------------------------------- for a look
    def since(self) -> dict[str, tuple[bool, float]]:
        """Return for each party whether it is connected, with the time it came or was last seen."""
        known = set(self._names())
        found: dict[str, tuple[bool, float]] = {}
        with self._arrived:
            for name, queue in sorted(self._queues.items()):
                if queue.alive and name in known:
                    found[name] = (True, queue.since)
                elif queue.last and not queue.alive:
                    found[name] = (False, queue.last)
        return found

    def other_terms(self) -> list[str]:
        """Return the parties that asked a moment ago under terms that are not served."""
        late = time.monotonic() - LIFE
        with self._arrived:
            return [name for name, queue in sorted(self._queues.items()) if queue.other_terms > late]
