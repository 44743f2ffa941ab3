"""Run Flower's SuperLink as a child, with a gate in front of it.

One port carries three things: messages of nodes (signed with registered keys), control (start a run, register a key)
and the server app's own traffic. Only the first is for other machines; the gate lets the others in from this machine
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
from binascii import Error as Base64Error
from collections.abc import AsyncGenerator, Callable, Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from fedfactor.engines.flower.bell import Bell
from fedfactor.engines.flower.door import Door

FLEET, HEALTH, KNOCK = "/v1/fleet/", "/health", "/v1/fleet/fedfactor-terms"
"""Paths that other machines may use: the first and the third with a key, the second to hear that the server lives."""

BODY = 32 << 20
"""Most bytes of one request: Flower cuts arrays into pieces of 5 MiB, so nobody honest sends more."""

LOCAL = 32 << 20
"""Most bytes in all requests of this machine that are being read: they need no key."""

UNKNOWN = "Invalid SuperNode authentication"
"""What a node is told whose key is not registered."""

CLOCK = "Your clock is"
"""How a refusal begins whose only reason is the time."""

HEAD = 16 << 10
"""Most bytes of the head of a request."""

SECRET = 64 << 10
"""Bytes that each connection is read by at a time over TLS, also a stranger's: Python takes four times as many."""

PULL, PUSH, PIECE = "/pull-messages", "/push-messages", "/push-object"
"""How paths end on which messages are asked for, and handed in with their pieces, by nodes and by the server app."""

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
    """

    def __init__(
        self,
        app: Any,
        keys: Callable[[], Collection[bytes]] | None = None,
        door: Door | None = None,
        about: Callable[[], bytes] | None = None,
    ) -> None:
        self._app, self._keys, self._door, self._about = app, keys, door, about
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
            await _refuse(send, 403, b"Only nodes may speak to this server from elsewhere.")
        elif size > BODY:
            await _refuse(send, 413, b"Too long.")
        elif scope["path"].startswith(FLEET):
            why = None if self._keys is None else refusal(scope["headers"], self._keys())
            if why is not None:
                # In the form of Flower's own errors, so that a node writes down why it was turned away: at 401 it ends
                # without a word. A wrong clock is mended without it: such a node is to try again.
                status = 412 if why == UNKNOWN else 503
                await _refuse(send, status, json.dumps({"code": 0, "detail": why}).encode())
                return
            self._stays(scope)
            if scope["path"] == KNOCK and self._about is not None:
                await _refuse(send, 200, self._about())
                return
            send = await self._waited(scope, send, True)
            if send is None:
                return
            with contextlib.suppress(TooLong):  # whoever says less than it sends gets no answer
                await self._app(scope, _counted(receive), send)
        else:
            send = await self._waited(scope, send, False)
            if send is None:
                return
            async with self._room.of(size if size >= 0 else BODY):
                with contextlib.suppress(TooLong):
                    await self._app(scope, _counted(receive, size), self._watched(scope, send))

    async def _waited(self, scope: dict[str, Any], send: Any, node: bool) -> Any:
        """Let who asks for messages wait until the other side has handed in some; notice what is handed in."""
        if scope["path"].endswith(PULL):
            held = await self._bells[node].held(_key_of(scope["headers"]) if node else b"", send)
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


def refusal(headers: Collection[tuple[bytes, bytes]], keys: Collection[bytes]) -> str | None:
    """Say why a request is not let in; None when one of these keys has signed its head just now.

    Flower makes the same test after it has read the body, however long, of whoever sent it. That only a clock is wrong
    is told to holders of registered keys alone.
    """
    import datetime
    from base64 import b64decode

    from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
    from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
    from flwr.supercore.date import now
    from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature

    found = {name.lower(): value for name, value in headers}
    try:
        key = b64decode(found[FLEET_HTTP_PUBLIC_KEY_HEADER.encode()], validate=True)
        if key.strip() not in keys:
            return UNKNOWN
        moment = found[TIMESTAMP_HEADER.encode()]
        age = (now() - datetime.datetime.fromisoformat(moment.decode("ascii"))).total_seconds()
        signature = b64decode(found[FLEET_HTTP_SIGNATURE_HEADER.encode()], validate=True)
        if not verify_signature(bytes_to_public_key(key), moment, signature):
            return UNKNOWN
    except (KeyError, ValueError, TypeError, Base64Error):
        return UNKNOWN
    # A little less than Flower's own bounds: who passes here must not be turned away a moment later, without a word.
    if age <= 0.5 - SYSTEM_TIME_TOLERANCE:
        return f"{CLOCK} {-age:.0f} s ahead of the server's"
    if age >= TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE - 0.5:
        return f"{CLOCK} {age:.0f} s behind the server's"
    return None


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


def _key_of(headers: Collection[tuple[bytes, bytes]]) -> bytes:
    from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER

    wanted = FLEET_HTTP_PUBLIC_KEY_HEADER.encode()
    return next((value for name, value in headers if name.lower() == wanted), b"")


class Registered:
    """The parties' keys from ``server.json``, read again when the file changes."""

    def __init__(self, file: Path) -> None:
        self._file, self._seen, self._keys = file, -1, frozenset[bytes]()

    def __call__(self) -> Collection[bytes]:
        """Return the keys."""
        changed = self._file.stat().st_mtime_ns
        if changed != self._seen:
            keys: dict[str, str] = json.loads(self._file.read_bytes())["keys"]
            self._keys, self._seen = frozenset(key.encode().strip() for key in keys.values()), changed
        return self._keys


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


async def _refuse(send: Any, status: int, why: bytes) -> None:
    # Closed after that: what is still on its way is not read.
    head = [(b"content-type", b"text/plain"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": status, "headers": head})
    await send({"type": "http.response.body", "body": why + b"\n"})


def gated(
    app: Any,
    keys: Callable[[], Collection[bytes]] | None = None,
    about: Callable[[], bytes] | None = None,
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
    return uvicorn.Config(Gate(app, keys, door, about), **{**options, **fixed}), door


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
        config, door = gated(app, Registered(Path(folder) / "server.json"), _about(Path(folder)), **options)

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
    module.flower_superlink()


if __name__ == "__main__":
    main()
