"""Nodes, and the server app, that would look for messages in vain wait until there is something new.

Looking costs Flower's server a signature and a query, and twenty nodes that look twice a second
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


VAIN = 6
"""Looks of which one is let through, though nothing was heard."""

QUIET = 5.0
"""Seconds without a further piece after which no more are waited for: whoever sends them may have died."""


class Bell:
    """Rung when messages, and the last of their pieces, were handed in; pieces are requests of their own.

    Parameters
    ----------
    hold : float
        Most seconds that a look waits.
    """

    def __init__(self, hold: float = HOLD) -> None:
        self._hold, self._rung = hold, 0
        self._changed = asyncio.Event()
        self._looked: dict[bytes, int] = {}
        self._vain: dict[bytes, int] = {}
        self._pieces = 0
        self._soon: asyncio.TimerHandle | None = None

    def announced(self, pieces: int) -> None:
        """Say that messages came, of which so many pieces are still on their way."""
        self._pieces += pieces
        self._came()

    def piece(self) -> None:
        """Say that a piece came."""
        self._pieces = max(0, self._pieces - 1)
        self._came()

    def _came(self) -> None:
        if self._soon is not None:
            self._soon.cancel()
        if self._pieces == 0:
            self._wake()
        else:
            self._soon = asyncio.get_running_loop().call_later(QUIET, self._wake)

    def _wake(self) -> None:
        self._rung, self._pieces = self._rung + 1, 0
        self._changed.set()
        self._changed = asyncio.Event()

    async def held(self, node: bytes, send: Any) -> Any:
        """Return when there may be something that this node has not looked for; None when time is up before.

        What is returned stands for `send`: it notices whether the node got something. A node gets one message at a
        time, and may look for the next one at once. Now and then a look is let through for nothing, should something
        have come unheard.
        """
        if self._looked.get(node) == self._rung or self._pieces:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), self._hold)
            self._vain[node] = self._vain.get(node, 0) + 1
            if self._looked.get(node) == self._rung and self._vain[node] < VAIN:
                return None
        self._looked[node], self._vain[node] = self._rung, 0

        async def told(part: dict[str, Any]) -> None:
            if len(part.get("body", b"")) > EMPTY or part.get("status", 200) >= 400:
                self._looked.pop(node, None)
            await send(part)

        return told
