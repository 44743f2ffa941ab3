"""A pipeline in use: one run, its ledger, and its report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from fedfactor.core.algorithm import Algorithm, Meta, Round, Uplink
from fedfactor.core.errors import NotFiniteError, ProtocolError
from fedfactor.core.flattened_upload import Layout, Parcel, flatten, restore
from fedfactor.core.pytree import Tree, is_mapping
from fedfactor.core.transforms import Gathered, Opening, PlainSum, Sender, Transform
from fedfactor.core.wire import Spec, check_message
from fedfactor.privacy.dp import DP
from fedfactor.privacy.ledger import BudgetError, Entry, Ledger
from fedfactor.privacy.minimums import Minimums
from fedfactor.privacy.report import privacy_report
from fedfactor.privacy.sent_uploads import Outbox

__all__ = ["Books", "Channel", "ChannelReceiver"]


class Books:
    """The ledgers that one run writes to: its own budget, and those of the data set."""

    def __init__(self, ledgers: Sequence[Ledger], entry: Entry) -> None:
        self.ledgers = list(ledgers)
        self.entry = entry

    def affords(self, index: int) -> bool:
        """Return whether every ledger allows the next round."""
        return all(ledger.affords(replace(self.entry, round=index)) for ledger in self.ledgers)

    def debit(self, index: int, entry: Entry | None = None) -> None:
        """Write a release into every ledger, before it happens."""
        entry = entry or replace(self.entry, round=index)
        for ledger in self.ledgers:
            ledger.debit(entry)

    def check_first(self) -> None:
        """Refuse a run of which not even one round can be paid."""
        if not self.affords(0):
            raise BudgetError(
                "Not even one round fits what is left of the budget of this data set. Ask for less ε, or decide on a "
                "larger budget for the data set."
            )


@dataclass(slots=True)
class Channel:
    """What protects the uploads of one run.

    At a client, ``sender.encode`` takes an upload through the links; at the server, :meth:`open` receives a round. A
    simulation has both in one process.

    Parameters
    ----------
    links : tuple of Transform
        In order.
    algorithm, meta
        Of the run.
    books : Books
        Where each round is written before it happens.
    run : str
        Name of the run.
    minimums : Minimums
        Below which a sum hides too little.
    asked : DP, optional
        What the user asked for in the words of differential privacy.
    about : dict
        Further entries of the report.
    simulation : bool
        Whether all parties are one process.
    folder : Path, optional
        Where noised uploads outlive a crash.
    """

    links: tuple[Transform, ...]
    algorithm: Algorithm
    meta: Meta
    books: Books
    run: str
    minimums: Minimums = field(default_factory=Minimums)
    asked: DP | None = None
    about: dict[str, Any] = field(default_factory=dict[str, Any])
    simulation: bool = True
    folder: Path | None = None
    rejected: int = field(default=0, init=False)
    outbox: Outbox | None = field(default=None, init=False)
    sender: Sender = field(init=False)
    _cohort: tuple[str, ...] = field(default=(), init=False)

    def __post_init__(self) -> None:
        """Make the clients' half."""
        noisy = any(link.noisy for link in self.links)
        self.outbox = Outbox(self.folder, self.run) if self.folder is not None and noisy else None
        self.sender = Sender(self.links, self.algorithm, self.noise_seed, self.outbox)

    @property
    def noise_seed(self) -> int | None:
        """Seed of the noise in a simulation; None: from the operating system."""
        return None if self.asked is None else self.asked.noise_seed

    @property
    def hides(self) -> bool:
        """Whether the server sees sums only."""
        return any(link.hides for link in self.links)

    @property
    def shows(self) -> bool:
        """Whether no link changes or hides an upload: the server then sees it as it would without a channel."""
        return not self.hides and not self.sender.changes

    def settled(self, next_round: int) -> None:
        """Forget uploads of rounds that a checkpoint has behind it."""
        if self.outbox is not None:
            self.outbox.forget(next_round)

    def affords(self, index: int) -> bool:
        """Return whether the budget allows one more round."""
        return self.books.affords(index)

    def open(self, expected: Mapping[type, Spec], at: Round, down: Tree, *, encoded: bool = False) -> ChannelReceiver:
        """Write the round into the books, then receive its uploads; ``encoded``: they were sent through the links."""
        self.books.debit(at.index)
        return ChannelReceiver(self, expected, at, down, encoded=encoded)

    def judge(self, at: Round, present: Sequence[str]) -> None:
        """Refuse to combine a round whose changed cohort would give single uploads away."""
        names = tuple(sorted(present))
        if any(link.fixes_cohort() for link in self.links) and not self.books.entry.protects:
            before = self._cohort or self.meta.clients
            if names != tuple(sorted(before)):
                gone = sorted(set(before) ^ set(names))
                finding = (
                    f"The clients of round {at.index} are not those of the round before ({gone[0]!r} came or "
                    "went): the difference of the two sums is close to that client's upload"
                )
                self.minimums.judge("changed-cohort", finding, simulation=self.simulation)
        if self.outbox is not None:
            self.outbox.release(at, names)
        self._cohort = names

    def fingerprint(self) -> dict[str, Any]:
        """Name what a resumed run must share."""
        return {"privacy": [f"{type(link).__name__} {_settings(link)}" for link in self.links]}

    def report(self, rounds: int) -> dict[str, Any]:
        """Return who can see what, what was spent, and what is not covered."""
        return privacy_report(self, rounds)


