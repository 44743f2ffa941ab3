"""On overlapping patterns PooledBMF is at or below FELB and votes; held-out cells tell how many patterns there are."""

from __future__ import annotations

import warnings

import numpy as np

import fedfactor
from fedfactor.algorithms import FELB, BooleanVotes, PooledBMF

SIZES = {"rows": 400, "columns": 60, "owners": 8}
OTHERS = {
    "FELB": lambda k: FELB(k),
    "asso votes": lambda k: BooleanVotes(k, solver="asso"),
    "grecond votes": lambda k: BooleanVotes(k, solver="grecond"),
    "elbmf votes": lambda k: BooleanVotes(k, solver="elbmf"),
}


def overlapping(n: int, m: int, k: int, noise: float, seed: int, share: float = 0.35) -> np.ndarray:
    """Rows that have about a third of the patterns, patterns that have about a third of the columns."""
    rng = np.random.default_rng(seed)
    clean = (rng.random((n, k)) < share).astype(int) @ (rng.random((k, m)) < share).astype(int) > 0
    return (clean ^ (rng.random((n, m)) < noise)).astype(float)


def wrong(method, parts, seed: int) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(fedfactor.run(method, parts, seed=seed).score.sse)


def claim(seeds: int = 10) -> dict:
    figures, held, cases = {}, 0, 0
    for k in range(3, 9):
        for noise in (0.0, 0.01, 0.03, 0.05):
            mine, best = [], []
            for seed in range(seeds):
                X = overlapping(SIZES["rows"], SIZES["columns"], k, noise, 1000 * k + seed)
                parts = np.array_split(X, SIZES["owners"])
                mine.append(wrong(PooledBMF(k), parts, seed) / X.sum())
                best.append(min(wrong(make(k), parts, seed) for make in OTHERS.values()) / X.sum())
            ok = sum(one <= other for one, other in zip(mine, best, strict=True))
            held, cases = held + ok, cases + seeds
            figures[f"{k} patterns, noise {noise:.0%}"] = {
                "PooledBMF": round(float(np.mean(mine)), 4),
                "best of the others": round(float(np.mean(best)), 4),
                "at or below": f"{ok} of {seeds}",
            }
    found = {}
    for k, ranks in ((4, range(1, 9)), (8, range(4, 13))):
        right = 0
        for seed in range(seeds):
            parts = np.array_split(overlapping(300, 60, k, 0.05, seed, share=0.3), 4)
            chosen = fedfactor.select_rank(parts, ranks, algorithm=PooledBMF(1), repeats=2, seed=seed)
            right += chosen.recommended == k
        found[f"rank {k} found"] = int(right)
    enough = held >= 0.9 * cases and all(right >= 0.8 * seeds for right in found.values())
    return {**figures, "at or below in all": f"{held} of {cases}", **found, "seeds": seeds, "holds": bool(enough)}
