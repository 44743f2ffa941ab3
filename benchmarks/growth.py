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


def time_of(what: dict[str, int], sparse: bool) -> float:
    """Time rounds of random rows of these sizes."""
    rng = np.random.default_rng(0)
    if sparse:
        density = what["stored"] / (what["rows"] * what["columns"])
        X: Any = scipy.sparse.random_array(
            (what["rows"], what["columns"]), density=density, format="csr", dtype=np.float32, rng=rng
        )
    else:
        X = rng.random((what["rows"], what["columns"]), dtype=np.float32)
    return round_seconds(X, what["rank"], what["owners"])


def exponents() -> dict[str, dict[str, Any]]:
    """Double each size twice; fit the exponent by least squares on logarithms."""
    found = {}
    for name in BASE:
        times = [time_of(BASE | {name: factor * BASE[name]}, sparse=name == "stored") for factor in (1, 2, 4)]
        slope = float(np.polyfit(np.log([1, 2, 4]), np.log(times), 1)[0])
        found[name] = {"seconds": times, "exponent": slope, "doubling": math.pow(2, slope)}
    return found
