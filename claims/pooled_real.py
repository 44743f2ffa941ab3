"""On five real sets, split by label and at random, PooledNMF ends within 1 % of the best of three pooled starts.

Three seeds each, 100 rounds at most, default settings; pooled = scikit-learn, nndsvda and two random starts, 500
iterations. The worst owner's error stands beside the total, and FedAvgNMF's, FedProxNMF's, FNMF's and OneShotNMF's
distances beside those of PooledNMF. Needs the data folder ``FEDFACTOR_DATA``; sets that are not there are named.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse
from sklearn.datasets import load_digits

import fedfactor
from claims._pooled import best_of_three
from fedfactor import algorithms
from fedfactor.datasets.loading import available, load_dataset
from fedfactor.io.partition import by_class, split_evenly, split_rows

SEEDS, LIMIT = 3, 1.01
RANKS = {"digits": 20, "fashion_mnist": 20, "orl_faces": 20, "pbmc68k": 15, "reuters": 10}
ROWS = 3000
"""Rows of the larger sets: every so many, so that all labels stay."""


def rivals(rank: int) -> dict:
    return {
        "FedAvgNMF": (algorithms.FedAvgNMF(rank, tol=0), 20),
        "FedProxNMF": (algorithms.FedProxNMF(rank, relative=True, tol=0), 20),
        "FNMF": (algorithms.FNMF(rank, tol=0), 20),
        "OneShotNMF": (algorithms.OneShotNMF(rank), None),
    }


def rows_of(name: str) -> tuple:
    """Rows and labels of a set, thinned out to a few thousand rows; without labels, five blocks of rows."""
    if name == "digits":
        return load_digits(return_X_y=True)
    data = load_dataset(name)
    step = -(-data.X.shape[0] // ROWS)
    X = data.X[::step]
    X = sparse.csr_array(X, dtype=np.float64) if sparse.issparse(X) else np.asarray(X, np.float64)
    labels = np.arange(X.shape[0]) * 5 // X.shape[0] if data.y is None else np.asarray(data.y)[::step]
    return X, labels


def claim() -> dict:
    figures: dict = {}
    known = {**available(), "digits": True}
    for name, rank in RANKS.items():
        if not known.get(name):
            figures[name] = "not in the data folder"
            continue
        X, y = rows_of(name)
        pooled = best_of_three(X, rank)
        splits = {"by label": by_class(y), "random": split_evenly(X.shape[0], 10, seed=0)}
        for split, labels in splits.items():
            owners = split_rows(X, labels)
            runs = [fedfactor.run(algorithms.PooledNMF(rank), owners, seed=seed) for seed in range(SEEDS)]
            line = {
                "pooled": pooled,
                "ratio": [run.relative_error / pooled for run in runs],
                "worst_owner": [run.worst_client for run in runs],
                "rounds": [run.rounds for run in runs],
                "owners": len(owners),
            }
            for rival, (algorithm, rounds) in rivals(rank).items():
                run = fedfactor.run(algorithm, owners, rounds=rounds, seed=0)
                line[rival] = {"ratio": run.relative_error / pooled, "worst_owner": run.worst_client}
            figures[f"{name}, {split}"] = line
            print(name, split, line, flush=True)
    lines = [line for line in figures.values() if isinstance(line, dict)]
    return {**figures, "holds": bool(len(lines) >= 8 and all(max(line["ratio"]) <= LIMIT for line in lines))}
