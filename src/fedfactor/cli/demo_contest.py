"""The demo's contest: one matrix, ten owners, several ways to factor it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedfactor.core.pytree import is_mapping
from fedfactor.core.run import Run
from fedfactor.core.threads import limit_threads
from fedfactor.evaluation.metrics.reconstruction import per_client_errors, pooled_error, relative_error, worst_client
from fedfactor.linalg.factors import refit_rows

Owners = Mapping[str, np.ndarray]

SHAPE = (8, 8)
"""Height and width of a digit in pixels."""

STARTS = 5
"""Starts of scikit-learn, whose nndsvda rests on a randomised SVD; the best one counts."""

POOLED = "scikit-learn, all rows in one place"
SHARED = "PooledNMF"
AVERAGED = "FedAvgNMF, 10 local steps"
AVERAGED_OFTEN = "FedAvgNMF, 1 local step"


@dataclass(frozen=True, slots=True)
class Entry:
    """One way to factor the matrix, and what came of it."""

    label: str
    error: float
    worst: float
    worst_name: str = ""
    rounds: int | None = None
    sent_by_one: float = 0.0
    sent_in_all: float = 0.0
    seconds: float = 0.0
    V: np.ndarray | None = None
    errors: Mapping[str, float] = field(default_factory=dict[str, float])
    run: Run | None = None


def digits() -> dict[str, np.ndarray]:
    """Read the digits that come with scikit-learn: ten owners, one kind of digit each, 64 pixels a row."""
    from sklearn.datasets import load_digits

    X, kind = load_digits(return_X_y=True)
    return {str(digit): X[kind == digit] for digit in range(10)}


def pooled(owners: Owners, rank: int) -> Entry:
    """Give all rows to scikit-learn: what no owner would allow, and the figure to reach."""
    X = np.concatenate(list(owners.values()))
    seconds, U, V = min(
        (_sklearn_nmf(X, rank, start) for start in range(STARTS)), key=lambda found: relative_error(X, *found[1:])
    )
    ends = np.cumsum([len(rows) for rows in owners.values()])[:-1]
    parts = dict(zip(owners, np.split(U, ends), strict=True))
    return _entry(POOLED, owners, parts, V, sent_by_one=X.nbytes / len(owners), sent_in_all=X.nbytes, seconds=seconds)


def alone(owners: Owners, rank: int) -> list[Entry]:
    """Let every owner factor its own rows, and then lend its V to all others."""
    own = {name: _sklearn_nmf(rows, rank, 0) for name, rows in owners.items()}
    seconds = max(found[0] for found in own.values())  # they work at the same time
    U = {name: found[1] for name, found in own.items()}
    V = {name: found[2] for name, found in own.items()}
    lent = [
        _entry(name, owners, {other: refit_rows(None, X, V[name]) for other, X in owners.items()}, V[name])
        for name in V
    ]
    worst = max(lent, key=lambda entry: entry.error)
    traffic = next(iter(V.values())).nbytes
    once: dict[str, Any] = {"sent_by_one": traffic, "sent_in_all": traffic * len(owners), "seconds": seconds}
    mean_error, mean_worst = (float(np.mean([getattr(entry, key) for entry in lent])) for key in ("error", "worst"))
    return [
        _entry("each owner alone, ten V of its own", owners, U, V, seconds=seconds),
        Entry("one owner's V for all, mean of ten", mean_error, mean_worst, **once),
        Entry(f"one owner's V for all, worst ({worst.label})", worst.error, worst.worst, worst.worst_name, **once),
    ]


def federated(label: str, owners: Owners, algorithm: Any, **options: Any) -> Entry:
    """Run a federated algorithm."""
    from fedfactor.engines.run import run

    result = run(algorithm, owners, split="rows", **options)
    name, worst = result.worst_client
    return Entry(
        label=label,
        error=result.relative_error,
        worst=worst,
        worst_name=name,
        rounds=result.rounds,
        sent_by_one=result.bytes_up / len(owners),
        sent_in_all=result.bytes_up + result.bytes_down,
        seconds=result.seconds,
        V=np.asarray(result.V),
        errors={name: score.relative_error for name, score in result.scores.items()},
        run=result,
    )


def contest(owners: Owners, *, rank: int, rounds: int, seed: int, watch: Callable[[str], Any]) -> list[Entry]:
    """Try all ways, in the order of the table."""
    from fedfactor.algorithms import FedAvgNMF, PooledNMF
    from fedfactor.engines.run import run

    methods = {
        AVERAGED: FedAvgNMF(rank, local_steps=10),
        AVERAGED_OFTEN: FedAvgNMF(rank, local_steps=1),
        SHARED: PooledNMF(rank),
    }
    entries = [pooled(owners, rank)]
    entries += alone(owners, rank)
    for algorithm in methods.values():
        run(algorithm, owners, rounds=1, seed=seed)  # compiles the loops, which is not part of the time shown
    for label, algorithm in methods.items():
        entries.append(federated(label, owners, algorithm, rounds=rounds, seed=seed, callbacks=watch(label)))
    return entries


def find(entries: list[Entry], label: str) -> Entry:
    """Pick an entry by its label."""
    return next(entry for entry in entries if entry.label == label)


def _sklearn_nmf(X: np.ndarray, rank: int, start: int) -> tuple[float, np.ndarray, np.ndarray]:
    from sklearn.decomposition import NMF
    from sklearn.exceptions import ConvergenceWarning

    model = NMF(rank, init="nndsvda", max_iter=500, random_state=start)
    # One thread: products this small are many times slower on several.
    with warnings.catch_warnings(), limit_threads(1):
        warnings.simplefilter("ignore", ConvergenceWarning)  # 500 iterations are what the page says
        began = time.perf_counter()
        U = model.fit_transform(X)
    return time.perf_counter() - began, U, model.components_


def _entry(label: str, owners: Owners, U: Mapping[str, Any], V: Any, **rest: Any) -> Entry:
    errors = per_client_errors(owners, U, V)
    name, worst = worst_client(errors)
    shared = None if is_mapping(V) else V
    return Entry(label, pooled_error(owners, U, V), worst, name, V=shared, errors=errors, **rest)
