"""A secure sum between parties: the server sees the sum of all uploads of a round, and no single one.

Clients take their step first and keep the upload to themselves. The questions of
:mod:`fedfactor.privacy.secure_aggregation.phases`
then make the sum. The cohort is fixed by the agreement, and everybody is needed: a sum of others would, beside this
one, show what the missing party sent. If one exchange fails, nothing was revealed, and the sum is begun again with
fresh keys.

All signatures hang on what the parties were sent (:func:`bond_of`): a server that sends one of them a V that lets it
speak, and the others one that silences them, would read the one upload from the sum. Here such parties find that they
are not in the same sum.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from fedfactor.core.algorithm import Meta, Uplink
from fedfactor.core.entropy import Entropy
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.flattened_upload import Layout, Parcel, flatten
from fedfactor.core.pytree import Array, Tree, kind_of, leaves, public, record, to_numpy, type_tag
from fedfactor.core.transforms import Transform
from fedfactor.core.wire import Leaf, Spec
from fedfactor.network.exchange import Exchange, NotEnough
from fedfactor.network.message_format import Head
from fedfactor.privacy.secure_aggregation.masked_sum import SecureClient
from fedfactor.privacy.secure_aggregation.phases import (
    Begin,
    SumClient,
    SumServer,
    answers_to,
    read_words,
    size_of,
    words_of,
)
from fedfactor.privacy.secure_aggregation.primitives import Identity

FRACTION = 32
"""Fractional bits of exact sums."""

LEAST = 3
"""Fewest parties: of two, each could subtract its own part and read the other's."""

TRIES = 5
"""How often one sum is begun before the round is given up."""


@record("secure_sum.Ready")
class Ready:
    """Up: the step is done, and the upload, of this kind and with leaves of these shapes, waits to be summed."""

    kind: Array = public()
    shapes: Array = public()

    @classmethod
    def of(cls, kind: int, up: Tree) -> Ready:
        """Say what waits here. Shapes follow from the question alone, which all parties have in common."""
        sizes = [size for _, leaf in sorted(leaves(up), key=lambda pair: pair[0]) for size in np.shape(leaf)]
        return cls(np.int64(kind), np.array(sizes, np.int64))


READY: dict[type, Spec] = {Ready: {"kind": Leaf("int64", ()), "shapes": Leaf("int64", (256,), exact=False)}}


@record("secure_sum.Counts")
class Counts:
    """What the sum before round 0 adds up: rows that fill each column, and whether any does."""

    uplink: ClassVar[Uplink] = "sum"

    rows: Array
    clients: Array

    def rare(self, least: Sequence[int]) -> np.ndarray:
        """Tell the columns that somebody fills, but fewer rows or clients than agreed."""
        few = (self.rows < least[0]) | (self.clients < least[1])
        return np.flatnonzero(few & (self.rows > 0))


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
            f"A secure sum hides single uploads, but this algorithm must see each {gathered[0]}. Use PooledNMF, or "
            "protect = 'none'."
        )
    return kinds


def empty_upload(kind: type, spec: Spec, sizes: Sequence[int]) -> Tree:
    """Make an upload of zeros, with leaves of these sizes in the order of their names."""
    found, position = {}, 0
    for name, leaf in sorted(spec.items()):
        shape = tuple(int(size) for size in sizes[position : position + len(leaf.shape)])
        position += len(leaf.shape)
        if min(shape, default=0) < 0 or not leaf.admits(leaf.dtype, shape):
            raise NotEnough(f"The parties announce a {kind.__name__}.{name} of shape {shape}, which cannot be.")
        found[name] = np.zeros(shape, leaf.dtype)
    if position != len(sizes):
        raise NotEnough(f"The parties announce more parts than a {kind.__name__} has.")
    return kind(**found)


