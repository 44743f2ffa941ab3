"""A secure sum over letters: the server sees the sum of all uploads of a round, and no single one.

Clients take their step first and keep the upload to themselves. Five exchanges then make the sum: keys, sealed shares
of secrets, the uploads under masks, signatures of who is in the sum, and shares that take the masks off. The cohort is
fixed by the agreement, and everybody is needed: a sum of others would, beside this one, show what the missing party
sent. If one exchange fails, nothing was revealed, and the sum is begun again with fresh keys.

All signatures hang on what the parties were sent (:func:`bond_of`): a server that sends one of them a V that lets it
speak, and the others one that silences them, would read the one upload from the sum. Here such parties find that they
are not in the same sum.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from fedfactor.core.errors import IncompatibleError, ProtocolError
from fedfactor.core.protocol import Meta, Uplink
from fedfactor.core.tree import Array, Tree, kind_of, leaves, public, record, to_numpy, type_tag
from fedfactor.core.wire import Leaf, Spec
from fedfactor.engines.remote.exchange import Exchange, NotEnough
from fedfactor.engines.remote.message import Head
from fedfactor.privacy.entropy import Entropy
from fedfactor.privacy.flat_upload import Layout, Parcel, flatten, restore
from fedfactor.privacy.primitives import Identity
from fedfactor.privacy.ring import from_wide, join, quantise
from fedfactor.privacy.secagg import Advert, SecureClient, SecureServer, Shares
from fedfactor.privacy.shamir import SHARE_BYTES

FRACTION = 32
"""Fractional bits of exact sums."""

LEAST = 3
"""Fewest parties: of two, each could subtract its own part and read the other's."""

TRIES = 5
"""How often one sum is begun before the round is given up."""

SEALED = 2 * SHARE_BYTES + 16


@record
class Begin:
    """Down: begins a sum."""

    nothing: Array = public()


@record
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


@record
class Agree:
    """Down: everybody's part has come; who is in the sum is to be signed."""

    nothing: Array = public()


@record
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


@record
class Keys:
    """Up: fresh public keys, signed. Down: those of everybody, in name order."""

    seal: Array
    mask: Array
    signature: Array


@record
class Sealed:
    """Up: shares of one's secrets, sealed for each peer. Down: those that the peers sealed for the receiver."""

    parts: Array


@record
class Masked:
    """Up: the upload in integers, under masks that cancel in the sum."""

    words: Array


@record
class Signatures:
    """Up: one's signature of who is in the sum. Down: those of everybody."""

    signature: Array


@record
class Opened:
    """Up: one share of each party's seed. Never of a mask key: nobody may be missing."""

    seeds: Array


def phase_messages(n: int) -> dict[type, Spec]:
    """List what the server may send in a sum of so many clients, beside the question itself."""

    def block(width: int) -> Leaf:
        return Leaf("uint8", (n, width))

    return {
        Begin: {"nothing": Leaf("float64", ())},
        Keys: {"seal": block(32), "mask": block(32), "signature": block(64)},
        Sealed: {"parts": block(SEALED)},
        Agree: {"nothing": Leaf("float64", ())},
        Signatures: {"signature": block(64)},
    }


def _answers(n: int, words: int) -> dict[type, dict[type, Spec]]:
    """List what a client answers to each of them."""

    def row(width: int) -> Leaf:
        return Leaf("uint8", (width,))

    return {
        Begin: {Keys: {"seal": row(32), "mask": row(32), "signature": row(64)}},
        Keys: {Sealed: {"parts": Leaf("uint8", (n, SEALED))}},
        Sealed: {Masked: {"words": Leaf("uint64", (words,))}},
        Agree: {Signatures: {"signature": row(64)}},
        Signatures: {Opened: {"seeds": Leaf("uint8", (n, SHARE_BYTES))}},
    }


