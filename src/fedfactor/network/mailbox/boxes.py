"""A box for each party, behind the gate: the run puts questions in, the party takes them out and puts answers in.

A party asks with one request, which carries its last answer and waits here until there is a question: one request for
each message, and none in vain but one every `HOLD` seconds. A question stays until the party says that it has it, so
a lost connection loses nothing; an answer may come twice, which whoever reads it notices. Nothing is written down: a
server that starts anew asks again, and a party answers with the same bytes.

The run, a process on this machine, shows a secret that lies in the server's folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedfactor.network.mailbox.bundled_messages import pack, unpack

PARTY, RUN = "/v1/fleet/fedfactor-box", "/v1/fedfactor-run"
"""Where parties ask, from anywhere and with their keys; where the run does, on this machine and with its secret."""

SESSION, AFTER, HAVE, BEAT = "fedfactor-session", "fedfactor-after", "fedfactor-have", "fedfactor-beat"
"""Headers of a party: which of its processes asks; in the place of which earlier one, that has ended; the question that
it has; that it only gives a sign of life."""

TERMS, OTHER_TERMS = "fedfactor-terms", "Other terms are served here"
"""Header that names the terms a party agreed to, and how the refusal begins when those are not the ones of this server.
"""

TICKET, SECRET = "fedfactor-ticket", "fedfactor-secret"
"""Headers that name the question that a party gets, and that show the secret of the run."""

SECRET_FILE = "mailbox.secret"
"""In the server's folder: what the run shows."""

TWICE = "Another process of this party is connected"
"""What a second process of the same party is told, while the first one lives."""

HOLD = 20.0
"""Most seconds that a party's request waits: less than proxies between two houses allow a silent connection."""

LIFE = 20.0
"""Seconds without a sign of life after which a party is taken for gone."""

SHORT = 64 << 10
"""Bytes of a refusal, or of any other answer that is no upload."""

WAITING = 4
"""Answers of one party that wait for the run: of more the oldest is thrown away."""

FULL = 64 << 20
"""Bytes of answers after which no further one is put into the same body."""


@dataclass(slots=True)
class _Box:
    session: str = ""
    since: float = 0.0
    seen: float = float("-inf")
    last: float = 0.0
    apart: float = float("-inf")
    held: int = 0
    question: bytes = b""
    ticket: str = ""
    answers: deque[bytes] = field(default_factory=lambda: deque(maxlen=WAITING))
    filled: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def alive(self) -> bool:
        return self.held > 0 or time.monotonic() - self.seen < LIFE


