"""Time to reach the error that scikit-learn's NMF reaches, on one owner through the public path."""

from __future__ import annotations

import math
import statistics
import warnings
from typing import Any

import numpy as np
from sklearn.decomposition import NMF, MiniBatchNMF
from sklearn.exceptions import ConvergenceWarning

import fedfactor
from benchmarks.datasets import RANK
from benchmarks.measure import explicit_error, seconds
from fedfactor.algorithms import PooledNMF
from fedfactor.core.run import Run

MOST_ROUNDS = 300
"""A run that has not reached the target by then counts as not reaching it: its time is infinite."""


def run_sklearn(X: Any, tol: float, state: int) -> tuple[float, np.ndarray, np.ndarray, int]:
    """Fit scikit-learn's NMF (coordinate descent, random start, at most 200 passes); return time, U, V and passes."""
    model = NMF(RANK, solver="cd", init="random", random_state=state, max_iter=200, tol=tol)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        took, U = seconds(lambda: model.fit_transform(X))
    return took, U, model.components_, model.n_iter_


def run_mini_batch(X: Any, state: int) -> tuple[float, np.ndarray, np.ndarray]:
    """Fit scikit-learn's mini-batch NMF with its defaults; return time, U and V."""
    model = MiniBatchNMF(RANK, init="random", random_state=state)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        took, U = seconds(lambda: model.fit_transform(X))
    return took, U, model.components_


def run_ours(X: Any, stop: float, seed: int) -> tuple[float, Run]:
    """Run PooledNMF on one owner until its own account of the error is at `stop`; return time and run."""

    def enough(record: Any) -> bool:
        return record.metrics.get("relative_error", float("inf")) <= stop

    algorithm = PooledNMF(RANK, tol=0)
    return seconds(lambda: fedfactor.run(algorithm, {"all": X}, rounds=MOST_ROUNDS, seed=seed, callbacks=[enough]))


def find_stop(X: Any, target: float, seed: int) -> tuple[float, dict[str, Any]]:
    """Find, untimed, where to stop so that the residual itself, in double precision, is at the target.

    The run's own account comes from sums in single precision: when it promised too much, stop lower by that much.
    """
    stop = target
    for _ in range(3):
        _, run = run_ours(X, stop, seed)
        account, error = run.history[-1].metrics["relative_error"], explicit_error(X, run.factors["all"].U, run.V)
        if error <= target or run.status != "stopped":
            break
        stop -= 1.1 * (error - target)
    return stop, {
        "rounds": run.rounds, "seconds_in_rounds": run.seconds, "account": account, "error": error,
        "reached": error <= target and run.status == "stopped",
    }  # fmt: skip


def compare(X: Any, repeats: int = 3, seeds: tuple[int, ...] = (0, 1, 2)) -> dict[str, Any]:
    """Alternate both programs from the same number of random starts; medians over repeats, then over starts.

    The target is the median of the errors that scikit-learn ends at: a single start of either program is luck.
    """
    ends = {state: explicit_error(X, *run_sklearn(X, 0, state)[1:3]) for state in seeds}
    target = statistics.median(ends.values())
    stops: dict[int, float] = {}
    ours: dict[int, dict[str, Any]] = {}
    for seed in seeds:
        stops[seed], ours[seed] = find_stop(X, target, seed)
        ours[seed] |= {"times": [], "stop": stops[seed]}
    theirs: list[float] = []
    for repeat in range(repeats):
        theirs.append(run_sklearn(X, 0, seeds[repeat % len(seeds)])[0])
        for seed in seeds:
            if ours[seed]["reached"]:
                ours[seed]["times"].append(run_ours(X, stops[seed], seed)[0])
    took, U, V, passes = run_sklearn(X, 1e-4, seeds[0])
    mini_took, mini_U, mini_V = run_mini_batch(X, seeds[0])
    mine = statistics.median(statistics.median(one["times"] or [math.inf]) for one in ours.values())
    return {
        "target": target,
        "sklearn_errors": ends,
        "sklearn_seconds": statistics.median(theirs),
        "sklearn_times": theirs,
        "sklearn_default_tol": {"seconds": took, "passes": int(passes), "error": explicit_error(X, U, V)},
        "mini_batch": {"seconds": mini_took, "error": explicit_error(X, mini_U, mini_V)},
        "seconds": mine if math.isfinite(mine) else None,
        "by_seed": ours,
        "ratio": statistics.median(theirs) / mine,
    }
