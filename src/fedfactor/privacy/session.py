"""A channel in use: one run, its books, and what it will say about itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from fedfactor.core.protocol import Algorithm, Meta, Round
from fedfactor.core.tree import Tree
from fedfactor.core.wire import Spec
from fedfactor.privacy.channel import ChannelInbox, Transform
from fedfactor.privacy.dp import DP
from fedfactor.privacy.ledger import BudgetError, Entry, Ledger
from fedfactor.privacy.minimums import Minimums
from fedfactor.privacy.outbox import Outbox
from fedfactor.privacy.report import privacy_report
from fedfactor.privacy.secure_sum import SecureSum

__all__ = ["Books", "Channel"]


class Books:
    """The ledgers that one run writes to: its own budget, and those of the data set."""

    def __init__(self, ledgers: Sequence[Ledger], entry: Entry) -> None:
        self.ledgers, self.entry = list(ledgers), entry

    def affords(self, index: int) -> bool:
        """Tell whether every ledger allows the next round."""
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


class Channel:
    """What protects the uploads of one run. Engines call :meth:`open` where they would make a plain inbox."""

    def __init__(
        self,
        transforms: tuple[Transform, ...],
        minimums: Minimums,
        books: Books,
        run: str,
        asked: DP | None,
        algorithm: Algorithm,
        meta: Meta,
        about: dict[str, Any],
        simulation: bool,
        folder: Path | None = None,
    ) -> None:
        self.transforms, self.minimums, self.books, self.asked, self.run = transforms, minimums, books, asked, run
        self.algorithm, self.meta, self.about, self.simulation = algorithm, meta, about, simulation
        self._cohort: tuple[str, ...] | None = None
        self.noisy = any(t.noisy for t in transforms)
        self._outbox = Outbox(folder, run) if folder is not None and self.noisy else None
        self.rejected = 0

    def settled(self, next_round: int) -> None:
        """Forget uploads of rounds that a checkpoint has behind it."""
        if self._outbox is not None:
            self._outbox.forget(next_round)

    def affords(self, index: int) -> bool:
        """Tell whether the budget allows one more round."""
        return self.books.affords(index)

    def open(self, expected: dict[type, Spec], names: Sequence[str], at: Round, down: Tree) -> ChannelInbox:
        """Write the round into the books, then receive its uploads."""
        self.books.debit(at.index)
        self._names, self._at = tuple(names), at
        return ChannelInbox(
            self.transforms, expected, names, at, algorithm=self.algorithm, down=down, run=self.run.encode(),
            noise_seed=None if self.asked is None else self.asked.noise_seed, outbox=self._outbox,
        )  # fmt: skip

    def close(self, inbox: ChannelInbox) -> Tree:
        """Return the combination of a round, unless a changed cohort would give single uploads away."""
        self.rejected += len(inbox.rejected)
        present = tuple(sorted(inbox.present))
        secure = next((t for t in self.transforms if isinstance(t, SecureSum)), None)
        if inbox.gathered:  # seen one by one anyway: nothing to tell from a difference
            return inbox.combined
        if secure is not None and not self.books.entry.protects and not secure.allow_dropouts:
            before = self._cohort or self.meta.clients
            if present != tuple(sorted(before)):
                gone = sorted(set(before) ^ set(present))
                finding = (
                    f"The clients of round {self._at.index} are not those of the round before ({gone[0]!r} came or "
                    "went): the difference of the two sums is close to that client's upload"
                )
                self.minimums.judge("changed-cohort", finding, simulation=self.simulation)
        if self._outbox is not None:
            self._outbox.release(self._at, present)
        self._cohort = present
        return inbox.combined

    def fingerprint(self) -> dict[str, Any]:
        """Name what a resumed run must share."""
        return {"privacy": [f"{type(t).__name__} {_settings(t)}" for t in self.transforms]}

    def report(self, rounds: int) -> dict[str, Any]:
        """Say who can see what, what was spent, and what is not covered."""
        return privacy_report(self, rounds)


def _settings(transform: Transform) -> dict[str, Any]:
    """Name a link's settings; what it only collects is none of them."""
    if not is_dataclass(transform):
        return {}
    return {f.name: getattr(transform, f.name) for f in fields(transform) if f.compare}
