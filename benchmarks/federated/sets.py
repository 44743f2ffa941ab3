"""Data sets of the benchmark of federated factorization: rows, labels of the rows, and the rank to use."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from fedfactor.datasets.loading import data_folder, load_dataset


class Data(NamedTuple):
    """Rows, a label for each, and a rank."""

    X: Any
    y: np.ndarray
    rank: int


def stored(name: str, rank: int = 6) -> Data:
    """Return a named binary table; its label is the value of the column that is nearest to half ones."""
    X = load_dataset(name).X
    X = (X.toarray() if scipy.sparse.issparse(X) else np.asarray(X)) > 0.5
    return binary(X, rank)


def binary(X: np.ndarray, rank: int = 6) -> Data:
    """Return zeros and ones with labels from the column that is nearest to half ones."""
    return Data(X.astype(float), X[:, np.argmin(abs(X.mean(axis=0) - 0.5))].astype(int), rank)


def movie_genres() -> Data:
    """Return movies by genres: 9,742 rows, of which fewer than a thousand differ."""
    with gzip.open(data_folder() / "movielens-latest-small" / "movies.csv.gz", "rt", encoding="utf-8") as file:
        rows = [set(row["genres"].split("|")) for row in csv.DictReader(file)]
    names = sorted(set().union(*rows))
    return binary(np.array([[name in row for name in names] for row in rows]))


def frequent_words(size: int = 30) -> Data:
    """Return newsgroup posts by the words that occur in most posts."""
    X = scipy.sparse.csc_array(load_dataset("newsgroups").X > 0)
    order = np.argsort(-np.diff(X.indptr), kind="stable")[:size]
    return binary(X[:, order].toarray())


def repeated_baskets(seed: int = 0) -> Data:
    """Return 12,000 rows drawn by Zipf's law from 600 noisy unions of eight patterns of 60 columns."""
    rng = np.random.default_rng(seed)
    unions = (rng.random((600, 8)) < 0.25).astype(int) @ (rng.random((8, 60)) < 0.2).astype(int) > 0
    kinds = unions ^ (rng.random(unions.shape) < 0.03)
    weight = 1 / np.arange(1, 601)
    return binary(kinds[rng.choice(600, 12_000, p=weight / weight.sum())])


def mixture(seed: int, n: int, m: int, k: int, *, sparsity: float, noise: float, units: bool = False) -> Data:
    """Draw a product of gamma factors with gamma noise; the label of a row is its largest component."""
    rng = np.random.default_rng(seed)
    U = rng.gamma(sparsity, size=(n, k))
    X = (U @ rng.gamma(sparsity, size=(k, m)) + 0.01) * rng.gamma(noise, 1 / noise, (n, m))
    return Data(X * 10.0 ** rng.uniform(-1, 2, m) if units else X, U.argmax(axis=1), k)


def counts(seed: int, n: int, m: int, k: int, mean: float) -> Data:
    """Draw Poisson counts of a mixture with this mean."""
    found = mixture(seed, n, m, k, sparsity=0.4, noise=1e6)
    return Data(np.random.default_rng(seed + 1).poisson(found.X / found.X.mean() * mean).astype(float), found.y, k)


def posts(words: int = 500, step: int = 12) -> Data:
    """Return every twelfth newsgroup post, counts of its frequent words, labelled by group."""
    data = load_dataset("newsgroups")
    X = scipy.sparse.csc_array(data.X, dtype=np.float64)
    X = scipy.sparse.csr_array(X[:, np.argsort(-np.diff(X.indptr), kind="stable")[:words]])[::step]
    seen = np.diff(X.indptr) > 0
    return Data(X[seen], np.asarray(data.y)[::step][seen], 10)


def measured(loader: Callable[..., Any], rank: int) -> Data:
    """Return a table in raw units, shifted by a thousandth, as powers of zero are infinite."""
    found = loader()
    return Data(np.asarray(found.data) + 1e-3, np.asarray(found.target), rank)


def units(data: Data) -> Data:
    """Return rows of a laboratory: every column with a level and a unit of its own."""
    rng = np.random.default_rng(2101)
    level = 10.0 ** rng.uniform(-2, 4, data.X.shape[1])
    return data._replace(X=level * (0.7 + 0.3 * data.X / data.X.mean(axis=0)))


def films() -> Data:
    """Return ratings of MovieLens latest-small; users are labelled by how much they rate."""
    X = scipy.sparse.csr_array(load_dataset("movielens_small").X.astype(np.float64))
    return by_activity(X, 16)


def liked() -> Data:
    """Return films rated 4 or more that ten users like."""
    X = films().X
    X = scipy.sparse.csr_array(X.multiply(X >= 4))
    X.eliminate_zeros()
    X.data[:] = 1
    return by_activity(frequent(X, 10), 32)


