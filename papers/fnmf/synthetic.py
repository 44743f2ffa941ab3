"""Questions that planted data can answer: drift, convergence, clients, noise, private components. (Figs. 2 and 3)"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from fedfactor.algorithms import FNMF, FedProxNMF, OneShotNMF, PooledNMF
from fedfactor.core.algorithm import Algorithm
from fedfactor.datasets.dense_blocks import deal_rows, dense_blocks, shared_and_private
from fedfactor.engines.run import run
from fedfactor.evaluation.metrics.coherence import cosine_similarity, match_components
from fedfactor.nmf.local_nmf import alternate
from papers.fnmf.cells import Store, figures_of, mean_rows, measure

__all__ = ["clients", "convergence", "drift", "find_planted", "letter", "noise", "personal", "rivals", "trace"]

Row = dict[str, Any]
ERRORS = ("sum_rmsd", "mean_rmsd", "relative_error", "worst", "seconds")


def rivals(k: int, steps: int, *, few: bool = False) -> dict[str, Algorithm]:
    """Name the methods of the paper, all with iPALM clients, equal weights and starts of their own."""
    base: dict[str, Any] = {"n_components": k, "local_steps": steps, "local_solver": "gradient", "tol": 0.0}
    plain: dict[str, Any] = {**base, "start": "own", "weights": "equal"}
    methods: dict[str, Algorithm] = {
        "FedAvg": FedProxNMF(mu=0.0, **plain),
        "FedProx mu=10": FedProxNMF(mu=10.0, **plain),
        "FNMF-LAP": FNMF(**base),
        "FNMF-SK": FNMF(alignment="sinkhorn", **base),
        "FNMF-SK_rho": FNMF(alignment="sinkhorn_rho", **base),
    }
    if few:
        return methods
    return methods | {
        "FNMF-LAP progressive": FNMF(barycenter="progressive", **base),
        "FNMF-LAP hierarchical": FNMF(barycenter="hierarchical", **base),
        "FNMF-LAP client-aligned": FNMF(barycenter="client", **base),
        "FNMF-LAP free scale": FNMF(row_norm="free", **base),
        "FNMF-LAP gamma=0": FNMF(gamma=0.0, **base),
        "FNMF-LAP gamma=1": FNMF(gamma=1.0, **base),
        "FNMF-LAP_rho": FNMF(alignment="lap_rho", **base),
        "FNMF-kNN": FNMF(alignment="knn", **base),
    }


def drift(store: Store, full: bool, seeds: int) -> list[Row]:
    """More local steps, fewer exchanges: who deteriorates? (Fig. 3, right)"""
    rows, size = [], (2000, 200, 10, 20) if full else (600, 80, 6, 10)
    for steps, rounds in ((10, 60), (100, 10), (500, 4), (1000, 1)):
        methods = rivals(size[2], steps)
        for seed in range(seeds):
            X, _, _ = dense_blocks(*size[:3], noise=0.05, seed=seed)
            parts = deal_rows(X, size[3], seed)
            central: Algorithm = FNMF(size[2], local_solver="gradient", local_steps=1000, gamma=0.0, tol=0.0)
            for name, method, n in [("central", central, 1), *((n, a, rounds) for n, a in methods.items())]:
                owners = {"all": X} if name == "central" else parts
                key = {"study": "drift", "local_steps": steps, "rounds": rounds, "method": name, "seed": seed}
                rows.append(store.get(key, (method, size), _spread, method, owners, n, seed, len(parts)))
    return mean_rows(rows, ("local_steps", "rounds", "method"), ("sum_rmsd", "relative_error", "worst", "seconds"))


def _spread(method: Algorithm, owners: Mapping[str, Any], rounds: int, seed: int, clients: int) -> Row:
    """Measure; the RMSD of pooled rows counts once for each of the clients, to compare with a sum over clients."""
    row = measure(method, owners, rounds=rounds, seed=seed)
    return row | {"sum_rmsd": row["mean_rmsd"] * clients}


def trace(store: Store, full: bool, seeds: int) -> list[Row]:
    """Error, drift and similarity in every round at 100 local steps, for the figure. (Fig. 3, left)"""
    rows, rounds = [], 30 if full else 10
    for name in ("FedAvg", "FedProx mu=10", "FNMF-LAP", "FNMF-SK"):
        X, _, _ = dense_blocks(600, 80, 6, noise=0.05, seed=0)
        method = rivals(6, 100, few=True)[name]
        watched = replace(method, diagnostics=True)  # type: ignore[type-var]
        rows.append(
            store.get(
                {"study": "trace", "method": name}, (watched, rounds), _history, watched, deal_rows(X, 10), rounds
            )
        )
    return [{"method": row["method"], **record} for row in rows for record in row["history"]]


def _history(method: Algorithm, owners: Mapping[str, np.ndarray], rounds: int) -> Row:
    result = run(method, owners, rounds=rounds, seed=0)
    return {"history": [{"round": record.index + 1, **record.metrics} for record in result.history]}


def convergence(store: Store, full: bool, seeds: int) -> list[Row]:
    """Does the objective settle, for every pull and with clients away? (Theorem 2)

    ``last_change``: relative change of the error over the last five rounds. ``rises``: rounds in which the error rose
    by more than a thousandth. With clients away the error of a round is that of those who came, so it moves with them.
    """
    rows, rounds = [], 100 if full else 40
    for gamma in (0.0, 0.01, 0.1, 1.0):
        for share in (1.0, 0.5, 0.2):
            method = FNMF(6, gamma=gamma, local_solver="gradient", local_steps=20, tol=0.0)
            for seed in range(seeds):
                X, _, _ = dense_blocks(600, 80, 6, noise=0.05, seed=seed)
                key = {"study": "convergence", "gamma": gamma, "participation": share, "seed": seed}
                parts = deal_rows(X, 10, seed)
                rows.append(store.get(key, (method, rounds), _settles, method, parts, rounds, seed, share))
    return mean_rows(rows, ("gamma", "participation"), ("final_error", "last_change", "rises", "converged_at"))


def _settles(method: Algorithm, owners: Mapping[str, np.ndarray], rounds: int, seed: int, share: float) -> Row:
    result = run(method, owners, rounds=rounds, seed=seed, participation=share)
    errors = np.array([record.metrics["relative_error"] for record in result.history])
    steps = np.diff(errors) / errors[:-1]
    near = np.flatnonzero(errors > 1.01 * errors[-5:].mean())
    return {
        "final_error": result.relative_error,
        "last_change": float(abs(errors[-1] - errors[-6]) / errors[-1]),
        "rises": int((steps[2:] > 1e-3).sum()),
        "converged_at": int(near[-1] + 2) if near.size else 1,
    }


def letter(store: Store, full: bool, seeds: int) -> list[Row]:
    """One client with the printed step lengths, and with those of its own blocks: the largest cell (Algorithm 2)."""
    rows = []
    for seed in range(seeds):
        X, _, _ = dense_blocks(600, 80, 6, noise=0.05, seed=seed)
        for solver, steps in product(("printed", "gradient"), (1, 2, 3, 5, 10, 100)):
            key = {"study": "letter", "method": solver, "local_steps": steps, "seed": seed}
            rows.append(store.get(key, None, _largest, X, solver, steps, seed))
    return mean_rows(rows, ("method", "local_steps"), ("largest_cell", "relative_error"))


def _largest(X: np.ndarray, solver: Any, steps: int, seed: int) -> Row:
    rng = np.random.default_rng([9, seed])
    with np.errstate(all="ignore"):
        try:
            U, V, _ = alternate(X, rng.random((len(X), 6)), rng.random((6, X.shape[1])), steps=steps, solver=solver)
        except np.linalg.LinAlgError:  # cells have left the range of numbers, and a Gram matrix has no norm
            return {"largest_cell": math.inf, "relative_error": math.inf}
        error = float(np.linalg.norm(X - U @ V) / np.linalg.norm(X))
        return {"largest_cell": float(max(U.max(), V.max())), "relative_error": error}


def clients(store: Store, full: bool, seeds: int) -> list[Row]:
    """More clients with the same rows (shortage), or with rows of their own (surplus). (Fig. 2)"""
    rows, counts = [], (5, 10, 20, 50, 100) if full else (5, 20, 50)
    for supply in ("shortage", "surplus"):
        for count in counts:
            n = 500 if supply == "shortage" else 50 * count
            for seed in range(seeds):
                X, _, _ = dense_blocks(n, 80, 6, noise=0.05, seed=seed)
                methods = rivals(6, 50, few=True) | {
                    "iPALM once": OneShotNMF(6, combine="mean", local_solver="gradient"),
                    "MUR once": OneShotNMF(6, combine="mean", local_solver="multiplicative"),
                    "PooledNMF": PooledNMF(6),
                }
                for name, method in methods.items():
                    key = {"study": "clients", "supply": supply, "clients": count, "method": name, "seed": seed}
                    limit = 1 if name.endswith("once") else 100 if name == "PooledNMF" else 20
                    parts = deal_rows(X, count, seed)
                    rows.append(store.get(key, (method, n), measure, method, parts, rounds=limit, seed=seed))
    return mean_rows(rows, ("supply", "clients", "method"), ERRORS)


def noise(store: Store, full: bool, seeds: int) -> list[Row]:
    """How robust are clients against noise of three kinds?"""
    rows, levels = [], (0.0, 0.05, 0.1, 0.2, 0.4) if full else (0.05, 0.2)
    for kind in ("gauss", "exponential", "binomial"):
        for level in levels:
            for seed in range(seeds):
                X, _, _ = dense_blocks(600, 80, 6, noise=level, kind=kind, seed=seed)
                for name, method in (rivals(6, 50, few=True) | {"PooledNMF": PooledNMF(6)}).items():
                    key = {"study": "noise", "kind": kind, "level": level, "method": name, "seed": seed}
                    parts = deal_rows(X, 10, seed)
                    rows.append(store.get(key, method, measure, method, parts, rounds=20, seed=seed))
    return mean_rows(rows, ("kind", "level", "method"), ERRORS)


def personal(store: Store, full: bool, seeds: int) -> list[Row]:
    """Components that only one client has: who finds them, and what do they cost the others? (Fig. 2, SK_rho)"""
    rows = []
    for private in (0, 1, 2, 3):
        k = 4 + private
        for seed in range(seeds):
            X, V, own = shared_and_private(10, 100, 200 if full else 100, private=private, seed=seed)
            for name, method in personal_methods(k).items():
                key = {"study": "personal", "private": private, "method": name, "seed": seed}
                rows.append(store.get(key, (method, full), find_planted, method, X, V, own, seed))
    figures = ("shared_cosine", "private_cosine", "private_found", "relative_error", "worst")
    return mean_rows(rows, ("private", "method"), figures)


def personal_methods(k: int) -> dict[str, Algorithm]:
    """Name the methods that are asked for private components."""
    return {
        "FedAvg": FedProxNMF(k, mu=0.0),
        "FNMF-LAP": FNMF(k, local_solver="hals"),
        "FNMF-SK": FNMF(k, local_solver="hals", alignment="sinkhorn"),
        "FNMF-LAP_rho": FNMF(k, local_solver="hals", alignment="lap_rho"),
        "FNMF-SK_rho": FNMF(k, local_solver="hals", alignment="sinkhorn_rho"),
        "FNMF-LAP_rho client-aligned": FNMF(k, local_solver="hals", alignment="lap_rho", barycenter="client"),
    }


def find_planted(
    method: Algorithm, X: dict[str, np.ndarray], V: np.ndarray, own: dict[str, np.ndarray], seed: int
) -> Row:
    """Match every planted component with all that its client was given, shared and private."""
    result = run(method, X, rounds=30, seed=seed)
    shared, private = [], []
    for name, kept in result.factors.items():
        has = kept.V if kept.V_private is None else np.vstack([kept.V, kept.V_private])
        planted = np.vstack([V, own[name]])
        of_planted, of_has = match_components(planted, has)
        cosines = np.zeros(len(planted))
        cosines[of_planted] = cosine_similarity(planted, has)[of_planted, of_has]
        shared.extend(cosines[: len(V)])
        private.extend(cosines[len(V) :])
    return figures_of(result) | {
        "shared_cosine": float(np.min(shared)),
        "private_cosine": float(np.min(private)) if private else 1.0,
        "private_found": float(np.mean(np.array(private) > 0.9)) if private else 1.0,
    }
