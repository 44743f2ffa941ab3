"""How much a client has answered, and how much more it will: counted in its own folder, before it answers.

Many requests together reveal rows, even honest ones. The server's word for how many there were is not
needed here: what was asked of these rows lies in a file that only grows (:class:`~fedfactor.core.hash_chain.Chain`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from fedfactor.core.errors import FedfactorError
from fedfactor.core.hash_chain import Chain
from fedfactor.core.rollback_detection import Witness

__all__ = ["ASKED", "AnsweredCounts", "LimitError"]

ASKED = "asked.jsonl"
"""The count, in the client's folder."""


class LimitError(FedfactorError, RuntimeError):
    """A party has answered as much as it agreed to."""


class AnsweredCounts:
    """Counts runs and rounds of one set of rows.

    Parameters
    ----------
    folder : Path
        The client's folder; the count lies in it.
    rows : str
        Fingerprint of the rows: other rows begin a count of their own in the same file.
    limits : sequence of int, int, str, str
        Most runs, most rounds in all of them, last and first day as ``YYYY-MM-DD``; 0 or nothing is no limit.
    witness : Witness, optional
        Who else remembers how much was answered.
    """

    def __init__(self, folder: Path, rows: str, limits: Sequence[Any], witness: Witness | None = None) -> None:
        self._chain = Chain(folder / ASKED, witness)
        self._rows = rows
        self.runs = int(limits[0])
        self.rounds = int(limits[1])
        self.until = str(limits[2])
        self.first = str(limits[3]) if len(limits) > 3 else ""

    def so_far(self) -> tuple[set[str], set[tuple[str, int]]]:
        """Return the runs and the rounds that these rows took part in."""
        mine = [line for line in self._chain.lines() if line["rows"] == self._rows]
        rounds = {(line["run"], line["index"]) for line in mine if line["kind"] == "step"}
        return {line["run"] for line in mine}, rounds

    def count(self, run: str, kind: str, index: int, terms: str, digest: bytes = b"") -> None:
        """Write a question down before it is answered, or refuse it.

        A question that was counted before is admitted again only if it is the same one, to the digest, and if nothing
        was counted since: this party was then stopped before it could keep its answer. Otherwise its answer was given
        and is gone, and a second one, to another question or from another state, would be one beyond the limits.
        """
        with self._chain.alone():
            mine = [line for line in self._chain.lines() if line["rows"] == self._rows]
            runs, rounds = self.so_far()
            place = (run, kind, index)
            known = any((line["run"], line["kind"], line["index"]) == place for line in mine)
            if self.until and datetime.now(UTC).date() > date.fromisoformat(self.until):
                raise LimitError(f"the last day that was agreed on was {self.until}")
            if self.first and datetime.now(UTC).date() < date.fromisoformat(self.first):
                raise LimitError(f"the first day that was agreed on is {self.first}")
            if known:
                last = mine[-1]
                if ((last["run"], last["kind"], last["index"]), last.get("digest", "")) != (place, digest.hex()):
                    raise LimitError(f"{kind} {index} of this run was answered before, and that answer is gone")
                return
            if self.runs and run not in runs and len(runs) >= self.runs:
                raise LimitError(f"{self.runs} runs were agreed on, and these rows have been in all of them")
            if self.rounds and kind == "step" and len(rounds) >= self.rounds:
                raise LimitError(f"{self.rounds} rounds were agreed on, and these rows have been in all of them")
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            about = {
                "time": now,
                "rows": self._rows,
                "terms": terms,
                "run": run,
                "kind": kind,
                "index": index,
                "digest": digest.hex(),
            }
            self._chain.append(about)

    def bind(self, witness: Witness, federation: str, sketch: Sequence[str] = ()) -> None:
        """Let a witness remember whose count this is; refuse one that forgets what it remembers of these rows."""
        self._chain.lines()
        witness.bind(self._chain.path, f"asked in {federation}", self._rows, self._chain.follows, sketch)

    def remaining(self) -> dict[str, int]:
        """Return how many runs and rounds are left, of those that the terms limit."""
        runs, rounds = self.so_far()
        limited = (("runs", self.runs, len(runs)), ("rounds", self.rounds, len(rounds)))
        return {what: most - used for what, most, used in limited if most}

    def left(self) -> str:
        """Return how much is left, in one line."""
        most = {"runs": self.runs, "rounds": self.rounds}
        parts = [f"{number} of {most[what]} {what}" for what, number in self.remaining().items()]
        last = f", until {self.until}" if self.until else ""
        return f"Left         {' and '.join(parts) or 'no limit was agreed'}{last}; counted in {self._chain.path}"
