"""What has been spent on a data set, over all runs, written down before anything is released.

A ledger on the disk is a chain of lines (:class:`~fedfactor.core.hash_chain.Chain`): if one changes or vanishes, it is
noticed. Its first line holds the budget, and the protected unit; later ones say to which rows it belongs, and what was
released.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedfactor.core.client_data import Federation
from fedfactor.core.errors import FedfactorError
from fedfactor.core.hash_chain import Chain
from fedfactor.core.input_validation import is_sparse
from fedfactor.core.pytree import to_numpy
from fedfactor.core.rollback_detection import Witness
from fedfactor.privacy.accounting import Accountant, Release, epsilon_of

__all__ = ["BudgetError", "Entry", "Ledger", "Unit", "rows_fingerprint"]

FORMAT = 2
"""Of the file: 1 had no chain, no budget and no rows."""

Unit = Literal["row", "subject", "client"]
# What protects a whole client, or a subject, also protects each of its rows. A subject may have rows at several
# clients, so that what protects each client alone does not protect it.
_COVERED_BY = {"row": ("row", "subject", "client"), "subject": ("subject",), "client": ("client",)}


class BudgetError(FedfactorError):
    """The next release would cost more than is left."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One release: of which run and round, with what noise, for which unit.

    Noise is Gaussian and has a multiplier; or it has none, and `epsilon` is what one release costs at δ = 0. Runs of a
    federation are named by its coordinator: `scope` is what the party itself adds, from the random identifier of its
    folder and the fingerprint of the terms, so that equal names in two federations stand for two releases.
    """

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
    epsilon: float | None = None
    scope: str = ""

    @property
    def key(self) -> tuple[str, str, int, str]:
        """What makes it one and the same release, however often it is written down."""
        return self.scope, self.run, self.round, self.what

    @property
    def protects(self) -> bool:
        """Whether there is noise, and a proof of what it does."""
        return self.proven and (self.noise_multiplier > 0 or self.epsilon is not None)

    @property
    def release(self) -> Release:
        """What it costs, for the accountant."""
        return Release(self.noise_multiplier, self.sampling, self.epsilon)


class Ledger:
    """The books of one data set.

    Parameters
    ----------
    path : path, optional
        A file shared by all runs on this data: rank curves, restarts, tuning and later versions all spend from it. None
        keeps the books in memory, for this object only.
    epsilon, delta : float, optional
        The budget of the data set. A release that would break it is refused. A file holds its budget: one that is
        there already keeps to it, and `epsilon` can only ask for less (:meth:`raise_budget` is for more). A new file
        without `epsilon`, and books in memory, have no limit; `delta` is 1e-5 unless given.
    unit : {"row", "subject", "client"}, optional
        The protected unit; rows unless given, or as the file says.
    accountant : {"rdp", "pld"}
        Which books decide.
    witness : Witness, optional
        Who else remembers how much was written down.

    Notes
    -----
    An entry is on the disk before the release it stands for, so a crash can only lead to an entry without a release.
    The same release, sent again after a crash, is counted once.

    Noise from a seed does not protect against anyone who may know the seed. Such runs and real ones never share books,
    and what seeded runs cost is infinite; ``as_if=True`` states what it would be.

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
        epsilon: float | None = None,
        delta: float | None = None,
        unit: Unit | None = None,
        accountant: Accountant = "rdp",
        witness: Witness | None = None,
    ) -> None:
        asked = math.inf if epsilon is None else epsilon
        if not (asked > 0 and (delta is None or 0 < delta < 1)):
            raise ValueError(f"A ledger needs epsilon > 0 and 0 < delta < 1, got {epsilon}, {delta}.")
        if unit not in (None, *_COVERED_BY) or accountant not in ("rdp", "pld"):
            raise ValueError(f"unit={unit!r} must be row, subject or client, and accountant={accountant!r} rdp or pld.")
        self.path = None if path is None else Path(path)
        self._chain = None if self.path is None else Chain(self.path, witness)
        self.accountant: Accountant = accountant
        self._limit = asked
        self._delta = 1e-5 if delta is None else delta
        self._unit: Unit = unit or "row"
        self._entries: dict[tuple[str, str, int, str], Entry] = {}
        self._lock = threading.RLock()
        kept = self._about()
        if kept is not None and epsilon is not None and epsilon > kept["epsilon"] * (1 + 1e-12):
            raise BudgetError(
                f"{self.path} holds a budget of ε = {kept['epsilon']:g}, and ε = {epsilon:g} is more. Decide on it "
                f"with Ledger({str(self.path)!r}).raise_budget({epsilon:g}), which the ledger keeps a line of."
            )

    @property
    def budget(self) -> float:
        """ε that the data set may cost: the file's, or less where less was asked for."""
        kept = self._about()
        return self._limit if kept is None else min(self._limit, kept["epsilon"])

    @property
    def delta(self) -> float:
        """δ of the budget."""
        kept = self._about()
        return self._delta if kept is None else float(kept["delta"])

    @property
    def unit(self) -> Unit:
        """The protected unit."""
        kept = self._about()
        return self._unit if kept is None else kept["unit"]

    @property
    def rows(self) -> str:
        """Fingerprint of the rows that these are the books of; empty when they have none yet."""
        return str((self._about() or {}).get("rows", ""))

    def entries(self) -> list[Entry]:
        """All releases, oldest first."""
        return list(self._known().values())

    def _known(self) -> dict[tuple[str, str, int, str], Entry]:
        """Return the releases by what makes each one and the same."""
        return self._entries if self._chain is None else {entry.key: entry for entry in self._written()}

    def epsilon(
        self,
        delta: float | None = None,
        accountant: Accountant | None = None,
        run: str | None = None,
        *,
        as_if: bool = False,
    ) -> float:
        """Return the ε of everything so far (or of one run); infinite if anything was released without proven noise.

        Parameters
        ----------
        delta : float, optional
            The ledger's own unless given.
        accountant : {"rdp", "pld"}, optional
            The ledger's own unless given.
        run : str, optional
            Of one run only.
        as_if : bool
            Count noise from a seed as if the seed were secret.
        """
        entries = [e for e in self.entries() if run in (None, e.run)]
        if not as_if and any(e.simulation for e in entries):
            return math.inf
        return self._cost(entries, delta or self.delta, accountant or self.accountant)

    def _cost(self, entries: list[Entry], delta: float, accountant: Accountant) -> float:
        if any(not e.proven or e.unit not in _COVERED_BY[self.unit] for e in entries):
            return math.inf
        return epsilon_of([e.release for e in entries], delta, accountant)

    def affords(self, *releases: Entry) -> bool:
        """Return whether releases fit the budget together; those that are already written down always do."""
        entries = self._known()
        if any(known.simulation != new.simulation for known in entries.values() for new in releases):
            raise BudgetError(
                "Noise from a seed does not protect against anyone who may know the seed: it is not paid for from "
                "the books of real "
                "runs, nor the other way round. Use a ledger of its own for simulations."
            )
        further = [new for new in releases if new.key not in entries]
        if math.isinf(self.budget) or not further:
            return True
        return self._cost([*entries.values(), *further], self.delta, self.accountant) <= self.budget * (1 + 1e-9)

    def belong(self, rows: str) -> None:
        """Tie the books to the rows with this fingerprint, or refuse other rows than those that they are tied to."""
        with self._alone():
            if self._chain is None:
                return
            self._open()
            if self.rows not in ("", rows):
                raise BudgetError(
                    f"{self.path} holds the books of other rows: what was spent on them says nothing about these. Use "
                    f"the ledger of these rows; where the same people's rows changed, Ledger({str(self.path)!r})"
                    ".take_over(federation) goes on with what they have spent."
                )
            if not self.rows:
                self._chain.append({"rows": rows, "date": _now()})

    def take_over(self, federation: Any) -> None:
        """Go on with these books for rows that changed (or for a fingerprint of them): what was spent stays spent."""
        if self._chain is not None:
            with self._alone():
                self._open()
                self._chain.append({"rows": _fingerprint(federation), "date": _now()})

    def raise_budget(self, epsilon: float) -> None:
        """Decide on a larger budget for the data set; the decision is a line of its own."""
        self._limit = epsilon
        if self._chain is not None:
            with self._alone():
                self._open()
                self._chain.append({"budget": epsilon, "date": _now()})

    def debit(self, entry: Entry) -> None:
        """Write a release down, on the disk, before it happens; refuse it when the budget does not allow it."""
        with self._alone():
            if not self.affords(entry):
                raise BudgetError(
                    f"Round {entry.round} of {entry.algorithm or 'PooledNMF'} would bring this data set to more than "
                    f"ε = {self.budget:g} at δ = {self.delta:g} (unit: {self.unit}). Stop here, or decide on a larger "
                    "budget for the data set (raise_budget)."
                )
            known = self._known().get(entry.key)
            if known is not None:
                if (known.release, known.unit) != (entry.release, entry.unit):
                    raise BudgetError(
                        f"Round {entry.round} of run {entry.run} is in the books with other noise than now: it is "
                        "another release, and would go uncounted. Use another folder for the changed run."
                    )
                return
            if self._chain is None:
                self._entries[entry.key] = entry
                return
            self._open()
            self._chain.append({**asdict(entry), "date": _now()})

    def bind(self, witness: Witness, rows: str, sketch: Sequence[str] = ()) -> None:
        """Let a witness remember whose books these are; refuse books that forget what it remembers of these rows."""
        if self._chain is not None:
            witness.bind(self._chain.path, "ledger", rows, self._chain.follows, sketch)

    # ------------------------------------------------------------------------------------------------------- the file
    def _open(self) -> None:
        """Write the first line of a new file; take over one of the older format."""
        assert self._chain is not None
        old = self._older()
        if old is None and self._chain.lines():
            return
        about = {"ledger": FORMAT, "epsilon": _text(self._limit), "delta": self._delta, "unit": self._unit}
        if old is not None:
            _adopt(self._chain.path, [{**about, "date": _now()}, *map(asdict, old)])
        else:
            self._chain.append({**about, "date": _now()})

    def _about(self) -> dict[str, Any] | None:
        """Return the entries about the file itself, with the latest budget and rows; None when there are none."""
        if self._chain is None or self._older() is not None:
            return None
        lines = self._chain.lines()
        if not lines:
            return None
        if lines[0].get("ledger") != FORMAT:
            raise FedfactorError(f"{self.path} is a ledger of another version. Read it with the one that wrote it.")
        about = dict(lines[0])
        for line in lines[1:]:
            if "budget" in line:
                about["epsilon"] = line["budget"]
            elif "rows" in line:
                about["rows"] = line["rows"]
        return {**about, "epsilon": float(about["epsilon"])}

    def _written(self) -> Iterator[Entry]:
        assert self._chain is not None
        old = self._older()
        if old is not None:
            yield from old
            return
        known = {field.name for field in fields(Entry)}
        for line in self._chain.lines():
            if "run" in line:
                yield Entry(**{name: value for name, value in line.items() if name in known})

    def _older(self) -> list[Entry] | None:
        """Read a file of format 1, plain lines; None when there is none."""
        if self.path is None or not self.path.exists():
            return None
        with self.path.open("rb") as file:
            if not file.read(8).startswith(b'{"run"'):
                return None
        return list(_read_older(self.path))

    @contextlib.contextmanager
    def _alone(self) -> Generator[None]:
        """Keep other threads and processes that use the same ledger waiting."""
        with self._lock, contextlib.nullcontext() if self._chain is None else self._chain.alone():
            yield


