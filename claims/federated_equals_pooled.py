"""On the handwritten digits, fifty rounds of PooledNMF give the V of pooled rows, whoever owns which rows.

One owner, ten at random, ten by class, six hundred of three rows: equal up to rounding. Threads, processes and any
order of the mapping: equal bits.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

import fedfactor
from fedfactor.algorithms import PooledNMF
from fedfactor.io.partition import split_rows

ROUNDS, SEED, LIMIT = 50, 0, 1e-8


def fit(labels: np.ndarray, X: np.ndarray, engine: object = "local", shuffle: bool = False) -> fedfactor.Run:
    owners = split_rows(X, labels)
    names = np.random.default_rng(1).permutation(list(owners)) if shuffle else list(owners)
    algorithm = PooledNMF(n_components=10, tol=0.0)
    return fedfactor.run(algorithm, {n: owners[n] for n in names}, engine=engine, rounds=ROUNDS, seed=SEED)


def claim() -> dict:
    X, y = load_digits(return_X_y=True)
    n, rng = len(X), np.random.default_rng(0)
    splits = {
        "ten_random": rng.integers(10, size=n),
        "ten_by_class": y,
        "owners_of_three_rows": np.arange(n) // 3,
    }
    pooled = fit(np.zeros(n, dtype=int), X)
    runs = {name: fit(labels, X) for name, labels in splits.items()}
    apart = {name: float(np.abs(run.V - pooled.V).max()) for name, run in runs.items()}
    engines = {
        "one_thread": fit(y, X, fedfactor.LocalEngine(workers=1)),
        "two_threads": fit(y, X, fedfactor.LocalEngine(workers=2)),
        "two_processes": fit(y, X, fedfactor.LocalEngine("processes", 2)),
        "shuffled_mapping": fit(y, X, shuffle=True),
    }
    reference = runs["ten_by_class"].V.tobytes()
    same = {name: run.V.tobytes() == reference for name, run in engines.items()}
    return {
        "rounds": ROUNDS,
        "largest_entry_of_V": float(np.abs(pooled.V).max()),
        "max_abs_difference_of_V": apart,
        "owners": {name: len(run.factors) for name, run in runs.items()},
        "relative_error": {"pooled": pooled.relative_error, **{k: run.relative_error for k, run in runs.items()}},
        "same_bits_as_ten_by_class": same,
        "holds": bool(max(apart.values()) < LIMIT and all(same.values())),
    }