@dataclass(frozen=True, slots=True)
class Shape:
    """How an upload is laid out in a sum: its leaves, and the count of 64-bit words."""

    layout: Layout
    size: tuple[int, int]

    @classmethod
    def like(cls, up: Tree) -> Shape:
        """Take the layout of an upload."""
        parcel, layout = flatten(up, noisy=False)
        side = len(parcel.side)
        return cls(layout, (parcel.values.size + 2 * side, side))

    def words(self, up: Tree, n: int) -> np.ndarray:
        """Write an upload as integers."""
        parcel, _ = flatten(up, noisy=False)
        return join(quantise(parcel.values, FRACTION, n, cut=True), parcel.side)

    def read(self, words: np.ndarray) -> Tree:
        """Read the sum."""
        split = words.size - 2 * self.size[1]
        values, side = words[:split].view(np.int64), tuple(from_wide(words[split:]))
        return restore(Parcel(values, side, 2.0**-FRACTION), self.layout)


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


def shape_of(kind: type, spec: Spec, sizes: Sequence[int]) -> Shape:
    """Find how an upload of this kind, with leaves of these sizes in the order of their names, is laid out."""
    found, position = {}, 0
    for name, leaf in sorted(spec.items()):
        shape = tuple(int(size) for size in sizes[position : position + len(leaf.shape)])
        position += len(leaf.shape)
        if min(shape, default=0) < 0 or not leaf.admits(leaf.dtype, shape):
            raise NotEnough(f"The parties announce a {kind.__name__}.{name} of shape {shape}, which cannot be.")
        found[name] = np.zeros(shape, leaf.dtype)
    if position != len(sizes):
        raise NotEnough(f"The parties announce more parts than a {kind.__name__} has.")
    return Shape.like(kind(**found))


def bond_of(head: Head, down: Tree, rare: np.ndarray | None = None) -> np.ndarray:
    """Digest what all parties of a sum must have in common: the question, word for word, and the columns left out."""
    told = hashlib.sha256(repr((head.terms, head.run, head.kind, head.index, head.participants)).encode())
    for tree in (down, {"rare": np.zeros(0, np.int64) if rare is None else rare}):
        for path, leaf in leaves(tree):
            array = np.ascontiguousarray(to_numpy(leaf))
            told.update(repr((path, array.dtype.str, array.shape)).encode())
            told.update(array.tobytes())
    return _bytes(told.digest())


class Part:
    """A client in one sum. Lives in memory only: a client that was restarted takes part in the next try."""

    def __init__(
        self,
        name: str,
        names: Sequence[str],
        identity: Identity,
        registry: Mapping[str, bytes],
        head: Head,
        up: Tree,
        bond: np.ndarray,
    ) -> None:
        shape = Shape.like(up)
        self.name, self.names = name, tuple(names)
        self._words = shape.words(up, len(names))
        self._about = (_run(head, kind_of(up), bond), head.index, self.names, len(names), shape.size)
        self._client = SecureClient(name, identity, registry, LEAST, Entropy())
        self._said: dict[type, Tree] = {}

    def answer(self, down: Tree) -> Tree:
        """Take the next step of the protocol; the same question gets the same answer."""
        if type(down) not in self._said:
            self._said[type(down)] = self._next(down)
        return self._said[type(down)]

    def _next(self, down: Tree) -> Tree:
        if isinstance(down, Begin):
            advert = self._client.advertise(*self._about)
            return Keys(_bytes(advert.seal_key), _bytes(advert.mask_key), _bytes(advert.signature))
        if isinstance(down, Keys):
            rows = zip(self.names, down.seal, down.mask, down.signature, strict=True)
            sealed = self._client.share({n: Advert(s.tobytes(), m.tobytes(), g.tobytes()) for n, s, m, g in rows})
            return Sealed(np.stack([_bytes(sealed.get(name, bytes(SEALED))) for name in self.names]))
        if isinstance(down, Sealed):
            peers = zip(self.names, down.parts, strict=True)
            sealed = {name: part.tobytes() for name, part in peers if name != self.name}
            return Masked(self._client.mask(sealed, self._words))
        if isinstance(down, Agree):
            return Signatures(_bytes(self._client.agree(self.names)))
        if isinstance(down, Signatures):
            signed = dict(zip(self.names, (row.tobytes() for row in down.signature), strict=True))
            shares = self._client.unmask(self.names, (), signed)
            return Opened(np.stack([_bytes(shares.seeds[name]) for name in self.names]))
        raise ProtocolError(f"{type(down).__name__} is no part of a secure sum.")


