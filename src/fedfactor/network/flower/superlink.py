"""Run Flower's SuperLink as a child, with a gate in front of it.

One port carries three things: messages of nodes (signed with registered keys), control (start a run, register a key)
and the run's own traffic. Only the first is for other machines; the gate lets the others in from this machine
alone, because Flower asks nobody who they are before it runs what they submit. Messages of nodes are let in when a
registered key has signed them, which the gate finds out from the head of a request: of what others send, no body is
read.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import ipaddress
import json
import os
import secrets
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from fedfactor.core.atomic_files import write_atomic
from fedfactor.network.flower.connection_limits import Door
from fedfactor.network.flower.long_polling import Bell
from fedfactor.network.mailbox.boxes import OTHER_TERMS, PARTY, RUN, SECRET_FILE, TERMS, Mailbox, answer, refuse
from fedfactor.network.mailbox.proof import UNKNOWN, key_of, refusal

FLEET, HEALTH, KNOCK = "/v1/fleet/", "/health", "/v1/fleet/fedfactor-terms"
"""Paths that other machines may use: the first and the third with a key, the second to hear that the server lives."""

BODY = 32 << 20
"""Most bytes of one request: Flower cuts arrays into pieces of 5 MiB, so nobody honest sends more."""

LOCAL = 32 << 20
"""Most bytes in all requests of this machine that are being read: they need no key."""

HEAD = 16 << 10
"""Most bytes of the head of a request."""

SECRET = 64 << 10
"""Bytes that each connection is read by at a time over TLS, also a stranger's: Python takes four times as many."""

PULL, PUSH, PIECE = "/pull-messages", "/push-messages", "/push-object"
"""How paths end on which messages are asked for, and handed in with their pieces, by nodes and by the server app."""

STARTS = 240
"""Seconds that the process of a run may take to start: after Flower's own 30 a busy machine starts it in vain."""

APP_HOLD = 1.0
"""Most seconds that the server app's question waits: it also looks at the clock, and whether it is to stop."""


class TooLong(Exception):
    """A request was longer than it may be."""


