"""Several letters in one body: between a run and the mailbox on its own machine, a round is one request each way."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

_SIZE = 8
"""Bytes of the number that says how long the head is."""


def pack(letters: Iterable[tuple[str, bytes]], about: Mapping[str, Any] | None = None) -> bytes:
    """Put letters, each with a name, and plain data about them into one body.

    Examples
    --------
    >>> unpack(pack([("north", b"abc"), ("west", b"")], {"most": 10}))
    ([('north', b'abc'), ('west', b'')], {'most': 10})
    """
    letters = list(letters)
    head = json.dumps({"letters": [(name, len(data)) for name, data in letters], "about": dict(about or {})}).encode()
    return b"".join([len(head).to_bytes(_SIZE, "big"), head, *(data for _, data in letters)])


def unpack(body: bytes) -> tuple[list[tuple[str, bytes]], dict[str, Any]]:
    """Take letters, and what is said about them, out of a body."""
    start = _SIZE + int.from_bytes(body[:_SIZE], "big")
    head: dict[str, Any] = json.loads(body[_SIZE:start])
    letters: list[tuple[str, bytes]] = []
    for name, size in head["letters"]:
        letters.append((name, body[start : start + size]))
        start += size
    return letters, head["about"]
