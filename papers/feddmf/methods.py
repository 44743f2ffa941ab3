"""Every method in one frame: run it, and measure F1 on own items and on items that only others hold."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from fedfactor.algorithms import FedDMF
from fedfactor.core.random_streams import stream
from fedfactor.core.run import Run
from fedfactor.engines.run import run
from fedfactor.recommend.feddmf.network import probabilities
from papers.feddmf.split import Split

__all__ = ["METHODS", "SIMPLE", "VARIANTS", "best_f1", "f1", "measure", "other_scores", "settings_for", "train"]

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
    "FedDMF, eq. 4, common start": {**COMMON, "beta": 100.0},
    "FedDMF, eq. 4, common start, margin 0": {**COMMON, "beta": 100.0, "margin": 0.0},
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
SIMPLE = ("popularity × activity", "random", "all zeros")
CLASSES = {"at most 1": (0, 1), "2 to 4": (2, 4), "5 to 9": (5, 9), "10 or more": (10, 10**9)}
"""Foreign items by how many of their owner's users touched them."""


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


def other_scores(truth: np.ndarray, guess: np.ndarray) -> dict[str, float]:
    """Return accuracy (which is F1 counted over ones and zeros together) and the mean of F1 of ones and F1 of zeros.

    Examples
    --------
    >>> other_scores(np.array([1, 0, 0, 0]), np.zeros(4))
    {'accuracy': 0.75, 'macro': 0.42857142857142855}
    """
    guess = np.asarray(guess, float)
    return {"accuracy": float((truth == guess).mean()), "macro": (f1(truth, guess) + f1(1 - truth, 1 - guess)) / 2}


def in_lists(score: np.ndarray, length: int) -> np.ndarray:
    """Mark every user's best items, as many for each user.

    Examples
    --------
    >>> in_lists(np.array([[0.1, 0.9, 0.5], [0.3, 0.2, 0.1]]), 1)
    array([[0., 1., 0.],
           [1., 0., 0.]])
    """
    marked = np.zeros(score.shape)
    best = np.argsort(-score, axis=1, kind="stable")[:, :length]
    np.put_along_axis(marked, best, 1.0, axis=1)
    return marked


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
    """Return how well own and foreign items are told for each client, and what the run cost.

    ``foreign`` is F1 where the probability is above one half, ``tuned_foreign`` where it reaches the threshold that is
    best on the client's own items, ``best_foreign`` at the best threshold of all, which nobody can know. ``accuracy``
    and ``macro`` (mean F1 of ones and of zeros) come at both thresholds; ``lists`` is F1 when every user is given
    the same number of foreign items: the share of them that the client's users have of its own items, on average.
    ``by_count`` splits F1 at the threshold of own items by how many of the owner's users touched the item; ``marked``
    are the cells said to be ones, over all that are.
    """
    if method in SIMPLE:
        return _simple(part, method, seed)
    began = time.perf_counter()
    runs = [train(part, settings, seed=seed + 1000 * i) for i in range(settings.get("runs", 1))]
    seconds = time.perf_counter() - began

    def guess(name: str, columns: np.ndarray, word: str) -> np.ndarray:
        return np.mean([_guess(result, part, name, columns) for result in runs], axis=0)

    traffic = {word: sum(getattr(result, word) for result in runs) for word in ("bytes_up", "bytes_down", "rounds")}
    return _scored(part, guess) | traffic | {"epochs": _epochs(runs[0]), "seconds": seconds}


