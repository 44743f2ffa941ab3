"""A second memory of files that only grow, kept in another place: it notices when such a file was deleted or put back.

No file can know its own future: a :class:`~fedfactor.core.hash_chain.Chain` that is replaced by an older copy of itself
looks whole. A witness beside a party's key remembers how long each of its chains was, and of which rows, so that a
deleted folder, a copy of it, or a restored back-up does not give the same rows their budget again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedfactor.core.atomic_files import alone_with, write_atomic
from fedfactor.core.errors import FedfactorError

__all__ = ["SKETCH", "Witness", "WitnessError"]

SKETCH = 64
"""Smallest digests of single rows that stand for all of them: two sets of rows share as many as the sets are alike."""

_FEWEST = 8  # digests from which on likeness says something


class WitnessError(FedfactorError, RuntimeError):
    """Rows have been answered for, or paid for, in a file that is not the one given now."""


class Witness:
    """Remembers chains: how many lines each had, the digest of the last one, and to whose rows they refer.

    Parameters
    ----------
    path : path
        The file; made with the first chain, readable by its owner only.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     witness = Witness(f"{folder}/north.key.books")
    ...     witness.tell(Path(folder, "ledger.jsonl"), 3, "abc")
    ...     witness.of(Path(folder, "ledger.jsonl"))
    (3, 'abc')
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def of(self, chain: Path) -> tuple[int, str]:
        """Return how long a chain was, and the digest of its last line; 0 when it is not known."""
        kept = self._read().get(str(chain.resolve()), {})
        return int(kept.get("lines", 0)), str(kept.get("digest", ""))

    def tell(self, chain: Path, lines: int, digest: str) -> None:
        """Remember that a chain has grown."""
        self._change(chain, {"lines": lines, "digest": digest})

    def bind(self, chain: Path, kind: str, rows: str, follows: Any, sketch: Sequence[str] = ()) -> None:
        """Remember to whose rows a chain refers; refuse one of other rows.

        Parameters
        ----------
        chain : path
            The file.
        kind : str
            What it is about: of each kind, the same rows have one file.
        rows : str
            Their fingerprint.
        follows : callable
            States whether the chain has a line of this number and digest: one that was moved has, and may go on.
        sketch : sequence of str
            The `SKETCH` smallest digests of single rows: rows in another order, or with some of them left out, are
            taken for the same.
        """
        here = str(chain.resolve())
        known = self._read()
        for other, about in known.items():
            same = rows in about.get("rows", ()) or any(_alike(sketch, kept) for kept in about.get("sketches", ()))
            if other == here or about.get("kind") != kind or not same or not about["lines"]:
                continue
            if Path(other).exists() or not follows(about["lines"], about["digest"]):
                raise WitnessError(
                    f"{self.path} remembers that these rows, or most of them, have been answered for in {other}, and "
                    f"{here} does not go on from there: what was spent would be forgotten. Join from that folder, or "
                    "give its file (--ledger). If it is lost, and you decide that what these rows have cost no longer "
                    f"counts, delete {self.path}."
                )
        before = known.get(here, {})
        fresh = list(sketch)
        names, sketches = (before.get(part, []) for part in ("rows", "sketches"))
        self._change(
            chain,
            {
                "kind": kind,
                "rows": [*names, *({rows} - set(names))],
                "sketches": sketches if fresh in sketches else [*sketches, fresh],
            },
        )

    def _change(self, chain: Path, change: dict[str, Any]) -> None:
        with alone_with(self.path):
            known = self._read()
            name = str(chain.resolve())
            known[name] = {"lines": 0, "digest": "", **known.get(name, {}), **change}
            write_atomic(self.path, json.dumps(known, indent=1).encode())

    def _read(self) -> dict[str, Any]:
        if not self.path.exists():
            return {}
        try:
            known: dict[str, Any] = json.loads(self.path.read_bytes())
            for about in known.values():
                _ = int(about["lines"]), str(about["digest"]), list(about.get("rows", ()))
                _ = [[bytes.fromhex(digest) for digest in kept] for kept in about.get("sketches", ())]
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise WitnessError(
                f"{self.path} is damaged: it remembers what your rows have cost. Restore it from a copy."
            ) from None
        return known


def _alike(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether at least about half of the rows of two sets are the same, by the smallest digests of each."""
    if min(len(one), len(other)) < _FEWEST:
        return False
    smallest = sorted({*one, *other})[:SKETCH]
    return 2 * sum(digest in one and digest in other for digest in smallest) >= len(smallest)
