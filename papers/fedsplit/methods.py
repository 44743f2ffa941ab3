"""Every line of the table: how it is tuned inside the training ratings, and what it then predicts of the test."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from fedfactor.algorithms import FCF, FedMF, FedSPLIT, PooledCF, PooledCNMF
from fedfactor.core.algorithm import Algorithm, LocalFactors, Meta, Round
from fedfactor.core.client_data import Shard
from fedfactor.engines.run import run
from fedfactor.evaluation.recommender_tuning import (
    Tuned,
    as_overrides,
    tune_cnmf,
    tune_owners,
    tune_recommender,
)
from fedfactor.privacy import SecureSum
from fedfactor.recommend.fedsplit.messages import Factors, Global, Level
from fedfactor.recommend.local_cnmf import RatingPenalty, cnmf, starting_factors
from fedfactor.recommend.rating_model import item_counts, predict_cells
from fedfactor.recommend.rating_statistics import hold_out, item_residuals, pooled_item_biases, user_means
from papers.catalogue import Size
from papers.fedsplit.protocol import SCALE, Split, group_errors

__all__ = [
    "METHODS", "PRINTED", "Budget", "by_joint_rank", "joint_rank_errors", "tuned_central", "tuned_groups", "untold",
]  # fmt: skip


class Budget:
    """How much tuning a run may do: ``full`` is the paper's, ``quick`` takes minutes."""

    def __init__(self, size: Size) -> None:
        self.trials = {"quick": 2, "usual": 12, "full": 100}[size]
        self.folds = 1 if size == "quick" else 5
        self.iterations = 100 if size == "quick" else 500
        self.ranks = (2, 4, 8) if size == "quick" else tuple(range(2, 31, 2))
        self.runs = {"quick": 2, "usual": 16, "full": 60}[size]
        self.run_folds = {"quick": 1, "usual": 2, "full": 5}[size]


SPACE = {
    "local_components": (1, 2, 4, 6), "item_bias": ("pooled", "mean"), "unit_rows": (True, False),
    "refine": (0, 5, 20, 50), "iterations": (20, 60, 100), "alpha": (0.04, 0.06, 0.08), "beta": (0.04, 0.06, 0.08),
}  # fmt: skip
"""What validation chooses of our FedSPLIT, beside the joint rank. What keeps ratings at home (the rank rule, drawn
entries, the least number of raters) is not up for choice: validation would always do without."""

RIVALS: dict[str, dict[str, tuple[Any, ...]]] = {
    "FCF": {"n_components": (3, 5, 10, 20), "lam": (2.0, 5.0, 10.0, 20.0), "learning_rate": (0.02, 0.05, 0.1)},
    "FedMF": {"n_components": (4, 8, 16), "lam": (0.02, 0.05, 0.1, 0.2), "learning_rate": (0.2, 0.5, 1.0)},
}


def tuned_central(split: Split, budget: Budget, seed: int) -> Tuned:
    """Tune one model of all ratings."""
    return tune_cnmf(split.train, trials=budget.trials, folds=budget.folds, seed=seed)


def tuned_groups(split: Split, budget: Budget, seed: int) -> dict[str, Tuned]:
    """Tune each group's model on its own ratings."""
    return tune_owners(split.owners, mu=split.mean_of_means, trials=budget.trials, folds=budget.folds, seed=seed)


def central(split: Split, tuned: Any, budget: Budget, seed: int) -> dict[str, Any]:
    """Factor all ratings in one place, from the start of PooledCNMF."""
    settings, mu = dict(tuned["central"].settings), float(split.train.data.mean())
    k = settings.pop("n_components")
    V = np.random.default_rng([41, seed]).random((k, split.train.shape[1]))
    U = np.full((split.train.shape[0], k), 0.5)
    model = cnmf(split.train, U, V, mu, penalty=RatingPenalty(**settings), iterations=budget.iterations)

    def predict(name: str, rows: Any, columns: Any) -> np.ndarray:
        return predict_cells(model.U, model.V, model.user, model.item, mu, split.groups[name][rows], columns)

    train = split.train.tocoo()
    own = predict_cells(model.U, model.V, model.user, model.item, mu, train.row, train.col)
    return {**group_errors(split, predict), "train": float(np.sqrt(np.mean((np.clip(own, *SCALE) - train.data) ** 2)))}


