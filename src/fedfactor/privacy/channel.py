"""The way of an upload: transforms around it, read from left to right, and one way of combining what arrives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from fedfactor.core.errors import IncompatibleError, NotFiniteError, ProtocolError
from fedfactor.core.protocol import Algorithm, Meta, Round
from fedfactor.core.tree import Tree
from fedfactor.core.wire import Spec, check_message
from fedfactor.privacy.entropy import Entropy
from fedfactor.privacy.flat_upload import Parcel, flatten, restore

if TYPE_CHECKING:
    from fedfactor.privacy.outbox import Outbox

__all__ = ["Reducer", "Site", "Transform", "check_order"]


@dataclass(frozen=True, slots=True)
class Site:
    """Where a transform works: which client, which round, how many take part, and the client's own entropy."""

    name: str
    at: Round
    n_clients: int
    neutral: np.ndarray | None
    noise_seed: int | None = None

    def entropy(self, purpose: str) -> Entropy:
        """Secret bytes of this client, unless the run is a simulation with a noise seed."""
        if self.noise_seed is None:
            return Entropy()
        return Entropy.seeded(self.noise_seed, self.name, self.at.index, purpose)


class Reducer(Protocol):
    """Combines the parcels of one round."""

    present: list[str]
    bytes_up: int

    def take(self, name: str, parcel: Parcel) -> None:
        """Take in one client's parcel, from that client's side."""
        ...

    def total(self) -> Parcel:
        """Return the combination."""
        ...


class Transform:
    """One link of a channel. Override what the link does; a link that combines uploads itself offers :meth:`open`."""

    place: ClassVar[int] = 0
    """Order in a channel: 1 bounds, 2 adds noise, 3 combines; 0 may stand anywhere."""

    noisy: ClassVar[bool] = False

    def check(self, algorithm: Algorithm, meta: Meta, spec: Spec) -> None:
        """Refuse, before round 0, what cannot work."""

    def admit(self, parcel: Parcel, kind: str) -> None:
        """Refuse, at its client, an upload that this link cannot protect."""

    def encode(self, parcel: Parcel, site: Site) -> Parcel:
        """Change a parcel at its client."""
        return parcel

    def decode(self, parcel: Parcel, present: Sequence[str], neutral: np.ndarray | None) -> Parcel:
        """Change the combined parcel at the server."""
        return parcel

    def heard(self, total: Tree, at: Round, down: Tree) -> None:
        """Notice what the server learns in a round (for audits)."""

    open: ClassVar[Callable[..., Reducer] | None] = None
    """``open(self, names, at, size, side, run, seed) -> Reducer``, for links that combine."""


class PlainSum:
    """The server adds what each client sends in the clear."""

    def __init__(self, names: Sequence[str]) -> None:
        self.present: list[str] = []
        self.bytes_up = 0
        self._total: Parcel | None = None

    def take(self, name: str, parcel: Parcel) -> None:
        """Add one parcel."""
        self.present.append(name)
        self.bytes_up += parcel.values.nbytes + 8 * len(parcel.side)
        if self._total is None:
            self._total = parcel
            return
        side = tuple(a + b for a, b in zip(self._total.side, parcel.side, strict=True))
        self._total = Parcel(self._total.values + parcel.values, side, parcel.grid)

    def total(self) -> Parcel:
        """Return the sum."""
        assert self._total is not None
        return self._total


class Gathered:
    """The server sees each upload, after whatever its client did to it."""

    def __init__(self, read: Callable[[Parcel], Tree]) -> None:
        self.present: list[str] = []
        self.bytes_up = 0
        self._read = read
        self._found: dict[str, Tree] = {}

    def take(self, name: str, parcel: Parcel) -> None:
        """Keep one upload."""
        self.present.append(name)
        self.bytes_up += parcel.values.nbytes + 8 * len(parcel.side)
        self._found[name] = self._read(parcel)

    def total(self) -> dict[str, Tree]:
        """Return all uploads by name."""
        return self._found


