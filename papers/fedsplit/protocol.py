"""The paper's protocol: which ratings, which split, which groups, and how errors are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from fedfactor.core.client_data import Federation
from fedfactor.datasets.loading import available, load_dataset
from fedfactor.recommend.ratings import deal_groups, filter_ratings, split_ratings

__all__ = ["SCALE", "Split", "group_errors", "make_split", "prepared", "present"]

SCALE = (1.0, 5.0)


def present() -> list[str]:
    """Name the data sets of the paper that are here."""
    return [name for name in ("movielens_small", "movielens_1m") if available()[name]]


def prepared(name: str) -> sparse.csr_array:
    """Return the ratings of users with at least 20, then of movies with at least 20; half stars become one star."""
    R, _, _ = filter_ratings(load_dataset(name).X.astype(np.float64), per_user=20, per_item=20)
    R.data[:] = np.maximum(R.data, 1.0)
    return R


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """One repetition: training and test ratings, and the users of each group."""

    train: sparse.csr_array
    test: sparse.csr_array
    groups: Mapping[str, np.ndarray]

    @property
    def owners(self) -> dict[str, sparse.csr_array]:
        """Training ratings of each group."""
        return {name: self.train[rows] for name, rows in self.groups.items()}

    @property
    def federation(self) -> Federation:
        """Return what an engine takes."""
        return Federation(self.owners, missing_values="unstored")

    @property
    def mean_of_means(self) -> float:
        """The mean that the paper's server computes."""
        return float(np.mean([R.data.mean() for R in self.owners.values()]))


def make_split(R: sparse.csr_array, seed: int) -> Split:
    """Hold out a fifth of the ratings and deal users to groups of 3 to 30."""
    train, test = split_ratings(R, 0.2, seed=seed)
    labels = deal_groups(R.shape[0], least=3, most=30, seed=seed)
    groups = {name: np.flatnonzero(labels == name) for name in np.unique(labels).tolist()}
    return Split(train, test, groups)


Predict = Callable[[str, np.ndarray, np.ndarray], np.ndarray]


def group_errors(split: Split, predict: Predict) -> dict[str, Any]:
    """Return the root mean square error of each group, and those over groups and over ratings.

    ``macro_mse`` is the mean over groups of mean *squared* errors, without a root: what the paper's figures turn out
    to be.

    Parameters
    ----------
    split : Split
    predict : callable
        ``(group, rows within the group, columns) -> ratings``; clipped to 1..5 here.
    """
    by_group, absolute, squared, count = {}, {}, 0.0, 0
    for name, rows in split.groups.items():
        T = split.test[rows].tocoo()
        if not T.nnz:
            continue
        off = np.clip(predict(name, T.row, T.col), *SCALE) - T.data
        by_group[name] = float(np.sqrt(np.mean(off**2)))
        absolute[name] = float(np.mean(np.abs(off)))
        squared, count = squared + float(off @ off), count + len(off)
    values = list(by_group.values())
    return {
        "macro": float(np.mean(values)),
        "macro_mse": float(np.mean(np.square(values))),
        "micro": float(np.sqrt(squared / count)),
        "mae": float(np.mean(list(absolute.values()))),
        "by_group": by_group,
    }
