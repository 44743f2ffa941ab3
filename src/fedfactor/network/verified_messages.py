"""Messages of verified aggregation between the coordinator and the parties.

An upload of a round takes two exchanges: :class:`Question` → :class:`Masked`, then :class:`Shown` → :class:`Tagged`.
The tags travel to the parties with the next question. Rows of arrays are in the order of the parties' sorted names.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from fedfactor.core.algorithm import Meta, Uplink
from fedfactor.core.errors import IncompatibleError, ProtocolError
from fedfactor.core.flattened_upload import Layout, flatten
from fedfactor.core.pytree import Array, Tree, kind_of, leaves, public, record, to_numpy, type_tag
from fedfactor.core.transforms import Transform
from fedfactor.core.wire import HEADER_LIMIT, Leaf, Spec, to_bytes
from fedfactor.privacy.secure_aggregation.phases import Begin
from fedfactor.privacy.secure_aggregation.verified import Advert, Commitment, Tags, Total, carry_dtype

FRACTION = 32
"""Fractional bits of exact sums."""

MOST_SIZES = 256
"""Most dimensions of all leaves of an upload together."""


@record("verified.Meet")
class Meet:
    """Down: requests a party's fresh key of this run; gives the index of the run's agreed seed."""

    seed: Array = public()


@record("verified.Key")
class Key:
    """Up: the fresh key, and its signature."""

    key: Array
    signature: Array


@record("verified.Question")
class Question:
    """Down: the message itself as bytes; the keys of all parties (in the first question); the tags of the last sum."""

    down: Array
    keys: Array
    tags: Array
    signatures: Array


@record("verified.Masked")
class Masked:
    """Up: the kind of upload and the sizes of its leaves, its masked words, and the signature of their hash."""

    kind: Array
    sizes: Array
    words: Array
    digest: Array
    signature: Array


@record("verified.Shown")
class Shown:
    """Down: the signed hashes of all parties, and the total over the integers."""

    digests: Array
    signatures: Array
    words: Array
    carries: Array


@record("verified.Tagged")
class Tagged:
    """Up: two linear tags of one's masked words, and their signature."""

    tags: Array
    signature: Array


