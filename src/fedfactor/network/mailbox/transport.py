"""The run's end of the mailbox: questions go in by the batch, and all answers that came are taken out at once."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx

from fedfactor.core.errors import ProtocolError
from fedfactor.network.exchange import Arrival, Transport
from fedfactor.network.mailbox.boxes import FULL, RUN, SECRET, SECRET_FILE
from fedfactor.network.mailbox.bundled_messages import pack, unpack

WAIT = 1.0
"""Seconds that a look for answers waits for the first: the run also looks at the clock, and whether it is to stop."""

PAUSES = (0.1, 0.5, 2.0, 5.0, 5.0)
"""Seconds between tries to reach the mailbox."""

FRESH = 1.0
"""Seconds for which it is good who is there."""


class MailboxTransport:
    """Carries messages through the mailbox of a server on this machine.

    Parameters
    ----------
    address : str
        Of the server, host and port.
    folder : path
        The server's folder: its authority's certificate, and the secret.
    """

    def __init__(self, address: str, folder: Path) -> None:
        context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
        head = {SECRET: (folder / SECRET_FILE).read_text()}
        self._client = httpx.Client(verify=context, timeout=60.0, headers=head, trust_env=False)
        self._url = f"https://{address}{RUN}"
        self._present: dict[str, tuple[str, float]] = {}
        self._gone: dict[str, float] = {}
        self.apart: list[str] = []
        """Who asked under other terms than those that are served, at the last look."""
        self._looked = float("-inf")

    def _post(self, letters: Iterable[tuple[str, bytes]], about: Mapping[str, Any]) -> list[tuple[str, bytes]]:
        body = pack(letters, about)
        for pause in PAUSES:
            try:
                response = self._client.post(self._url, content=body).raise_for_status()
                break
            except httpx.TransportError:  # a busy server; a letter that comes twice does no harm
                time.sleep(pause)
        else:
            raise ProtocolError(f"The mailbox at {self._url} does not answer. Start fedfactor serve again.")
        if not response.content:
            return []
        found, said = unpack(response.content)
        self._looked = time.monotonic()
        self._present = {name: (str(session), float(since)) for name, (session, since) in said["present"].items()}
        self._gone, self.apart = dict(said["gone"]), list(said["apart"])
        return found

    def since(self) -> dict[str, tuple[bool, float]]:
        """Name the parties that are there, with the moment they came, and those that were, with their last word's."""
        self._post([], {})
        here = {name: (True, since) for name, (_, since) in self._present.items()}
        return {**{name: (False, last) for name, last in self._gone.items()}, **here}

    def present(self) -> Mapping[str, str]:
        """Name the parties that are there, with the names of their processes; looked up once a second."""
        if time.monotonic() - self._looked >= FRESH:
            self._post([], {})
        return {name: session for name, (session, _) in self._present.items()}

    def send(self, messages: Iterable[tuple[str, bytes]], most: int) -> None:
        """Put each into its party's box."""
        batch: list[tuple[str, bytes]] = []
        size = 0
        for name, data in messages:
            if batch and size + len(data) > FULL:
                self._post(batch, {"most": most})
                batch, size = [], 0
            batch.append((name, data))
            size += len(data)
        if batch:
            self._post(batch, {"most": most})

    def collect(self, wait: float = WAIT) -> Sequence[Arrival]:
        """Take out what has come, and wait a moment for the first."""
        return [Arrival(name, data) for name, data in self._post([], {"wait": wait})]

    def close(self) -> None:
        """End the connection."""
        self._client.close()


class Both:
    """Two ways at once: who asks at the mailbox is written to there, the others through Flower.

    Parameters
    ----------
    mailbox : MailboxTransport
    flower : Transport
        Is not looked at while everybody is at the mailbox.
    names : sequence of str
        All parties.
    """

    def __init__(self, mailbox: MailboxTransport, flower: Transport, names: Sequence[str]) -> None:
        self._mailbox, self._flower, self._names = mailbox, flower, frozenset(names)
        self._at_flower: set[str] = set()

    def present(self) -> Mapping[str, str]:
        """Name the parties that are there."""
        there = self._mailbox.present()
        return there if self._names <= set(there) else {**self._flower.present(), **there}

    def send(self, messages: Iterable[tuple[str, bytes]], most: int) -> None:
        """Send each the way its party came."""
        there, messages = self._mailbox.present(), list(messages)
        self._mailbox.send([letter for letter in messages if letter[0] in there], most)
        others = [letter for letter in messages if letter[0] not in there]
        self._at_flower = {name for name, _ in others} | self._at_flower - set(there)
        if others:
            self._flower.send(others, most)

    def collect(self) -> Sequence[Arrival]:
        """Return what has come either way; waits only while nobody answers through Flower."""
        found = list(self._mailbox.collect(0.0 if self._at_flower else WAIT))
        return [*found, *self._flower.collect()]
