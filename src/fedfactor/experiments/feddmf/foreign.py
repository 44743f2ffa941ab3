"""Items that only others hold, at several numbers of shops: three ways to score them, by F1 and by lists of ten."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from fedfactor.algorithms import FedDMF, PooledRidge
from fedfactor.engines.run import run
from fedfactor.experiments.feddmf.methods import best_f1, f1
from fedfactor.experiments.feddmf.split import Split
from fedfactor.kernels.ratings.deep import probabilities
from fedfactor.metrics.ranking import ranking_scores

__all__ = ["METHODS", "compare"]

METHODS = ("popularity × activity", "FedDMF", "PooledRidge")
N = 10


def compare(part: Split, method: str, *, seed: int = 0, **settings: Any) -> dict[str, float]:
    """Return F1 (at the threshold that is best on own items) and NDCG@10 on foreign items, means over shops.

    Parameters
    ----------
    part : Split
    method : str
        One of ``METHODS``.
    seed : int
    **settings
        Of the algorithm.

    Examples
    --------
    >>> from fedfactor.experiments.feddmf.split import split
    >>> X = sparse.csr_array((np.random.default_rng(0).random((60, 40)) < 0.3).astype(np.float32))
    >>> sorted(compare(split(X), "PooledRidge", n_components=4))
    ['bytes_up', 'exchanges', 'f1', 'ndcg']
    """
    result: Any = None
    if method != METHODS[0]:
        algorithm = FedDMF(**settings) if method == "FedDMF" else PooledRidge(**settings)
        result = run(algorithm, part.federation(), seed=seed)
    values, lists = [], []
    for name in part.rows:
        own, foreign = part.own[name], part.foreign(name)
        threshold = best_f1(part.truth(name, own), _scores(part, result, name, own))[1]
        scores, truth = _scores(part, result, name, foreign), part.truth(name, foreign)
        values.append(f1(truth, scores >= threshold))
        best = np.argsort(-scores, axis=1, kind="stable")[:, :N]
        lists.append(ranking_scores(best, sparse.csr_array(truth)).ndcg)
    return {
        "f1": float(np.mean(values)),
        "ndcg": float(np.mean(lists)),
        "exchanges": 0 if result is None else result.rounds,
        "bytes_up": 0 if result is None else result.bytes_up,
    }


def _scores(part: Split, result: Any, name: str, columns: np.ndarray) -> np.ndarray:
    if result is None:
        held = np.concatenate([part.common, part.own[name]])
        shares = np.zeros(part.X.shape[1])
        for other, own in part.own.items():
            shares[own] = part.truth(other, own).mean(axis=0)
        return np.outer(part.truth(name, held).mean(axis=1), shares[columns])
    kept = result.factors[name]
    if isinstance(result.algorithm, FedDMF):
        return probabilities(kept.network, kept.U, np.ascontiguousarray(kept.V[:, columns].T))
    return kept.U @ kept.V[:, columns]
