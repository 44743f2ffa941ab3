"""With unit="client", one owner's number of rows moves nobody else's upload: ε by experiment stays below the claim.

The same experiment with the weights that a run must not use (rows of all owners over the number of owners) refutes it.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.stats import beta

import fedfactor
from fedfactor.algorithms import PooledNMF
from fedfactor.privacy import Clip, Gaussian, Listener, SecureSum
from fedfactor.privacy.accounting import calibrate

RUNS, CLIENTS, CLIP, DELTA = 300, 30, 0.5, 1e-5


def owners(rows: int) -> dict[str, np.ndarray]:
    """Make rows of thirty owners, and one more whose rows are empty: what it uploads is zero, however many it has."""
    rng = np.random.default_rng(0)
    found = {f"c{i:02d}": 0.16 * rng.exponential(size=(40, 3)) @ rng.random((3, 10)) for i in range(CLIENTS)}
    return found | {"x": np.zeros((rows, 10))}


class AllRows(PooledNMF):
    """The weights that a claim must not rest on, under another name, so that nothing mends them."""

    def init_client(self, shard: Any, meta: Any, at: Any) -> Any:
        """Weigh by the rows of all."""
        state = PooledNMF.init_client(self, shard, meta, at)
        return replace(state, weight=np.float64(meta.n_rows / meta.n_clients / max(1, shard.n_rows)))


def scores(algorithm: PooledNMF, rows: int, runs: int) -> np.ndarray:
    """Add up what the server is handed in one round, in many runs."""
    parts, found = owners(rows), []
    z = calibrate(1.0, DELTA, 1)
    for _ in range(runs):
        heard = Listener()
        noise = Gaussian(z, CLIP, whole=True, honest=CLIENTS + 1)
        channel = (heard, Clip(CLIP), noise, SecureSum(threshold=1.0))
        fedfactor.run(algorithm, parts, rounds=1, seed=0, privacy=channel)
        found.append(float(heard.rounds[0][1].A.sum()))
    return np.array(found)


def lower_bound(few: np.ndarray, many: np.ndarray, level: float = 0.95) -> float:
    """Bound ε from below: the best of all thresholds that half of the runs suggest, tried on the other half."""
    half = len(few) // 2
    cuts = np.quantile(np.concatenate([few[:half], many[:half]]), np.linspace(0.02, 0.98, 49))
    best = max(cuts, key=lambda cut: np.mean(many[:half] > cut) - np.mean(few[:half] > cut))
    hits, false, n = int((many[half:] > best).sum()), int((few[half:] > best).sum()), half
    low = float(beta.ppf((1 - level) / 2, hits, n - hits + 1)) if hits else 0.0
    high = float(beta.ppf(1 - (1 - level) / 2, false + 1, n - false)) if false < n else 1.0
    return max(0.0, math.log(max(low - DELTA, 1e-300) / high))


def claim() -> dict[str, Any]:
    right = PooledNMF(3, weights="mean", start="random", tol=0.0)
    wrong = AllRows(3, weights="mean", start="random", tol=0.0)
    bounds = {
        name: lower_bound(scores(algorithm, 1, RUNS), scores(algorithm, 50_000, RUNS))
        for name, algorithm in {"own rows": right, "all rows": wrong}.items()
    }
    return {"claimed": 1.0, "runs": 2 * RUNS, "lower_bounds": bounds, "holds": bool(
        bounds["own rows"] <= 1.0 < bounds["all rows"])}  # fmt: skip
