"""The way of an upload: links around it, read from left to right, and one way of combining what arrives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from fedfactor.core.algorithm import Algorithm, Meta, Round
from fedfactor.core.entropy import Entropy
from fedfactor.core.errors import IncompatibleError, NotFiniteError
from fedfactor.core.flattened_upload import Layout, Parcel, flatten, restore
from fedfactor.core.pytree import Tree
from fedfactor.core.wire import Spec, check_finite

if TYPE_CHECKING:
    from fedfactor.privacy.ledger import Entry
    from fedfactor.privacy.pipeline import Channel
    from fedfactor.privacy.sent_uploads import Outbox

__all__ = ["Opening", "Reducer", "Sender", "Site", "Transform", "check_order"]


@dataclass(frozen=True, slots=True)
class Site:
    """Where a link works: which client, which round, how many take part, and the client's own entropy."""

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


@dataclass(frozen=True, slots=True)
class Opening:
    """What a link may know before it combines the parcels of one round: who sends, how much, and what was sent down."""

    names: Sequence[str]
    at: Round
    size: tuple[int, int]
    run: bytes
    seed: int | None
    down: Tree = None
    layout: Any = None


class Reducer(Protocol):
    """Combines the parcels of one round."""

    @property
    def present(self) -> list[str]:
        """Those whose parcels are in."""
        ...

    @property
    def bytes_up(self) -> int:
        """What they sent."""
        ...

    def take(self, name: str, parcel: Parcel) -> None:
        """Take in one client's parcel, from that client's side."""
        ...

    def total(self) -> Parcel:
        """Return the combination."""
        ...


class Transform:
    """One transform of a pipeline. Override what it does; one that aggregates uploads itself overrides :meth:`open`.

    A link says itself what it bounds, what it puts into the ledger, what the server sees behind it and what it does
    not cover: nothing else in the library knows one link from another.
    """

    place: ClassVar[int] = 0
    """Order in a channel: 1 bounds, 2 adds noise, 3 combines; 0 may stand anywhere."""

    noisy: ClassVar[bool] = False
    """Whether it adds noise."""

    hides: ClassVar[bool] = False
    """Whether the server is handed a sum that it cannot take apart."""

    mode: ClassVar[str] = ""
    """What a run with this link is called in its report, if the link decides that."""

    equal_weights: ClassVar[bool] = False
    """Whether clients must have equal weights for the transform to hold its guarantee."""

    forgiving: ClassVar[bool] = False
    """Whether uploads with another schema than announced are rejected instead of ending the run."""

    label: ClassVar[str] = "exact values are released"
    """Why no guarantee holds, where none is proven."""

    def check(self, algorithm: Algorithm, meta: Meta, spec: Spec) -> None:
        """Refuse, before round 0, what cannot work."""

    def check_beside(self, links: Sequence[Transform], algorithm: Algorithm, meta: Meta) -> None:
        """Refuse, before round 0, a pipeline in which this transform would not hold its guarantee."""

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

    def open(self, opening: Opening) -> Reducer | None:
        """Begin to combine the parcels of one round; None for links that do not combine."""
        return None

    # ------------------------------------------------------------------------------------ description
    def bound(self) -> float | None:
        """Return the largest Euclidean norm that it leaves of a whole upload; None: any."""
        return None

    def grid(self, size: int) -> float | None:
        """Return the width of the integer grid on which it lays an upload of so many numbers; None: it lays none."""
        return None

    def needed(self, n_clients: int) -> int:
        """Count the clients that must be in what the server is handed."""
        return 1

    def combines_only(self) -> bool:
        """Return whether it cannot carry uploads that the server must see one by one."""
        return self.place == 3

    def fixes_cohort(self) -> bool:
        """Return whether two combinations without noise must be of the same clients, lest they show one upload."""
        return False

    def event(self, links: Sequence[Transform], algorithm: Algorithm, meta: Meta) -> Entry | None:
        """Return what a round costs in the ledger, given the other links; None when it releases nothing of its own."""
        return None

    def sees(self, what: str) -> str:
        """Return what the server sees, given what it would see without this link."""
        return what

    def not_covered(self, channel: Channel) -> list[str]:
        """List what this link does not protect in such a channel."""
        return []

    def facts(self) -> dict[str, Any]:
        """Return further entries of the report."""
        return {}


