"""Ten owners against one, on the same rows and for the same number of rounds."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

import fedfactor
from benchmarks.datasets import RANK
from benchmarks.measure import seconds, sweep_cost
from fedfactor.algorithms import PooledNMF


def split(X: Any, parts: int) -> dict[str, Any]:
    """Cut the rows into equal contiguous parts."""
    edges = np.linspace(0, X.shape[0], parts + 1).astype(int)
    return {f"owner {i}": X[edges[i] : edges[i + 1]] for i in range(parts)}


def compare(X: Any, rounds: int = 20, repeats: int = 3, parts: int = 10) -> dict[str, Any]:
    """Alternate one owner and ten owners; also tell how long one round takes."""
    algorithm = PooledNMF(RANK, tol=0)
    cut = split(X, parts)
    one: list[float] = []
    many: list[float] = []
    rounds_of_one: list[float] = []
    run = None
    for _ in range(repeats):
        took, run = seconds(lambda: fedfactor.run(algorithm, {"all": X}, rounds=rounds, seed=0))
        one.append(took)
        # The first round has its own number of sweeps.
        rounds_of_one.append(statistics.median(record.seconds for record in run.history[1:]))
        took, other = seconds(lambda: fedfactor.run(algorithm, cut, rounds=rounds, seed=0))
        many.append(took)
    apart = float(np.abs(run.V - other.V).max() / np.abs(run.V).max())
    return {
        "one_owner": statistics.median(one),
        "ten_owners": statistics.median(many),
        "ratio": statistics.median(many) / statistics.median(one),
        "largest_difference_of_V": apart,
        "seconds_per_round": statistics.median(rounds_of_one),
    }


def share_of_limit(X: Any, per_round: float, bandwidth: float, rate: float) -> dict[str, float]:
    """Compare the time of a round with the least the machine could need for its bytes and its operations."""
    algorithm = PooledNMF(RANK)
    size, work = sweep_cost(X, RANK, algorithm.local_steps, algorithm.server_steps)
    limit = max(size / bandwidth, work / rate)
    return {"bytes": size, "flops": work, "limit_seconds": limit, "seconds": per_round, "share": limit / per_round}
