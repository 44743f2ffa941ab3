"""Several methods on the same clients, the same split and the same seeds, beside going alone and pooling all rows."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from fedfactor import algorithms
from fedfactor.core.algorithm import Algorithm, Domain, Score
from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.errors import DataError
from fedfactor.core.input_validation import is_sparse
from fedfactor.core.method import Method, algorithm_of, run_parameters
from fedfactor.core.pytree import tree_sum
from fedfactor.engines.run import run
from fedfactor.evaluation.holdout import hold_out_all
from fedfactor.linalg.cuda.device_rows import Storage, check_device

__all__ = ["Comparison", "compare", "gain_over_alone"]

ALONE = "alone"
POOLED = "pooled"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a comparison found.

    Attributes
    ----------
    errors : dict of method to dict of client to ndarray of shape (seeds,)
        Relative error of what each client held out. ``"alone"``: every client by itself; ``"pooled"``: all rows in one
        place, which no client may see.
    totals : dict of method to ndarray of shape (seeds,)
        The same over all clients together.
    traffic : dict of method to int
        Bytes that all clients sent, on average over seeds.
    seconds : dict of method to float
        Time in rounds, on average over seeds.
    kept_aside : str
        ``"rows"`` or ``"cells"``.
    seeds : tuple of int
    """

    errors: dict[str, dict[str, np.ndarray]]
    totals: dict[str, np.ndarray]
    traffic: dict[str, int]
    seconds: dict[str, float]
    kept_aside: str
    seeds: tuple[int, ...]

    def worst(self, method: str) -> tuple[str, float]:
        """Return the client whose mean error is largest, and that error."""
        means = {name: float(np.mean(each)) for name, each in self.errors[method].items()}
        name = max(means, key=lambda owner: means[owner])
        return name, means[name]

    def losers(self, method: str) -> list[str]:
        """Name the clients who would do better alone."""
        alone = self.errors.get(ALONE, {})
        own = self.errors[method]
        return [name for name in own if name in alone and np.mean(own[name]) > np.mean(alone[name])]

    def summary(self) -> dict[str, Any]:
        """Plain data, for a file."""
        return {
            "kept_aside": self.kept_aside,
            "seeds": list(self.seeds),
            "methods": {
                name: {
                    "relative_error": self.totals[name].tolist(),
                    "owners": {owner: each.tolist() for owner, each in own.items()},
                    "bytes_up": self.traffic[name],
                    "seconds": self.seconds[name],
                }
                for name, own in self.errors.items()
            },
        }


