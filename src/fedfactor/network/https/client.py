"""A party's end: asks with its certificate, has the request answered in its own thread, and delivers the answer."""

from __future__ import annotations

import json
import logging
import secrets
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from fedfactor.core.atomic_files import write_atomic
from fedfactor.core.errors import ProtocolError
from fedfactor.network.backoff import Backoff
from fedfactor.network.client import RemoteClient
from fedfactor.network.connection_status import CONNECTION, ConnectionStatus, is_foreign
from fedfactor.network.https import protocol as wire
from fedfactor.network.https.identity import client_context

logger = logging.getLogger("fedfactor")

PASSING = (408, 409, 429)
"""Statuses that can end without a change here, as those from 500 on: the request is made again."""

TOO_LONG = 413
"""Status for an answer that is longer than any right one: it is not sent again."""

BEATS = 6.0
"""Seconds between two signs of life while a request is computed."""

LOOK = 0.3
"""Seconds between two looks whether to go on."""

RETRY = 3.0
"""Most seconds between two tries to reach a server."""

REJECTED = 3
AT_ONCE = 2.0
"""Handshakes in a row, so many seconds after which the server closed the connection: it does not accept the key."""

LEAST_HOLD = 2.0
"""Seconds that a request is held at least, however early a proxy ends silent connections."""


class TurnedAway(Exception):
    """The server does not serve this party, or not now.

    Parameters
    ----------
    why : str
        What the server answered.
    passes : bool
        Whether to try again.
    """

    def __init__(self, why: str, passes: bool) -> None:
        super().__init__(why)
        self.passes = passes