def alone(split: Split, tuned: Any, budget: Budget, seed: int) -> dict[str, Any]:
    """Factor each group's ratings by themselves."""
    mu, models = split.mean_of_means, {}
    for place, (name, R) in enumerate(split.owners.items()):
        settings = dict(tuned["groups"][name].settings)
        k = settings.pop("n_components")
        U, V = starting_factors(R.shape[0], R.shape[1], k, np.random.default_rng([42, seed, place]))
        models[name] = cnmf(R, U, V, mu, penalty=RatingPenalty(**settings), iterations=budget.iterations)

    def predict(name: str, rows: Any, columns: Any) -> np.ndarray:
        model = models[name]
        return predict_cells(model.U, model.V, model.user, model.item, mu, rows, columns)

    return group_errors(split, predict)


def alone_biases(split: Split, tuned: Any, budget: Budget, seed: int) -> dict[str, Any]:
    """Predict from a group's own user and item biases, without factors: what a small group should try first."""
    items = {name: pooled_item_biases(item_residuals(R), item_counts(R)) for name, R in split.owners.items()}
    return _biases(split, items)


def pooled_biases(split: Split, tuned: Any, budget: Budget, seed: int) -> dict[str, Any]:
    """Predict from item biases that are sums over all groups: the first exchange of our FedSPLIT, and no factors."""
    residuals = np.sum([item_residuals(R) for R in split.owners.values()], axis=0)
    item = pooled_item_biases(residuals, item_counts(split.train))
    return _biases(split, dict.fromkeys(split.groups, item))


def _biases(split: Split, items: dict[str, Any]) -> dict[str, Any]:
    users = {name: user_means(_less(R, items[name])) for name, R in split.owners.items()}
    return group_errors(split, lambda name, rows, columns: users[name][rows] + items[name][columns])


def _less(R: Any, item: Any) -> Any:
    return type(R)((R.data - item[R.indices], R.indices, R.indptr), shape=R.shape)


def printed(split: Split, tuned: Any, budget: Budget, seed: int) -> dict[str, Any]:
    """Run FedSPLIT as printed, each group with its own tuned settings, the joint rank by validation."""
    base = FedSPLIT.as_printed(2, overrides=as_overrides(tuned["groups"]), iterations=budget.iterations)
    shorter = replace(base, iterations=100)  # as in all tuning, the paper's and ours
    errors = joint_rank_errors(shorter, split.owners, budget.ranks, folds=budget.run_folds, seed=seed)
    chosen = min(errors, key=lambda k: errors[k])
    return {**_measure(split, replace(base, n_components=chosen), seed), "chosen": chosen, "validation": errors}


def joint_rank_errors(
    base: FedSPLIT, owners: Mapping[str, Any], ranks: Sequence[int], *, folds: int, seed: int
) -> dict[int, float]:
    """Return, for each joint rank, the mean error over owners on held-out fifths of their training ratings.

    Owners fit their factors before they know the joint rank, so for each fold this is done once for all ranks.
    """
    errors: dict[int, list[float]] = {k: [] for k in ranks}
    names = tuple(sorted(owners))
    for fold in range(folds):
        streams = [np.random.default_rng([22, seed, fold, place]) for place in range(len(names))]
        parts = {
            name: hold_out(owners[name], 0.2, rng, keep_items=False) for name, rng in zip(names, streams, strict=True)
        }
        for k, found in by_joint_rank(base, {name: kept for name, (kept, _) in parts.items()}, ranks, seed=seed):
            errors[k].append(
                float(np.mean([_rmse(found[name], parts[name][1]) for name in names if parts[name][1].nnz]))
            )
    return {k: float(np.mean(values)) for k, values in errors.items()}


