"""With a fifth of the clients hostile, medians and trimmed means stay within twice the clean error; the mean does not.

Twenty clients, four of them hostile: large noise, a flipped sign, permuted components, NaN, and a shift of all four to
the edge of what the honest ones send, which no look at a single upload tells from an honest one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

import fedfactor
from fedfactor.aggregation import Robust
from fedfactor.algorithms import FedAvgNMF

HOSTILE = ("c03", "c07", "c11", "c16")
ATTACKS = ("noise", "sign flip", "permuted", "nan", "shift")


def sabotaged(attack: str) -> FedAvgNMF:
    """Plain averaging in which some clients send something else."""

    class Sabotaged(FedAvgNMF):
        def client_step(self, shard: Any, state: Any, down: Any, at: Any) -> Any:
            state, up = FedAvgNMF.client_step(self, shard, state, down, at)
            return state, replace(up, V=spoilt(attack, up.V, down.V, at)) if attack and at.client in HOSTILE else up

    return Sabotaged(5, weights="equal", tol=0)


def spoilt(attack: str, V: np.ndarray, sent: np.ndarray, at: Any) -> np.ndarray:
    """Return what a hostile client sends instead of its V."""
    rng = np.random.default_rng([int(at.client[1:]), at.index])
    if attack == "noise":
        return 100 * rng.normal(size=V.shape)
    if attack == "sign flip":
        return -10 * V
    if attack == "permuted":
        return V[rng.permutation(len(V))]
    return V * np.nan if attack == "nan" else sent + 1.5 * np.abs(V - sent).mean()


def claim() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    V = rng.random((5, 40)) * (rng.random((5, 40)) < 0.3)
    data = {f"c{i:02d}": rng.exponential(size=(40, 5)) @ V + 0.05 * rng.random((40, 40)) for i in range(20)}

    def error(attack: str, privacy: Any) -> float:
        return fedfactor.run(sabotaged(attack), data, rounds=25, seed=0, privacy=privacy).relative_error

    clean = error("", None)
    rules = {"plain mean": None, "median": Robust("median"), "trimmed mean": Robust("trimmed-mean")}
    table = {name: {attack: error(attack, rule) for attack in ATTACKS} for name, rule in rules.items()}
    robust = [figure for name in ("median", "trimmed mean") for figure in table[name].values()]
    return {
        "clean": clean,
        "errors": table,
        "holds": bool(max(robust) <= 2 * clean and table["plain mean"]["noise"] > 2 * clean),
    }
