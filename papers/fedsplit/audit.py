"""What a server, or anybody who sees one group's upload, can tell about the group's ratings.

The adversary knows the group's item factors and item biases, the mean, the number of users and some of the ratings. It
finds user factors from the ratings it knows and reads off the others. The paper's figure counts all ratings, known ones
included; what matters is the error on those that were not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from fedfactor.algorithms import FedSPLIT
from fedfactor.core.algorithm import Meta, Round
from fedfactor.core.client_data import Shard
from fedfactor.evaluation.metrics.ratings import mean_interval
from fedfactor.recommend.fedsplit.messages import Level
from fedfactor.recommend.implicit_feedback import ridge_rows
from fedfactor.recommend.local_cnmf import RatingPenalty, cnmf, fold_users, starting_factors
from fedfactor.recommend.rating_model import item_counts, predict_cells
from fedfactor.recommend.rating_statistics import item_residuals, pooled_item_biases
from papers.catalogue import Size

__all__ = ["Case", "attack_curves", "by_raters", "cases", "describe", "measure", "summary", "support_leak"]

REPEATS = 6
FIGURE_ITERATIONS = 100
ATTACKS = ("users", "ratings", "movies")
ITERATIONS = 300
ACTIVE, POPULAR = 150, 100
"""Users and movies from which groups are drawn whose users rated the same movies."""
CLASSES = {"1": (1, 1), "2 or 3": (2, 3), "4 to 7": (4, 7), "8 to 15": (8, 15), "16 or more": (16, 10**9)}
"""Numbers of users of one group who rated a movie."""


class Case(NamedTuple):
    """One curve point: whose ratings, how many members, which rank, what is sent, what the adversary knows."""

    data: str
    members: int
    k: int
    sent: str
    attack: str
    known: float


def cases(size: Size) -> list[Case]:
    """List group sizes against ranks; then, for small groups, what defences change.

    ``sparse``: groups of MovieLens users, who share few movies. ``shared``: groups of active users on popular movies,
    of which they rated more than half. ``dense``: made-up groups in which everybody rated nearly everything at random,
    so that nothing but the upload can tell a rating.
    """
    full = size == "full"
    if size == "quick":
        return [Case("sparse", *one, "ratings", 0.25) for one in ((8, 7, "as printed"), (8, 2, "default"))]
    shares = [round(0.05 * step, 2) for step in range(1, 21)] if full else [0.05, 0.25, 0.5]
    sizes = [(3, 2), (8, 7), (8, 10), (30, 10)]
    sizes += [(3, 6), (15, 14), (30, 20)] if full else []
    found = [Case("sparse", n, k, "as printed", "ratings", share) for n, k in sizes for share in shares]
    found += [
        Case("sparse", n, k, "as printed", attack, share)
        for n, k in ((8, 7), (30, 20))[: 2 if full else 1] for attack in ("users", "movies") for share in shares
    ]  # fmt: skip
    for data in ("shared", "dense"):
        found += [Case(data, n, k, "as printed", "ratings", share) for n, k in sizes for share in shares]
    defended = [(8, 7, "unit rows, drawn"), (8, 2, "rank n/3"), (8, 2, "default"), (8, 0, "sums only")]
    defended += [(30, 6, "rank n/3"), (30, 6, "default"), (30, 0, "sums only")]
    return found + [Case("sparse", n, k, sent, "ratings", share) for n, k, sent in defended for share in shares]


def describe(case: Case) -> str:
    """Name a case in one line."""
    return f"{case.data}, {case.members} users, rank {case.k}, {case.sent}, {case.attack} {case.known:.0%}"


def summary(figures: dict[str, float]) -> str:
    """Tell the figures of a case in one line."""
    return ", ".join(f"{word} {value:.3f}" for word, value in figures.items())


def measure(R: Any, case: Case) -> dict[str, float]:
    """Return medians over groups of relative errors ``‖x − x̂‖ / ‖x‖``; ``paper`` is squared and over all ratings.

    ``blind``: the group's item biases alone; ``without``: the known ratings and everybody's item biases, but not the
    group's upload; ``oracle``: user factors from all ratings; ``back``: the share of unknown ratings that come back to
    within half a star, and ``back_without`` the same without the upload. Where nothing is unknown, all ratings stand
    for the unknown ones.
    """
    rows = [_one(R, case, repeat)[0] for repeat in range(REPEATS)]
    return {word: float(np.median([row[word] for row in rows])) for word in rows[0]}


def attack_curves(R: Any, groups: Sequence[np.ndarray], shares: Sequence[float]) -> list[dict[str, Any]]:
    """Run the paper's attack on every group: Figure 4's three curves, with 95 % intervals over groups.

    The adversary makes the paper's updates of user factors and user biases, nothing cleverer. ``paper`` is eq. 4, the
    squared relative error over *all* ratings of the group, those it was given included; ``unknown`` is the same over
    the others; ``given`` is their share. Groups factor with up to six components.
    """
    mu, found = float(R.data.mean()), {}
    for place, rows in enumerate(groups):
        X, k = R[rows], max(1, min(6, len(rows) - 1))
        start = starting_factors(X.shape[0], X.shape[1], k, np.random.default_rng([53, place]))
        model = cnmf(X, *start, mu, penalty=RatingPenalty(), iterations=FIGURE_ITERATIONS)
        for attack, share in product(ATTACKS, shares):
            case = Case("sparse", len(rows), k, "as printed", attack, share)
            known = _known(X, case, np.random.default_rng([54, place, ATTACKS.index(attack)]))
            options = {"penalty": RatingPenalty(), "iterations": FIGURE_ITERATIONS}
            guess = fold_users(_part(X, known), model.V, model.item, mu, **options)
            one = {"paper": _relative(X, *guess, model.V, model.item, mu) ** 2, "given": float(known.mean())}
            if not known.all():
                one["unknown"] = _relative(_part(X, ~known), *guess, model.V, model.item, mu) ** 2
            found.setdefault((attack, share), []).append(one)
    rows = []
    for (attack, share), each in found.items():
        row: dict[str, Any] = {"attack": attack, "known": share, "groups": len(each)}
        for word in ("paper", "unknown", "given"):
            values = [one[word] for one in each if word in one]
            row[word], row[f"{word}_half"] = mean_interval(values) if len(values) > 1 else (None, None)
        rows.append(row)
    return rows


def by_raters(R: Any, case: Case) -> dict[str, dict[str, float]]:
    """Return, by the number of users of the group who rated a movie, how many ratings there are and come back."""
    found = [_one(R, case, repeat)[1] for repeat in range(REPEATS)]
    raters, fine = (np.concatenate(parts) for parts in zip(*found, strict=True))
    out = {}
    for name, (low, high) in CLASSES.items():
        here = (raters >= low) & (raters <= high)
        if here.any():
            out[name] = {"share": float(here.mean()), "back": float(fine[here].mean())}
    return out


def _population(R: Any, case: Case, rng: np.random.Generator) -> Any:
    """Return the ratings of those from whom the group is drawn."""
    if case.data == "dense":
        return sparse.csr_array((rng.integers(1, 6, (300, 300)) * (rng.random((300, 300)) < 0.9)).astype(float))
    if case.data == "sparse":
        return R
    active = np.argsort(-np.diff(R.indptr), kind="stable")[:ACTIVE]
    popular = np.argsort(-item_counts(R), kind="stable")[:POPULAR]
    return sparse.csr_array(R[np.sort(active)][:, np.sort(popular)])


def _one(R: Any, case: Case, repeat: int) -> tuple[dict[str, float], tuple[np.ndarray, np.ndarray]]:
    """Attack one group; also return, for each unknown rating, how many rated that item and whether it came back."""
    rng = np.random.default_rng([51, case.members, repeat])
    R = _population(R, case, rng)
    X = R[np.sort(rng.choice(R.shape[0], case.members, replace=False))]
    mu = float(R.data.mean())
    common = pooled_item_biases(item_residuals(R), item_counts(R))
    V, item = _upload(X, mu, common, case, rng)
    known = _known(X, case, rng)
    seen, hidden = _part(X, known), _part(X, ~known)
    guess = _attack(seen, V, item, mu)
    oracle = _attack(X, V, item, mu)
    target = hidden if hidden.nnz else X
    blind = (np.zeros((X.shape[0], V.shape[0])), np.zeros(X.shape[0]))
    empty = np.zeros((1, X.shape[1]))
    without = _attack(seen, empty, common, mu)
    fine = _fine(target, *guess, V, item, mu)
    figures = {
        "unknown": _relative(target, *guess, V, item, mu),
        "blind": _relative(target, *blind, V, item, mu),
        "oracle": _relative(target, *oracle, V, item, mu),
        "paper": _relative(X, *guess, V, item, mu) ** 2,
        "without": _relative(target, *without, empty, common, mu),
        "back": float(fine.mean()),
        "back_without": float(_fine(target, *without, empty, common, mu).mean()),
    }
    return figures, (item_counts(X)[target.tocoo().col], fine)


def _upload(
    X: Any, mu: float, common: np.ndarray, case: Case, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Return what the adversary sees of a group: item factors and item biases.

    Sums over all groups say nothing of this one but its share; the biases of all, `common`, stand for them. Where
    entries are drawn in place of items that too few users rated, the adversary is told which, and does without them.
    """
    if case.sent == "as printed":
        start = starting_factors(X.shape[0], X.shape[1], case.k, rng)
        model = cnmf(X, *start, mu, penalty=RatingPenalty(), iterations=ITERATIONS)
        return model.V, model.item
    nothing = np.zeros((1, X.shape[1]))
    if case.sent == "sums only":
        return nothing, common
    rule, least = "paper" if case.sent == "unit rows, drawn" else "third", 4 if case.sent == "default" else 1
    algorithm = FedSPLIT(2, local_components=case.k, rank_rule=rule, iterations=ITERATIONS, min_raters=least)
    shard, meta = Shard(X, "stored"), Meta(X.shape[1], ("group",), "float64", True)
    at = Round(int(rng.integers(2**31)), 0, "group")
    state = algorithm.init_client(shard, meta, at)
    _, up = algorithm.client_step(shard, state, Level(np.float64(mu), common), at)
    if not len(up.V):
        return nothing, common
    return np.where(item_counts(X) >= least, up.V, 0) if least > 1 else up.V, common