def frequent(X: Any, least: int) -> scipy.sparse.csr_array:
    """Return the columns that so many rows have, and rows of three cells or more."""
    X = scipy.sparse.csr_array(X[:, np.bincount(X.indices, minlength=X.shape[1]) >= least])
    return X[np.diff(X.indptr) >= 3]


def by_activity(X: scipy.sparse.csr_array, rank: int) -> Data:
    """Label users by the quarter of users that rate as many items."""
    size = np.diff(X.indptr)
    return Data(X, np.searchsorted(np.quantile(size, (0.25, 0.5, 0.75)), size), rank)


def made_ratings(seed: int, n: int, m: int, each: int, k: int = 6) -> Data:
    """Draw ratings of 1 to 5 from biases and factors, `each` for a user, popular items more often."""
    rng = np.random.default_rng(seed)
    wish = 3.5 + 0.4 * rng.standard_normal((n, 1)) + 0.5 * rng.standard_normal(m)
    wish = wish + 0.6 / np.sqrt(k) * rng.standard_normal((n, k)) @ rng.standard_normal((k, m))
    popular = rng.pareto(1.5, m) + 0.2
    X = np.zeros((n, m))
    for user in range(n):
        items = rng.choice(m, each, replace=False, p=popular / popular.sum())
        X[user, items] = np.clip(np.rint(wish[user, items] + 0.7 * rng.standard_normal(each)), 1, 5)
    return by_activity(scipy.sparse.csr_array(X), 8)


def purchases(seed: int, n: int, m: int, mean: int) -> Data:
    """Draw baskets: users buy mostly within two of 40 groups of items, and popular items anywhere."""
    rng = np.random.default_rng(seed)
    popular = rng.pareto(1.2, m) + 0.1
    group = rng.integers(40, size=m)
    X = np.zeros((n, m))
    for user in range(n):
        inside = np.isin(group, rng.choice(40, 2)) * popular
        chance = 0.7 * inside / max(inside.sum(), 1e-12) + 0.3 * popular / popular.sum()
        X[user, rng.choice(m, 2 + rng.poisson(mean - 2), p=chance / chance.sum())] = 1
    return by_activity(frequent(scipy.sparse.csr_array(X), 5), 32)


SETS: dict[str, dict[str, Callable[[], Data]]] = {
    "squared error": {
        "digits": lambda: Data(*load_digits(return_X_y=True), 10),
        "wine, raw units": lambda: measured(load_wine, 5),
        "breast cancer, raw units": lambda: measured(load_breast_cancer, 5),
        "laboratory, raw units": lambda: units(mixture(2102, 400, 14, 5, sparsity=0.6, noise=50)),
        "gamma mixture": lambda: mixture(2103, 300, 60, 6, sparsity=0.5, noise=3),
    },
    "counts": {
        "newsgroup posts": posts,
        "planted, mean 3": lambda: counts(2111, 300, 60, 6, 3),
        "planted, mean 0.3": lambda: counts(2112, 500, 100, 4, 0.3),
    },
    "divergences": {
        "wine": lambda: measured(load_wine, 4),
        "breast cancer": lambda: (lambda found: found._replace(X=found.X[:300], y=found.y[:300]))(
            measured(load_breast_cancer, 5)
        ),
        "gamma mixture, 40 columns": lambda: mixture(2001, 250, 40, 5, sparsity=0.5, noise=3),
        "gamma mixture, 2,500 columns": lambda: mixture(2002, 120, 2500, 6, sparsity=0.4, noise=2),
        "raw units, 2,200 columns": lambda: mixture(2004, 100, 2200, 5, sparsity=0.3, noise=4, units=True),
    },
    "Boolean": {
        "mushroom": lambda: stored("mushroom"),
        "chess": lambda: stored("chess"),
        "roles americas": lambda: stored("roles_americas_small"),
        "roles apj": lambda: stored("roles_apj"),
        "roles fire1": lambda: stored("roles_fire1"),
        "roles hc": lambda: stored("roles_hc"),
        "digits > 7": lambda: binary(load_digits().data > 7),
        "breast > median": lambda: (lambda X: binary(X > np.median(X, axis=0)))(load_breast_cancer().data),
        "mushroom, every 3rd": lambda: binary(stored("mushroom").X[:, ::3] > 0),
        "movie genres": movie_genres,
        "newsgroups, 30 words": frequent_words,
        "repeated baskets": repeated_baskets,
    },
    "ratings": {
        "MovieLens latest-small": films,
        "made, 20 each": lambda: made_ratings(2121, 800, 400, 20),
        "made, 8 each": lambda: made_ratings(2122, 1500, 300, 8),
    },
    "lists of items": {
        "MovieLens, 4 or more": liked,
        "purchases, 6 each": lambda: purchases(2131, 3000, 600, 6),
        "purchases, 15 each": lambda: purchases(2132, 1500, 600, 15),
    },
}
"""Task → name → loader. Seeds and sizes were written down before any result was seen."""