class ChannelReceiver:
    """Receives the uploads of one round through a channel; stands where a round's plain receiver stands."""

    asks_later: ClassVar[bool] = False
    complete: ClassVar[bool] = True  # no channel carries sums by group

    def __init__(
        self, channel: Channel, expected: Mapping[type, Spec], at: Round, down: Tree, *, encoded: bool
    ) -> None:
        self._channel = channel
        self._at = at
        self._down = down
        self._encoded = encoded
        self._expected = {kind: spec for kind, spec in expected.items() if hasattr(kind, "uplink")}
        self._seen = channel.shows
        self.forgiving = any(link.forgiving for link in channel.links)
        self._reducer: Any = None
        self._layout: Any = None
        self.rejected: dict[str, str] = {}

    def add(self, name: str, up: Tree) -> None:
        """Pass one upload from its client through the pipeline, or reject it with a reason."""
        wrong = self._wrong(name, up)
        if wrong:
            self.reject(name, wrong)
            return
        sender = self._channel.sender
        if self._encoded:
            parcel, layout = flatten(up, noisy=sender.noisy)
        else:
            parcel, layout = sender.encode(name, up, self._at, self._down)
        if self._reducer is None:
            self._open(parcel, layout, up.uplink)
        elif type(up) is not type(self._layout.like):
            raise ProtocolError(
                f"Client {name!r} sent {type(up).__name__} in a round of {type(self._layout.like).__name__}."
            )
        elif self.gathered:
            self._layout = layout  # what is not added need not have one shape
        elif (layout.private, layout.side) != (self._layout.private, self._layout.side):
            odd = sorted({*layout.private, *layout.side} ^ {*self._layout.private, *self._layout.side})
            raise ProtocolError(
                f"Only some clients sent {type(up).__name__}.{odd[0]} in round {self._at.index}, {name!r} not as those "
                "before: what goes through a channel must have the same parts everywhere."
            )
        reducer: Any = self._reducer
        reducer.take(name, parcel)

    def _wrong(self, name: str, up: Tree) -> str:
        try:
            check_message(up, self._expected)
        except ProtocolError as error:
            seen = isinstance(error, NotFiniteError) and (self._seen or up.uplink == Uplink.GATHER)
            if not seen and not self.forgiving:
                raise type(error)(f"Client {name!r}: {error}") from None
            return str(error)
        return self._channel.algorithm.doubt(up) if self._seen else ""

    def reject(self, name: str, why: str) -> None:
        """Reject the upload of a client, and record the reason."""
        self.rejected[name] = why
        self._channel.rejected += 1

    def _open(self, parcel: Parcel, layout: Layout, uplink: str) -> None:
        self._layout = layout
        if uplink == "gather":
            self._reducer = Gathered(lambda one: restore(self._decoded(one, ("",)), self._layout))
            return
        channel = self._channel
        size = (parcel.values.size, len(parcel.side))
        names = self._at.participants
        run = channel.run.encode()
        seed = channel.noise_seed
        opening = Opening(names, self._at, size, run, seed, self._down, layout)
        opened = (link.open(opening) for link in reversed(channel.links))
        self._reducer = next((reducer for reducer in opened if reducer is not None), None) or PlainSum()

    def settle(self) -> bool:
        """Find no bad upload: every one was looked at before it was added."""
        return False

    def replace_by(self, total: Parcel, layout: Layout, present: Sequence[str]) -> None:
        """Take a sum that was formed elsewhere, of parcels that only their clients saw."""
        self._layout = layout
        self._reducer = PlainSum(present, total)

    def _decoded(self, parcel: Parcel, present: Sequence[str]) -> Parcel:
        neutral = self._channel.sender.neutral(self._down)
        for link in reversed(self._channel.links):
            parcel = link.decode(parcel, present, neutral)
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
        if not self.gathered:  # seen one by one anyway: nothing to infer from a difference
            self._channel.judge(self._at, self.present)
        found = self._reducer.total()
        total = found if is_mapping(found) else restore(self._decoded(found, self.present), self._layout)
        for link in self._channel.links:
            link.heard(total, self._at, self._down)
        return total


def _settings(link: Transform) -> dict[str, Any]:
    """Name a link's settings; what it only collects is none of them."""
    if not is_dataclass(link):
        return {}
    return {f.name: getattr(link, f.name) for f in fields(link) if f.compare}
