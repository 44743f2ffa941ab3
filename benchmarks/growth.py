"""How the time of a round grows with rows, columns, stored cells, rank and owners: the exponent of a power law."""

from __future__ import annotations

import math
import statistics
from typing import Any

import numpy as np
import scipy.sparse

import fedfactor
from fedfactor.algorithms import PooledNMF

BASE = {"rows": 4000, "columns": 1000, "stored": 1_000_000, "rank": 16, "owners": 4}


def round_seconds(X: Any, rank: int, owners: int) -> float:
    """Return the median time of a round after the first ones."""
    edges = np.linspace(0, X.shape[0], owners + 1).astype(int)
    parts = {f"owner {i:03}": X[edges[i] : edges[i + 1]] for i in range(owners)}
    run = fedfactor.run(PooledNMF(rank, tol=0, start="random"), parts, rounds=14, seed=0)
    return statistics.median(record.seconds for record in run.history[4:])


def rows_of(what: dict[str, int], sparse: bool) -> Any:
    """Draw rows of these sizes."""
    rng = np.random.default_rng(0)
    if not sparse:
        return rng.random((what["rows"], what["columns"]), dtype=np.float32)
    density = what["stored"] / (what["rows"] * what["columns"])
    shape = (what["rows"], what["columns"])
    return scipy.sparse.random_array(shape, density=density, format="csr", dtype=np.float32, rng=rng)


def exponents(repeats: int = 5) -> dict[str, dict[str, Any]]:
    """Double each size twice; fit the exponent by least squares on logarithms. Sizes are measured in turn."""
    found = {}
    for name in BASE:
        sizes = [BASE | {name: factor * BASE[name]} for factor in (1, 2, 4)]
        rows = [rows_of(what, sparse=name == "stored") for what in sizes]
        runs = [
            [round_seconds(X, what["rank"], what["owners"]) for X, what in zip(rows, sizes, strict=True)]
            for _ in range(repeats)
        ]
        times = [statistics.median(each) for each in zip(*runs, strict=True)]
        slope = float(np.polyfit(np.log([1, 2, 4]), np.log(times), 1)[0])
        found[name] = {"seconds": times, "exponent": slope, "doubling": math.pow(2, slope)}
    return found
