"""Rounds over rows with missing cells against rounds over the same rows complete."""

from __future__ import annotations

import statistics
from typing import Any

import numpy as np

import fedfactor
from benchmarks.datasets import RANK
from fedfactor.algorithms import PooledNMF

SHARES = (0.1, 0.3, 0.5, 0.9)
"""Shares of cells that are taken away."""


def compare(X: np.ndarray, rounds: int = 12, repeats: int = 5) -> dict[str, Any]:
    """Return how many complete rounds one with missing cells takes, by the share of cells that are missing.

    Both kinds are measured in turn, so that a machine that is now faster, now slower is so for both.
    """
    rng = np.random.default_rng(0)
    full = fedfactor.Federation({"all": X})
    plain: list[float] = []
    ratios = {}
    for share in SHARES:
        cells = np.where(rng.random(X.shape) < share, np.float32(np.nan), X)
        holes = fedfactor.Federation({"all": cells}, missing_values=np.nan)
        pairs = [(_round(full, rounds), _round(holes, rounds)) for _ in range(repeats)]
        plain += [one for one, _ in pairs]
        ratios[share] = statistics.median(other / one for one, other in pairs)
    return {"plain_seconds": statistics.median(plain), "ratios": ratios}


def _round(owners: fedfactor.Federation, rounds: int) -> float:
    run = fedfactor.run(PooledNMF(RANK, tol=0, start="random"), owners, rounds=rounds, seed=0)
    return statistics.median(record.seconds for record in run.history[2:])