class Gate:
    """Decides from the head of a request whether it is let in, and how much of it is read.

    Parameters
    ----------
    app : ASGI application
        What stands behind.
    keys : callable, optional
        Returns the registered public keys, as PEM; None lets in who speaks for nodes without a look at keys.
    door : Door, optional
        Is told whose connections may stay.
    about : callable, optional
        What a party hears that asks under which terms and with which versions is served.
    mailbox : Mailbox, optional
        The boxes of parties that have no node of Flower's.
    terms : callable, optional
        Returns the fingerprint of what is served: who agreed to something else is told so, and asked nothing.
    """

    def __init__(
        self,
        app: Any,
        keys: Callable[[], Collection[bytes]] | None = None,
        door: Door | None = None,
        about: Callable[[], bytes] | None = None,
        mailbox: Mailbox | None = None,
        terms: Callable[[], str] = str,
    ) -> None:
        self._app, self._keys, self._door, self._about, self._mailbox = app, keys, door, about, mailbox
        self._terms = terms
        self._room, self._bells = _Room(LOCAL), {True: Bell(), False: Bell(APP_HOLD)}

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Let through, or refuse."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        size = _declared(scope)
        if scope["path"] == HEALTH:
            await self._app(scope, _nothing, send)
        elif not self._admits(scope):
            await refuse(send, 403, "Only nodes may speak to this server from elsewhere.")
        elif size > BODY and scope["path"] not in (PARTY, RUN):
            await refuse(send, 413, "Too long.")
        elif scope["path"].startswith(FLEET):
            why = None if self._keys is None else refusal(scope["headers"], self._keys()) or self._apart(scope)
            if why is not None:
                # A node writes down why it was turned away, but at 401 one of Flower's ends without a word. A wrong
                # clock, or other terms, are mended without it: such a node is to try again.
                status = 412 if why == UNKNOWN else 503
                await refuse(send, status, why)
                return
            self._stays(scope)
            if scope["path"] == KNOCK and self._about is not None:
                await answer(send, self._about())
                return
            if scope["path"] == PARTY and self._mailbox is not None:
                await self._mailbox.party(key_of(scope["headers"]), scope, receive, send)
                return
            send = await self._waited(scope, send, True)
            if send is None:
                return
            with contextlib.suppress(TooLong):  # whoever says less than it sends gets no answer
                await self._app(scope, _counted(receive), send)
        elif scope["path"] == RUN and self._mailbox is not None:
            await self._mailbox.run(scope, receive, self._watched(scope, send))
        else:
            send = await self._waited(scope, send, False)
            if send is None:
                return
            async with self._room.of(size if size >= 0 else BODY):
                with contextlib.suppress(TooLong):
                    await self._app(scope, _counted(receive, size), self._watched(scope, send))

    def _apart(self, scope: dict[str, Any]) -> str | None:
        """Say that a party agreed to other terms than those that are served."""
        named = next((value for name, value in scope["headers"] if name.lower() == TERMS.encode()), b"")
        served = self._terms()
        if not served or named in (b"", served.encode()):
            return None
        if self._mailbox is not None:
            self._mailbox.turned_away(key_of(scope["headers"]))
        return f"{OTHER_TERMS}: {served[:16]}"

    async def _waited(self, scope: dict[str, Any], send: Any, node: bool) -> Any:
        """Let who asks for messages wait until the other side has handed in some; notice what is handed in."""
        if scope["path"].endswith(PULL):
            held = await self._bells[node].held(
                key_of(scope["headers"]) if node and self._keys is not None else b"", send
            )
            if held is None:
                await _answer_nothing(send)
            return held
        if not scope["path"].endswith((PUSH, PIECE)):
            return send
        bell, body = self._bells[not node], bytearray()

        async def told(part: dict[str, Any]) -> None:
            body.extend(part.get("body", b""))
            await send(part)
            if part["type"] == "http.response.body" and not part.get("more_body"):
                if scope["path"].endswith(PIECE):
                    bell.piece()
                else:
                    bell.announced(_pieces(bytes(body), node))

        return told

    def _watched(self, scope: dict[str, Any], send: Any) -> Any:
        """Let connections of this machine stay once something was done for them."""

        async def told(part: dict[str, Any]) -> None:
            if part.get("status", 500) < 400:
                self._stays(scope)
            await send(part)

        return told

    def _stays(self, scope: dict[str, Any]) -> None:
        if self._door is not None and scope.get("client"):
            self._door.prove(scope["client"])

    @staticmethod
    def _admits(scope: dict[str, Any]) -> bool:
        if scope["path"].startswith(FLEET) or scope["path"] == HEALTH:
            return True
        try:
            # A connection of this machine to any of its own addresses comes from that very address.
            return ipaddress.ip_address(scope["client"][0]) == ipaddress.ip_address(scope["server"][0])
        except (ValueError, TypeError, KeyError):
            return False


class _Room:
    """Room for so many bytes: who finds too little waits until others are done."""

    def __init__(self, most: int) -> None:
        self._left, self._freed = most, asyncio.Condition()

    @contextlib.asynccontextmanager
    async def of(self, size: int) -> AsyncGenerator[None, None]:
        async with self._freed:
            await self._freed.wait_for(lambda: self._left >= size)
            self._left -= size
        try:
            yield
        finally:
            async with self._freed:
                self._left += size
                self._freed.notify_all()


async def _answer_nothing(send: Any) -> None:
    """Say that there are no messages, as Flower does: no bytes are a message without entries."""
    head = [(b"content-type", b"application/protobuf"), (b"content-length", b"0")]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": b""})


def _pieces(answer: bytes, node: bool) -> int:
    """Read from the answer to messages that were handed in how many pieces the server still wants."""
    from flwr.proto.fleet_pb2 import PushMessagesResponse
    from flwr.proto.runtime_pb2 import PushAppMessagesResponse
    from google.protobuf.message import DecodeError

    kind: Any = PushMessagesResponse if node else PushAppMessagesResponse
    try:
        return len(set(kind.FromString(answer).objects_to_push))
    except DecodeError:
        return 0


class Registered:
    """The parties' keys, and what is served, from ``server.json``, read again when the file changes."""

    def __init__(self, file: Path) -> None:
        self._file, self._seen, self._terms = file, -1, ""
        self._keys: dict[bytes, str] = {}

    def __call__(self) -> Mapping[bytes, str]:
        """Return the name of each key."""
        changed = self._file.stat().st_mtime_ns
        if changed != self._seen:
            about = json.loads(self._file.read_bytes())
            keys: dict[str, str] = about["keys"]
            self._keys, self._seen = {key.encode().strip(): name for name, key in keys.items()}, changed
            self._terms = about.get("terms", "")
        return self._keys

    def terms(self) -> str:
        """Return the fingerprint of what is served."""
        self()
        return self._terms