@runtime_checkable
class HasNeutralUpload(Protocol):
    """Averages uploads, so that clipping measures from another upload than zero."""

    def neutral(self, down: Tree) -> Tree | None:
        """Return the upload without information beyond the download; None means zero."""
        ...


class Sender:
    """A channel at its clients: what becomes of an upload before any other party sees it.

    Parameters
    ----------
    links : sequence of Transform
        In order.
    algorithm : Algorithm
        Whose uploads they are.
    noise_seed : int, optional
        For simulations only.
    outbox : Outbox, optional
        Stores noised uploads before they are sent: after a crash the same ones go out again.
    """

    def __init__(
        self,
        links: Sequence[Transform],
        algorithm: Algorithm,
        noise_seed: int | None = None,
        outbox: Outbox | None = None,
    ) -> None:
        self.links = tuple(links)
        self._algorithm = algorithm
        self._seed = noise_seed
        self._outbox = outbox
        self.noisy = any(link.noisy for link in links)
        self.changes = any(type(link).encode is not Transform.encode for link in links)

    def neutral(self, down: Tree) -> np.ndarray | None:
        """Lay out the upload without information; None when that is zero."""
        algorithm = self._algorithm
        neutral = algorithm.neutral(down) if isinstance(algorithm, HasNeutralUpload) else None
        return None if neutral is None else flatten(neutral, noisy=self.noisy)[0].values

    def encode(self, name: str, up: Tree, at: Round, down: Tree) -> tuple[Parcel, Layout]:
        """Take an upload of one client through all links; behind them a non-finite value could not be detected."""
        if self.changes:
            try:
                check_finite(up)
            except NotFiniteError as error:
                raise NotFiniteError(f"Client {name!r}: {error}") from None
        parcel, layout = flatten(up, noisy=self.noisy)
        for link in self.links:
            link.admit(parcel, type(up).__name__)
        site = Site(name, at, len(at.participants), self.neutral(down), self._seed)
        kept = self._outbox.find(site) if self._outbox else None
        if kept is not None:
            return kept, layout
        for link in self.links:
            parcel = link.encode(parcel, site)
        if self._outbox:
            self._outbox.keep(site, parcel)
        return parcel, layout

    def sent(self, name: str, up: Tree, at: Round, down: Tree) -> Tree:
        """Encode, and write the result as a message of the upload's own kind, for the way to another process."""
        return restore(*self.encode(name, up, at, down))


class PlainSum:
    """The server adds what each client sends in the clear; or takes a sum that was formed elsewhere."""

    def __init__(self, names: Sequence[str] = (), total: Parcel | None = None) -> None:
        self.present = list(names)
        self.bytes_up = 0 if total is None else total.nbytes
        self._total = total

    def take(self, name: str, parcel: Parcel) -> None:
        """Add one parcel."""
        self.present.append(name)
        self.bytes_up += parcel.nbytes
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
        self.bytes_up += parcel.nbytes
        self._found[name] = self._read(parcel)

    def total(self) -> dict[str, Tree]:
        """Return all uploads by name."""
        return self._found


def check_order(links: Sequence[Transform]) -> None:
    """Refuse a channel whose links stand in an order that protects nothing."""
    places = [link.place for link in links if link.place]
    names = " → ".join(type(link).__name__ for link in links)
    if places != sorted(places):
        raise IncompatibleError(
            f"The channel ({names}) is in the wrong order: first what bounds an upload, then noise, then what combines."
        )
    if places.count(2) > 1 or places.count(3) > 1:
        raise IncompatibleError(f"The channel ({names}) has two links that do the same. Keep one of them.")
