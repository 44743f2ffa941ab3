"""Frames on a pipe: two lengths, a JSON head, a payload."""

from __future__ import annotations

import struct
from typing import IO

_LENGTHS = struct.Struct("<QQ")


def write_frame(pipe: IO[bytes], head: bytes, payload: bytes = b"") -> None:
    """Write one frame and flush it."""
    pipe.write(_LENGTHS.pack(len(head), len(payload)))
    pipe.write(head)
    pipe.write(payload)
    pipe.flush()


def read_frame(pipe: IO[bytes]) -> tuple[bytes, bytes] | None:
    """Read one frame; None when the other side has ended."""
    lengths = pipe.read(_LENGTHS.size)
    if len(lengths) < _LENGTHS.size:
        return None
    head_size, payload_size = _LENGTHS.unpack(lengths)
    head = pipe.read(head_size)
    payload = pipe.read(payload_size)
    if len(head) < head_size or len(payload) < payload_size:
        return None
    return head, payload
