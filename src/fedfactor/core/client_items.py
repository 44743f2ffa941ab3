"""Clients that hold some items of a common catalogue, and may keep some of those to themselves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedfactor.core.client_data import Shard
from fedfactor.core.errors import DataError


@dataclass(frozen=True, slots=True, eq=False)
class ItemShard(Shard):
    """Rows over the columns of a whole catalogue, of which this client holds a part.

    Parameters
    ----------
    X : array or CSR matrix of shape (n_rows, m)
        Nothing is stored in columns of items that the client does not hold.
    held : int array, optional
        Columns of the items that the client holds, rising; None: all of them.
    withheld : int array, optional
        Columns among them of which nothing may leave the client.
    """

    held: np.ndarray | None = None
    withheld: np.ndarray | None = None


def held_columns(shard: Shard) -> np.ndarray:
    """Return the columns of the items that a client holds: all of them, unless its shard lists some.

    Examples
    --------
    >>> held_columns(ItemShard(np.ones((2, 3)), held=np.array([0, 2])))
    array([0, 2])
    """
    held = shard.held if isinstance(shard, ItemShard) else None
    if held is None:
        return np.arange(shard.n_features)
    held = np.asarray(held, dtype=np.int64)
    if held.ndim != 1 or (held.size and (held[0] < 0 or held[-1] >= shard.n_features or (np.diff(held) <= 0).any())):
        raise DataError(f"held must list columns below {shard.n_features} in rising order, each of them once.")
    return held


def open_columns(shard: Shard) -> np.ndarray:
    """Return those held columns of which vectors may be sent.

    Examples
    --------
    >>> open_columns(ItemShard(np.ones((2, 3)), held=np.array([0, 2]), withheld=np.array([2])))
    array([0])
    """
    held = held_columns(shard)
    hidden = shard.withheld if isinstance(shard, ItemShard) else None
    return held if hidden is None else np.setdiff1d(held, hidden)