def _scored(part: Split, guess: Callable[..., np.ndarray], rules: Sequence[str] = ("half", "own")) -> dict[str, Any]:
    """Judge scores of cells at one half and at the threshold of own items, or twice at one of them.

    What is no probability has no one half; and on own items the best that chance can do is to mark every cell.
    """
    found: dict[str, dict[str, float]] = {}
    tallies = {word: np.zeros(3) for word in CLASSES}  # right, said, true

    def note(word: str, name: str, value: float) -> None:
        found.setdefault(word, {})[name] = value

    for name in part.rows:
        own, foreign = part.own[name], part.foreign(name)
        threshold, length = 0.5, 0
        if len(own):
            truth, score = part.truth(name, own), guess(name, own, "own")
            threshold = best_f1(truth, score)[1]
            length = max(1, round(float(truth.sum(axis=1).mean()) * len(foreign) / len(own)))
            note("own", name, f1(truth, score > 0.5 if rules[0] == "half" else score >= threshold))
        if len(foreign):
            truth, score = part.truth(name, foreign), guess(name, foreign, "foreign")
            marks = {"half": score > 0.5, "own": score >= threshold}
            at = {"": marks[rules[0]], "tuned_": marks[rules[1]]}
            for prefix, marked in at.items():
                note(f"{prefix}foreign", name, f1(truth, marked))
                for word, value in other_scores(truth, marked).items():
                    note(f"{prefix}{word}", name, value)
            counts = _touched(part, name)[foreign]
            for word, (low, high) in CLASSES.items():
                here = (counts >= low) & (counts <= high)
                said, true = at["tuned_"][:, here], truth[:, here]
                tallies[word] += [(said * true).sum(), said.sum(), true.sum()]
            note("best_foreign", name, best_f1(truth, score)[0])
            note("lists", name, f1(truth, in_lists(score, length)))
    means = {f"f1_{word}": None for word in ("own", "foreign", "tuned_foreign", "best_foreign")}
    means |= {f"f1_{word}" if "own" in word or "foreign" in word else word: float(np.mean(list(each.values())))
              for word, each in found.items()}  # fmt: skip
    by_client = {word: found.get(word, {}) for word in ("own", "foreign", "tuned_foreign", "best_foreign")}
    ones = max(1.0, sum(true for _, _, true in tallies.values()))
    classes = {
        word: {"share of ones": true / ones, "marked": said / ones, "f1": 2 * right / max(1.0, said + true)}
        for word, (right, said, true) in tallies.items()
    }
    return {**by_client, **means, "by_count": classes}


def _guess(result: Run, part: Split, name: str, columns: np.ndarray) -> np.ndarray:
    kept = cast("Any", result.factors["all" if "all" in result.factors else name])
    U = kept.U[part.rows[name]] if "all" in result.factors else kept.U
    return probabilities(kept.network, U, np.ascontiguousarray(kept.V[:, columns].T))


def _epochs(result: Run) -> int:
    """Count the epochs up to the one that was kept, where validation chose it, and all of them elsewhere."""
    losses = [entry.metrics["validation_loss"] for entry in result.history if "validation_loss" in entry.metrics]
    made = result.rounds - 2 - bool(result.algorithm.refine)  # holdings and publishing are rounds without an epoch
    return int(np.argmin(losses[:made])) + 1 if losses else made


def _simple(part: Split, method: str, seed: int) -> dict[str, Any]:
    """Score cells by what a user does on average times how popular the item is with its owners; or at random; or zero.

    The threshold of the product is the best one on the client's own items. Random scores are a coin at one half, and
    random lists of a fixed length.
    """
    rng = stream("feddmf coin", seed)

    def guess(name: str, columns: np.ndarray, word: str) -> np.ndarray:
        shape = (len(part.rows[name]), len(columns))
        if method == "all zeros":
            return np.full(shape, -np.inf)
        if method == "random":
            return rng.random(shape)
        held = np.concatenate([part.common, part.own[name]])
        return np.outer(part.truth(name, held).mean(axis=1), _popularity(part, name, columns, word))

    found = _scored(part, guess, ("own", "own") if method == "popularity × activity" else ("half", "half"))
    if method == "all zeros":
        found["lists"] = 0.0
    return found | {"bytes_up": 0, "bytes_down": 0, "rounds": 0, "epochs": 0, "seconds": 0.0}


def _popularity(part: Split, name: str, columns: np.ndarray, word: str) -> np.ndarray:
    """Share of users who touched an item, at those who hold it: the client itself, or the owners of foreign items."""
    if word == "own":
        return part.truth(name, columns).mean(axis=0)
    users = np.ones(part.X.shape[1])
    for other, own in part.own.items():
        users[own] = len(part.rows[other])
    return (_touched(part, name) / users)[columns]


def _touched(part: Split, name: str) -> np.ndarray:
    """Number of users at the owner of each foreign item who touched it; 0 for all other items."""
    found = np.zeros(part.X.shape[1])
    for other, own in part.own.items():
        if other != name:
            found[own] = part.truth(other, own).sum(axis=0)
    return found
