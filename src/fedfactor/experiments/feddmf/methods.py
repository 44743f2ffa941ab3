"""Every method in one frame: run it, and measure F1 on own items and on items that only others hold."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from fedfactor.algorithms import FedDMF
from fedfactor.core.run import Run
from fedfactor.data.streams import stream
from fedfactor.engines.run import run
from fedfactor.experiments.feddmf.split import Split
from fedfactor.kernels.ratings.deep import probabilities

__all__ = ["METHODS", "SIMPLE", "VARIANTS", "best_f1", "f1", "measure", "settings_for", "train"]

PLAIN = {"average": False, "swap": 0.0, "refine": 0, "weight_decay": 0.0, "smooth": 0.0}
ALONE = {**PLAIN, "start": "own"}
COMMON = {**PLAIN, "start": "common"}
EQ4 = {**ALONE, "beta": 100.0}
FEDAVG = {**COMMON, "average": True, "share": "network"}
METHODS: dict[str, dict[str, Any]] = {
    "DMF, all data": {**ALONE, "pooled": True},
    "DMF, all but the test cells": {**ALONE, "pooled": True, "honest": True},
    "DMF, all but the test cells, smoothed": {"swap": 0.0, "pooled": True, "honest": True},
    "FedAvg": FEDAVG,
    "FedDMF": {},
    "FedDMF, eq. 4": EQ4,
    "FedDMF, eq. 4, N(0, 1) start": {**EQ4, "init_scale": 1.0},
    "no alignment": ALONE,
}
VARIANTS: dict[str, dict[str, Any]] = {
    "FedDMF, mean of four runs": {"runs": 4},
    "no alignment, decay, smoothed": {"start": "own", "swap": 0.0},
    "orthogonal map": {**ALONE, "rotate": True},
    "eq. 4, beta 1": {**ALONE, "beta": 1.0},
    "common start": COMMON,
    "common start, average": {**COMMON, "average": True},
    "common start, average, item tower": {**COMMON, "average": True, "share": "tower"},
    "own starts, swap": {**ALONE, "swap": 0.5},
    "common start, swap": {**COMMON, "swap": 0.5},
    "common start, swap, smoothed": {"weight_decay": 0.0},
    "common start, swap, average": {**COMMON, "swap": 0.5, "average": True},
    "FedDMF, last 3 passes at home": {"refine": 3},
}
SIMPLE = ("popularity × activity", "random")


def f1(truth: np.ndarray, guess: np.ndarray) -> float:
    """Return F1 of two matrices of zeros and ones.

    Examples
    --------
    >>> f1(np.array([1, 1, 0]), np.array([1, 0, 0]))
    0.6666666666666666
    """
    return 2 * float((truth * guess).sum()) / max(1.0, float(truth.sum() + guess.sum()))


def best_f1(truth: np.ndarray, score: np.ndarray) -> tuple[float, float]:
    """Return the best F1 over thresholds, and that threshold.

    Examples
    --------
    >>> best_f1(np.array([1, 0, 1]), np.array([0.9, 0.2, 0.4]))
    (1.0, 0.4)
    """
    order = np.argsort(-score, axis=None, kind="stable")
    hits = np.cumsum(truth.ravel()[order])
    found = 2 * hits / (np.arange(1, len(order) + 1) + truth.sum())
    return float(found.max()), float(score.ravel()[order[found.argmax()]])


def settings_for(method: Mapping[str, Any], passes: int, **changes: Any) -> dict[str, Any]:
    """Complete a method's settings so that all make as many passes over the data, those at home included.

    Examples
    --------
    >>> settings_for({"refine": 5}, 15)
    {'refine': 5, 'epochs': 10}
    """
    refine = method.get("refine", FedDMF().refine)
    return {**method, "epochs": passes - refine, **changes}


def train(part: Split, settings: Mapping[str, Any], *, seed: int) -> Run:
    """Run FedDMF on the clients, or on one owner of everything."""
    settings = {name: value for name, value in settings.items() if name != "runs"}
    pooled, honest = settings.pop("pooled", False), settings.pop("honest", False)
    federation = part.pooled(honest) if pooled else part.federation()
    return run(FedDMF(**settings), federation, seed=seed)


def measure(part: Split, method: str, settings: Mapping[str, Any], *, seed: int) -> dict[str, Any]:
    """Return F1 on own and on foreign items for each client, and what the run cost.

    ``foreign`` is F1 where the probability is above one half, ``tuned_foreign`` where it reaches the threshold that is
    best on the client's own items, ``best_foreign`` at the best threshold of all, which nobody can know.
    """
    if method in SIMPLE:
        return _simple(part, method, seed)
    began = time.perf_counter()
    runs = [train(part, settings, seed=seed + 1000 * i) for i in range(settings.get("runs", 1))]
    seconds = time.perf_counter() - began
    found: dict[str, Any] = {"own": {}, "foreign": {}, "tuned_foreign": {}, "best_foreign": {}}
    for name in part.rows:
        threshold = 0.5
        for word, columns in (("own", part.own[name]), ("foreign", part.foreign(name))):
            if len(columns):
                guess = np.mean([_guess(result, part, name, columns) for result in runs], axis=0)
                truth = part.truth(name, columns)
                found[word][name] = f1(truth, guess > 0.5)
                if word == "own":
                    threshold = best_f1(truth, guess)[1]
                else:
                    found["tuned_foreign"][name] = f1(truth, guess >= threshold)
                    found["best_foreign"][name] = best_f1(truth, guess)[0]
    traffic = {word: sum(getattr(result, word) for result in runs) for word in ("bytes_up", "bytes_down", "rounds")}
    return _means(found) | traffic | {"epochs": _epochs(runs[0]), "seconds": seconds}


def _guess(result: Run, part: Split, name: str, columns: np.ndarray) -> np.ndarray:
    kept = cast("Any", result.factors["all" if "all" in result.factors else name])
    U = kept.U[part.rows[name]] if "all" in result.factors else kept.U
    return probabilities(kept.network, U, np.ascontiguousarray(kept.V[:, columns].T))


def _epochs(result: Run) -> int:
    """Count the epochs up to the one that was kept, where validation chose it, and all of them elsewhere."""
    losses = [entry.metrics["validation_loss"] for entry in result.history if "validation_loss" in entry.metrics]
    made = result.rounds - 2 - bool(result.algorithm.refine)  # holdings and publishing are rounds without an epoch
    return int(np.argmin(losses[:made])) + 1 if losses else made


def _means(found: dict[str, Any]) -> dict[str, Any]:
    means = {f"f1_{word}": float(np.mean(list(each.values()))) if each else None for word, each in found.items()}
    return {**found, **means}


def _simple(part: Split, method: str, seed: int) -> dict[str, Any]:
    """Score cells by what a user does on average times how popular the item is with its owners; or toss a coin.

    The threshold of the product is the best one on the client's own items.
    """
    rng = stream("feddmf coin", seed)
    found: dict[str, Any] = {"own": {}, "foreign": {}, "tuned_foreign": {}, "best_foreign": {}}
    for name in part.rows:
        held = np.concatenate([part.common, part.own[name]])
        activity = part.truth(name, held).mean(axis=1)
        threshold = 0.5
        for word, columns in (("own", part.own[name]), ("foreign", part.foreign(name))):
            if not len(columns):
                continue
            truth = part.truth(name, columns)
            if method == "random":
                score = rng.random(truth.shape)
            else:
                score = np.outer(activity, _popularity(part, name, columns, word))
                threshold = best_f1(truth, score)[1] if word == "own" else threshold
            found[word][name] = f1(truth, score >= threshold)
            if word == "foreign":
                found["tuned_foreign"][name] = found[word][name]
                found["best_foreign"][name] = best_f1(truth, score)[0]
    return _means(found) | {"bytes_up": 0, "bytes_down": 0, "rounds": 0, "epochs": 0, "seconds": 0.0}


def _popularity(part: Split, name: str, columns: np.ndarray, word: str) -> np.ndarray:
    """Share of users who touched an item, at those who hold it: the client itself, or the owners of foreign items."""
    if word == "own":
        return part.truth(name, columns).mean(axis=0)
    found = np.zeros(part.X.shape[1])
    for other, own in part.own.items():
        if other != name:
            found[own] = part.truth(other, own).mean(axis=0)
    return found[columns]
