"""A message between a server and a client of a real federation, as bytes.

A message is one safetensors file. Its header holds its type, run, step and sender; the leaves are the
message. The head is read and compared first, then the declared leaves, and only then is an array made.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from fedfactor.core.errors import ProtocolError
from fedfactor.core.pytree import Tree
from fedfactor.core.wire import HEADER_LIMIT, Spec, read_header, receive, to_bytes
from fedfactor.network.half_precision import halved, narrow, widen

Kind = Literal["meet", "survey", "step", "end", "sum", "refusal"]
Payload = Literal["exact", "float16"]

WIRE = "0.3"
"""The minor version of the library whose messages these are: raised when messages or states of any method change."""

TEXT_LIMIT = 4000
"""Longest text in characters that a head may carry."""

_RUN = re.compile("[0-9A-Za-z_-]{0,64}")
"""Names of runs. A party keeps what it got under that name: it must not lead out of the party's folder."""


@dataclass(frozen=True, slots=True)
class Head:
    """The header of a message.

    Parameters
    ----------
    kind : {"meet", "survey", "step", "end", "sum", "refusal"}
        What is asked or answered. With secure aggregation, parties send their keys to meet, and a sum shows its total.
        A refusal carries a reason and no message.
    run : str
        Name of the run.
    index : int
        Round, or the client's own step when there are no rounds.
    client : str
        Its receiver, or its sender.
    terms : str
        Fingerprint of what the parties agreed on.
    attempt : int
        How often the server asked before.
    since : int
        The client's last step that counted, -1 when none did: the state after it is the one to go on from.
    session : int
        Which sum of that number this belongs to: of a survey (1) or of a step (2); 0 when there is none.
    participants : tuple of str
        Who was asked in this round.
    reason : str
        Why a client refuses.
    scales : tuple of float
        What each float16 leaf was divided by, in the order of the leaves.
    """

    kind: Kind
    run: str
    index: int
    client: str
    terms: str
    attempt: int = 0
    since: int = -1
    session: int = 0
    participants: tuple[str, ...] = ()
    reason: str = ""
    scales: tuple[float, ...] = ()

    @classmethod
    def of(cls, text: str) -> Head:
        """Read a head that another party wrote; anything odd is a :class:`ProtocolError`."""
        try:
            raw: dict[str, Any] = json.loads(text)
            names = {field.name for field in fields(cls)}
            if set(raw) != names:
                raise ValueError("its fields are not those of a message")
            raw["participants"], raw["scales"] = tuple(raw["participants"]), tuple(raw["scales"])
            head = cls(**raw)
            head._check()
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise ProtocolError(f"The head of a message is not usable ({error}). It is damaged or hostile.") from None
        return head

    def _check(self) -> None:
        if self.kind not in get_args(Kind):
            raise ValueError("its kind is not known")
        words: tuple[Any, ...] = (self.run, self.client, self.terms, self.reason, *self.participants)
        if not all(isinstance(word, str) and len(word) <= TEXT_LIMIT for word in words):
            raise ValueError("one of its texts is too long, or no text")
        if not _RUN.fullmatch(self.run):
            raise ValueError("it does not carry the name of a run")
        numbers: tuple[Any, ...] = (self.index, self.attempt, self.session, self.since)
        if not all(type(n) is int and -1 <= n < 1 << 53 for n in numbers) or min(numbers[:3]) < 0:
            raise ValueError("one of its counts is no count")
        scales: tuple[Any, ...] = self.scales
        if not all(isinstance(scale, int | float) and math.isfinite(scale) and scale > 0 for scale in scales):
            raise ValueError("one of its scales is not a positive number")


def seal(head: Head, message: Tree = None, payload: Payload = "exact") -> bytes:
    """Write a message.

    Examples
    --------
    >>> from fedfactor.core.algorithm import Score
    >>> head = Head("end", "r1", 3, "north", "abc")
    >>> read_head(seal(head, Score.of(1.0, 2, 3.0))) == head
    True
    """
    if payload == "float16" and message is not None:
        message, scales = narrow(message)
        head = replace(head, scales=scales)
    return to_bytes({} if message is None else message, {"message": json.dumps(asdict(head)), "version": WIRE})


def read_head(data: bytes) -> Head:
    """Read only the head; allocates nothing for the message."""
    beside = read_header(data)[1]
    text = beside.get("message")
    theirs = str(beside.get("version", WIRE))[:12]
    if theirs != WIRE:
        raise ProtocolError(
            f"A message of fedfactor {theirs!r} arrived, but this is {WIRE}. Parties and server need the same minor "
            "version: install one everywhere, between two runs."
        )
    if not isinstance(text, str):
        raise ProtocolError("The bytes are not a message: they have no head. They were rejected.")
    return Head.of(text)


def unseal(data: bytes, head: Head, expected: Mapping[type, Spec], payload: Payload = "exact") -> Tree:
    """Read the body of a message whose head was found right, checking it against what was announced."""
    if payload == "exact":
        if head.scales:
            raise ProtocolError("A message came with scales, but exact payloads were agreed. It was rejected.")
        return receive(data, expected)
    message = receive(data, {kind: halved(spec) for kind, spec in expected.items()})
    return widen(message, head.scales, expected[type(message)])


def most_bytes(expected: Mapping[type, Spec]) -> int:
    """Count the most bytes that a right message can have."""
    return max(sum(leaf.nbytes for leaf in spec.values()) for spec in expected.values()) + HEADER_LIMIT
