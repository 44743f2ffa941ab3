"""Ten owners against one, on the same rows and for the same number of rounds."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np
import scipy.sparse

import fedfactor
from benchmarks.datasets import RANK
from benchmarks.measure import gemm_rate, product_cost, read_bandwidth, seconds, sparse_products
from fedfactor.algorithms import PooledNMF


def split(X: Any, parts: int) -> dict[str, Any]:
    """Cut the rows into equal contiguous parts."""
    edges = np.linspace(0, X.shape[0], parts + 1).astype(int)
    return {f"owner {i}": X[edges[i] : edges[i + 1]] for i in range(parts)}


def compare(X: Any, rounds: int = 20, repeats: int = 3, parts: int = 10) -> dict[str, Any]:
    """Alternate one owner and ten owners: a machine that is now faster, now slower is so for both."""
    algorithm = PooledNMF(RANK, tol=0)
    cut = split(X, parts)
    times: list[tuple[float, float]] = []
    for _ in range(2 * repeats + 1):
        took, run = seconds(lambda: fedfactor.run(algorithm, {"all": X}, rounds=rounds, seed=0))
        ten, other = seconds(lambda: fedfactor.run(algorithm, cut, rounds=rounds, seed=0))
        times.append((took, ten))
    apart = float(np.abs(run.V - other.V).max() / np.abs(run.V).max())
    one, many = (statistics.median(each) for each in zip(*times, strict=True))
    return {
        "one_owner": one,
        "ten_owners": many,
        "ratio": statistics.median(ten / one for one, ten in times),
        "largest_difference_of_V": apart,
    }


def share_of_limit(X: Any, rounds: int = 20, repeats: int = 3) -> dict[str, Any]:
    """Compare a round with X read once, or its two products at the rate of the machine, whichever takes longer.

    That rate is the one of a square product for dense rows; for sparse ones that of the fastest sparse product at hand.
    Rates and rounds are measured in turn, and the median of the shares counts.
    """
    algorithm, (size, work) = PooledNMF(RANK, tol=0), product_cost(X, RANK)
    found: list[dict[str, Any]] = []
    for _ in range(2 * repeats + 1):
        rate, bandwidth = gemm_rate(2), read_bandwidth(2)
        run = fedfactor.run(algorithm, {"all": X}, rounds=rounds, seed=0)
        # The first rounds are those of the start, or have their own number of sweeps.
        took = statistics.median(record.seconds for record in run.history[3:])
        told: dict[str, Any] = {"bytes": size, "flops": work, "seconds": took, "square_products": work / rate}
        products = work / rate
        if scipy.sparse.issparse(X):
            told["sparse_products"] = sparse_products(X, RANK, 3)
            products = min(told["sparse_products"].values())
        limit = max(size / bandwidth, products)
        found.append({**told, "limit_seconds": limit, "share": limit / took})
    return sorted(found, key=lambda each: each["share"])[repeats]
