"""On the handwritten digits, one class at each of ten owners, PooledNMF of rank 20 comes as near as scikit-learn.

Relative error over ten seeds within 100 rounds: median at most 0.2237, worst at most 0.2265; by round 25 the median is
within 5 % of 0.2215, about the best that scikit-learn finds on pooled rows in ten random starts. All of its starts are
printed beside: they, too, end in different local optima.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import NMF

import fedfactor
from fedfactor.algorithms import PooledNMF
from fedfactor.io.partition import by_class, split_rows

RANK, SEEDS, BEST = 20, 10, 0.2215
MEDIAN, WORST = 0.2237, 0.2265


def fit(X: np.ndarray, y: np.ndarray, rounds: int, seed: int) -> fedfactor.Run:
    return fedfactor.run(PooledNMF(RANK), split_rows(X, by_class(y)), rounds=rounds, seed=seed)


def scikit_learn(X: np.ndarray, init: str, seed: int) -> float:
    model = NMF(RANK, init=init, max_iter=2000, random_state=seed).fit(X)
    return float(model.reconstruction_err_ / np.linalg.norm(X))


def claim() -> dict:
    X, y = load_digits(return_X_y=True)
    runs = [fit(X, y, 100, seed) for seed in range(SEEDS)]
    final = [run.relative_error for run in runs]
    early = [fit(X, y, 25, seed).relative_error for seed in range(SEEDS)]
    figures = {
        "median": float(np.median(final)),
        "worst": max(final),
        "final": final,
        "rounds": [run.rounds for run in runs],
        "median_at_round_25": float(np.median(early)),
        "at_round_25": early,
        "worst_owner": {run.seed: run.worst_client for run in runs},
        "scikit_learn_nndsvda": scikit_learn(X, "nndsvda", 0),
        "scikit_learn_random": [scikit_learn(X, "random", seed) for seed in range(SEEDS)],
    }
    print(figures)
    holds = figures["median"] <= MEDIAN and figures["worst"] <= WORST and figures["median_at_round_25"] <= 1.05 * BEST
    return {**figures, "holds": bool(holds)}
