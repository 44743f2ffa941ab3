"""The server of the default transport: runs in a thread of the coordinator's process.

It knows who asks from the verified certificate of the connection, and from nothing else. Of bodies it reads no more
than a right answer has, and hands them to the run as they are.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from fedfactor.network.https import protocol as wire
from fedfactor.network.https.connection_limits import Connections, key_of
from fedfactor.network.https.party_queues import PartyQueue, PartyQueues

logger = logging.getLogger("fedfactor")

GRACE = 5.0
"""Seconds that requests get to end when the server does."""

CHUNK = 64 << 10
"""Bytes that are written at a time, so that a slow reader costs no copy of what it reads."""


class Refused(Exception):
    """A request that is not served.

    Parameters
    ----------
    status : int
        HTTP status.
    why : str
        The reason sent to the party.
    """

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class TooLong(Refused):
    """An answer that is longer than any right one."""


class HttpsServer:
    """Serves the queues of parties over HTTPS.

    Parameters
    ----------
    queues : PartyQueues
    parties : callable
        Returns the name of each registered key, by the digest of the key.
    served : callable
        Returns what :data:`~fedfactor.network.https.protocol.TERMS_PATH` answers: at least the fingerprint of the
        terms that are served.
    context : ssl.SSLContext
    hold : float
        Most seconds that a request is held.
    head_seconds : float
        Seconds in which the head of a request must arrive.
    agreement : callable
        Returns the terms that are served, whole.
    """

    def __init__(
        self,
        queues: PartyQueues,
        parties: Callable[[], Mapping[str, str]],
        served: Callable[[], Mapping[str, Any]],
        context: ssl.SSLContext,
        *,
        hold: float = wire.HOLD,
        head_seconds: float = wire.HEAD_SECONDS,
        agreement: Callable[[], bytes] = bytes,
    ) -> None:
        self._agreement = agreement
        self._queues = queues
        self._parties = parties
        self._served = served
        self._context = context
        self._hold = hold
        self._head_seconds = head_seconds
        self._thread: threading.Thread | None = None
        self._ready = threading.Event()
        self._end = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connections: Connections | None = None
        self.failure: BaseException | None = None
        """What ended the server, when it ended by itself."""

    # ------------------------------------------------------------------------------------------------------ the thread
    def start(self, sockets: list[socket.socket]) -> None:
        """Serve on these sockets in a thread; returns when it does."""
        self._thread = threading.Thread(target=self._main, args=(sockets,), name="fedfactor-https", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self.failure is not None:
            raise self.failure

    @property
    def running(self) -> bool:
        """Whether requests are served."""
        return self._thread is not None and self._thread.is_alive() and not self._queues.closed

    def close(self) -> None:
        """End: answer those that wait, let uploads arrive that are on their way, and close all connections."""
        self._queues.close()
        if self._thread is None:
            return
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(GRACE + 5.0)
        self._thread = None

    def _main(self, sockets: list[socket.socket]) -> None:
        try:
            asyncio.run(self._serve(sockets))
        except Exception as error:
            logger.error("The server ended: %s", error, exc_info=error)
            self.failure = error
        finally:
            for line in sockets:
                line.close()
            self._ready.set()

    async def _serve(self, sockets: list[socket.socket]) -> None:
        self._loop = asyncio.get_running_loop()
        self._queues.attach(self._loop)
        application = web.Application(middlewares=[self._guard])
        application.add_routes(
            [
                web.post(wire.EXCHANGE, self._exchange),
                web.post(wire.ALIVE, self._alive),
                web.get(wire.TERMS_PATH, self._terms),
                web.get(wire.AGREEMENT, self._whole_terms),
            ]
        )
        runner = web.AppRunner(
            application,
            handle_signals=False,
            access_log=None,
            auto_decompress=False,
            handler_cancellation=True,
            lingering_time=2.0,
            keepalive_timeout=self._head_seconds,
            shutdown_timeout=1.0,
            max_line_size=wire.HEAD_BYTES,
            max_field_size=wire.HEAD_BYTES,
        )
        await runner.setup()
        assert runner.server is not None
        self._connections = Connections(
            runner.server, self._context, lambda key: key in self._parties(), head_seconds=self._head_seconds
        )
        self._connections.start(sockets)
        self._ready.set()
        await self._end.wait()
        self._connections.close()
        end = time.monotonic() + GRACE
        while self._connections.serving and time.monotonic() < end:
            await asyncio.sleep(0.02)
        self._connections.abort()
        await runner.cleanup()

    # ---------------------------------------------------------------------------------------------------- the requests
    @web.middleware
    async def _guard(self, request: web.Request, handler: Any) -> web.StreamResponse:
        """Count the request of a connection, and turn refusals into answers."""
        assert self._connections is not None
        if request.transport is None:  # it hung up
            raise asyncio.CancelledError
        connection = self._connections.admit(request.transport)
        connection.serving += 1
        try:
            return await handler(request)
        except Refused as refused:
            return _closing(refused.status, str(refused))
        except web.HTTPNotFound:
            return _closing(404, f"{wire.VERSIONS} {wire.VERSION}")
        except web.HTTPException as refused:
            return _closing(refused.status, refused.reason)
        finally:
            connection.serving -= 1
            connection.idle_since = time.monotonic()

    def _name(self, request: web.Request) -> str:
        """Return which party asks: whose key the certificate of this connection holds."""
        name = self._parties().get(key_of(request.transport) or "")
        if name is None:
            raise Refused(403, wire.UNKNOWN_KEY)
        for header in wire.OWN:
            if len(request.headers.getall(header, ())) > 1:
                raise Refused(400, f"The header {header} occurs twice.")
        return name

    def _queue(self, request: web.Request) -> PartyQueue:
        """Return the queue of the party that asks, if it agreed to the terms that are served."""
        queue = self._queues.of(self._name(request))
        served = str(self._served()["terms"])
        named = request.headers.get(wire.TERMS, "")
        if named != served:
            queue.other_terms = time.monotonic()
            raise Refused(409, f"{wire.OTHER_TERMS}: {served[:16]}")
        return queue

    async def _terms(self, request: web.Request) -> web.StreamResponse:
        """Return what is served, and under which name the server knows the party."""
        return web.json_response({**self._served(), "party": self._name(request), "protocol": wire.VERSION})

    async def _whole_terms(self, request: web.Request) -> web.StreamResponse:
        """Return the terms themselves, to a registered party that has to consent to them."""
        self._name(request)
        return web.Response(body=self._agreement(), content_type="application/json")

    async def _alive(self, request: web.Request) -> web.StreamResponse:
        """Note a sign of life."""
        queue = self._queue(request)
        self._enter(request, queue)
        return web.Response(status=204)

    def _enter(self, request: web.Request, queue: PartyQueue) -> bool:
        session = request.headers.get(wire.SESSION, "")[:64]
        if not session:
            raise Refused(400, f"The header {wire.SESSION} is missing.")
        new = self._queues.enter(queue, session, request.headers.get(wire.AFTER, "")[:64])
        if new is None:
            raise Refused(503, wire.SECOND_PROCESS)
        return new

    async def _exchange(self, request: web.Request) -> web.StreamResponse:
        """Take the answer of a party, and give it the next request when there is one."""
        queue = self._queue(request)
        new = self._enter(request, queue)
        if queue.held is not None:  # its connection may be cut without the server having noticed: the newest counts
            queue.held.abort()
        mine = queue.held = request.transport
        try:
            have = request.headers.get(wire.HAVE, "")
            hold = 0.0 if new else self._hold_for(request)
            try:
                answer = await self._body(request)
            except TooLong:
                self._queues.deliver(queue, have, b"")  # the party will not send another one
                raise
            self._queues.deliver(queue, have, answer)
            ticket, body = await self._queues.next_request(queue, have, hold)
            if self._queues.closed:
                raise Refused(503, wire.ENDING)
            queue.seen = time.monotonic()
            queue.last = time.time()
            return await _send(request, ticket, body) if ticket else web.Response(status=204)
        except asyncio.CancelledError:  # it hung up
            if queue.held is mine:
                queue.seen = float("-inf")
                queue.last = time.time()
            raise
        finally:
            if queue.held is mine:
                queue.held = None

    def _hold_for(self, request: web.Request) -> float:
        try:
            wished = float(request.headers.get(wire.HOLD_FOR, self._hold))
        except ValueError:
            raise Refused(400, f"{wire.HOLD_FOR} is no number.") from None
        return min(max(wished, 0.0), self._hold) if math.isfinite(wished) else self._hold

    async def _body(self, request: web.Request) -> bytes:
        """Read a body whole, if it is stated to be no longer than a right one, and arrives in time."""
        if request.headers.get("Content-Encoding", "identity").lower() != "identity":
            raise Refused(415, "Bodies are not encoded here.")
        if not request.can_read_body:
            return b""
        if (size := request.content_length) is None:
            raise Refused(411, "State the length of the body.")
        if size > self._queues.longest:
            raise TooLong(413, "This answer is longer than any right one.")
        try:
            async with asyncio.timeout(wire.seconds_for(size)):
                return await request.content.readexactly(size)
        except TimeoutError:
            raise Refused(408, "The body took too long.") from None


async def _send(request: web.Request, ticket: str, body: bytes) -> web.StreamResponse:
    """Send a request to its party piece by piece, as fast as it reads."""
    response = web.StreamResponse(headers={wire.TICKET: ticket, "Content-Type": "application/octet-stream"})
    response.content_length = len(body)
    async with asyncio.timeout(wire.seconds_for(len(body))):
        await response.prepare(request)
        view = memoryview(body)
        for start in range(0, len(body), CHUNK):
            await response.write(view[start : start + CHUNK])
        await response.write_eof()
    return response


def _closing(status: int, why: str) -> web.StreamResponse:
    """Refuse, and close the connection: no body of it is read."""
    response = web.Response(status=status, text=json.dumps({"detail": why}), content_type="application/json")
    response.force_close()
    return response