def by_joint_rank(
    base: FedSPLIT, owners: Mapping[str, Any], ranks: Sequence[int], *, seed: int
) -> Iterator[tuple[int, dict[str, LocalFactors]]]:
    """Yield what every owner ends with at each joint rank; owners fit their factors once for all of them."""
    names, m = tuple(sorted(owners)), next(iter(owners.values())).shape[1]
    meta, shards = Meta(m, names, "float64", True), {name: Shard(owners[name], "stored") for name in names}
    mu = np.float64(np.mean([owners[name].data.mean() for name in names]))
    states, ups = {}, {}
    for name, shard in shards.items():
        start = base.init_client(shard, meta, Round(seed, 0, name))
        states[name], ups[name] = base.client_step(shard, start, Level(mu), Round(seed, 1, name))
    for k in ranks:
        method = replace(base, n_components=k)
        server = replace(method.init_server(meta, Round(seed, 0, None))[0], mu=mu)
        down = method.server_step(server, ups, Round(seed, 1, None))[1]
        yield k, {name: method.finish(shards[name], states[name], down.items[name]) for name in names}


def by_grouping(
    base: FedSPLIT, owners: Mapping[str, Any], *, seed: int
) -> Iterator[tuple[str, dict[str, LocalFactors]]]:
    """Yield what owners end with: joined at once, in two levels, and after one of them has left.

    In two levels, two regions join the factors of their own groups first. Joint factors have the shape of item factors,
    so a region sends its own as a group does, and what comes back to a group is the product of both maps.
    """
    names, m = tuple(sorted(owners)), next(iter(owners.values())).shape[1]
    meta, shards = Meta(m, names, "float64", True), {name: Shard(owners[name], "stored") for name in names}
    mu = np.float64(np.mean([owners[name].data.mean() for name in names]))
    states, ups = {}, {}
    for name, shard in shards.items():
        start = base.init_client(shard, meta, Round(seed, 0, name))
        states[name], ups[name] = base.client_step(shard, start, Level(mu), Round(seed, 1, name))

    def joined(sent: Mapping[str, Factors]) -> dict[str, Global]:
        server = replace(base.init_server(replace(meta, clients=tuple(sent)), Round(seed, 0, None))[0], mu=mu)
        return base.server_step(server, dict(sent), Round(seed, 1, None))[1].items

    def finished(down: Mapping[str, Global]) -> dict[str, LocalFactors]:
        return {name: base.finish(shards[name], states[name], down[name]) for name in down}

    yield "all groups at once", finished(joined(ups))
    regions = {"region 1": joined({name: ups[name] for name in names[::2]}),
               "region 2": joined({name: ups[name] for name in names[1::2]})}  # fmt: skip
    firsts = {region: next(iter(down.values())) for region, down in regions.items()}
    top = joined({region: Factors(V=first.V, item=first.item, seen=None) for region, first in firsts.items()})
    maps = {
        name: replace(top[region], M=top[region].M @ one.M)
        for region, down in regions.items()
        for name, one in down.items()
    }
    yield "two regions first", finished(maps)
    yield "one group has left", finished(joined({name: ups[name] for name in names[1:]}))


def untold(split: Split, iterations: int, ranks: Sequence[int], seed: int) -> dict[str, Any]:
    """Return each group's error alone and at every joint rank, with Surprise's settings and rank 6 at most, untuned.

    What the paper's figures owe to what it does not print: the joint rank that was chosen, and when CNMF stopped.
    """
    tuned = {name: Tuned({"n_components": max(1, min(6, X.shape[0] - 1))}, 0.0, 0) for name, X in split.owners.items()}
    budget = Budget("usual")
    budget.iterations = iterations
    found = {"alone": alone(split, {"groups": tuned}, budget, seed)["by_group"]}
    base = FedSPLIT.as_printed(2, overrides=as_overrides(tuned), iterations=iterations)
    for k, kept in by_joint_rank(base, split.owners, ranks, seed=seed):

        def predict(name: str, rows: Any, columns: Any, kept: Mapping[str, LocalFactors] = kept) -> np.ndarray:
            return np.einsum("pk,pk->p", kept[name].U[rows], kept[name].V.T[columns])

        found[str(k)] = group_errors(split, predict)["by_group"]
    return found


def _rmse(factors: Any, held: Any) -> float:
    T = held.tocoo()
    off = np.clip(np.einsum("pk,pk->p", factors.U[T.row], factors.V.T[T.col]), *SCALE) - T.data
    return float(np.sqrt(np.mean(off**2)))


