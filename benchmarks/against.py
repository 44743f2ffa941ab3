"""Time to reach the error that scikit-learn's NMF reaches, on one owner through the public path."""

from __future__ import annotations

import statistics
import warnings
from typing import Any

import numpy as np
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning

import fedfactor
from benchmarks.datasets import RANK
from benchmarks.measure import explicit_error, seconds
from fedfactor.algorithms import PooledNMF

MOST_ROUNDS = 1000


def run_sklearn(X: Any, tol: float) -> tuple[float, np.ndarray, np.ndarray, int]:
    """Fit scikit-learn's NMF (coordinate descent, random start, at most 200 passes); return time, U, V and passes."""
    model = NMF(RANK, solver="cd", init="random", random_state=0, max_iter=200, tol=tol)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        took, U = seconds(lambda: model.fit_transform(X))
    return took, U, model.components_, model.n_iter_


def run_ours(X: Any, target: float, seed: int) -> tuple[float, fedfactor.core.run.Run]:
    """Run PooledNMF on one owner until its own account of the error is at the target; return time and run."""

    def enough(record: Any) -> bool:
        return record.metrics["relative_error"] <= target

    algorithm = PooledNMF(RANK, tol=0)
    return seconds(
        lambda: fedfactor.run(algorithm, {"all": X}, rounds=MOST_ROUNDS, seed=seed, callbacks=[enough])
    )


def compare(X: Any, repeats: int = 3, seeds: tuple[int, ...] = (0, 1, 2)) -> dict[str, Any]:
    """Alternate both programs, one seed after the other; medians over repeats, then over seeds."""
    _, U, V, _ = run_sklearn(X, tol=0)
    target = explicit_error(X, U, V)
    theirs: list[float] = []
    ours: dict[int, list[float]] = {seed: [] for seed in seeds}
    runs: dict[int, Any] = {}
    for _ in range(repeats):
        theirs.append(run_sklearn(X, tol=0)[0])
        for seed in seeds:
            took, runs[seed] = run_ours(X, target, seed)
            ours[seed].append(took)
    stops = run_sklearn(X, tol=1e-4)
    stop_error = explicit_error(X, stops[1], stops[2])
    by_seed = {seed: statistics.median(times) for seed, times in ours.items()}
    errors = {seed: explicit_error(X, run.factors["all"].U, run.V) for seed, run in runs.items()}
    return {
        "target": target,
        "sklearn_seconds": statistics.median(theirs),
        "sklearn_times": theirs,
        "sklearn_default_tol": {"seconds": stops[0], "passes": int(stops[3]), "error": stop_error},
        "seconds": statistics.median(by_seed.values()),
        "seconds_by_seed": by_seed,
        "rounds_by_seed": {seed: run.rounds for seed, run in runs.items()},
        "seconds_in_rounds_by_seed": {seed: run.seconds for seed, run in runs.items()},
        "stop_error_by_seed": {seed: run.history[-1].metrics["relative_error"] for seed, run in runs.items()},
        "error_by_seed": errors,
        "reached": all(error <= target for error in errors.values()),
        "ratio": statistics.median(theirs) / statistics.median(by_seed.values()),
    }