class Mailbox:
    """The boxes of all parties. Made for one event loop: nothing here is locked.

    Parameters
    ----------
    names : callable
        Returns the name of each registered key, as PEM.
    secret : bytes
        What the run shows.
    hold : float
        Most seconds that a party's request waits.
    """

    def __init__(self, names: Callable[[], Mapping[bytes, str]], secret: bytes, hold: float = HOLD) -> None:
        self._names, self._secret, self._hold = names, secret, hold
        self._boxes: dict[str, _Box] = {}
        self._most = SHORT
        self._came = asyncio.Event()

    def present(self) -> dict[str, tuple[str, float]]:
        """Name the parties that are there: with the name of their process, and since when."""
        known = set(self._names().values())
        boxes = sorted(self._boxes.items())
        return {name: (box.session, box.since) for name, box in boxes if name in known and box.alive}

    def gone(self) -> dict[str, float]:
        """Name the parties that were there and are not, with the moment they were last heard."""
        return {name: box.last for name, box in sorted(self._boxes.items()) if box.last and not box.alive}

    def apart(self) -> list[str]:
        """Name the parties that asked a moment ago under other terms than those that are served."""
        late = time.monotonic() - LIFE
        return [name for name, box in sorted(self._boxes.items()) if box.apart > late]

    # ------------------------------------------------------------------------------------------------------ a party
    def turned_away(self, key: bytes) -> None:
        """Notice that a party asks under other terms."""
        self._boxes.setdefault(self._names()[key], _Box()).apart = time.monotonic()

    async def party(self, key: bytes, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Take a party's answer, and give it the next question when there is one."""
        head = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        box = self._boxes.setdefault(self._names()[key], _Box())
        if (session := head.get(SESSION.encode(), "")[:64]) != box.session:
            if box.alive and head.get(AFTER.encode(), "") != box.session:
                await refuse(send, 503, TWICE)
                return
            # A process that was not there before: what was asked of the last one is asked again by the run.
            box.session, box.since, box.question, box.ticket = session, time.time(), b"", ""
        box.seen, box.last, box.apart = time.monotonic(), time.time(), float("-inf")
        if BEAT.encode() in head:
            await answer(send)
            return
        body = await _body(receive, self._most)
        if body is None:
            await refuse(send, 413, "This answer is longer than any right one.")
            return
        if body:
            box.answers.append(body)
            self._came.set()
        have = head.get(HAVE.encode(), "")
        box.held += 1
        try:
            there = await self._held(box, have, receive)
        finally:
            box.held -= 1
        box.seen, box.last = time.monotonic() if there else float("-inf"), time.time()
        if there and box.session == session and box.ticket not in ("", have):
            await answer(send, box.question, {TICKET: box.ticket})
        elif there:
            await answer(send)

    async def _held(self, box: _Box, have: str, receive: Any) -> bool:
        """Wait until there is a question that the party does not have, or time is up; False when it hung up."""
        leaves = asyncio.ensure_future(receive())
        end = time.monotonic() + self._hold
        try:
            while box.ticket in ("", have) and (left := end - time.monotonic()) > 0:
                filled = asyncio.ensure_future(box.filled.wait())
                await asyncio.wait({leaves, filled}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                filled.cancel()
                if leaves.done():
                    return False
            return True
        finally:
            leaves.cancel()

    # -------------------------------------------------------------------------------------------------------- a run
    async def run(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Do what the run asks: put questions in, or take answers out."""
        shown = next((value for name, value in scope["headers"] if name.lower() == SECRET.encode()), b"")
        if not hmac.compare_digest(shown, self._secret):
            await refuse(send, 403, "This is for the run of this server.")
            return
        body = await _body(receive, None) or b""
        letters, about = unpack(body)
        if letters:
            self._put(letters, int(about["most"]))
            await answer(send)
            return
        if about.get("wait") and not any(box.answers for box in self._boxes.values()):
            self._came.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._came.wait(), float(about["wait"]))
        taken = self._take() if "wait" in about else []
        await answer(send, pack(taken, {"present": self.present(), "gone": self.gone(), "apart": self.apart()}))

    def _put(self, letters: Iterable[tuple[str, bytes]], most: int) -> None:
        self._most = max(self._most, most)
        for name, data in letters:
            box = self._boxes.setdefault(name, _Box())
            box.question, box.ticket = data, secrets.token_hex(8)
            box.filled.set()
            box.filled = asyncio.Event()

    def _take(self) -> list[tuple[str, bytes]]:
        taken: list[tuple[str, bytes]] = []
        size = 0
        for name, box in self._boxes.items():
            while box.answers and (not taken or size + len(box.answers[0]) <= FULL):
                data = box.answers.popleft()
                taken.append((name, data))
                size += len(data)
        return taken


async def _body(receive: Callable[[], Awaitable[Any]], most: int | None) -> bytes | None:
    """Read a request to its end; None when it is longer than it may be, or breaks off."""
    parts: list[bytes] = []
    size = 0
    while True:
        part = await receive()
        if part["type"] != "http.request":
            return None
        parts.append(part.get("body", b""))
        size += len(parts[-1])
        if most is not None and size > most:
            return None
        if not part.get("more_body"):
            return b"".join(parts)


async def refuse(send: Any, status: int, why: str) -> None:
    """Turn a request away, in the form of Flower's own errors; closed after that: no body of it is read."""
    await answer(send, json.dumps({"code": 0, "detail": why}).encode(), {"connection": "close"}, status)


async def answer(send: Any, body: bytes = b"", headers: Mapping[str, str] | None = None, status: int = 200) -> None:
    """Send a whole answer."""
    said = {"content-type": "application/octet-stream", "content-length": str(len(body)), **(headers or {})}
    head = [(name.encode(), value.encode()) for name, value in said.items()]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": body})
