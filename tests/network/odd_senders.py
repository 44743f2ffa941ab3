"""Parties whose answers come twice, or too late; those of a real federation load it when they start."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from fedfactor.network.https import protocol as wire
from fedfactor.network.message_format import read_head

STATUS = "FEDFACTOR_TEST_STATUS"
"""Environment variable: where the server says which round it is in."""

DOUBLE, LATE, ROUND = "south", "west", 1
"""Who sends every answer twice, and who brings that of which round when the others are beyond it."""


def spoil(client: Any) -> None:
    """Change how a class of party clients sends."""
    ask: Any = client._ask

    def odd(self: Any, answer: bytes, have: str) -> Any:
        name = self._remote.agreement.name
        if name == DOUBLE and answer:
            _hang_up(self, answer, have)  # before the server could answer
        if name == LATE and answer and _place(answer) == ("step", ROUND):
            _hang_up(self, b"", have)
            while _reached() <= ROUND + 1:
                time.sleep(0.02)
        return ask(self, answer, have)

    client._ask = odd


def _hang_up(client: Any, answer: bytes, have: str) -> None:
    made, head = client._wire, {**client._head, wire.HAVE: have}
    with suppress(httpx.TimeoutException):
        made._http.post(made._url + wire.EXCHANGE, content=answer, headers=head, timeout=0.3)


def _place(data: bytes) -> tuple[str, int]:
    head = read_head(data)
    return head.kind, head.index


def _reached() -> int:
    try:
        return int(json.loads(Path(os.environ[STATUS]).read_bytes()).get("round", 0))
    except (OSError, ValueError):
        return 0
