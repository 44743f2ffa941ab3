"""Lists of ten from implicit feedback, against the last fifth of what each user watched."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedfactor.algorithms import FCF, PooledCF
from fedfactor.core.client_data import Federation
from fedfactor.datasets.loading import data_folder, load_dataset
from fedfactor.datasets.public_sources import read_times
from fedfactor.engines.run import run
from fedfactor.evaluation.metrics.ranking import ranking_scores
from fedfactor.recommend.ratings import deal_groups, filter_ratings, split_ratings_by_time
from fedfactor.recommend.user_table import UserTable

__all__ = ["METHODS", "measure"]

METHODS = ("popularity", "FCF", "PooledCF")
N = 10


def measure(name: str, method: str, rounds: int) -> dict[str, float]:
    """Return precision, recall and NDCG at 10, means over users; settings are fixed, none was tuned on later times."""
    R, rows, columns = filter_ratings(load_dataset(name).X.astype(np.float64))
    when = read_times(data_folder(), name)[rows][:, columns]
    train, later = split_ratings_by_time(R, when, 0.2)
    train.data[:] = 1.0
    labels = deal_groups(R.shape[0], seed=0)
    groups = {label: np.flatnonzero(labels == label) for label in np.unique(labels).tolist()}
    if method == "popularity":
        scores = np.asarray(train.sum(axis=0)).ravel()
        table = UserTable(
            np.ones((R.shape[0], 1)), scores[None], train, np.arange(R.shape[0]), np.arange(R.shape[1]), None
        )
        return _scores(table.best(np.arange(R.shape[0]), N)[0], later)
    algorithm: Any = {
        "FCF": FCF(10, feedback="implicit", weight=5.0, lam=10.0),
        "PooledCF": PooledCF(16, feedback="implicit"),
    }[method]
    federation = Federation({label: train[who] for label, who in groups.items()}, missing_values="unstored")
    result = run(algorithm, federation, rounds=rounds, seed=0)
    best = np.empty((R.shape[0], N), np.int64)
    for label, who in groups.items():
        kept = result.factors[label]
        table = UserTable(kept.U, kept.V, train[who], who, np.arange(R.shape[1]), None)
        best[who] = table.best(np.arange(len(who)), N)[0]
    return _scores(best, later)


def _scores(best: np.ndarray, later: Any) -> dict[str, float]:
    found = ranking_scores(best, later)
    return {"precision": found.precision, "recall": found.recall, "ndcg": found.ndcg}