def _known(X: Any, case: Case, rng: np.random.Generator) -> np.ndarray:
    """Mark the stored cells that the adversary knows."""
    rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    if case.attack == "users":
        return np.isin(rows, rng.choice(X.shape[0], max(1, round(case.known * X.shape[0])), replace=False))
    if case.attack == "movies":
        rated = np.unique(X.indices)
        return np.isin(X.indices, rng.choice(rated, max(1, round(case.known * len(rated))), replace=False))
    return np.isin(np.arange(X.nnz), rng.choice(X.nnz, max(1, round(case.known * X.nnz)), replace=False))


def _part(X: Any, which: np.ndarray) -> sparse.csr_array:
    rows = np.repeat(np.arange(X.shape[0]), np.diff(X.indptr))
    return sparse.csr_array((X.data[which], (rows[which], X.indices[which])), shape=X.shape)


def _attack(seen: Any, V: np.ndarray, item: np.ndarray, mu: float) -> tuple[np.ndarray, np.ndarray]:
    """Take the better, on what is known, of the paper's updates and of plain ridge regression."""
    U, user = fold_users(seen, V, item, mu, penalty=RatingPenalty(alpha=0.0, gamma=0.0), iterations=ITERATIONS)
    wide = np.concatenate([V, np.ones((1, V.shape[1]))])
    less = type(seen)((seen.data - mu - item[seen.indices], seen.indices, seen.indptr), shape=seen.shape)
    ones = type(seen)((np.ones_like(seen.data), seen.indices, seen.indptr), shape=seen.shape)
    ridge = ridge_rows(ones, less, wide, lam=1e-2)
    one, two = (U, user), (ridge[:, :-1], ridge[:, -1])
    return min(one, two, key=lambda found: _relative(seen, *found, V, item, mu))


