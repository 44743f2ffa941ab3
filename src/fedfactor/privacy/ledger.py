"""What has been spent on a data set, over all runs, written down before anything is released."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from fedfactor.core.errors import FedfactorError
from fedfactor.privacy.accounting import Accountant, Release, epsilon_of

__all__ = ["BudgetError", "Entry", "Ledger", "Unit"]

Unit = Literal["row", "subject", "client"]
# What protects a whole client, or a subject, also protects each of its rows. A subject may have rows at several
# clients, so that what protects each client alone does not protect it.
_COVERED_BY = {"row": ("row", "subject", "client"), "subject": ("subject",), "client": ("client",)}


class BudgetError(FedfactorError):
    """The next release would cost more than is left."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One release: of which run and round, with what noise, for which unit."""

    run: str
    round: int
    noise_multiplier: float
    unit: Unit
    sampling: float = 1.0
    what: str = "sum"
    algorithm: str = ""
    proven: bool = True
    simulation: bool = False
    date: str = ""

    @property
    def key(self) -> tuple[str, int, str]:
        """What makes it one and the same release, however often it is written down."""
        return self.run, self.round, self.what

    @property
    def protects(self) -> bool:
        """Whether there is noise, and a proof of what it does."""
        return self.proven and self.noise_multiplier > 0


class Ledger:
    """The books of one data set.

    Parameters
    ----------
    path : path, optional
        A file of JSON lines, shared by all runs on this data: rank curves, restarts, tuning and later versions all
        spend from it. None keeps the books in memory, for this object only.
    epsilon, delta : float, optional
        The budget of the data set. A release that would break it is refused.
    unit : {"row", "subject", "client"}
        Whom the budget protects.
    accountant : {"rdp", "pld"}
        Which books decide.

    Notes
    -----
    An entry is on the disk before the release it stands for, so a crash can only lead to an entry without a release.
    The same release, sent again after a crash, is counted once.

    Examples
    --------
    >>> ledger = Ledger(epsilon=1.0, delta=1e-5)
    >>> ledger.debit(Entry("run", 0, noise_multiplier=20.0, unit="row"))
    >>> round(ledger.epsilon(1e-5), 2)
    0.18
    >>> ledger.debit(Entry("run", 1, noise_multiplier=0.5, unit="row"))
    Traceback (most recent call last):
    ...
    fedfactor.privacy.ledger.BudgetError: Round 1 of PooledNMF...
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None = None,
        *,
        epsilon: float = math.inf,
        delta: float = 1e-5,
        unit: Unit = "row",
        accountant: Accountant = "rdp",
    ) -> None:
        if not (epsilon > 0 and 0 < delta < 1):
            raise ValueError(f"A ledger needs epsilon > 0 and 0 < delta < 1, got {epsilon}, {delta}.")
        if unit not in _COVERED_BY or accountant not in ("rdp", "pld"):
            raise ValueError(f"unit={unit!r} must be row, subject or client, and accountant={accountant!r} rdp or pld.")
        self.path = None if path is None else Path(path)
        self.budget, self.delta, self.unit, self.accountant = epsilon, delta, unit, accountant
        self._entries: dict[tuple[str, int, str], Entry] = {}

    def entries(self) -> list[Entry]:
        """All releases, oldest first."""
        if self.path is not None and self.path.exists():
            self._entries = {e.key: e for e in _read(self.path)}
        return list(self._entries.values())

    def epsilon(
        self, delta: float | None = None, accountant: Accountant | None = None, run: str | None = None
    ) -> float:
        """Return the ε of everything so far (or of one run); infinite if anything was released without proven noise."""
        entries = [e for e in self.entries() if run in (None, e.run)]
        return self._cost(entries, delta or self.delta, accountant or self.accountant)

    def _cost(self, entries: list[Entry], delta: float, accountant: Accountant) -> float:
        if any(not e.proven or e.unit not in _COVERED_BY[self.unit] for e in entries):
            return math.inf
        return epsilon_of([Release(e.noise_multiplier, e.sampling) for e in entries], delta, accountant)

    def affords(self, entry: Entry) -> bool:
        """Tell whether a release fits the budget; one that is already written down always does."""
        entries = self.entries()
        if math.isinf(self.budget) or entry.key in self._entries:
            return True
        return self._cost([*entries, entry], self.delta, self.accountant) <= self.budget * (1 + 1e-9)

    def debit(self, entry: Entry) -> None:
        """Write a release down, on the disk, before it happens; refuse it when the budget does not allow it."""
        with self._alone():
            if not self.affords(entry):
                raise BudgetError(
                    f"Round {entry.round} of {entry.algorithm or 'PooledNMF'} would bring this data set to more than "
                    f"ε = {self.budget:g} at δ = {self.delta:g} (unit: {self.unit}). Stop here, or decide on a larger "
                    "budget for the data set."
                )
            known = self._entries.get(entry.key)
            if known is not None:
                if (known.noise_multiplier, known.unit, known.sampling) != (
                    entry.noise_multiplier, entry.unit, entry.sampling
                ):  # fmt: skip
                    raise BudgetError(
                        f"Round {entry.round} of run {entry.run} is in the books with other noise than now: it is "
                        "another release, and would go uncounted. Use another folder for the changed run."
                    )
                return
            self._entries[entry.key] = entry
            if self.path is not None:
                _append(self.path, {**asdict(entry), "date": datetime.now(UTC).isoformat(timespec="seconds")})

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other runs on the same books waiting, where the system has file locks."""
        if self.path is None:
            yield
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with open(self.path.with_name(self.path.name + ".lock"), "w") as lock:
            with contextlib.suppress(ImportError):
                import fcntl

                fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _append(path: Path, line: dict[str, Any]) -> None:
    with open(path, "ab+") as file:
        file.seek(0, os.SEEK_END)
        if file.tell():
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":  # a line that a power cut tore: its release never happened
                file.write(b"\n")
        file.write(json.dumps(line).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def _read(path: Path) -> Iterator[Entry]:
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines):
        if not line:
            continue
        try:
            yield Entry(**json.loads(line))
        except (ValueError, TypeError):
            if number == len(lines) - 1 or not line.endswith(b"}"):
                continue  # torn by a crash before it counted
            raise FedfactorError(
                f"Line {number + 1} of the ledger {path} cannot be read. Restore it from a copy: without it nobody "
                "can say what has been spent."
            ) from None