def rows_fingerprint(federation: Federation) -> str:
    """Name the rows of a federation by their content: what books of a data set are tied to.

    Examples
    --------
    >>> one, two = ({"a": np.eye(2)}, {"a": 2 * np.eye(2)})
    >>> rows_fingerprint(Federation(one)) == rows_fingerprint(Federation(two))
    False
    """
    digest = hashlib.sha256()
    for name in federation.names:
        shard = federation.shard(name)
        X: Any = shard.X
        parts = [X.data, X.indices, X.indptr] if is_sparse(X) else [X]
        if shard.mask is not None:
            parts.append(np.frombuffer(shard.mask.encode(), np.uint8) if isinstance(shard.mask, str) else shard.mask)
        for part in parts:
            array = np.ascontiguousarray(to_numpy(part))
            digest.update(repr((name, array.dtype.str, array.shape)).encode())
            digest.update(array.data)
    return digest.hexdigest()


def _fingerprint(rows: Any) -> str:
    if isinstance(rows, str):
        return rows
    return rows_fingerprint(rows if isinstance(rows, Federation) else Federation(rows))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _text(number: float) -> float | str:
    return number if math.isfinite(number) else str(number)


def _adopt(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    """Put a chain in the place of a plain file, which is kept beside it."""
    draft = Chain(path.with_name(path.name + ".draft"))
    for line in lines:
        draft.append(line)
    path.replace(path.with_name(path.name + ".format-1"))
    draft.path.replace(path)
    draft.path.with_name(draft.path.name + ".head").replace(path.with_name(path.name + ".head"))


def _read_older(path: Path) -> Iterator[Entry]:
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines):
        if not line:
            continue
        try:
            yield Entry(**json.loads(line))
        except (ValueError, TypeError):
            if number == len(lines) - 1:
                continue  # torn by a crash before it counted
            raise FedfactorError(
                f"Line {number + 1} of the ledger {path} cannot be read. Restore it from a copy: without it the "
                "can say what has been spent."
            ) from None