@record("secure_sum.Counts")
class Counts:
    """What the sum before round 0 adds up: rows that fill each column, and whether any does."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    rows: Array
    clients: Array

    def rare(self, least: Sequence[int]) -> np.ndarray:
        """Return the columns with values, but from fewer rows or clients than agreed."""
        few = (self.rows < least[0]) | (self.clients < least[1])
        return np.flatnonzero(few & (self.rows > 0))


MEET: dict[type, Spec] = {Meet: {"seed": Leaf("int64", ())}}
KEY: dict[type, Spec] = {Key: {"key": Leaf("uint8", (32,)), "signature": Leaf("uint8", (64,))}}
TAGGED: dict[type, Spec] = {Tagged: {"tags": Leaf("uint64", (2,)), "signature": Leaf("uint8", (64,))}}


def counts_messages(meta: Meta) -> dict[type, Spec]:
    """List what travels when columns are counted."""
    column = Leaf("float64", (meta.n_features,))
    return {Counts: {"rows": column, "clients": column}, Begin: {"nothing": Leaf("float64", ())}}


def uploads(expected: Mapping[type, Spec]) -> list[type]:
    """List the kinds of upload in a fixed order; refuse an algorithm whose uploads cannot be summed."""
    kinds = sorted((kind for kind in expected if hasattr(kind, "uplink")), key=type_tag)
    gathered = [kind.__name__ for kind in kinds if getattr(kind, "uplink", "") == "gather"]
    if gathered:
        raise IncompatibleError(
            f"Secure aggregation hides single uploads, but this algorithm must see each {gathered[0]}. Use "
            "PooledNMF, or protect = 'none'."
        )
    return kinds


def question_messages(expected: Mapping[type, Spec], n: int) -> dict[type, Spec]:
    """List the form of a question, for messages of these kinds to so many parties."""
    most = max(sum(leaf.nbytes for leaf in spec.values()) for spec in expected.values()) + HEADER_LIMIT
    return {
        Question: {
            "down": Leaf("uint8", (most,), exact=False),
            "keys": Leaf("uint8", (n, 96), exact=False),
            "tags": Leaf("uint64", (n, 2), exact=False),
            "signatures": Leaf("uint8", (n, 64), exact=False),
        }
    }


def masked_messages(expected: Mapping[type, Spec]) -> dict[type, Spec]:
    """List the form of a masked upload of these kinds."""
    words = Leaf("uint64", (_most_words(expected),), exact=False)
    return {
        Masked: {
            "kind": Leaf("int64", ()),
            "sizes": Leaf("int64", (MOST_SIZES,), exact=False),
            "words": words,
            "digest": Leaf("uint8", (32,)),
            "signature": Leaf("uint8", (64,)),
        }
    }


def shown_messages(expected: Mapping[type, Spec], n: int) -> dict[type, Spec]:
    """List the form of a total of uploads of these kinds by so many parties."""
    most = _most_words(expected)
    return {
        Shown: {
            "digests": Leaf("uint8", (n, 32)),
            "signatures": Leaf("uint8", (n, 64)),
            "words": Leaf("uint64", (most,), exact=False),
            "carries": Leaf(carry_dtype(n), (most,), exact=False),
        }
    }


def _most_words(expected: Mapping[type, Spec]) -> int:
    kinds = [spec for kind, spec in expected.items() if hasattr(kind, "uplink")]
    return max(sum(2 * math.prod(leaf.shape) for leaf in spec.values()) for spec in kinds)


def sizes_of(up: Tree) -> np.ndarray:
    """List the sizes of the leaves of an upload by name; they follow from the question, which all parties share."""
    ordered = sorted(leaves(up), key=lambda pair: pair[0])
    return np.array([size for _, leaf in ordered for size in np.shape(leaf)], np.int64)


def empty_upload(kind: type, spec: Spec, sizes: Sequence[int]) -> Tree:
    """Make an upload of zeros, with leaves of these sizes in the order of their names."""
    found: dict[str, np.ndarray] = {}
    position = 0
    for name, leaf in sorted(spec.items()):
        shape = tuple(int(size) for size in sizes[position : position + len(leaf.shape)])
        position += len(leaf.shape)
        if min(shape, default=0) < 0 or not leaf.admits(leaf.dtype, shape):
            raise ProtocolError(f"A {kind.__name__}.{name} of shape {shape} was announced, which cannot be.")
        found[name] = np.zeros(shape, leaf.dtype)
    if position != len(sizes):
        raise ProtocolError(f"More parts were announced than a {kind.__name__} has.")
    return kind(**found)


def layout_of(up: Tree, links: Sequence[Transform]) -> tuple[Layout, int, int, float]:
    """Return the layout of an upload in a sum, its numbers, its wide numbers, and the width of the grid."""
    empty, layout = flatten(up, noisy=any(link.noisy for link in links))
    grids = [grid for link in links if (grid := link.grid(empty.values.size)) is not None]
    return layout, empty.values.size, len(empty.side), grids[-1] if grids else 2.0**-FRACTION


def layout_digest(kind: type, sizes: np.ndarray, side: int) -> bytes:
    """Digest of the kind and the layout of an upload: words of another layout have no sum."""
    text = repr((type_tag(kind), [int(size) for size in sizes], int(side)))
    return hashlib.sha256(text.encode()).digest()


def question_digest(
    kind: str, participants: Sequence[str], down: Tree, rare: np.ndarray | None, links: Sequence[Transform]
) -> bytes:
    """Digest of what all parties of a sum have in common: the message, the columns left out, the transforms."""
    found = hashlib.sha256(repr((kind, tuple(participants), tuple(links), type_tag(kind_of(down)))).encode())
    for tree in (down, {"rare": np.zeros(0, np.int64) if rare is None else rare}):
        for path, leaf in leaves(tree):
            array = np.ascontiguousarray(to_numpy(leaf))
            found.update(repr((path, array.dtype.str, array.shape)).encode())
            found.update(array.tobytes())
    return found.digest()


# ------------------------------------------------------------------------------------- rows of arrays and their objects
def octets(data: bytes) -> np.ndarray:
    """View bytes as an array."""
    return np.frombuffer(data, np.uint8)


def question_of(down: Tree, keys: np.ndarray | None, tags: Mapping[str, Any] | None) -> Question:
    """Write a question; keys and tags are empty where there are none."""
    nothing = np.zeros((0, 64), np.uint8)
    known = {"tags": np.zeros((0, 2), np.uint64), "signatures": nothing} if tags is None else tags
    roster = np.zeros((0, 96), np.uint8) if keys is None else keys
    return Question(octets(to_bytes(down)), roster, known["tags"], known["signatures"])


def adverts_of(names: Sequence[str], keys: np.ndarray) -> dict[str, Advert]:
    """Read the keys of all parties."""
    if len(keys) != len(names):
        raise ProtocolError("The keys of all parties did not come with the first question.")
    return {n: Advert(row[:32].tobytes(), row[32:].tobytes()) for n, row in zip(names, keys, strict=True)}


def tags_of(names: Sequence[str], tags: np.ndarray, signatures: np.ndarray) -> dict[str, Tags]:
    """Read the tags of all parties."""
    if len(tags) != len(names) or len(signatures) != len(names):
        raise ProtocolError("The tags of all parties did not come with the question after their sum.")
    rows = zip(names, tags.tolist(), signatures, strict=True)
    return {name: Tags((pair[0], pair[1]), signature.tobytes()) for name, pair, signature in rows}


def total_of(names: Sequence[str], shown: Shown | Mapping[str, np.ndarray]) -> Total:
    """Read the total and the signed hashes of all parties."""
    part = shown if isinstance(shown, Mapping) else {n: getattr(shown, n) for n in PARTS_OF_TOTAL}
    rows = zip(names, part["digests"], part["signatures"], strict=True)
    commitments = {name: Commitment(digest.tobytes(), signature.tobytes()) for name, digest, signature in rows}
    return Total(commitments, part["words"], part["carries"])


PARTS_OF_TOTAL = ("digests", "signatures", "words", "carries")
