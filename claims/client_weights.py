"""With unit="client", an owner's number of rows moves nobody else's upload: what is released keeps to the claimed ε.

One owner uploads zeros, however many rows it has. Released sums of two federations that differ in nothing but its
number of rows are compared, with the same noise in both: the distance, in standard deviations of the noise, is the ε
that an attacker who knows all else has. Weights that rest on the rows of all owners refute the claim by far.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import fedfactor
from fedfactor.algorithms import PooledNMF
from fedfactor.core.pytree import leaves
from fedfactor.privacy import Listener
from fedfactor.privacy.accounting import analytic_epsilon, calibrate

CLIENTS, CLIP, DELTA = 30, 0.5, 1e-5


class AllRows(PooledNMF):
    """The weights that a claim must not rest on, under another name, so that nothing mends them."""

    def init_client(self, shard: Any, meta: Any, at: Any) -> Any:
        """Weigh by the rows of all."""
        state = PooledNMF.init_client(self, shard, meta, at)
        return replace(state, weight=np.float64(meta.n_rows / meta.n_clients / max(1, shard.n_rows)))


def released(algorithm: PooledNMF, rows: int) -> np.ndarray:
    """Run one round, and return what the server is handed."""
    rng = np.random.default_rng(0)
    parts = {f"c{i:02d}": 0.007 * rng.exponential(size=(40, 3)) @ rng.random((3, 10)) for i in range(CLIENTS)}
    heard = Listener()
    asked = fedfactor.dp(1.0, DELTA, unit="client", clip=CLIP, noise_seed=1)
    owners = parts | {"x": np.zeros((rows, 10))}
    fedfactor.run(algorithm, owners, rounds=1, seed=0, privacy=(heard, asked))
    return np.concatenate([np.ravel(leaf) for _, leaf in leaves(heard.rounds[0][1])])


def claim() -> dict[str, Any]:
    spread = calibrate(1.0, DELTA, 1) * CLIP
    found = {}
    for name, algorithm in {"own rows": PooledNMF(3), "all rows": AllRows(3, weights="mean", start="random")}.items():
        few = released(algorithm, 1)
        distance = max(float(np.linalg.norm(released(algorithm, rows) - few)) for rows in (100, 5_000, 50_000))
        found[name] = {"distance": distance, "epsilon": analytic_epsilon(distance / spread, DELTA)}
    holds = found["own rows"]["epsilon"] <= 1.0 < found["all rows"]["epsilon"]
    return {"claimed": 1.0, "clip": CLIP, **found, "holds": bool(holds)}