def check_order(transforms: Sequence[Transform]) -> None:
    """Refuse a channel whose links stand in an order that protects nothing."""
    places = [t.place for t in transforms if t.place]
    names = " → ".join(type(t).__name__ for t in transforms)
    if places != sorted(places):
        raise IncompatibleError(
            f"The channel ({names}) is in the wrong order: first what bounds an upload, then noise, then what combines."
        )
    if places.count(2) > 1 or places.count(3) > 1:
        raise IncompatibleError(f"The channel ({names}) has two links that do the same. Keep one of them.")


class ChannelInbox:
    """Combines the uploads of one round through a channel; stands where an engine's plain inbox stands."""

    def __init__(
        self,
        transforms: Sequence[Transform],
        expected: dict[type, Spec],
        names: Sequence[str],
        at: Round,
        *,
        algorithm: Algorithm,
        down: Tree,
        run: bytes,
        noise_seed: int | None,
        outbox: Outbox | None,
    ) -> None:
        self._transforms, self._at, self._down, self._names = transforms, at, down, tuple(names)
        self._expected = {kind: spec for kind, spec in expected.items() if hasattr(kind, "uplink")}
        self._algorithm, self._run, self._seed, self._outbox = algorithm, run, noise_seed, outbox
        self._noisy = any(t.noisy for t in transforms)
        self._reducer: Any = None
        self._layout: Any = None
        self._neutral: np.ndarray | None = None
        self.rejected: list[str] = []

    def add(self, name: str, up: Tree) -> None:
        """Take one upload from its client through the channel."""
        try:
            check_message(up, self._expected)
        except ProtocolError as error:
            seen = isinstance(error, NotFiniteError) and up.uplink == "gather"
            if not seen and not any(getattr(t, "forgiving", False) for t in self._transforms):
                raise
            self.rejected.append(name)
            return
        parcel, layout = flatten(up, noisy=self._noisy)
        for transform in self._transforms:
            transform.admit(parcel, type(up).__name__)
        if self._reducer is None:
            self._open(parcel, layout, up.uplink)
        elif type(up) is not type(self._layout.like):
            raise ProtocolError(
                f"Client {name!r} sent {type(up).__name__} in a round of {type(self._layout.like).__name__}."
            )
        elif self.gathered:
            self._layout = layout  # what is not added need not have one shape
        site = Site(name, self._at, len(self._names), self._neutral, self._seed)
        self._reducer.take(name, self._encoded(parcel, site))

    def _open(self, parcel: Parcel, layout: Any, uplink: str) -> None:
        self._layout = layout
        neutral = self._algorithm.neutral(self._down)
        self._neutral = None if neutral is None else flatten(neutral, noisy=self._noisy)[0].values
        openers = [t for t in self._transforms if t.open is not None]
        size = (parcel.values.size, len(parcel.side))
        if uplink == "gather":
            self._reducer = Gathered(lambda one: restore(self._decoded(one, ("",)), self._layout))
        elif openers:
            self._reducer = openers[-1].open(self._names, self._at, size, self._run, self._seed, self._down, layout)
        else:
            self._reducer = PlainSum(self._names)

    def _encoded(self, parcel: Parcel, site: Site) -> Parcel:
        """Encode, keeping noised bytes before anybody sees them: after a crash the same bytes go out again."""
        kept = self._outbox.find(site) if self._outbox else None
        if kept is not None:
            return kept
        for transform in self._transforms:
            parcel = transform.encode(parcel, site)
        if self._outbox:
            self._outbox.keep(site, parcel)
        return parcel

    def _decoded(self, parcel: Parcel, present: Sequence[str]) -> Parcel:
        for transform in reversed(self._transforms):
            parcel = transform.decode(parcel, present, self._neutral)
        return parcel

    @property
    def present(self) -> list[str]:
        """Those whose uploads are in."""
        return [] if self._reducer is None else self._reducer.present

    @property
    def gathered(self) -> bool:
        """Whether the server sees the uploads of this round one by one."""
        return isinstance(self._reducer, Gathered)

    @property
    def bytes_up(self) -> int:
        """What travelled up, protocol and all."""
        return 0 if self._reducer is None else self._reducer.bytes_up

    @property
    def combined(self) -> Tree:
        """What the server step takes."""
        found = self._reducer.total()
        total = found if isinstance(found, dict) else restore(self._decoded(found, self.present), self._layout)
        for transform in self._transforms:
            transform.heard(total, self._at, self._down)
        return total
