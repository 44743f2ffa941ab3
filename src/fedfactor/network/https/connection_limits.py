"""Accept connections, and bound what each address and each key may hold of the server.

Until its TLS handshake is done a connection belongs to a stranger: of these there are few, and they end after seconds.
When all places are taken, a newcomer replaces the oldest connection of the address that has the most, so that a flood
from one address displaces its own connections. A flood from many addresses would leave a party that reconnects one
chance in hundreds; so the address from which each key was last used goes before all others. After the handshake a
connection belongs to a key: of each key there are few, and one on which no request is being served ends after seconds,
too.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedfactor.network.https.identity import digest_of_certificate
from fedfactor.network.https.protocol import HEAD_SECONDS

HANDSHAKES = 48
"""Connections at a time whose handshake is not done."""

HANDSHAKE_SECONDS = 15.0
"""Seconds in which a handshake must be done."""

TURN = 2.0
"""Seconds after which a handshake makes room for a connection of an address that is as crowded as its own."""

PER_KEY = 6
"""Connections of one key at a time. A party needs two: one waits for requests, and one gives signs of life."""

COLLECT = 32
"""Handshakes after which garbage is collected. An ended TLS connection of asyncio sits in a reference cycle and holds
a buffer of 256 KiB, which the collector does not count: without this a flood of connections fills the memory."""

BACKLOG = 256
"""Connections that the operating system holds until they are accepted."""


def listen(host: str, port: int) -> list[socket.socket]:
    """Open the sockets of an address; an empty host means every address of this machine, of IPv4 and of IPv6."""
    if not host:
        if socket.has_dualstack_ipv6():
            return [socket.create_server(("", port), family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)]
        return [socket.create_server(("", port), backlog=BACKLOG)]
    found = dict.fromkeys(
        (family, where[0]) for family, _, _, _, where in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    )
    opened: list[socket.socket] = []
    try:
        for family, address in found:
            opened.append(socket.create_server((address, port), family=family, backlog=BACKLOG))
            port = port or opened[0].getsockname()[1]
    except OSError:
        for line in opened:
            line.close()
        raise
    return opened


@dataclass(slots=True, eq=False)
class Connection:
    """A connection whose handshake is done."""

    transport: Any
    key: str
    idle_since: float
    serving: int = 0


@dataclass(slots=True, eq=False)
class _Handshake:
    address: str
    since: float
    task: Any = None


class Connections:
    """Accepts connections and hands them to a protocol.

    Parameters
    ----------
    protocol : callable
        Makes the protocol of a connection.
    context : ssl.SSLContext
    admits : callable
        Whether the digest of a key is that of a registered party.
    """

    def __init__(
        self,
        protocol: Callable[[], asyncio.BaseProtocol],
        context: ssl.SSLContext,
        admits: Callable[[str], bool],
        *,
        head_seconds: float = HEAD_SECONDS,
    ) -> None:
        self._protocol = protocol
        self._context = context
        self._admits = admits
        self._head_seconds = head_seconds
        self._handshakes: dict[_Handshake, None] = {}  # oldest first
        self._connections: dict[Any, Connection] = {}
        self._known: dict[str, str] = {}  # the address from which each registered key was last used
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = 0

    def start(self, sockets: list[socket.socket]) -> None:
        """Begin to accept."""
        for line in sockets:
            line.setblocking(False)
            self._keep(asyncio.create_task(self._accept(line)))
        self._keep(asyncio.create_task(self._sweep()))

    def close(self) -> None:
        """Accept no more."""
        for task in self._tasks:
            task.cancel()

    def abort(self) -> None:
        """End all connections."""
        for connection in list(self._connections.values()):
            connection.transport.abort()

    @property
    def serving(self) -> int:
        """Count the requests that are being served."""
        return sum(connection.serving for connection in self._connections.values())

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, line: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, where = await loop.sock_accept(line)
            except OSError:  # no file left for it: others have to end first
                await asyncio.sleep(0.05)
                continue
            shaking = _Handshake(_network(where[0]), time.monotonic())
            if not self._finds_room(shaking):
                accepted.close()
                continue
            self._handshakes[shaking] = None
            shaking.task = asyncio.create_task(self._shake_hands(shaking, accepted))
            self._keep(shaking.task)

    def _finds_room(self, newcomer: _Handshake) -> bool:
        if len(self._handshakes) < HANDSHAKES:
            return True
        known = set(self._known.values())
        crowds = Counter(other.address for other in self._handshakes)
        strangers = {address: size for address, size in crowds.items() if address not in known} or crowds
        address, size = max(strangers.items(), key=lambda entry: entry[1])
        oldest = next(other for other in self._handshakes if other.address == address)
        goes_before = newcomer.address in known and address not in known
        crowded = crowds[newcomer.address] + 1 >= size
        if not goes_before and crowded and newcomer.since - oldest.since < TURN:
            return False
        del self._handshakes[oldest]
        oldest.task.cancel()
        return True

    async def _shake_hands(self, shaking: _Handshake, accepted: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            with contextlib.suppress(OSError, ssl.SSLError):
                transport, _ = await loop.connect_accepted_socket(
                    self._protocol, accepted, ssl=self._context, ssl_handshake_timeout=HANDSHAKE_SECONDS
                )
                self.admit(transport)
        except asyncio.CancelledError:
            accepted.close()
            raise
        finally:
            self._handshakes.pop(shaking, None)
            shaking.task = None
            self._ended += 1
            if self._ended >= COLLECT:
                self._ended = 0
                gc.collect()

    def admit(self, transport: Any) -> Connection:
        """Take a connection whose handshake is done, if need be in the place of another one of the same key.

        A key that is not registered can only be that of a party that was removed, or of a certificate by an authority
        that is trusted. All of these share the places of one key, and their requests are refused.
        """
        if (known := self._connections.get(transport)) is not None:
            return known
        key = key_of(transport) or ""
        key = key if self._admits(key) else ""
        peer = transport.get_extra_info("peername")
        if key and peer:
            self._known[key] = _network(peer[0])
        others = [c for c in self._connections.values() if c.key == key and not c.transport.is_closing()]
        if len(others) >= PER_KEY:
            min(others, key=lambda c: (c.serving > 0, c.idle_since)).transport.abort()
        connection = self._connections[transport] = Connection(transport, key, time.monotonic())
        return connection

    async def _sweep(self) -> None:
        """End connections on which no request arrives."""
        while True:
            await asyncio.sleep(min(0.5, self._head_seconds / 4))
            late = time.monotonic() - self._head_seconds
            for transport, connection in list(self._connections.items()):
                if transport.is_closing():
                    del self._connections[transport]
                elif not connection.serving and connection.idle_since < late:
                    transport.abort()


def key_of(transport: Any) -> str | None:
    """Return the digest of the key that the other end of a connection has proved to hold."""
    secured = transport.get_extra_info("ssl_object")
    der = None if secured is None else secured.getpeercert(binary_form=True)
    return digest_of_certificate(der) if der else None


def _network(address: str) -> str:
    """Return what counts as one address: of IPv6 the network of 64 bits, which one machine usually has to itself."""
    with contextlib.suppress(ValueError):
        found = ipaddress.ip_address(address.partition("%")[0])
        if isinstance(found, ipaddress.IPv6Address):
            mapped = found.ipv4_mapped
            return str(mapped) if mapped else str(ipaddress.ip_network((found, 64), strict=False))
    return address