def _relative(X: Any, U: Any, user: Any, V: Any, item: Any, mu: float) -> float:
    T = X.tocoo()
    fitted = np.clip(predict_cells(U, V, user, item, mu, T.row, T.col), 1, 5)
    return float(np.linalg.norm(T.data - fitted) / np.linalg.norm(T.data))


def _fine(X: Any, U: Any, user: Any, V: Any, item: Any, mu: float) -> np.ndarray:
    """Tell of each rating whether it came back to within half a star."""
    T = X.tocoo()
    fitted = np.clip(predict_cells(U, V, user, item, mu, T.row, T.col), 1, 5)
    return np.abs(T.data - fitted) < 0.5


def support_leak(R: Any, seeds: int) -> dict[str, float]:
    """Return how well uploads tell rated from unrated items: area under the curve, the best of a few simple scores."""
    forms = {
        "as printed": FedSPLIT.as_printed(2, local_components=6, rank_rule="third"),
        "mean of rated items": FedSPLIT(2, unrated="mean", min_raters=1),
        "drawn (default)": FedSPLIT(2),
        "drawn, with own item biases": FedSPLIT(2, item_bias="mean", min_raters=1),
        "drawn, items of one rater sent": FedSPLIT(2, min_raters=1),
    }
    return {
        name: float(np.mean([_auc_of(R, algorithm, seed) for seed in range(5 * seeds)]))
        for name, algorithm in forms.items()
    }


def _auc_of(R: Any, algorithm: FedSPLIT, seed: int) -> float:
    rng = np.random.default_rng([52, seed])
    X = R[np.sort(rng.choice(R.shape[0], 15, replace=False))]
    shard, meta = Shard(X, "stored"), Meta(X.shape[1], ("group",), "float64", True)
    at = Round(seed, 0, "group")
    item = pooled_item_biases(item_residuals(R), item_counts(R)) if algorithm.item_bias == "pooled" else None
    down = Level(np.float64(R.data.mean()), item)
    _, up = algorithm.client_step(shard, algorithm.init_client(shard, meta, at), down, at)
    if not len(up.V):
        return 0.5  # nothing is sent, so nothing is told
    rated = item_counts(X) > 0
    scores = [np.abs(up.V - np.median(up.V, axis=1, keepdims=True)).mean(axis=0), up.V.mean(axis=0), up.V.std(axis=0)]
    if up.item is not None:
        scores.append((up.item != 0).astype(float) + np.minimum(np.abs(up.item), 1e-3))
    found = [_auc(score, rated) for score in scores]
    return max(max(value, 1 - value) for value in found)


def _auc(score: np.ndarray, positive: np.ndarray) -> float:
    order = np.argsort(np.argsort(score + 1e-12 * np.random.default_rng(0).random(len(score))))
    n, m = positive.sum(), (~positive).sum()
    return float((order[positive].sum() - n * (n - 1) / 2) / (n * m))
