"""Parties whose answers come twice, or too late; those of a real federation load it when they start."""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from fedfactor.network.mailbox.boxes import SESSION
from fedfactor.network.message_format import read_head

STATUS = "FEDFACTOR_TEST_STATUS"
"""Environment variable: where the server says which round it is in."""

DOUBLE, LATE, ROUND = "south", "west", 1
"""Who sends every answer twice, and who brings that of which round when the others are beyond it."""


def spoil(node: Any) -> None:
    """Change how a class of nodes sends."""
    ask: Any = node._ask

    def odd(self: Any, body: bytes, headers: dict[str, str]) -> Any:
        name = self._remote.agreement.name
        if name == DOUBLE and body:
            _hang_up(self, body, headers)  # before the server could say thanks
        if name == LATE and body and _place(body) == ("step", ROUND):
            _hang_up(self, b"", headers)
            while _reached() <= ROUND + 1:
                time.sleep(0.02)
        return ask(self, body, headers)

    node._ask = odd


def _hang_up(node: Any, body: bytes, headers: dict[str, str]) -> None:
    head = {**node._signer.head(), SESSION: node._session, **headers}
    with suppress(httpx.TimeoutException):
        node._client.post(node._url, content=body, headers=head, timeout=0.3)


def _place(data: bytes) -> tuple[str, int]:
    head = read_head(data)
    return head.kind, head.index


def _reached() -> int:
    try:
        return int(json.loads(Path(os.environ[STATUS]).read_bytes()).get("round", 0))
    except (OSError, ValueError):
        return 0