class ForeignServer(Exception):
    """The server has a certificate of another authority: it may be another party's, and nothing is sent to it."""


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer of the server that was read whole."""

    status: int
    ticket: str
    body: bytes
    date: str


class Wire:
    """Makes single requests, with bounded reads, and explains what goes wrong.

    Parameters
    ----------
    address : str
        Of the server, host:port.
    authority : str
        Certificate of the authority that signed the server's, as PEM.
    key : path
        The party's private key.
    certificate : path, optional
        Certificate for this key by an authority of the party's own organisation.
    most : int
        Most bytes of a request of the server.
    """

    def __init__(
        self, address: str, authority: str, key: Path, certificate: Path | None = None, most: int = wire.SHORT
    ) -> None:
        self._url = f"https://{address}"
        self._most = most
        self._rejected = 0
        context: ssl.SSLContext = client_context(authority, key, certificate)
        # Proxies are taken from the environment (HTTPS_PROXY, NO_PROXY), except to this very machine.
        here = address.rpartition(":")[0] in ("127.0.0.1", "localhost", "[::1]")
        head = {"Accept-Encoding": "identity"}
        self._http = httpx.Client(verify=context, timeout=30.0, headers=head, trust_env=not here)

    def close(self) -> None:
        """Close all connections."""
        self._http.close()

    def request(self, method: str, path: str, body: bytes, headers: dict[str, str], wait: float = 0.0) -> Reply:
        """Make a request and read its answer, which may take ``wait`` seconds to begin.

        Raises
        ------
        TurnedAway, ForeignServer, httpx.TransportError
            The server refuses; is another party's; cannot be reached.
        """
        shaken: list[float] = []

        def note(name: str, about: object) -> None:
            if name.endswith("start_tls.complete"):
                shaken.append(time.monotonic())

        try:
            with self._http.stream(
                method,
                self._url + path,
                content=body,
                headers=headers,
                timeout=httpx.Timeout(30.0, read=wait + 15.0),
                extensions={"trace": note},
            ) as response:
                self._rejected = 0
                reply = Reply(
                    response.status_code,
                    response.headers.get(wire.TICKET, ""),
                    self._read(response),
                    response.headers.get("Date", ""),
                )
        except httpx.TransportError as error:
            self._explain(error, bool(shaken) and time.monotonic() - shaken[-1] < AT_ONCE)
            raise
        if reply.status >= 400 and reply.status != TOO_LONG:
            raise TurnedAway(_detail(reply), reply.status >= 500 or reply.status in PASSING)
        return reply

    def _read(self, response: httpx.Response) -> bytes:
        """Read a body, but no more than can be right; what is compressed is not unpacked."""
        if response.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise TurnedAway("The server sent an encoded body, which this protocol does not have.", True)
        most = self._most if response.status_code < 400 else wire.SHORT
        end = time.monotonic() + wire.seconds_for(most)
        parts = list[bytes]()
        size = 0
        for part in response.iter_raw():
            size += len(part)
            if size > most:
                raise TurnedAway(f"The server sent more than the {most} bytes that can be right.", True)
            if time.monotonic() > end:
                raise TurnedAway("The server sent its body too slowly.", True)
            parts.append(part)
        return b"".join(parts)

    def _explain(self, error: httpx.TransportError, shaken: bool) -> None:
        """Raise what is known beyond an error of the connection."""
        text = f"{error}"
        if "certificate verify failed" in text.lower() and is_foreign(text):
            raise ForeignServer(text) from None
        # A server that does not accept a certificate ends the connection after the client's part of the handshake.
        self._rejected = self._rejected + 1 if shaken else 0
        if self._rejected >= REJECTED:
            raise TurnedAway(wire.UNKNOWN_KEY, False) from None


class PartyClient:
    """Carries messages between a server and one client.

    Parameters
    ----------
    remote : RemoteClient
        Computes the answers.
    wire_end : Wire
        Makes the requests.
    folder : path
        The party's folder. It keeps the session of this process, so that the next one may replace it at once, and the
        state of the connection.
    terms : str
        Fingerprint of what the party agreed to: a server of other terms is refused.
    """

    def __init__(self, remote: RemoteClient, wire_end: Wire, folder: Path, terms: str) -> None:
        self._remote = remote
        self._wire = wire_end
        self._connection = ConnectionStatus(folder / CONNECTION)
        kept = folder / "session"
        after = kept.read_text() if kept.exists() else ""
        self._head = {wire.SESSION: secrets.token_hex(8), wire.AFTER: after, wire.TERMS: terms}
        write_atomic(kept, self._head[wire.SESSION].encode())
        self._hold = wire.HOLD
        self._working = threading.Lock()
        self._ended = threading.Event()

    def serve(self, alive: Callable[[], bool]) -> None:
        """Answer until ``alive`` returns false; raise when the server refuses this party, or is another party's.

        Requests are held at the server, so they are made in a thread. It is not waited for while it computes nothing.
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
                self._wire.close()

    def _until_wrong(self, wrong: list[Exception]) -> None:
        try:
            self._serve()
        except Exception as error:  # raised by serve: a thread would end in silence
            if not self._ended.is_set():
                wrong.append(error)

    def _serve(self) -> None:
        away = Backoff(RETRY, shortest=0.2)
        answer = b""
        have = ""
        while not self._ended.is_set():
            began = time.monotonic()
            try:
                reply = self._ask(answer, have)
            except (httpx.TransportError, TurnedAway) as error:
                if isinstance(error, TurnedAway) and not error.passes:
                    raise
                self._shorten(error, time.monotonic() - began)
                self._ended.wait(away.next())
                continue
            away.hurry()
            answer = b""
            if reply.ticket:
                with self._working:
                    if not self._ended.is_set():
                        have = reply.ticket
                        answer = self._remote.answer(reply.body)

    def _ask(self, answer: bytes, have: str) -> Reply:
        headers = {**self._head, wire.HAVE: have, wire.HOLD_FOR: f"{self._hold:g}"}
        try:
            reply = self._wire.request("POST", wire.EXCHANGE, answer, headers, self._hold)
        except (httpx.TransportError, TurnedAway, ForeignServer) as error:
            self._connection.write(error=f"{error}" or type(error).__name__)
            raise
        if reply.status == TOO_LONG:
            logger.warning("An answer of %d bytes is longer than the server accepts.", len(answer))
        self._connection.write()
        return reply

    def _shorten(self, error: Exception, after: float) -> None:
        """Wait shorter where a proxy ends connections on which nothing is sent for some seconds."""
        cut = isinstance(error, httpx.RemoteProtocolError | httpx.ReadError)
        if cut and LEAST_HOLD < after < self._hold:
            self._hold = max(LEAST_HOLD, 0.7 * after)

    def _beat(self) -> None:
        """Give signs of life while a request is computed. Otherwise a request is held at the server, which is one."""
        while not self._ended.wait(BEATS):
            if self._working.locked():
                with suppress(httpx.HTTPError, TurnedAway, ForeignServer, RuntimeError):
                    self._wire.request("POST", wire.ALIVE, b"", self._head)


def served(end: Wire) -> tuple[dict[str, Any], str]:
    """Return what a server serves, and the date on its clock."""
    reply = end.request("GET", wire.TERMS_PATH, b"", {})
    try:
        found: dict[str, Any] = dict(json.loads(reply.body))
    except (ValueError, TypeError) as error:
        raise ProtocolError(f"The server's description of its terms cannot be read ({error}).") from None
    return found, reply.date


def agreement(end: Wire) -> bytes:
    """Return the terms that a server serves, whole; raise :class:`TurnedAway` where it cannot be reached, too."""
    try:
        return end.request("GET", wire.AGREEMENT, b"", {}).body
    except httpx.TransportError as error:
        raise TurnedAway(f"The server cannot be reached ({error})", True) from None


def _detail(reply: Reply) -> str:
    """Return what a server answered to a request that it refused."""
    try:
        return str(json.loads(reply.body)["detail"])[:500]
    except (ValueError, KeyError, TypeError):
        return f"HTTP {reply.status}"