def improved(privacy: Any = None, **settings: Any) -> Callable[..., dict[str, Any]]:
    """Return our FedSPLIT with some settings, the others by validation; `privacy` protects the final run."""

    def method(split: Split, tuned: Any, budget: Budget, seed: int) -> dict[str, Any]:
        space = {name: values for name, values in SPACE.items() if name not in settings}
        base = FedSPLIT(2, scale=SCALE, **settings)
        return _tuned(split, base, {"n_components": (2, 4, 8, 12, 16, 20, 30), **space}, budget, seed, privacy)

    return method


def untuned(split: Split, tuned: Any, budget: Budget, seed: int) -> dict[str, Any]:
    """Run our FedSPLIT as it is, with the defaults of the library."""
    return _measure(split, FedSPLIT(4), seed)


def pooled(split: Split, tuned: Any, budget: Budget, seed: int) -> dict[str, Any]:
    """Run PooledCNMF with the settings of the central model."""
    settings = tuned["central"].settings
    return _measure(split, PooledCNMF(**settings), seed, rounds=1 + 2 * budget.iterations)


def least_squares(split: Split, tuned: Any, budget: Budget, seed: int) -> dict[str, Any]:
    """Run PooledCF as it is, with the defaults of the library."""
    return _measure(split, PooledCF(16), seed)


def fcf(split: Split, tuned: Any, budget: Budget, seed: int) -> dict[str, Any]:
    """Run FCF, all its settings by validation."""
    return _tuned(split, FCF(5), RIVALS["FCF"], budget, seed)


def fedmf(split: Split, tuned: Any, budget: Budget, seed: int) -> dict[str, Any]:
    """Run FedMF, all its settings by validation."""
    return _tuned(split, FedMF(8), RIVALS["FedMF"], budget, seed)


def _tuned(
    split: Split,
    algorithm: Algorithm,
    space: dict[str, tuple[Any, ...]],
    budget: Budget,
    seed: int,
    privacy: Any = None,
) -> dict[str, Any]:
    """Choose settings on fifths of the training ratings, then run once on all of them."""
    options = {"trials": budget.runs, "folds": budget.run_folds, "scale": SCALE, "seed": seed}
    best = tune_recommender(algorithm, space, split.owners, **options)
    found = _measure(split, replace(cast("Any", algorithm), **best.settings), seed, privacy=privacy)
    return {**found, "chosen": best.settings, "validation": best.error, "trials": best.trials}


def _measure(
    split: Split, algorithm: Algorithm, seed: int, rounds: int | None = None, privacy: Any = None
) -> dict[str, Any]:
    began = time.perf_counter()
    result = run(algorithm, split.federation, seed=seed, rounds=rounds, privacy=privacy)

    def predict(name: str, rows: Any, columns: Any) -> np.ndarray:
        kept = result.factors[name]
        return np.einsum("pk,pk->p", kept.U[rows], kept.V.T[columns])

    return {
        **group_errors(split, predict),
        "rounds": result.rounds,
        "bytes_up": result.bytes_up,
        "bytes_down": result.bytes_down,
        "seconds": time.perf_counter() - began,
    }


METHODS: dict[str, Callable[..., dict[str, Any]]] = {
    "central": central,
    "alone": alone,
    "alone, biases only": alone_biases,
    "pooled biases only": pooled_biases,
    "FedSPLIT as printed": printed,
    "FedSPLIT": improved(privacy=SecureSum(gathered="clear")),
    "FedSPLIT, settings of the library": untuned,
    "FedSPLIT, items of one rater, too": improved(min_raters=1),
    "FedSPLIT, no counts": improved(item_bias="mean", min_raters=1),
    "FedSPLIT on sums": improved(joint="sum"),
    "FedSPLIT masked (shows who rated what)": improved(masked=True, min_raters=1),
    "PooledCNMF": pooled,
    "PooledCF, settings of the library": least_squares,
    "FCF": fcf,
    "FedMF": fedmf,
}

PRINTED = ("central", "alone", "FedSPLIT as printed", "FedSPLIT, settings of the library")
"""The lines of the paper's own method, and ours as it comes: repeated most often."""