def collect(
    exchange: Exchange,
    meta: Meta,
    head: Head,
    letters: Mapping[str, Tree],
    expected: Mapping[type, Spec],
    since: Mapping[str, int],
    rare: np.ndarray | None = None,
) -> Tree:
    """Let all clients take a step, and return the sum of their uploads; begun anew when somebody was lost."""
    kinds = uploads(expected)
    bonds = {bond_of(head, down, rare).tobytes() for down in letters.values()}
    if len(bonds) != 1:
        raise IncompatibleError(
            "A secure sum needs that all parties are sent the same: one that is sent something of its own could be "
            "made to speak alone. Use an algorithm with one download for all, or protect = 'none'."
        )
    ready = exchange.ask(head, letters, READY, since=since)
    named = {int(answer.kind) for answer in ready.values()}
    if len(named) != 1 or not 0 <= min(named) < len(kinds):
        raise NotEnough("The parties made uploads of different kinds, which have no sum. Do all run the same version?")
    kind, sizes = kinds[min(named)], {tuple(answer.shapes.tolist()) for answer in ready.values()}
    if len(sizes) != 1:
        raise NotEnough("The parties made uploads of different shapes, which have no sum. Do all run the same version?")
    shape, last, bond = shape_of(kind, expected[kind], sizes.pop()), None, _bytes(bonds.pop())
    for _ in range(TRIES):
        try:
            fresh = replace(head, session=1 + secrets.randbits(52))
            return _Sum(exchange, meta, fresh, shape, _run(fresh, kind, bond)).run()
        except NotEnough as error:
            last = error
    assert last is not None
    raise last


class _Sum:
    """The server in one sum."""

    def __init__(self, exchange: Exchange, meta: Meta, head: Head, shape: Shape, run: bytes) -> None:
        self._exchange, self._names, self._head, self._shape = exchange, meta.clients, head, shape
        self._server = SecureServer(run, head.index, self._names, len(self._names), shape.size)
        self._may = _answers(len(self._names), shape.size[0])

    def run(self) -> Tree:
        names, what = self._names, np.float64(self._head.kind == "survey")
        keys = self._ask(Begin, lambda _: Begin(what))
        stacked = Keys(*(np.stack([getattr(keys[n], part) for n in names]) for part in ("seal", "mask", "signature")))
        sealed = self._ask(Keys, lambda _: stacked)
        adverts = {n: Advert(k.seal.tobytes(), k.mask.tobytes(), k.signature.tobytes()) for n, k in keys.items()}
        self._server.register(adverts, {n: {} for n in sealed})
        masked = self._ask(Sealed, lambda to: Sealed(np.stack([sealed[by].parts[names.index(to)] for by in names])))
        for name in names:
            self._server.take(name, masked[name].words)
        signed = self._ask(Agree, lambda _: Agree(np.float64(0)))
        signatures = Signatures(np.stack([signed[name].signature for name in names]))
        opened = self._ask(Signatures, lambda _: signatures)
        shares = {
            by: Shares({n: part.seeds[i].tobytes() for i, n in enumerate(names)}, {}) for by, part in opened.items()
        }
        return self._shape.read(self._server.total(shares))

    def _ask(self, phase: type, letter: Callable[[str], Tree]) -> dict[str, Any]:
        head = replace(self._head, kind="sum", participants=())
        letters = {name: letter(name) for name in self._names}
        # What came before is told apart from what is asked now by the number of the phase.
        since = dict.fromkeys(self._names, list(self._may).index(phase))
        return self._exchange.ask(head, letters, self._may[phase], since=since)


def _run(head: Head, kind: type, bond: np.ndarray) -> bytes:
    """Name the run for the signatures of one sum: which try it is, of uploads of which kind, after which question."""
    return repr((head.run, head.session, type_tag(kind), bond.tobytes())).encode()


def _bytes(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8)
