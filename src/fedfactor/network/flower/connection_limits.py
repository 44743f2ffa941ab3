"""A listening socket that outsiders cannot fill: those who have shown no key are few, short-lived, and leave first.

Flower's server accepts whoever comes. A thousand connections that say nothing then use up its files, and it hears
nobody any more. Here a connection counts as a stranger's until the gate has seen a party's signature on it
(:meth:`Door.prove`). Of strangers there are never more than a fixed number: one more takes the place of the oldest of
the address that has the most, or is turned away when it comes from there itself, so that whoever floods the door stands
in its own way. A stranger has some seconds to show a key.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

__all__ = ["Door", "Guest"]

STRANGERS = 48
"""Connections without a key at one time."""

GRACE = 15.0
"""Seconds in which a connection must have shown one."""

TURN = 2.0
"""Seconds after which a stranger makes room for one whose address is as crowded as its own."""

LEAVING = 24
"""Connections that may be on their way out before no more are let in."""

TURNED = 256
"""Connections that are turned away in one go, before others are served again."""


class Guest(socket.socket):
    """A connection that the door knows of."""

    door: Door
    peer: tuple[Any, ...] = ()
    since = 0.0
    transport: Any = None

    def close(self) -> None:
        """Leave."""
        self.door.gone(self)
        super().close()


class Door(socket.socket):
    """Listens, and decides who stays. Made for one event loop: nothing here is locked.

    Parameters
    ----------
    host, port : str, int
        Where to listen.
    strangers : int
        Most connections without a key.
    grace : float
        Seconds in which one must be shown.
    turn : float
        Seconds after which a stranger makes room for others of its address.
    clock : callable
        What the time is.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        strangers: int = STRANGERS,
        grace: float = GRACE,
        turn: float = TURN,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.bind((host, port))
        self._most, self._grace, self._turn, self._clock = strangers, grace, turn, clock
        self._strangers: dict[tuple[Any, ...], Guest] = {}  # oldest first
        self._known: dict[tuple[Any, ...], Guest] = {}
        self._leaving: set[Guest] = set()

    @property
    def strangers(self) -> int:
        """Count those who have shown no key."""
        return len(self._strangers)

    def accept(self) -> tuple[Guest, Any]:
        """Let one in; raises as an empty queue does while too many are on their way out.

        Those who are not let in are turned away here, before anything is spent on them: shaking hands over TLS costs a
        hundred times more, and a flood of that alone would keep a server busy.
        """
        self.sweep()
        for _ in range(TURNED):
            if len(self._leaving) >= LEAVING:
                break
            handle, peer = cast("tuple[int, Any]", self._accept())  # type: ignore[attr-defined] # the standard library's own
            guest = Guest(self.family, self.type, self.proto, fileno=handle)
            guest.door, guest.peer, guest.since = self, tuple(peer[:2]), self._clock()
            if self._finds_room(guest):
                self._strangers[guest.peer] = guest
                return guest, peer
            guest.close()
        raise BlockingIOError

    def _finds_room(self, guest: Guest) -> bool:
        """Tell whether one more may come in, if need be in the place of another."""
        if len(self._strangers) < self._most:
            return True
        crowds = Counter(peer[0] for peer in self._strangers)
        address, size = crowds.most_common(1)[0]
        oldest = next(other for peer, other in self._strangers.items() if peer[0] == address)
        if crowds[guest.peer[0]] + 1 >= size and self._clock() - oldest.since < self._turn:
            return False
        self._show_out(oldest)
        return True

    def attach(self, peer: Any, transport: Any) -> None:
        """Learn how a connection is ended once TLS stands: the end of the socket alone would be waited for politely."""
        guest = self._strangers.get(tuple(peer[:2]))
        if guest is None:  # shown out while it was still shaking hands
            transport.abort()
        else:
            guest.transport = transport

    def prove(self, peer: Any) -> None:
        """Let a connection stay: somebody with a key speaks on it."""
        guest = self._strangers.pop(tuple(peer[:2]), None)
        if guest is not None:
            self._known[guest.peer] = guest

    def sweep(self) -> None:
        """Show those out whose time is up."""
        late = self._clock() - self._grace
        while self._strangers:
            oldest = next(iter(self._strangers.values()))
            if oldest.since > late:
                return
            self._show_out(oldest)

    def gone(self, guest: Guest) -> None:
        """Forget a connection that was closed."""
        for kept in (self._strangers, self._known):
            if kept.get(guest.peer) is guest:
                del kept[guest.peer]
        self._leaving.discard(guest)

    def _show_out(self, guest: Guest) -> None:
        """End a connection from this side: whoever holds the socket sees its end, and closes it."""
        del self._strangers[guest.peer]
        self._leaving.add(guest)
        if guest.transport is not None:
            guest.transport.abort()
        else:
            with contextlib.suppress(OSError):
                guest.shutdown(socket.SHUT_RDWR)