def compare(
    federation: Federation | Mapping[str, Any] | Sequence[Any],
    methods: Mapping[str, Method],
    *,
    share: float = 0.2,
    seeds: Sequence[int] = (0, 1, 2),
    rounds: int | None = None,
    device: str | None = None,
    storage: Storage | None = None,
    progress: Callable[[int, int, str, float], Any] | None = None,
) -> Comparison:
    """Run several methods on the same clients and measure each on what the clients held out.

    Each client holds out some of its rows; their U is found with the components alone and the error of the product
    counts. Of ratings, cells are held out instead.
    The split depends on the seed and not on the method.

    Parameters
    ----------
    federation : Federation, mapping or list
        Who owns which rows.
    methods : mapping of name to estimator or Algorithm
        What to compare; all must be for the same kind of data. Of an estimator ``rounds``, ``device`` and ``storage``
        are used where they are not given here, and ``engine`` and ``privacy``; seeds are those given here.
    share : float, default=0.2
        Share of rows or cells held out.
    seeds : sequence of int
        One split and one start each.
    rounds : int, optional
        Rounds of each run at most.
    device, storage
        As in :func:`fedfactor.run`; rows held out are judged where they lie.
    progress : function (done, of, method, error), optional
        Called after each run.

    A client with fewer rows than components goes alone with as many components as it has rows.

    Returns
    -------
    Comparison
        With ``"alone"`` and ``"pooled"`` beside the methods: the first method's kind, for one client at a time, and for
        all rows as one client's.

    Examples
    --------
    >>> from fedfactor import FedAvgNMF, PooledNMF
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((80, 2)) @ rng.random((2, 10))
    >>> methods = {"sums": PooledNMF(2), "averages": FedAvgNMF(2)}
    >>> found = compare({"a": X[:40], "b": X[40:]}, methods, seeds=[0], rounds=20)
    >>> list(found.errors), found.kept_aside
    (['alone', 'sums', 'averages', 'pooled'], 'rows')
    """
    check_device(device, storage)
    if not methods:
        raise ValueError("There is nothing to compare. Name at least one method.")
    if not 0 < share < 1:
        raise ValueError(f"share={share} must lie between 0 and 1.")
    if not seeds:
        raise ValueError("There is no seed. Give at least one.")
    federation = federation if isinstance(federation, Federation) else Federation(federation)
    compared = {name: algorithm_of(method) for name, method in methods.items()}
    for algorithm in compared.values():
        federation.prepare(algorithm.domain)
    cells = any(isinstance(federation.shard(name).mask, str) for name in federation.names)
    base = _lone(next(iter(compared.values())), cells)
    plan: list[tuple[str, Algorithm]] = [(ALONE, base), *compared.items(), (POOLED, base)]
    judged: dict[str, list[Judged]] = {name: [] for name, _ in plan}
    given = {"rounds": rounds, "device": device, "storage": storage}
    how = {name: run_parameters(method, **given, engine=None, privacy=None) for name, method in methods.items()}
    how[ALONE] = how[POOLED] = run_parameters(next(iter(methods.values())), **given)
    for seed in seeds:
        train, test = _cells(federation, share, seed) if cells else _rows(federation, share, seed)
        for name, method in plan:
            judged[name].append(_judge(name, method, train, test, seed=int(seed), **how[name]))
            if progress is not None:
                progress(sum(map(len, judged.values())), len(plan) * len(seeds), name, judged[name][-1].total)
    return Comparison(
        {name: _by_owner(runs) for name, runs in judged.items()},
        {name: np.array([each.total for each in runs]) for name, runs in judged.items()},
        {name: int(np.mean([each.sent for each in runs])) for name, runs in judged.items()},
        {name: float(np.mean([each.seconds for each in runs])) for name, runs in judged.items()},
        "cells" if cells else "rows",
        tuple(int(seed) for seed in seeds),
    )


def _by_owner(runs: Sequence[Judged]) -> dict[str, np.ndarray]:
    return {owner: np.array([each.scores[owner].relative_error for each in runs]) for owner in runs[0].scores}


def gain_over_alone(
    federation: Federation, algorithm: Method, *, share: float = 0.2, rounds: int | None = None, seed: int = 0
) -> dict[str, tuple[float, float]]:
    """Measure for each client the error of rows that it holds out: with components found alone, and with all others'.

    Parameters
    ----------
    federation : Federation
    algorithm : estimator or Algorithm
    share : float, default=0.2
        Share of rows held out.
    rounds : int, optional
        Rounds of each run at most.
    seed : int
        Of the split and of the starts.

    Returns
    -------
    dict of client to (alone, together)

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((60, 3)) @ rng.random((3, 10))
    >>> from fedfactor import PooledNMF
    >>> found = gain_over_alone(Federation({"few": X[:6], "many": X[6:]}), PooledNMF(3), rounds=30)
    >>> found["few"][1] < found["few"][0]
    True
    """
    train, test = _rows(federation, share, seed)
    how: dict[str, Any] = {**run_parameters(algorithm, rounds=rounds), "seed": seed}
    algorithm = algorithm_of(algorithm)
    alone = _judge(ALONE, _lone(algorithm, cells=False), train, test, **how).scores
    together = _judge("", algorithm, train, test, **how).scores
    return {name: (alone[name].relative_error, together[name].relative_error) for name in federation.names}


def _lone(first: Algorithm, cells: bool) -> Algorithm:
    """Choose what a client alone, and all rows in one place, are factored with: the pooled method of the same kind."""
    rank = int(getattr(first, "n_components", 0) or 0)
    if cells or not rank:
        return first
    if first.domain == Domain.BINARY:
        return algorithms.PooledBMF(rank)
    return first if isinstance(first, algorithms.PooledNMF) else algorithms.PooledNMF(rank)


