"""Messages inside Flower's records: bytes, never decoded by anything but our own reader.

Flower cuts a message into a tree of objects, and each object is a request of its own, at both ends: an array is a
record, an array and its pieces. What is short travels as one value of a record instead, which is one object.
"""

from __future__ import annotations

from typing import Any

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedfactor.core.errors import ProtocolError

MESSAGE = "letter"
STYPE = "safetensors"

SHORT = 4 << 20
"""Bytes up to which a message is one object: less than the pieces of 5 MiB into which Flower cuts arrays."""


def to_record(data: bytes) -> RecordDict:
    """Put a message into a record."""
    if len(data) <= SHORT:
        return RecordDict({MESSAGE: ConfigRecord({MESSAGE: data})})
    array = Array(dtype="uint8", shape=(len(data),), stype=STYPE, data=data)
    return RecordDict({MESSAGE: ArrayRecord({MESSAGE: array})})


def from_record(content: Any) -> bytes:
    """Take a message out of a record; its bytes are not looked at, least of all as a NumPy file."""
    try:
        records = list(content.items())
        (name, record), (key, value) = records[0], next(iter(records[0][1].items()))
        short = isinstance(value, bytes)
        data: Any = value if short else value.data
        right = len(records) == 1 and len(record) == 1 and name == key == MESSAGE and (short or value.stype == STYPE)
    except (AttributeError, IndexError, StopIteration, TypeError, ValueError):
        raise ProtocolError("A Flower message came without one of ours in it. It was rejected.") from None
    if not right or not isinstance(data, bytes):
        raise ProtocolError("A Flower message came with other records than one. It was rejected.")
    return data
