"""Quality of a fit in the terms of its model, next to a baseline: explained squares or deviance, wrong cells, RMSE."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.special import kl_div

from fedfactor import algorithms
from fedfactor.algorithm_names import RECOMMENDERS
from fedfactor.core.algorithm import Algorithm, Domain, Layout
from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.input_validation import is_sparse
from fedfactor.core.run import Run
from fedfactor.nmf.pooled.losses import find_loss
from fedfactor.nmf.pooled.losses.kullback_leibler import KullbackLeibler

__all__ = ["fit_quality", "kind_of_fit"]

MOST_CELLS = 20_000_000
"""Dense cells up to which the baseline and the error of each feature are computed."""

MOST_RATINGS = 300_000
"""Ratings up to which a recommender is fitted again, on four fifths of them."""

_BLOCK = 1 << 20
_EQUAL = 1e-5


def kind_of_fit(algorithm: Algorithm, ratings: bool = False) -> str:
    """Name the measure of an algorithm: ``"squared"``, ``"divergence"``, ``"boolean"``, ``"ratings"`` or ``"lists"``.

    Examples
    --------
    >>> kind_of_fit(algorithms.PooledNMF(2)), kind_of_fit(algorithms.PooledNMF(2, loss="kullback-leibler"))
    ('squared', 'divergence')
    """
    if ratings or type(algorithm).__name__ in RECOMMENDERS:
        from fedfactor.evaluation.recommender_tuning import makes_lists

        return "lists" if makes_lists(algorithm) else "ratings"
    if algorithm.domain == Domain.BINARY:
        return "boolean"
    return "squared" if find_loss(getattr(algorithm, "loss", "frobenius")).squared else "divergence"


def fit_quality(run: Run, federation: Federation, *, seed: int = 0) -> dict[str, Any]:
    """Measure a fit in the terms of its model, next to a baseline; all clients' rows are needed.

    Parameters
    ----------
    run : Run
        A finished run without privacy.
    federation : Federation
        The rows that were fitted.
    seed : int, default=0
        Seed of the split, where ratings are held out.

    Returns
    -------
    dict
        ``kind``; for rows ``explained`` (share of the sum of squares, or of the deviance from rows that are constant),
        for Boolean rows ``precision``, ``recall`` and ``errors_per_100_ones``; for recommenders ``held_out_rmse`` or
        ``held_out_ndcg``. ``baseline`` has the same figures and a ``name``; ``features`` has one figure per feature.

    Examples
    --------
    >>> from fedfactor.engines.run import run
    >>> X = np.outer([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 2.0, 3.0])
    >>> rows = Federation({"a": X})
    >>> found = fit_quality(run(algorithms.PooledNMF(1), rows, seed=0), rows)
    >>> found["kind"], round(found["explained"], 3), round(found["baseline"]["explained"], 3)
    ('squared', 1.0, 0.808)
    """
    kind = kind_of_fit(run.algorithm)
    if kind in ("ratings", "lists"):
        return _recommender(run, federation, kind, seed)
    score = run.score
    explained = 1 - float(score.sse) / float(score.total) if float(score.total) > 0 else 0.0
    found: dict[str, Any] = {"kind": kind} | ({} if kind == "boolean" else {"explained": explained})
    cells = sum(federation.shard(name).n_rows for name in federation.names) * federation.n_features
    here = run.algorithm.layout == Layout.ROWS and set(run.factors) == set(federation.names)
    if not here or cells > MOST_CELLS or any(not isinstance(kept.U, np.ndarray) for kept in run.factors.values()):
        return found
    return found | (_boolean(run, federation) if kind == "boolean" else _rows(run, federation, kind))


def _blocks(run: Run, federation: Federation) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Yield dense blocks of rows, what the factors make of them, and which cells are observed."""
    for name, kept in run.factors.items():
        shard = federation.shard(name)
        step = max(1, _BLOCK // max(1, shard.n_features))
        for start in range(0, shard.n_rows, step):
            part = slice(start, start + step)
            fitted = kept.U[part] @ kept.V
            if kept.U_private is not None and kept.V_private is not None:
                fitted = fitted + kept.U_private[part] @ kept.V_private
            yield *_dense(shard, part), np.asarray(fitted, np.float64)


def _dense(shard: Shard, part: slice) -> tuple[np.ndarray, np.ndarray]:
    X: Any = shard.X[part]
    if isinstance(shard.mask, str):
        seen = X.copy()
        seen.data = np.ones_like(seen.data)
        return np.asarray(X.toarray(), np.float64), np.asarray(seen.toarray() > 0)
    X = np.asarray(X.toarray() if is_sparse(X) else X, np.float64)
    seen = np.ones(X.shape, bool) if shard.mask is None else np.asarray(shard.mask[part], bool)
    return np.where(seen, X, 0), seen


def _rows(run: Run, federation: Federation, kind: str) -> dict[str, Any]:
    """Compare the fit with the mean of each feature, overall and by feature."""
    m = federation.n_features
    sums = np.zeros(m)
    counts = np.zeros(m)
    for X, seen, _ in _blocks(run, federation):
        sums += X.sum(axis=0)
        counts += seen.sum(axis=0)
    mean = np.divide(sums, counts, out=np.zeros(m), where=counts > 0)
    profile = sums / sums.sum() if sums.sum() > 0 else np.zeros(m)
    loss = find_loss(getattr(run.algorithm, "loss", "frobenius"))
    poisson = isinstance(loss, KullbackLeibler) and bool(np.all(counts == federation.n_rows))
    residual = np.zeros(m)
    simple = np.zeros(m)
    for X, seen, fitted in _blocks(run, federation):
        plain = X.sum(axis=1, keepdims=True) * profile if poisson else np.broadcast_to(mean, X.shape)
        residual += _cost(loss, X, fitted, seen)
        simple += _cost(loss, X, plain, seen)
    score = run.score
    if not abs(residual.sum() - float(score.sse)) <= _EQUAL * float(score.total):
        return {}  # the method predicts by more than U V, such as a mean beside it
    name = "row totals times the mean profile" if poisson else "mean of each feature"
    explained = 1 - simple.sum() / float(score.total) if float(score.total) > 0 else 0.0
    by_feature = [1 - r / s if s > 0 else None for r, s in zip(residual.tolist(), simple.tolist(), strict=True)]
    return {"baseline": {"name": name, "explained": float(explained)}, "features": by_feature}


def _cost(loss: Any, X: np.ndarray, fitted: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Return the squared error, or twice the divergence, of each feature over observed cells."""
    if loss.squared:
        cost = np.square(X - fitted)
    else:
        x = np.where(seen, X, 1.0)
        y = np.where(seen, fitted, 1.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            cost = 2 * (kl_div(x, y) if isinstance(loss, KullbackLeibler) else loss.cells(x, y))
    return np.where(seen, cost, 0).sum(axis=0)


def _boolean(run: Run, federation: Federation) -> dict[str, Any]:
    """Count the ones that were found, those that were not, and those that are none."""
    m = federation.n_features
    ones = np.zeros(m)
    made = np.zeros(m)
    both = np.zeros(m)
    counts = np.zeros(m)
    for X, seen, fitted in _blocks(run, federation):
        x = (X > 0) & seen
        y = (fitted > 0) & seen
        ones += x.sum(axis=0)
        made += y.sum(axis=0)
        both += (x & y).sum(axis=0)
        counts += seen.sum(axis=0)
    wrong = ones + made - 2 * both
    if abs(wrong.sum() - float(run.score.sse)) > _EQUAL * max(1.0, float(run.score.total)):
        return {}
    common = 2 * ones > counts
    plain = {
        "name": "1 for each feature that is mostly 1",
        **_ones(ones.sum(), counts[common].sum(), ones[common].sum()),
    }
    by_feature = [w / o if o > 0 else None for w, o in zip((100 * wrong).tolist(), ones.tolist(), strict=True)]
    return {**_ones(ones.sum(), made.sum(), both.sum()), "baseline": plain, "features": by_feature}


def _ones(ones: float, made: float, both: float) -> dict[str, Any]:
    return {
        "precision": float(both / made) if made else None,
        "recall": float(both / ones) if ones else None,
        "errors_per_100_ones": float(100 * (ones + made - 2 * both) / ones) if ones else None,
    }


def _recommender(run: Run, federation: Federation, kind: str, seed: int) -> dict[str, Any]:
    """Fit again on four fifths of each client's ratings and judge the fifth, next to averages or popularity."""
    from fedfactor.evaluation.recommender_tuning import choose_recommender

    owners = {name: federation.shard(name).X for name in federation.names}
    found: dict[str, Any] = {"kind": kind}
    if not all(is_sparse(R) for R in owners.values()) or sum(R.nnz for R in owners.values()) > MOST_RATINGS:
        return found
    simple: Algorithm = algorithms.Popularity() if kind == "lists" else algorithms.Biases()
    name = "most popular items" if kind == "lists" else "averages of users and items"
    errors = choose_recommender(
        {"model": run.algorithm, "baseline": simple}, owners, folds=1, seed=seed, rounds={"model": run.rounds}
    )[1]
    label = "held_out_ndcg" if kind == "lists" else "held_out_rmse"
    value = {each: float(1 - error if kind == "lists" else error) for each, error in errors.items()}
    return found | {label: value["model"], "seed": seed, "baseline": {"name": name, label: value["baseline"]}}
