"""What a round costs, as a formula: ``python -m benchmarks.scale`` fits it, and checks it on three larger runs.

Processor seconds of a simulated round: so much for each cell and component (dense or stored), each step of a sweep,
each owner, and each number that is sent. Bytes follow from the messages, memory from the arrays.
"""

from __future__ import annotations

import itertools
import json
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.optimize
import scipy.sparse

import fedfactor
from benchmarks.out_of_core import Memory
from fedfactor.algorithms import PooledNMF
from fedfactor.core.threads import limit_threads

OUT = Path(__file__).parent / "out" / "scale.json"


@dataclass(frozen=True)
class Case:
    """Sizes of a run; `stored` cells of all rows together, or None for dense rows."""

    owners: int
    rows: int
    columns: int
    rank: int
    stored: int | None = None

    def terms(self) -> list[float]:
        """Return what the constants are multiplied with, in units of 10⁹ (owners: one)."""
        algorithm = PooledNMF(self.rank)
        n, m, k = self.rows, self.columns, self.rank
        dense, sparse = (0, self.stored * k) if self.stored else (n * m * k, 0)
        sweeps = k * k * (n * algorithm.local_steps + m * algorithm.server_steps)
        return [dense / 1e9, sparse / 1e9, sweeps / 1e9, float(self.owners), self.owners * k * m / 1e9]

    def bytes_per_round(self) -> float:
        """Return the bytes of all messages of a round in single precision, both ways."""
        return 4.0 * self.owners * (2 * self.rank * self.columns + self.rank**2)

    def data(self) -> dict[str, Any]:
        """Make random rows."""
        rng = np.random.default_rng(0)
        if self.stored:
            density = self.stored / (self.rows * self.columns)
            X: Any = scipy.sparse.random_array(
                (self.rows, self.columns), density=density, format="csr", dtype=np.float32, rng=rng
            )
        else:
            X = rng.random((self.rows, self.columns), dtype=np.float32)
        edges = np.linspace(0, self.rows, self.owners + 1).astype(int)
        return {f"owner {i:07}": X[edges[i] : edges[i + 1]] for i in range(self.owners)}

    def run(self, rounds: int = 10) -> dict[str, float]:
        """Return the least processor seconds and the bytes of a round, and what memory the run added."""
        owners, marks = self.data(), []
        with limit_threads(1), Memory() as memory:
            before = memory.now()
            memory.peak = before
            run = fedfactor.run(
                PooledNMF(self.rank, tol=0, start="random"), owners, rounds=rounds, seed=0,
                engine=fedfactor.LocalEngine(workers=1), callbacks=[lambda _: marks.append(time.process_time())],
            )  # fmt: skip
        spent = [b - a for a, b in itertools.pairwise(marks)]
        sent = [record.bytes_up + record.bytes_down for record in run.history[1:]]
        return {
            "seconds": min(spent), "bytes": statistics.median(sent), "memory": memory.peak - before,
        }  # fmt: skip


SMALL = [
    Case(1, 2000, 500, 10), Case(1, 2000, 500, 20), Case(1, 4000, 1000, 20), Case(4, 2000, 1000, 40),
    Case(20, 2000, 200, 10), Case(60, 1200, 100, 5), Case(40, 1200, 2000, 10), Case(2, 500, 8000, 20),
    Case(1, 8000, 2000, 20, 300_000), Case(10, 8000, 1000, 10, 600_000), Case(1, 20_000, 500, 20, 1_000_000),
    Case(30, 3000, 4000, 20, 100_000), Case(20, 1000, 8000, 20, 200_000), Case(60, 6000, 4000, 10, 60_000),
    Case(200, 2000, 100, 5), Case(30, 3000, 3000, 20), Case(1, 20_000, 60, 40),
]  # fmt: skip
LARGE = [Case(10, 60_000, 1500, 20), Case(1000, 20_000, 200, 10), Case(50, 100_000, 4000, 20, 6_000_000)]
FAR = [Case(1000, 10**6, 10_000, 20), Case(10**6, 10**9, 10_000, 20), Case(10**6, 10**9, 10_000, 20, 10**11)]


def main() -> None:
    """Fit, check, foretell."""
    measured = [case.run() for case in SMALL]
    times = np.array([each["seconds"] for each in measured])
    # Relative errors count: every line is divided by what was measured.
    fitted, _ = scipy.optimize.nnls(np.array([case.terms() for case in SMALL]) / times[:, None], np.ones(len(SMALL)))
    print(
        "constants (ns for each dense cell, stored cell, step of a sweep, s for each owner, ns for each sent number):"
    )
    print(" ", fitted.tolist())
    found = []
    for case in LARGE:
        got, foretold = case.run(), float(np.dot(case.terms(), fitted))
        found.append({"case": vars(case), "foretold": foretold, "bytes_foretold": case.bytes_per_round(), **got})
        print(
            f"{case}: foretold {foretold:.3f} s, measured {got['seconds']:.3f}; bytes {case.bytes_per_round():,.0f}, "
            f"{got['bytes']:,.0f}; memory added {got['memory'] / 1e6:.0f} MB",
            flush=True,
        )
    far = [{"case": vars(c), "seconds": float(np.dot(c.terms(), fitted)), "bytes": c.bytes_per_round()} for c in FAR]
    print(json.dumps(far, indent=1))
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps({"constants": fitted.tolist(), "checked": found, "far": far}, indent=1) + "\n")


if __name__ == "__main__":
    main()
