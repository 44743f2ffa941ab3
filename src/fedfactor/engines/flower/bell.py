"""Nodes, and the server app, that would look for messages in vain wait until there is something new.

Looking costs Flower's server a signature, a query and some ten milliseconds, and twenty nodes that look twice a second
keep it busy while nothing happens. At the gate they wait for nothing more than a change of a number.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

HOLD = 5.0
"""Most seconds that a node's question waits for something to come; Flower's client waits 30 for an answer."""

EMPTY = 64
"""Bytes of an answer that surely holds no message."""


QUIET = 0.05
"""Seconds without a further piece after which messages are taken to be whole: pieces are requests of their own."""


class Bell:
    """Rung shortly after messages, and the last of their pieces, were handed in.

    Parameters
    ----------
    hold : float
        Most seconds that a look waits.
    """

    def __init__(self, hold: float = HOLD) -> None:
        self._hold, self._rung = hold, 0
        self._changed = asyncio.Event()
        self._looked: dict[bytes, int] = {}
        self._soon: asyncio.TimerHandle | None = None

    def ring(self) -> None:
        """Say that something came; those who wait hear of it once it is quiet."""
        if self._soon is not None:
            self._soon.cancel()
        self._soon = asyncio.get_running_loop().call_later(QUIET, self._wake)

    def _wake(self) -> None:
        self._rung += 1
        self._changed.set()
        self._changed = asyncio.Event()

    async def held(self, node: bytes, send: Any) -> Any:
        """Return when there may be something that this node has not looked for, or when time is up.

        What is returned stands for `send`: it notices whether the node got something. A node gets one message at a
        time, and may look for the next one at once.
        """
        if self._looked.get(node) == self._rung:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), self._hold)
        self._looked[node] = self._rung

        async def told(part: dict[str, Any]) -> None:
            if len(part.get("body", b"")) > EMPTY or part.get("status", 200) >= 400:
                self._looked.pop(node, None)
            await send(part)

        return told
