"""How precisely do alignments estimate barycenters? (Fig. 1)"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, cast

import numpy as np

from fedfactor.linalg.alignment.assignment import Method, plan, squared_distances
from fedfactor.linalg.alignment.barycenter import (
    barycenter,
    matching_loss,
    mean_start_barycenter,
    orthogonality_gap,
)
from fedfactor.linalg.alignment.kmeans import fuzzy_means, k_means
from papers.fnmf.cells import Store, mean_rows

__all__ = ["METHODS", "sample", "study"]

Row = dict[str, Any]
NOISE = (0.0, 0.1, 0.5)


def sample(k: int, m: int, clients: int, noise: float, seed: int) -> tuple[np.ndarray, list[np.ndarray]]:
    """Draw a factor, and permuted noisy copies of it."""
    rng = np.random.default_rng([3, seed])
    truth = rng.random((k, m)) * (rng.random((k, m)) < 0.3)
    copies = [np.maximum(truth[rng.permutation(k)] + noise * rng.normal(size=(k, m)), 0) for _ in range(clients)]
    return truth, copies


def _aligned(how: str, alignment: Any, start: str = "first", **options: Any) -> Callable[..., Any]:
    def find(Vs: list[np.ndarray], rng: np.random.Generator) -> tuple[np.ndarray, list[np.ndarray]]:
        first = sum(Vs) / len(Vs) if start == "mean" else None
        return barycenter(Vs, how, alignment, start=first, **options)[:2]

    return find


def _algorithm_1(alignment: Any, **options: Any) -> Callable[..., Any]:
    return lambda Vs, rng: mean_start_barycenter(Vs, alignment, **options)


def _tree_then_sweeps(Vs: list[np.ndarray], rng: np.random.Generator) -> tuple[np.ndarray, list[np.ndarray]]:
    return barycenter(Vs, start=barycenter(Vs, "hierarchical")[0], iterations=10)[:2]


def _clusters(find: Callable[..., np.ndarray]) -> Callable[..., Any]:
    def run(Vs: list[np.ndarray], rng: np.random.Generator) -> tuple[np.ndarray, list[np.ndarray]]:
        V = find(np.vstack(Vs), len(Vs[0]), rng)
        # A clustering sends each row of a client to its nearest centre; several rows may meet there.
        return V, [_to_nearest(V, one) for one in Vs]

    return run


def _to_nearest(V: np.ndarray, one: np.ndarray) -> np.ndarray:
    P = np.zeros((len(V), len(one)))
    P[squared_distances(V, one).argmin(axis=1), np.arange(len(one))] = 1
    return P


def _mean(Vs: list[np.ndarray], rng: np.random.Generator) -> tuple[np.ndarray, list[np.ndarray]]:
    return cast("np.ndarray", sum(Vs) / len(Vs)), [np.eye(len(Vs[0]))] * len(Vs)


PLAIN: dict[str, Any] = {"correction": "none"}

METHODS: dict[str, tuple[Method | None, Callable[..., Any], dict[str, Any]]] = {
    "LAP fixed point": ("lap", _aligned("fixed_point", "lap"), {}),
    "LAP fixed point, mean start": ("lap", _aligned("fixed_point", "lap", "mean"), {}),
    "LAP progressive": ("lap", _aligned("progressive", "lap"), {}),
    "LAP hierarchical": ("lap", _aligned("hierarchical", "lap"), {}),
    "LAP hierarchical + sweeps": ("lap", _tree_then_sweeps, {}),
    "LAP_rho": ("lap_rho", _aligned("fixed_point", "lap_rho"), {}),
    "SK": ("sinkhorn", _aligned("fixed_point", "sinkhorn"), {}),
    "SK_rho": ("sinkhorn_rho", _aligned("fixed_point", "sinkhorn_rho"), {}),
    "LAP, Algorithm 1": ("lap", _algorithm_1("lap"), {}),
    "SK, Algorithm 1": ("sinkhorn", _algorithm_1("sinkhorn"), {}),
    "D3 without column sums, Algorithm 1": ("simplex", _algorithm_1("simplex"), {}),
    "LAP_rho, plain z-test": ("lap_rho", _aligned("fixed_point", "lap_rho", **PLAIN), PLAIN),
    "SK_rho, plain z-test": ("sinkhorn_rho", _aligned("fixed_point", "sinkhorn_rho", **PLAIN), PLAIN),
    "1-NN": ("knn", _aligned("fixed_point", "knn"), {}),
    "3-NN": ("knn", _aligned("fixed_point", "knn", neighbours=3), {"neighbours": 3}),
    "k-means": (None, _clusters(k_means), {}),
    "fuzzy c-means": (None, _clusters(fuzzy_means), {}),
    "mean": (None, _mean, {}),
}
"""Name → (alignment of its own loss, how it is found, options of that alignment)."""


def score(name: str, truth: np.ndarray, Vs: list[np.ndarray], seed: int) -> Row:
    """Find one barycenter; score it by its own matching loss, by that of LAP, and by its distance from the truth."""
    alignment, find, options = METHODS[name]
    began = time.perf_counter()
    V, plans = find(Vs, np.random.default_rng([4, seed]))
    seconds = time.perf_counter() - began
    lap = matching_loss(V, Vs)
    own = lap if alignment is None else matching_loss(V, Vs, alignment, **options)
    return {
        "own_loss": own,
        "lap_loss": lap,
        "distance_to_truth": float(np.linalg.norm(plan(V, truth) @ V - truth)),
        "orthogonality_gap": orthogonality_gap(plans),
        "milliseconds": 1e3 * seconds,
    }


def study(store: Store, full: bool, seeds: int) -> list[Row]:
    """Compare all barycenters over noise, rank and clients; one row for each setting, means over seeds."""
    sizes = [(10, 20), (30, 20)] + ([(30, 5), (30, 50), (30, 100), (100, 20)] if full else [])
    rows = []
    for noise in NOISE:
        for k, clients in sizes:
            for seed in range(seeds):
                truth, Vs = sample(k, 60, clients, noise, seed)
                for name in METHODS:
                    key = {
                        "study": "barycenter",
                        "noise": noise,
                        "k": k,
                        "clients": clients,
                        "method": name,
                        "seed": seed,
                    }
                    rows.append(store.get(key, None, score, name, truth, Vs, seed))
    figures = ("own_loss", "lap_loss", "distance_to_truth", "orthogonality_gap", "milliseconds")
    return mean_rows(rows, ("noise", "k", "clients", "method"), figures)
