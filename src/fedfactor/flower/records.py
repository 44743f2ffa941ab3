"""Messages inside Flower's records: bytes that only fedfactor's own reader decodes.

Flower cuts a message into a tree of objects, and each object is a request of its own at both ends: an array is a
record, an array and its pieces. A short message therefore travels as one value of a ``ConfigRecord``, which is one
object; a long one as an array, which Flower sends in pieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from fedfactor.core.errors import ProtocolError

Kind = Literal["identify", "message"]

RECORD = "fedfactor"
LONG = "fedfactor.message"
STYPE = "fedfactor.bytes"

SHORT = 4 << 20
"""Bytes up to which a message is one object: less than the pieces of 5 MiB into which Flower cuts arrays."""


@dataclass(frozen=True, slots=True)
class Envelope:
    """One message on its way through Flower.

    Parameters
    ----------
    kind : {"identify", "message"}
        Who answers at this node, or a message of the request/response protocol.
    data : bytes
        The question or the answer.
    signature : bytes
        With an answer: the party's signature, see :mod:`fedfactor.flower.signatures`.
    """

    kind: Kind
    data: bytes
    signature: bytes = b""


def to_record(envelope: Envelope) -> RecordDict:
    """Put a message into records."""
    values: dict[str, Any] = {"kind": envelope.kind, "signature": envelope.signature}
    if len(envelope.data) <= SHORT:
        return RecordDict({RECORD: ConfigRecord({**values, "data": envelope.data})})
    array = Array(dtype="uint8", shape=(len(envelope.data),), stype=STYPE, data=envelope.data)
    return RecordDict({RECORD: ConfigRecord(values), LONG: ArrayRecord({LONG: array})})


def from_record(content: Any) -> Envelope:
    """Take a message out of records.

    Raises
    ------
    ProtocolError
        The records are not those that :func:`to_record` makes. Arrays are never read as NumPy files.
    """
    try:
        records: dict[str, Any] = dict(content.items())
        values: Mapping[str, Any] = dict(records.pop(RECORD).items())
        if "data" in values:
            data = values["data"]
        else:
            (array,) = dict(records.pop(LONG).items()).values()
            data = array.data if array.stype == STYPE else None
        kind = values["kind"]
        signature = values["signature"]
        fits = not records and set(values) <= {"kind", "signature", "data"}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ProtocolError("A Flower message does not hold the records of fedfactor. It was rejected.") from None
    if not fits or kind not in get_args(Kind) or not isinstance(data, bytes) or not isinstance(signature, bytes):
        raise ProtocolError("A Flower message holds other records than those of fedfactor. It was rejected.")
    return Envelope(kind, data, signature)
