"""The paper's split: no common users, some common items, and items of each client's own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from fedfactor.core.client_data import Federation
from fedfactor.core.client_items import ItemShard
from fedfactor.core.random_streams import stream
from fedfactor.datasets.loading import load_dataset

__all__ = ["Split", "movies", "split"]


def movies(least: int = 20) -> sparse.csr_array:
    """Return who rated what in MovieLens latest-small, movies of at least so many ratings (1: all 9,724)."""
    X = load_dataset("movielens_small").X
    keep = np.bincount(X.indices, minlength=X.shape[1]) >= least
    X = sparse.csr_array(X[:, np.flatnonzero(keep)])
    return sparse.csr_array((np.ones(X.nnz, np.float32), X.indices, X.indptr), shape=X.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Who has what: rows and own columns of each client, and the columns common to all of them."""

    X: sparse.csr_array
    rows: dict[str, np.ndarray]
    own: dict[str, np.ndarray]
    common: np.ndarray

    def foreign(self, name: str) -> np.ndarray:
        """Return the columns that others hold and this client does not."""
        return np.sort(np.concatenate([c for other, c in self.own.items() if other != name] or [self.common[:0]]))

    def truth(self, name: str, columns: np.ndarray) -> np.ndarray:
        """Return the cells of a client's users in some columns."""
        return self.X[self.rows[name]][:, columns].toarray()

    def federation(self) -> Federation:
        """Return the clients, each with its own users and items: cells of foreign items are not there."""
        shards: dict[str, Any] = {}
        for name, rows in self.rows.items():
            held = np.sort(np.concatenate([self.common, self.own[name]]))
            keep = np.zeros(self.X.shape[1], np.float32)
            keep[held] = 1
            X = sparse.csr_array(self.X[rows].multiply(keep[None, :]))
            X.eliminate_zeros()
            shards[name] = ItemShard(X, held=held)
        return Federation(shards)

    def pooled(self, honest: bool = False) -> Federation:
        """Return one owner of everything; an honest one keeps the cells aside on which clients are tested."""
        holdout = None
        if honest:
            holdout = np.zeros(self.X.shape, bool)
            for name, rows in self.rows.items():
                holdout[np.ix_(rows, self.foreign(name))] = True
        return Federation({"all": ItemShard(self.X, holdout=holdout)})


def split(
    X: sparse.csr_array,
    *,
    clients: int = 2,
    common: float = 0.5,
    users: float | None = None,
    items: float | None = None,
    seed: int = 0,
) -> Split:
    """Deal users and items at random.

    Parameters
    ----------
    X : CSR matrix of zeros and ones
    clients : int
    common : float
        Share of the items that all clients hold.
    users, items : float, optional
        Client 1's share of the users, and of the items that are not common; by default all clients have the same.
    seed : int

    Examples
    --------
    >>> found = split(sparse.csr_array(np.ones((10, 8))), common=0.5, users=0.2)
    >>> [len(rows) for rows in found.rows.values()], len(found.common), [len(c) for c in found.own.values()]
    ([2, 8], 4, [2, 2])
    """
    rng = stream("feddmf split", seed)
    n, m = X.shape
    names = [f"client {i + 1}" for i in range(clients)]
    order, columns = rng.permutation(n), rng.permutation(m)
    n_common = round(common * m)
    rows = _cut(order, clients, users)
    own = _cut(columns[n_common:], clients, items)
    return Split(
        X,
        {name: np.sort(part) for name, part in zip(names, rows, strict=True)},
        {name: np.sort(part) for name, part in zip(names, own, strict=True)},
        np.sort(columns[:n_common]),
    )


def _cut(order: np.ndarray, parts: int, first: float | None) -> list[np.ndarray]:
    if first is None:
        return np.array_split(order, parts)
    cut = round(first * len(order))
    return [order[:cut], *np.array_split(order[cut:], parts - 1)]
