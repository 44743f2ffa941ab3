"""One figure of a table: made once, written down at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.core.algorithm import Algorithm
from fedfactor.core.run import Run
from fedfactor.engines.run import run
from papers.kept import kept

__all__ = ["Store", "mean_rows", "measure"]

Row = dict[str, Any]


class Store:
    """Figures in one file for each cell, so that a run that was broken off goes on where it stopped.

    Cells whose key names a value that is not in `few` are left out: ``get`` returns an empty row for them.
    """

    def __init__(
        self, folder: Path, say: Callable[[str], None] = print, few: Mapping[str, Sequence[Any]] | None = None
    ) -> None:
        self.folder, self.say, self.few = folder, say, few or {}
        folder.mkdir(parents=True, exist_ok=True)

    def get(
        self, key: Mapping[str, Any], settings: Any, make: Callable[..., Mapping[str, Any]], *args: Any, **options: Any
    ) -> Row:
        """Return the key with its figures: from its file if key and settings are the same, else made and written."""

        def made() -> Row:
            row = {**key, **make(*args, **options)}
            self.say(" ".join(f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values() if np.isscalar(v)))
            return row

        if any(key[name] not in values for name, values in self.few.items() if name in key):
            return {}
        return kept(self.folder, [key, repr(settings)], made)


def measure(algorithm: Algorithm, owners: Mapping[str, Any], *, rounds: int, seed: int, **options: Any) -> Row:
    """Run a method and return what the paper reports (sum of RMSD), what we add, and the time it took."""
    began = time.perf_counter()
    result = run(algorithm, owners, rounds=rounds, seed=seed, **options)
    return figures_of(result) | {"seconds": time.perf_counter() - began}


def figures_of(result: Run) -> Row:
    """Return the errors of a run: summed and mean RMSD, relative error over all rows, worst owner."""
    rmsd = [float(np.sqrt(score.sse / score.n)) for score in result.scores.values()]
    return {
        "sum_rmsd": sum(rmsd),
        "mean_rmsd": sum(rmsd) / len(rmsd),
        "relative_error": result.relative_error,
        "worst": result.worst_client[1],
        "rounds": result.rounds,
        "bytes_up": result.bytes_up,
    }


def mean_rows(rows: Sequence[Row], by: Sequence[str], figures: Sequence[str]) -> list[Row]:
    """Average figures over rows that agree in `by`, in order of first appearance; ``seeds`` counts them."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in filter(None, rows):
        groups.setdefault(tuple(row[name] for name in by), []).append(row)
    out = []
    for key, members in groups.items():
        means = {name: float(np.mean([m[name] for m in members])) for name in figures if name in members[0]}
        out.append({**dict(zip(by, key, strict=True)), **means, "seeds": len(members)})
    return out