def bond_of(head: Head, down: Tree, rare: np.ndarray | None = None, links: Sequence[Transform] = ()) -> np.ndarray:
    """Digest what all parties of a sum have in common: the question, word for word, the columns left out, the links.

    Parties with another noise would count in units of another grid, and their sum would be of nothing.
    """
    told = hashlib.sha256(repr((head.terms, head.run, head.kind, head.index, head.participants)).encode())
    told.update(repr(tuple(links)).encode())
    for tree in (down, {"rare": np.zeros(0, np.int64) if rare is None else rare}):
        for path, leaf in leaves(tree):
            array = np.ascontiguousarray(to_numpy(leaf))
            told.update(repr((path, array.dtype.str, array.shape)).encode())
            told.update(array.tobytes())
    return np.frombuffer(told.digest(), np.uint8)


def part_of(
    name: str,
    names: Sequence[str],
    identity: Identity,
    registry: Mapping[str, bytes],
    head: Head,
    kind: type,
    waiting: Mapping[str, Any],
    bond: np.ndarray,
    entropy: Entropy | None = None,
) -> SumClient:
    """Let a client take part in one sum with the parcel that waits."""
    parcel = Parcel.of(waiting)
    size = size_of(parcel.values.size, len(parcel.side))
    about = (_run(head, kind, bond), head.index, tuple(names), len(names), size)
    client = SecureClient(name, identity, registry, LEAST, entropy or Entropy())
    return SumClient(client, about, words_of(parcel, FRACTION, len(names), cut=True))


def collect(
    exchange: Exchange,
    meta: Meta,
    head: Head,
    messages: Mapping[str, Tree],
    expected: Mapping[type, Spec],
    since: Mapping[str, int],
    rare: np.ndarray | None = None,
    links: Sequence[Transform] = (),
) -> tuple[Parcel, Layout]:
    """Let all clients take a step, and return the sum of their uploads; begun anew when somebody was lost."""
    kinds = uploads(expected)
    bonds = {bond_of(head, down, rare, links).tobytes() for down in messages.values()}
    if len(bonds) != 1:
        raise IncompatibleError(
            "A secure sum needs that all parties are sent the same: one that is sent something of its own could be "
            "made to speak alone. Use an algorithm with one download for all, or protect = 'none'."
        )
    ready = exchange.ask(head, messages, READY, since=since)
    named = {int(answer.kind) for answer in ready.values()}
    if len(named) != 1 or not 0 <= min(named) < len(kinds):
        raise NotEnough("The parties made uploads of different kinds, which have no sum. Do all run the same version?")
    kind, sizes = kinds[min(named)], {tuple(answer.shapes.tolist()) for answer in ready.values()}
    if len(sizes) != 1:
        raise NotEnough("The parties made uploads of different shapes, which have no sum. Do all run the same version?")
    nothing, last, bond = empty_upload(kind, expected[kind], sizes.pop()), None, np.frombuffer(bonds.pop(), np.uint8)
    empty, layout = flatten(nothing, noisy=any(link.noisy for link in links))
    grids = [grid for link in links if (grid := link.grid(empty.values.size)) is not None]
    size = size_of(empty.values.size, len(empty.side))
    for _ in range(TRIES):
        try:
            fresh = replace(head, session=1 + secrets.randbits(52))
            words = _sum(exchange, meta.clients, fresh, size, _run(fresh, kind, bond))
            return read_words(words, size[1], grids[-1] if grids else 2.0**-FRACTION), layout
        except NotEnough as error:
            last = error
    assert last is not None
    raise last


def _sum(exchange: Exchange, names: Sequence[str], head: Head, size: tuple[int, int], run: bytes) -> np.ndarray:
    """Drive one sum over messages."""
    may, server = answers_to(len(names), size[0]), SumServer(run, head.index, names, len(names), size)

    def ask(questions: Mapping[str, Tree]) -> dict[str, Any]:
        phase = kind_of(next(iter(questions.values())))
        # What came before is told apart from what is asked now by the number of the phase.
        since = dict.fromkeys(names, list(may).index(phase))
        return exchange.ask(replace(head, kind="sum", participants=()), questions, may[phase], since=since)

    masked = ask(server.open(ask, survey=head.kind == "survey"))
    for name in names:
        server.take(name, masked[name])
    return server.close(ask)


def _run(head: Head, kind: type, bond: np.ndarray) -> bytes:
    """Name the run for the signatures of one sum: which try it is, of uploads of which kind, after which question."""
    return repr((head.run, head.session, type_tag(kind), bond.tobytes())).encode()
