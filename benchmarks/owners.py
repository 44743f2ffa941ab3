"""Ten owners against one, on the same rows and for the same number of rounds."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import scipy.sparse

import fedfactor
from benchmarks.datasets import RANK
from benchmarks.measure import product_cost, seconds, sparse_products
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


def share_of_limit(X: Any, per_round: float, bandwidth: float, rate: float) -> dict[str, Any]:
    """Compare a round with X read once, or its two products at the rate of the machine, whichever takes longer.

    That rate is the one of a square product for dense rows; for sparse ones that of the fastest sparse product at hand.
    """
    size, work = product_cost(X, RANK)
    told: dict[str, Any] = {"bytes": size, "flops": work, "seconds": per_round, "square_products": work / rate}
    products = work / rate
    if scipy.sparse.issparse(X):
        told["sparse_products"] = sparse_products(X, RANK)
        products = min(told["sparse_products"].values())
    limit = max(size / bandwidth, products)
    return {**told, "limit_seconds": limit, "share": limit / per_round}
