"""Columns that all clients have, or that any of them has, for tables that do not name the same ones."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import numpy as np

from fedfactor.core.client_data import Shard
from fedfactor.core.errors import DataError
from fedfactor.core.input_validation import is_sparse
from fedfactor.core.printable_text import listed

_log = logging.getLogger("fedfactor.data")


def common_columns(shards: dict[str, Shard], how: str) -> dict[str, Shard]:
    """Bring the rows of all clients to the same columns, in the order of the client that has them first.

    Parameters
    ----------
    shards : dict of str to Shard
        With feature names.
    how : {"intersection", "union"}
        Keep the columns that all clients have, or all columns; cells of a column that a client lacks are missing.

    Examples
    --------
    >>> north, south = Shard(np.ones((2, 2)), None, ("a", "b")), Shard(np.ones((1, 2)), None, ("b", "c"))
    >>> common_columns({"north": north, "south": south}, "intersection")["south"].features
    ('b',)
    >>> common_columns({"north": north, "south": south}, "union")["south"].mask.tolist()
    [[False, True, True]]
    """
    names = {owner: shard.features for owner, shard in shards.items()}
    bare = [owner for owner, features in names.items() if features is None]
    if bare:
        raise DataError(f"--how {how} compares column names, but those of owner {bare[0]!r} have none. Leave it out.")
    every = list(dict.fromkeys(name for features in names.values() for name in features or ()))
    shared = [name for name in every if all(name in (features or ()) for features in names.values())]
    rest = [name for name in every if name not in set(shared)]
    if how == "intersection" and not shared:
        raise DataError("--how intersection: no column is known to all owners. Check the names of the columns.")
    if rest:
        kept = "left out" if how == "intersection" else "missing at some owners"
        _log.info("%s", f"columns that not all owners have, {kept}: {listed(rest)}.")
    wanted = tuple(shared if how == "intersection" else every)
    return {owner: _brought(owner, shard, wanted) for owner, shard in shards.items()}


def _brought(owner: str, shard: Shard, wanted: tuple[str, ...]) -> Shard:
    place = {name: j for j, name in enumerate(shard.features or ())}
    columns = np.array([place.get(name, -1) for name in wanted])
    known = columns >= 0
    X: Any = shard.X
    if known.all():
        mask = shard.mask if shard.mask is None or isinstance(shard.mask, str) else shard.mask[:, columns]
        return replace(shard, X=X[:, columns], mask=mask, features=wanted)
    if is_sparse(X):
        raise DataError(
            f"--how union marks missing cells, but the rows of owner {owner!r} are sparse. Use intersection."
        )
    wide = np.zeros((X.shape[0], len(wanted)), X.dtype)
    wide[:, known] = X[:, columns[known]]
    mask = np.zeros(wide.shape, bool)
    mask[:, known] = True if shard.mask is None else np.asarray(shard.mask)[:, columns[known]]
    return replace(shard, X=wide, mask=mask, features=wanted)
