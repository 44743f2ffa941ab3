"""Rank selection finds the planted rank in at least 8 of 10 seeds, from sums of errors alone.

Six planted components, 300 × 40, 10 % noise, three owners with four of the six each, candidates 2 to 10. In every
message of one run, no leaf counts an owner's rows, every upload is a sum, and a score is three numbers.
"""

from __future__ import annotations

import numpy as np

import fedfactor
from fedfactor.algorithms import PooledNMF
from fedfactor.core.client_data import Federation
from fedfactor.core.pytree import leaves
from fedfactor.datasets.synthetic import planted_nmf
from fedfactor.evaluation.holdout import hold_out_all
from fedfactor.io.partition import split_rows
from fedfactor.testing.plain_loop import drive

RANK, SEEDS, ENOUGH = 6, 10, 8


def owners_of(seed: int) -> dict[str, np.ndarray]:
    data = planted_nmf(300, 40, RANK, noise=0.1, n_clients=3, per_client=4, seed=seed)
    return split_rows(data.X, data.labels)


def log_is_clean() -> bool:
    speckled = hold_out_all(Federation(owners_of(0)), 0.1, 0)
    shards = {name: speckled.shard(name) for name in speckled.names}
    trace = drive(PooledNMF(RANK), shards, rounds=3)
    sums = all(type(up).uplink == "sum" for ups in trace.ups for up in ups.values())
    rows = {shard.n_rows for shard in shards.values()}
    small = all(not rows & set(np.shape(leaf)) for ups in trace.ups for up in ups.values() for _, leaf in leaves(up))
    scores = all(np.shape(leaf) == () for score in trace.scores.values() for _, leaf in leaves(score))
    return sums and small and scores


def claim() -> dict:
    found = [
        fedfactor.select_rank(owners_of(seed), range(2, 11), repeats=3, rounds=60, seed=seed) for seed in range(SEEDS)
    ]
    clean = log_is_clean()
    return {
        "recommended": [one.recommended for one in found],
        "best": [one.best for one in found],
        "curve_of_seed_0": found[0].curve.tolist(),
        "nothing_but_sums_was_sent": clean,
        "holds": bool(sum(one.recommended == RANK for one in found) >= ENOUGH and clean),
    }
