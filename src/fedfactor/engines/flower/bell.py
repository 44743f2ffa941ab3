"""Nodes that would look for messages in vain wait until there is something new.

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


class Bell:
    """Rung whenever the server app has handed in messages."""

    def __init__(self, hold: float = HOLD) -> None:
        self._hold, self._rung, self._changed = hold, 0, asyncio.Condition()
        self._looked: dict[bytes, int] = {}

    async def ring(self) -> None:
        """Say that there is something new."""
        async with self._changed:
            self._rung += 1
            self._changed.notify_all()

    async def held(self, node: bytes, send: Any) -> Any:
        """Return when there may be something that this node has not looked for, or when time is up.

        What is returned stands for `send`: it notices whether the node got something. A node gets one message at a
        time, and may look for the next one at once.
        """
        if self._looked.get(node) == self._rung:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._hold), self._changed:
                    await self._changed.wait_for(lambda: self._looked.get(node) != self._rung)
        self._looked[node] = self._rung

        async def told(part: dict[str, Any]) -> None:
            if len(part.get("body", b"")) > EMPTY or part.get("status", 200) >= 400:
                self._looked.pop(node, None)
            await send(part)

        return told
