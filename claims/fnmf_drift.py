"""Alignment stays at the central error however many local steps clients take; averaging without it deteriorates.

Planted blocks, 600 × 80, rank 6, ten clients, iPALM clients as in the paper: the sum of RMSD over clients after U was
fitted. From the starts of the reference table, pulled from the first round on and with components of free scale, as
printed: every figure is within 5 % of that table. From the starts and with the settings that the library has: FNMF with
LAP is within 5 % of the central 0.29 at 10, 100 and 500 local steps, for the fixed point, the progressive and the
hierarchical barycenter, and aligned at the client; the four agree within 1 %. FedAvg and FedProx rise with local steps;
they differ much between starts, so their figures are printed for each seed.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import fedfactor
from fedfactor.algorithms import FNMF, FedProxNMF
from fedfactor.datasets.dense_blocks import deal_rows, dense_blocks
from fedfactor.nmf.fedprox import Factor
from fedfactor.nmf.fedprox import Local as FedProxLocal
from fedfactor.nmf.fnmf.messages import Local, Middle

SEEDS, K, M, CLIENTS, ROWS = 3, 6, 80, 10, 600
SCHEDULE = ((10, 60), (100, 10), (500, 4), (1000, 1))
FORMS = ("fixed_point", "progressive", "hierarchical", "client")
BASE: dict[str, Any] = {"n_components": K, "local_solver": "gradient", "tol": 0.0}
AVERAGE: dict[str, Any] = {**BASE, "start": "own", "weights": "equal"}

REFERENCE = {
    "10 x 60": {"FedAvg": 0.861, "FedProx": 0.706, "fixed_point": 0.293, "progressive": 0.293, "hierarchical": 0.293},
    "100 x 10": {"FedAvg": 2.486, "FedProx": 0.774, "fixed_point": 0.293, "progressive": 0.293, "hierarchical": 0.293},
    "500 x 4": {"FedAvg": 2.553, "FedProx": 1.583, "fixed_point": 0.294},
    "1000 x 1": {"FedAvg": 2.550, "FedProx": 3.427, "fixed_point": 0.569, "progressive": 0.594},
}
"""The specification's table: means of seeds 0 and 1."""


@cache
def draws(seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Draw U and V of all clients as the reference does: uniform on [0, 1], one stream for all."""
    rng = np.random.default_rng([7, seed])
    Us = [rng.random((ROWS // CLIENTS, K)) for _ in range(CLIENTS)]
    rng.random((K, M))  # a common V, which nobody took
    return Us, [rng.random((K, M)) for _ in range(CLIENTS)]


class GivenFNMF(FNMF):
    """FNMF from given factors; the first middle is the mean of the clients' V."""

    def init_server(self, meta: Any, at: Any) -> Any:
        """Send the mean of what clients begin with."""
        server, down = super().init_server(meta, at)
        V = sum(draws(at.seed)[1]) / CLIENTS
        return server, Middle(V, down.support, down.mass, down.clients, down.round)

    def init_client(self, shard: Any, meta: Any, at: Any) -> Any:
        """Begin with the given factors."""
        state = super().init_client(shard, meta, at)
        U, V = (each[int(at.client)].copy() for each in draws(at.seed))
        return Local(U, V, state.total, state.private, None, None, state.sent_round)


class GivenFedProx(FedProxNMF):
    """FedProx from given factors, likewise."""

    def init_server(self, meta: Any, at: Any) -> Any:
        """Send the mean of what clients begin with."""
        server, _ = super().init_server(meta, at)
        return server, Factor(sum(draws(at.seed)[1]) / CLIENTS)

    def init_client(self, shard: Any, meta: Any, at: Any) -> Any:
        """Begin with the given factors."""
        U, V = (each[int(at.client)].copy() for each in draws(at.seed))
        return FedProxLocal(U, V, super().init_client(shard, meta, at).total)


def sum_rmsd(run: fedfactor.Run) -> float:
    return sum(float(np.sqrt(score.sse / score.n)) for score in run.scores.values())


def data(seed: int) -> np.ndarray:
    return dense_blocks(ROWS, M, K, noise=0.05, seed=seed)[0]


def errors(method: Any, rounds: int, seeds: int) -> list[float]:
    parts = [deal_rows(data(seed), CLIENTS, seed) for seed in range(seeds)]
    return [sum_rmsd(fedfactor.run(method, owners, rounds=rounds, seed=s)) for s, owners in enumerate(parts)]


def as_printed(steps: int, rounds: int) -> dict[str, list[float]]:
    literal: dict[str, Any] = {"local_steps": steps, "pull_from": 0}
    averages = {"FedAvg": 0.0, "FedProx": 10.0}
    found: dict[str, Any] = {name: GivenFedProx(mu=mu, **literal, **AVERAGE) for name, mu in averages.items()}
    found |= {form: GivenFNMF(barycenter=form, row_norm="free", **literal, **BASE) for form in FORMS}
    found["k-NN"] = GivenFNMF(alignment="knn", row_norm="free", **literal, **BASE)
    return {name: errors(method, rounds, 2) for name, method in found.items()}


def as_shipped(steps: int, rounds: int) -> dict[str, list[float]]:
    found: dict[str, Any] = {form: FNMF(barycenter=form, local_steps=steps, **BASE) for form in FORMS}
    found["FedAvg"] = FedProxNMF(mu=0.0, local_steps=steps, **AVERAGE)
    found["FedProx"] = FedProxNMF(mu=10.0, local_steps=steps, **AVERAGE)
    return {name: errors(method, rounds, SEEDS) for name, method in found.items()}


def central() -> float:
    method = FNMF(local_steps=1000, gamma=0.0, **BASE)
    found = [sum_rmsd(fedfactor.run(method, {"all": data(seed)}, rounds=1, seed=seed)) for seed in range(SEEDS)]
    return CLIENTS * float(np.mean(found))


def table(measure: Any) -> tuple[dict[str, dict[str, list[float]]], dict[str, dict[str, float]]]:
    seeds, means = {}, {}
    for steps, rounds in SCHEDULE:
        at = f"{steps} x {rounds}"
        seeds[at] = measure(steps, rounds)
        means[at] = {name: float(np.mean(found)) for name, found in seeds[at].items()}
        print(at, {name: [round(e, 4) for e in found] for name, found in seeds[at].items()}, flush=True)
    return seeds, means


def claim() -> dict:
    level = central()
    printed_seeds, printed = table(as_printed)
    off = {f"{at}, {name}": printed[at][name] / e - 1 for at, row in REFERENCE.items() for name, e in row.items()}
    shipped_seeds, shipped = table(as_shipped)
    several = [shipped[f"{steps} x {rounds}"] for steps, rounds in SCHEDULE[:3]]
    stays = all(abs(row[form] / level - 1) < 0.05 for row in several for form in FORMS)
    agree = all(max(row[f] for f in FORMS) < 1.01 * min(row[f] for f in FORMS) for row in several)
    rises = all(several[2][name] > several[0][name] and several[2][name] > 3 * level for name in ("FedAvg", "FedProx"))
    return {
        "central": level,
        "as_printed": printed_seeds,
        "as_printed_off_the_reference": off,
        "as_shipped": shipped_seeds,
        "holds": bool(max(map(abs, off.values())) < 0.05 and stays and agree and rises),
    }
