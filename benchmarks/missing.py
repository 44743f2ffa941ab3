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


def compare(X: np.ndarray, rounds: int = 12) -> dict[str, Any]:
    """Return how many complete rounds one with missing cells takes, by the share of cells that are missing."""
    rng = np.random.default_rng(0)
    plain = _round(fedfactor.Federation({"all": X}), rounds)
    ratios = {}
    for share in SHARES:
        holes = np.where(rng.random(X.shape) < share, np.float32(np.nan), X)
        ratios[share] = _round(fedfactor.Federation({"all": holes}, missing_values=np.nan), rounds) / plain
    return {"plain_seconds": plain, "ratios": ratios}


def _round(owners: fedfactor.Federation, rounds: int) -> float:
    run = fedfactor.run(PooledNMF(RANK, tol=0, start="random"), owners, rounds=rounds, seed=0)
    return statistics.median(record.seconds for record in run.history[2:])