def _declared(scope: dict[str, Any]) -> int:
    """Return the length that a request states; -1 when it states none, and sends until it has enough."""
    sizes = [value for name, value in scope["headers"] if name.lower() == b"content-length"]
    if sizes:
        return int(sizes[0]) if sizes[0].isdigit() and len(sizes[0]) < 16 else BODY + 1
    return -1 if any(name.lower() == b"transfer-encoding" for name, _ in scope["headers"]) else 0


def _counted(receive: Any, most: int = -1) -> Any:
    """Stop reading a request when it has become too long, before anybody has put it together."""
    left = BODY if most < 0 else most

    async def take() -> Any:
        nonlocal left
        part = await receive()
        left -= len(part.get("body", b""))
        if left < 0:
            raise TooLong
        return part

    return take


async def _nothing() -> dict[str, Any]:
    """Stand for the body of a request of which none is read."""
    return {"type": "http.request", "body": b"", "more_body": False}


def gated(
    app: Any,
    keys: Callable[[], Collection[bytes]] | None = None,
    about: Callable[[], bytes] | None = None,
    mailbox: Mailbox | None = None,
    terms: Callable[[], str] = str,
    **options: Any,
) -> tuple[Any, Door]:
    """Make the configuration of a gated server, and its door.

    The gate must see who really speaks: no header may name somebody else. Strangers must not be able to fill a log.
    """
    import uvicorn
    from uvicorn.protocols.http.h11_impl import H11Protocol

    door = Door(options.get("host") or "127.0.0.1", int(options.get("port") or 0))

    class Protocol(H11Protocol):
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            door.attach(transport.get_extra_info("peername"), transport)

    fixed: dict[str, Any] = {
        "proxy_headers": False, "access_log": False, "http": Protocol, "ws": "none", "loop": "asyncio", "workers": 1,
        "h11_max_incomplete_event_size": HEAD,
    }  # fmt: skip
    return uvicorn.Config(Gate(app, keys, door, about, mailbox, terms), **{**options, **fixed}), door


def _about(folder: Path) -> Callable[[], bytes]:
    """Say under which terms this folder is served, and with which versions: what decides the bits of a run."""
    from fedfactor.engines.checkpoint import environment

    def told() -> bytes:
        terms = json.loads((folder / "agreement.json").read_bytes())["terms"]
        return json.dumps({"terms": terms, "versions": environment(1)}).encode()

    return told


def serve_gated(app: Any, **options: Any) -> None:
    """Serve behind the gate until told to end."""
    from asyncio import sslproto

    import uvicorn

    cast("Any", sslproto).SSLProtocol.max_size = SECRET
    folder = os.environ.get("FEDFACTOR_SERVER")
    if folder is None:
        config, door = gated(app, **options)
    else:
        place = Path(folder)
        keys, secret = Registered(place / "server.json"), secrets.token_hex(32).encode()
        write_atomic(place / SECRET_FILE, secret)
        config, door = gated(app, keys, _about(place), Mailbox(keys, secret), keys.terms, **options)

    class Server(uvicorn.Server):
        async def on_tick(self, counter: int) -> bool:
            door.sweep()  # ten times a second
            return await super().on_tick(counter)

    server = Server(config)
    server.run(sockets=[door])
    if not server.started:
        raise SystemExit(3)


def main() -> None:
    """Serve until the parent ends."""
    import uvicorn
    from flwr.supercore.app_utils import start_parent_process_monitor

    module: Any = importlib.import_module("flwr.superlink.cli.flower_superlink")

    start_parent_process_monitor(os.getppid())
    if getattr(module, "uvicorn", None) is not uvicorn:
        raise SystemExit("This version of Flower starts its server in another way: the gate would not stand. Use 1.41.")
    module.uvicorn = SimpleNamespace(run=serve_gated)
    tasks: Any = importlib.import_module("flwr.supercore.corestate.sql_corestate")
    if not hasattr(tasks, "HEARTBEAT_DEFAULT_INTERVAL"):
        raise SystemExit("This version of Flower waits for runs in another way. Use 1.41.")
    tasks.HEARTBEAT_DEFAULT_INTERVAL = STARTS
    module.flower_superlink()


if __name__ == "__main__":
    main()
