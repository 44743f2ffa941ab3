"""A party's end of the mailbox: asks with its key, has the question answered in its own thread, and brings the answer.

It imports nothing of Flower, and needs no second process, so that many parties fit into one.
"""

from __future__ import annotations

import logging
import secrets
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx

from fedfactor.core.atomic_files import write_atomic
from fedfactor.network.backoff import Backoff
from fedfactor.network.client import RemoteClient
from fedfactor.network.connection_status import CONNECTION, ConnectionStatus, is_foreign, told
from fedfactor.network.mailbox.boxes import AFTER, BEAT, HAVE, HOLD, PARTY, SESSION, TERMS, TICKET
from fedfactor.network.mailbox.proof import Signer

logger = logging.getLogger("fedfactor")

AWAY = 500
"""From here on a server says that it is being started, is too busy, or has a proxy stand in for it: that passes."""

TOO_LONG = 413
"""What a server says of an answer that is longer than any right one: it will not take it, however often it comes."""

BEATS = 6.0
"""Seconds between two signs of life while a question is worked on."""

LOOK = 0.3
"""Seconds between two looks whether to go on."""

RETRY = 3.0
"""Most seconds between two tries to reach a server that is away."""


class TurnedAway(Exception):
    """The server does not want this party, or not now.

    Parameters
    ----------
    why : str
        What the server said.
    passes : bool
        Whether to try again.
    """

    def __init__(self, why: str, passes: bool) -> None:
        super().__init__(why)
        self.passes = passes


class ForeignServer(Exception):
    """What answers has a certificate of another authority: it may be somebody else's, and nothing is sent to it."""


class Node:
    """Carries messages between a mailbox and one client.

    Parameters
    ----------
    remote : RemoteClient
        Who answers.
    address : str
        Of the server, host and port.
    authority : str
        Certificate of whoever signed the server's, as PEM.
    key : path
        The party's private key.
    folder : path
        The party's folder: keeps the name of this process, so that the next one may take its place at once, and how
        requests to the server go.
    terms : str
        Fingerprint of what the party agreed to: a server of other terms turns it away at once.
    """

    def __init__(
        self, remote: RemoteClient, address: str, authority: str, key: Path, folder: Path, terms: str = ""
    ) -> None:
        self._remote, self._signer, self._connection = remote, Signer.of(key), ConnectionStatus(folder / CONNECTION)
        kept = folder / "session"
        self._after = kept.read_text() if kept.exists() else ""
        self._url, self._session = f"https://{address}{PARTY}", secrets.token_hex(8)
        self._terms = {TERMS: terms} if terms else {}
        write_atomic(kept, self._session.encode())
        self._working, self._ended = threading.Lock(), threading.Event()
        self._client = httpx.Client(
            verify=ssl.create_default_context(cadata=authority),
            timeout=httpx.Timeout(30.0, read=HOLD + 15.0),
        )

    def serve(self, alive: Callable[[], bool]) -> None:
        """Answer until ``alive`` says no; raises when the server turns this party away, or is somebody else.

        Requests wait at the server, so they are made in a thread: it is not waited for when nothing is worked on.
        """
        wrong: list[Exception] = []
        asking = threading.Thread(target=self._until_wrong, args=(wrong,), daemon=True)
        asking.start()
        threading.Thread(target=self._beat, daemon=True).start()
        try:
            while alive() and asking.is_alive():
                asking.join(LOOK)
            for error in wrong:
                raise error
        finally:
            self._ended.set()
            with self._working:
                self._client.close()

    def _until_wrong(self, wrong: list[Exception]) -> None:
        try:
            self._serve()
        except Exception as error:  # for whoever waits: a thread would end in silence
            if not self._ended.is_set():
                wrong.append(error)

    def _serve(self) -> None:
        away, answer, have = Backoff(RETRY), b"", ""
        while not self._ended.is_set():
            try:
                response = self._ask(answer, {HAVE: have})
            except (httpx.TransportError, TurnedAway) as error:
                if isinstance(error, TurnedAway) and not error.passes:
                    raise
                self._ended.wait(away.next())
                continue
            away.hurry()
            answer = b""
            if ticket := response.headers.get(TICKET, ""):
                with self._working:
                    if not self._ended.is_set():
                        have, answer = ticket, self._remote.answer(response.content)

    def _ask(self, body: bytes, headers: dict[str, str]) -> httpx.Response:
        head = {**self._signer.head(), **self._terms, SESSION: self._session, AFTER: self._after, **headers}
        try:
            response = self._client.post(self._url, content=body, headers=head)
        except httpx.TransportError as error:
            text = f"{error}" or type(error).__name__
            self._connection.write(error=text)
            if "certificate" in text.lower() and is_foreign(text):
                raise ForeignServer(text) from None
            raise
        if response.status_code < 400:
            self._connection.write()
        elif response.status_code == TOO_LONG:
            logger.warning("An answer of %d bytes was longer than the server takes.", len(body))
        else:
            why = told(response)
            self._connection.write(response.status_code, why)
            raise TurnedAway(why, response.status_code >= AWAY)
        return response

    def _beat(self) -> None:
        """Give signs of life while a question is worked on: otherwise a request waits at the server, which is one."""
        while not self._ended.wait(BEATS):
            if self._working.locked():
                with suppress(httpx.HTTPError, TurnedAway, ForeignServer, RuntimeError):
                    self._ask(b"", {BEAT: "1"})
