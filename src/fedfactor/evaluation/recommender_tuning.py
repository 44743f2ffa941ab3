"""Settings of recommenders, chosen by validation inside the training ratings; nothing else is ever looked at."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from fedfactor import algorithms
from fedfactor.core.algorithm import Algorithm
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import DataError, FedfactorError, MissingExtraError
from fedfactor.core.method import Method, algorithm_of, run_parameters
from fedfactor.engines.run import run
from fedfactor.evaluation.metrics.ranking import ranking_scores
from fedfactor.recommend.local_cnmf import RatingPenalty, cnmf, starting_factors
from fedfactor.recommend.rating_model import predict_cells
from fedfactor.recommend.rating_statistics import hold_out
from fedfactor.recommend.top_items import best_by_blocks

__all__ = ["RANGES", "Tuned", "choose_recommender", "rating_folds", "tune_cnmf", "tune_owners", "tune_recommender"]

RANGES = {
    "alpha": (0.04, 0.08),
    "beta": (0.04, 0.08),
    "gamma": (0.01, 0.04),
    "delta": (0.01, 0.04),
    "eta_user": (0.002, 0.009),
    "eta_item": (0.002, 0.009),
}
"""Where settings are looked for, on a logarithmic scale; those of the FedSPLIT paper."""


LIST = 10
"""Length of the lists by which methods for signs of interest are compared."""


class Tuned(NamedTuple):
    """What tuning found: settings, their mean error on held-out ratings, and how many trials it took."""

    settings: dict[str, Any]
    error: float
    trials: int


def rating_folds(R: Any, folds: int, seed: int) -> Iterator[tuple[sparse.csr_array, sparse.csr_array]]:
    """Yield (kept, held out) for each fold: a random fifth, less what would leave a user without a rating.

    Items may lose all their ratings: in a small group most have one, and the ratings to come are of such items, too.

    Examples
    --------
    >>> [held.nnz for _, held in rating_folds(sparse.csr_array(np.ones((5, 6))), 3, 0)]
    [6, 6, 6]
    """
    for fold in range(folds):
        yield hold_out(R, 0.2, np.random.default_rng([21, seed, fold]), keep_items=False)


def tune_cnmf(
    R: Any,
    *,
    mu: float | None = None,
    most_components: int = 20,
    trials: int = 20,
    folds: int = 5,
    iterations: int = 100,
    seconds: float | None = None,
    scale: tuple[float, float] = (1, 5),
    seed: int = 0,
    progress: bool = False,
) -> Tuned:
    """Tune CNMF on one matrix of ratings with Optuna.

    Parameters
    ----------
    R : CSR matrix of shape (n, m)
        Training ratings.
    mu : float, optional
        Mean rating that the model is given; by default that of `R`.
    most_components : int
        Ranks from 2 (1, if this is 1) to this are tried.
    trials : int
        Settings that are tried; the defaults are the first.
    folds : int
        Random fifths that are held out for each of them.
    iterations : int
        Of CNMF, for each fold.
    seconds : float, optional
        Start no further trial after this time.
    scale : (low, high)
        Predictions are clipped to it.
    seed : int
    progress : bool
        Show a bar.

    Returns
    -------
    Tuned
        ``settings`` has ``n_components`` and the names of ``RANGES``.

    Examples
    --------
    >>> R = sparse.random_array((20, 30), density=0.4, format="csr", rng=np.random.default_rng(0))
    >>> R.data[:] = np.rint(1 + 4 * R.data)
    >>> tune_cnmf(R, trials=2, folds=2, iterations=5, most_components=3).trials
    2
    """
    optuna = _optuna()
    mu = float(R.data.mean()) if mu is None else mu
    parts = [part for part in rating_folds(R, folds, seed) if part[1].nnz]
    if not parts:
        raise DataError("There are too few ratings to hold any out. Tune on more, or use the defaults.")

    def objective(trial: Any) -> float:
        found = {name: trial.suggest_float(name, *ends, log=True) for name, ends in RANGES.items()}
        k = trial.suggest_int("n_components", min(2, most_components), most_components)
        return float(
            np.mean([_error(kept, held, k, mu, RatingPenalty(**found), iterations, scale) for kept, held in parts])
        )

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed))
    first = {name: getattr(RatingPenalty(), name) for name in RANGES}
    study.enqueue_trial({**first, "n_components": min(6, most_components)})
    study.optimize(objective, n_trials=trials, timeout=seconds, show_progress_bar=progress)
    return Tuned(dict(study.best_params), float(study.best_value), len(study.trials))


def tune_owners(
    owners: Mapping[str, Any],
    *,
    mu: float,
    rank_of: Callable[[int], int] = lambda n: max(1, min(n, 21) - 1),
    seconds: float | None = None,
    progress: bool = False,
    **options: Any,
) -> dict[str, Tuned]:
    """Tune each client's CNMF on its own ratings, as clients would at home.

    Parameters
    ----------
    owners : mapping of name to CSR matrix
    mu : float
        The mean rating that all clients received.
    rank_of : callable
        The highest rank for a number of users; by default that of the paper.
    seconds : float, optional
        For all clients together, in equal shares.
    progress : bool
        Show a bar over clients.
    **options
        As in :func:`tune_cnmf`.

    Returns
    -------
    dict of str to Tuned
        :func:`as_overrides` makes settings of :class:`~fedfactor.algorithms.FedSPLIT` of it.
    """
    found: dict[str, Tuned] = {}
    began = time.monotonic()
    for done, name in enumerate(_watched(sorted(owners), progress)):
        share = None if seconds is None else (seconds - (time.monotonic() - began)) / (len(owners) - done)
        most = rank_of(owners[name].shape[0])
        limit = None if share is None else max(share, 0.0)
        found[name] = tune_cnmf(owners[name], mu=mu, most_components=most, seconds=limit, **options)
    return found


def as_overrides(found: Mapping[str, Tuned]) -> tuple[Any, ...]:
    """Write tuned settings as FedSPLIT's ``overrides``.

    Examples
    --------
    >>> as_overrides({"a": Tuned({"n_components": 3, "alpha": 0.05}, 1.0, 4)})
    (('a', (('alpha', 0.05), ('local_components', 3))),)
    """
    rename = {"n_components": "local_components"}
    return tuple(
        (name, tuple(sorted((rename.get(key, key), value) for key, value in tuned.settings.items())))
        for name, tuned in sorted(found.items())
    )


def choose_recommender(
    candidates: Mapping[Any, Method] | Sequence[Method],
    owners: Mapping[str, Any],
    *,
    folds: int = 1,
    scale: tuple[float, float] | None = None,
    seed: int = 0,
    rounds: Mapping[Any, int] | int | None = None,
) -> tuple[Any, dict[Any, float]]:
    """Run each candidate on four fifths of every client's ratings and keep the one that predicts the rest best.

    Parameters
    ----------
    candidates : mapping of label to estimator or algorithm, or sequence of such
        Of an estimator ``rounds`` is used where it is not given here.
    owners : mapping of name to CSR matrix
        Training ratings.
    folds : int
        How often a random fifth is held out.
    scale : (low, high), optional
        Predictions of ratings are clipped to it; by default to the smallest and the largest rating.
    seed : int
    rounds : int, or mapping of label to int, optional
        Exchanges; by default as many as each method makes by itself.

    Returns
    -------
    best : label
        Of the best candidate (its position in a sequence).
    errors : dict of label to float
        Means over clients and folds: root mean square errors of ratings; for signs of interest 1 − NDCG@10 of lists.

    Notes
    -----
    In a real federation each client holds out its own fifth and sends one number, its error; these add up.
    """
    named = dict(candidates) if isinstance(candidates, Mapping) else dict(enumerate(candidates))
    kinds = {makes_lists(algorithm_of(each)) for each in named.values()}
    if len(kinds) > 1:
        raise DataError("Some candidates predict ratings, others make lists: their errors cannot be compared.")
    if scale is None:
        values = np.concatenate([R.data for R in owners.values()])
        scale = (float(values.min()), float(values.max()))
    errors: dict[Any, list[float]] = {label: [] for label in named}
    for fold in range(folds):
        # A stream of its own for each client, by its place in name order: all candidates see the same split.
        parts = {
            name: hold_out(R, 0.2, np.random.default_rng([22, seed, fold, place]), keep_items=False)
            for place, (name, R) in enumerate(sorted(owners.items()))
        }
        for label, candidate in named.items():
            federation = Federation({name: kept for name, (kept, _) in parts.items()}, missing_values="unstored")
            exchanges = rounds.get(label) if isinstance(rounds, Mapping) else rounds
            how = run_parameters(candidate, rounds=exchanges)
            result = run(algorithm_of(candidate), federation, split="rows", seed=seed, **how)
            error = (
                _lists_error(result.factors, parts)
                if kinds == {True}
                else _owners_error(result.factors, {name: held for name, (_, held) in parts.items()}, scale)
            )
            errors[label].append(error)
    means = {label: float(np.mean(values)) for label, values in errors.items()}
    return min(means, key=lambda label: means[label]), means


def tune_recommender(
    algorithm: Method,
    choices: Mapping[str, Sequence[Any]],
    owners: Mapping[str, Any],
    *,
    trials: int = 20,
    folds: int = 2,
    seconds: float | None = None,
    scale: tuple[float, float] | None = None,
    seed: int = 0,
    progress: bool = False,
) -> Tuned:
    """Tune a federated recommender with Optuna: each trial is a run on four fifths of every client's ratings.

    Parameters
    ----------
    algorithm : estimator or Algorithm
        Has the parameters that are not tuned.
    choices : mapping of str to sequence
        Values to choose from, by setting; ``rounds`` stands for the number of exchanges. When there are no more
        combinations than trials, all are tried.
    owners : mapping of name to CSR matrix
        Training ratings.
    trials : int
        Settings that are tried.
    folds : int
        Random fifths that are held out for each of them.
    seconds : float, optional
        Start no further trial after this time.
    scale : (low, high)
        Predictions are clipped to it.
    seed : int
    progress : bool
        Show a bar.

    Returns
    -------
    Tuned

    Examples
    --------
    >>> from fedfactor import FedSPLIT
    >>> R = sparse.random_array((20, 30), density=0.4, format="csr", rng=np.random.default_rng(0))
    >>> R.data[:] = np.rint(1 + 4 * R.data)
    >>> found = tune_recommender(FedSPLIT(1), {"refine": (0, 5)}, {"a": R[:10], "b": R[10:]}, trials=9, folds=1)
    >>> found.trials
    2
    """
    optuna = _optuna()
    method: Any = algorithm_of(algorithm)

    def objective(trial: Any) -> float:
        found = {name: trial.suggest_categorical(name, list(values)) for name, values in choices.items()}
        rounds = found.pop("rounds", None)
        tried = [replace(method, **found)]
        try:
            error = choose_recommender(tried, owners, folds=folds, scale=scale, seed=seed, rounds=rounds)[1][0]
        except FedfactorError:  # a run that diverged: the worst there is, not the end of the search
            return math.inf
        return error if math.isfinite(error) else math.inf

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    few = math.prod(map(len, choices.values())) <= trials
    sampler = optuna.samplers.GridSampler(dict(choices), seed) if few else optuna.samplers.TPESampler(seed=seed)
    study = optuna.create_study(sampler=sampler)
    study.optimize(objective, n_trials=trials, timeout=seconds, show_progress_bar=progress)
    return Tuned(dict(study.best_params), float(study.best_value), len(study.trials))


def makes_lists(algorithm: Algorithm) -> bool:
    """Distinguish methods that make lists from signs of interest from those that predict ratings."""
    return (
        getattr(algorithm, "feedback", "explicit") == "implicit"
        or isinstance(algorithm, algorithms.Popularity)
        or (not hasattr(algorithm, "feedback") and hasattr(algorithm, "counts"))
    )


def _lists_error(factors: Mapping[str, Any], parts: Mapping[str, tuple[Any, Any]]) -> float:
    """Return one minus the NDCG of lists of ten, mean over clients who have something held out."""
    found: list[float] = []
    for name, kept in factors.items():
        train, held = parts[name]
        if held.nnz:
            n = min(LIST, train.shape[1])
            best, scores = best_by_blocks(lambda some, kept=kept: np.asarray(kept.U[some] @ kept.V), train, n)
            found.append(ranking_scores(np.where(np.isfinite(scores), best, -1), held).ndcg)
    return 1 - float(np.mean(found)) if found else math.nan


def _owners_error(factors: Mapping[str, Any], held: Mapping[str, Any], scale: tuple[float, float]) -> float:
    found: list[float] = []
    for name, kept in factors.items():
        T = held[name].tocoo()
        if T.nnz:
            products: np.ndarray = np.einsum("pk,pk->p", kept.U[T.row], kept.V.T[T.col])
            fitted: np.ndarray = np.minimum(np.maximum(products, scale[0]), scale[1])
            found.append(float(np.sqrt(np.mean(np.square(np.subtract(fitted, T.data))))))
    return float(np.mean(found))


def _error(kept: Any, held: Any, k: int, mu: float, penalty: RatingPenalty, iterations: int, scale: Any) -> float:
    U, V = starting_factors(kept.shape[0], kept.shape[1], k, np.random.default_rng(23), dtype=kept.dtype)
    model = cnmf(kept, U, V, mu, penalty=penalty, iterations=iterations)
    T = held.tocoo()
    predicted = predict_cells(model.U, model.V, model.user, model.item, mu, T.row, T.col)
    fitted: np.ndarray = np.minimum(np.maximum(predicted, scale[0]), scale[1])
    return float(np.sqrt(np.mean(np.square(np.subtract(fitted, T.data)))))


def _watched(names: list[str], progress: bool) -> Iterator[str]:
    if not progress:
        yield from names
        return
    from rich.progress import track

    yield from track(names, description="tuning owners")


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise MissingExtraError.named("optuna", "tune", "Tuning") from None
    return optuna