def _within(method: Any, shard: Shard) -> Algorithm:
    """Lower the rank to what a small client's rows allow: going alone, such a client has no more components."""
    most = min(shard.n_rows, shard.n_features)
    rank = getattr(method, "n_components", None)
    return replace(method, n_components=max(1, most)) if isinstance(rank, int) and rank > most else method


Test = Mapping[str, Shard] | None


class Judged(NamedTuple):
    """A run on what clients did not hold out: errors on what they did, bytes that they sent, seconds."""

    scores: dict[str, Score]
    sent: int
    seconds: float

    @property
    def total(self) -> float:
        """The relative error of all clients together."""
        return tree_sum(self.scores.values()).relative_error


def _judge(name: str, method: Algorithm, train: Federation, test: Test, **how: Any) -> Judged:
    if name == ALONE:
        runs = {
            owner: run(_within(method, train.shard(owner)), {owner: train.shard(owner)}, split="rows", **how)
            for owner in train.names
        }
        scores = {owner: _score(each.algorithm, each, owner, test) for owner, each in runs.items()}
        return Judged(scores, 0, sum(each.seconds for each in runs.values()))
    if name == POOLED:
        result = run(method, {"all": _stacked(train)}, split="rows", **how)
        if test is None:
            return Judged({"all": result.scores["all"]}, 0, result.seconds)
        return Judged({owner: _of(method, result, "all", shard) for owner, shard in test.items()}, 0, result.seconds)
    result = run(method, train, split="rows", **how)
    scores = {owner: _score(method, result, owner, test) for owner in train.names}
    return Judged(scores, result.bytes_up, result.seconds)


def _score(method: Algorithm, result: Any, owner: str, test: Test) -> Score:
    return result.scores[owner] if test is None else _of(method, result, owner, test[owner])


def _of(method: Algorithm, result: Any, owner: str, shard: Shard) -> Score:
    """Find U of rows held out with the components alone, and measure the product."""
    kept = replace(result.factors[owner], V=result.V, columns=None)
    U = method.fold_in(shard.X, kept, shard.mask)
    if isinstance(U, tuple):  # with a part for components that only this client has
        kept = replace(kept, U=U[0], U_private=U[1])
    else:
        kept = replace(kept, U=U, V_private=None, U_private=None)
    return method.score(shard, kept, result.down)


def _stream(seed: int, name: str) -> np.random.Generator:
    digest = hashlib.sha256(repr((int(seed), name, "rows aside")).encode()).digest()
    return np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))


def _rows(federation: Federation, share: float, seed: int) -> tuple[Federation, dict[str, Shard]]:
    train: dict[str, Shard] = {}
    test: dict[str, Shard] = {}
    for name in federation.names:
        shard = federation.shard(name)
        n = shard.n_rows
        aside = max(1, round(share * n))
        if aside >= n:
            raise DataError(
                f"Owner {name!r} has {n} rows: too few to keep some aside. Leave it out, or lower the share."
            )
        order = _stream(seed, name).permutation(n)
        test[name] = shard.take(np.sort(order[:aside]))
        train[name] = shard.take(np.sort(order[aside:]))
    return Federation(train), test


def _cells(federation: Federation, share: float, seed: int) -> tuple[Federation, None]:
    return hold_out_all(federation, share, int(seed)), None


def _stacked(federation: Federation) -> Shard:
    """Put all clients' rows into one place, as no real federation may."""
    from scipy import sparse

    def joined(parts: list[Any]) -> Any:
        if any(part is None for part in parts) or isinstance(parts[0], str):
            return parts[0]
        return sparse.vstack(parts, format="csr") if is_sparse(parts[0]) else np.concatenate(parts)

    shards = [federation.shard(name) for name in federation.names]
    masks = [shard.mask for shard in shards]
    if any(mask is None for mask in masks) and not all(mask is None for mask in masks):
        masks = [np.ones(tuple(s.X.shape), bool) if s.mask is None else s.mask for s in shards]
    return Shard(
        joined([shard.X for shard in shards]),
        joined(masks),
        shards[0].features,
        joined([shard.holdout for shard in shards]),
    )
