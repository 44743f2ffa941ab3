"""Twelve binary tables: wrong cells over ones of PooledBMF and of central solvers on pooled rows.

Five of the tables have many equal rows, three of these more rows than the default `sample`. The list, the rank and the
seeds were written down before any result was seen. Central solvers get their own U or the one chosen for their V,
whichever is better; ELBMF gets the better of two starts. ``python -m benchmarks.boolean_rows`` prints the table.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse
from sklearn.datasets import load_breast_cancer, load_digits

import fedfactor
from fedfactor.algorithms import PooledBMF
from fedfactor.boolean import bit_matrix as bits
from fedfactor.boolean.counting import choose, observed
from fedfactor.boolean.solvers.registry import factor
from fedfactor.datasets.loading import data_folder, load_dataset

RANK = 6
OWNERS, DEAL_SEED = 5, 0
RIVALS = {"asso": (0,), "grecond": (0,), "mebf": (0,), "elbmf": (0, 1)}
"""Central solvers and their seeds."""


def stored(name: str) -> np.ndarray:
    """Return a named binary table as a dense array of zeros and ones."""
    X = load_dataset(name).X
    return (X.toarray() if scipy.sparse.issparse(X) else np.asarray(X)) > 0.5


def movie_genres() -> np.ndarray:
    """Return movies by genres: 9,742 rows, of which fewer than a thousand differ."""
    with gzip.open(data_folder() / "movielens-latest-small" / "movies.csv.gz", "rt", encoding="utf-8") as file:
        rows = [set(row["genres"].split("|")) for row in csv.DictReader(file)]
    names = sorted(set().union(*rows))
    return np.array([[name in row for name in names] for row in rows])


def frequent_words(size: int = 30) -> np.ndarray:
    """Return newsgroup posts by the words that occur in most posts."""
    X = scipy.sparse.csc_array(load_dataset("newsgroups").X > 0)
    order = np.argsort(-np.diff(X.indptr), kind="stable")[:size]
    return X[:, order].toarray()


def repeated_baskets(seed: int = 0) -> np.ndarray:
    """Return 12,000 rows drawn by Zipf's law from 600 noisy unions of eight patterns of 60 columns."""
    rng = np.random.default_rng(seed)
    unions = (rng.random((600, 8)) < 0.25).astype(int) @ (rng.random((8, 60)) < 0.2).astype(int) > 0
    kinds = unions ^ (rng.random(unions.shape) < 0.03)
    weight = 1 / np.arange(1, 601)
    return kinds[rng.choice(600, 12_000, p=weight / weight.sum())]


SETS: dict[str, Callable[[], np.ndarray]] = {
    "mushroom": lambda: stored("mushroom"),
    "chess": lambda: stored("chess"),
    "roles americas": lambda: stored("roles_americas_small"),
    "roles apj": lambda: stored("roles_apj"),
    "roles fire1": lambda: stored("roles_fire1"),
    "roles hc": lambda: stored("roles_hc"),
    "digits > 7": lambda: load_digits().data > 7,
    "breast > median": lambda: (lambda X: X > np.median(X, axis=0))(load_breast_cancer().data),
    "mushroom, every 3rd": lambda: stored("mushroom")[:, ::3],
    "movie genres": movie_genres,
    "newsgroups, 30 words": frequent_words,
    "repeated baskets": repeated_baskets,
}


def federated(X: np.ndarray, rank: int) -> float:
    """Return the loss of PooledBMF with its defaults."""
    owners = np.array_split(X[np.random.default_rng(DEAL_SEED).permutation(len(X))].astype(float), OWNERS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(fedfactor.run(PooledBMF(rank), owners, seed=0).score.sse) / X.sum()


def central(X: np.ndarray, name: str, rank: int, seconds: float) -> tuple[float, bool]:
    """Return the least loss over the seeds of a central solver, and whether no start was cut short."""
    data: Any = X.astype(float)
    if X.mean() < 0.1:
        data = scipy.sparse.csr_array(data)
    rows = observed(X.astype(float))
    wrong, finished = [], True
    for seed in RIVALS[name]:
        found = factor(data, rank, name, rng=np.random.default_rng(seed), time_limit=seconds)
        V = bits.pack(found.V)
        ones, made, both = bits.count_cells(rows.ones, found.U, V)
        wrong += [ones + made - 2 * both, choose(rows, V)[1][0]]
        finished &= found.finished
    return min(wrong) / X.sum(), finished


def main() -> None:
    """Print the table, then on how many tables PooledBMF is at or below the best central solver."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.boolean_rows", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="limit of one start of a central solver")
    parser.add_argument("--rank", type=int, default=RANK)
    parser.add_argument("--only", action="append", choices=list(SETS), help="a table; may be repeated")
    parser.add_argument("--federated-only", action="store_true", help="run no central solver")
    options = parser.parse_args()
    rivals = [] if options.federated_only else list(RIVALS)
    print(
        f"{'table':22}{'rows':>7}{'distinct':>9}{'cols':>6}{'PooledBMF':>11}",
        *(f"{name:>10}" for name in rivals),
        " above best",
    )
    above = []
    for label in options.only or SETS:
        X = SETS[label]()
        mine = federated(X, options.rank)
        size = f"{len(X):7}{len(np.unique(X, axis=0)):9}{X.shape[1]:6}"
        print(f"{label:22}{size}{mine:11.5f}", end=" ", flush=True)
        others = []
        for name in rivals:
            loss, finished = central(X, name, options.rank, options.seconds)
            others.append(loss)
            print(f"{loss:9.5f}{' ' if finished else '*'}", end=" ", flush=True)
        if others:
            above.append(mine / min(others) - 1)
            print(f"{above[-1]:+11.3%}", end="")
        print(flush=True)
    if above:
        print(f"at or below the best: {sum(one <= 0 for one in above)} of {len(above)}; worst {max(above):+.3%}")
        print("* a start was cut short at the limit")


if __name__ == "__main__":
    main()
