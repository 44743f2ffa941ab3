"""``select_rank`` finds the planted rank on raw hospital units, counts, yes/no and gaps, in 8 of 10 seeds at least.

Five patterns in 24 named columns whose units span four powers of ten; five in counts, with the squared error and with
the Kullback-Leibler divergence; unions of four and of eight Boolean patterns with 3 % of the cells flipped; six in
rows of which 30 % of the cells are missing. Three owners, three repeats, default settings.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import fedfactor
from fedfactor.algorithms import PooledBMF, PooledNMF
from fedfactor.core.algorithm import Algorithm
from fedfactor.core.client_data import Federation, Shard

SEEDS, ENOUGH, ROUNDS = range(100, 110), 8, 60


def owners(X: np.ndarray, mask: np.ndarray | None = None, names: tuple[str, ...] | None = None) -> Federation:
    rows = {name: slice(start, None, 3) for start, name in enumerate("abc")}
    return Federation({name: Shard(X[r], None if mask is None else mask[r], names) for name, r in rows.items()})


def hospital(rng: np.random.Generator) -> Federation:
    X = rng.gamma(0.7, 1, (240, 5)) @ rng.gamma(0.7, 1, (5, 24)) * rng.uniform(0.85, 1.15, (240, 24))
    return owners(X * 10 ** rng.uniform(-1, 3, 24), names=tuple(f"lab {j}" for j in range(24)))


def counts(rng: np.random.Generator) -> Federation:
    return owners(rng.poisson(4 * rng.gamma(0.5, 1, (300, 5)) @ rng.gamma(0.4, 1, (5, 50))).astype(float))


def unions(rng: np.random.Generator, k: int) -> Federation:
    X = (rng.random((300, k)) < 0.3).astype(int) @ (rng.random((k, 50)) < 0.2) > 0
    return owners((X ^ (rng.random(X.shape) < 0.03)).astype(float))


def gaps(rng: np.random.Generator) -> Federation:
    X = rng.gamma(0.7, 1, (240, 6)) @ rng.gamma(0.5, 1, (6, 40)) * rng.uniform(0.85, 1.15, (240, 40))
    return owners(X, rng.random(X.shape) > 0.3)


KINDS: dict[str, tuple[Callable[[np.random.Generator], Federation], Algorithm, range, int]] = {
    "raw hospital units": (hospital, PooledNMF(1), range(2, 9), 5),
    "counts, squared error": (counts, PooledNMF(1), range(2, 9), 5),
    "counts, Kullback-Leibler": (counts, PooledNMF(1, loss="kullback-leibler"), range(2, 9), 5),
    "yes/no, four patterns": (lambda rng: unions(rng, 4), PooledBMF(1), range(2, 8), 4),
    "yes/no, eight patterns": (lambda rng: unions(rng, 8), PooledBMF(1), range(5, 12), 8),
    "30 % missing": (gaps, PooledNMF(1), range(3, 10), 6),
}


def claim() -> dict:
    found: dict[str, list[int]] = {}
    for place, (name, (make, algorithm, ranks, _)) in enumerate(KINDS.items()):
        rounds = ROUNDS if isinstance(algorithm, PooledNMF) else None
        for seed in SEEDS:
            rows = make(np.random.default_rng([place, seed]))
            chosen = fedfactor.select_rank(rows, ranks, algorithm=algorithm, repeats=3, rounds=rounds, seed=seed)
            found.setdefault(name, []).append(chosen.recommended)
            print(name, seed, chosen.recommended, flush=True)
    right = {name: sum(rank == KINDS[name][3] for rank in ranks) for name, ranks in found.items()}
    return {"recommended": found, "right": right, "holds": bool(min(right.values()) >= ENOUGH)}
