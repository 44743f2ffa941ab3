"""Cells that each client holds out, to find out how well the others predict them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse

from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.errors import DataError
from fedfactor.core.input_validation import is_sparse
from fedfactor.core.pytree import Array
from fedfactor.linalg.products import stored_rows

MOST_CELLS = 50_000_000
"""Cells of one client's sparse matrix that may be written out: holding out zeros needs to know where they are."""


def hold_out(shard: Shard, share: float, rng: np.random.Generator) -> Shard:
    """Mark a random share of a client's observed cells as missing, and keep them for the score.

    Parameters
    ----------
    shard : Shard
        The rows; their values are shared, not copied.
    share : float
        Between 0 and 1. Of a row with few observed cells at least one stays observed.
    rng : Generator

    Returns
    -------
    Shard
        The same rows, fewer observed cells, and a ``holdout``.

    Examples
    --------
    >>> kept = hold_out(Shard.of(np.ones((40, 10))), 0.1, np.random.default_rng(0))
    >>> bool((kept.mask ^ kept.holdout).all()), 20 < int(kept.holdout.sum()) < 60
    (True, True)
    """
    if isinstance(shard.mask, str):
        return _hold_out_stored(shard, share, rng)
    X = _dense(shard.X)
    seen = np.ones(tuple(X.shape), bool) if shard.mask is None else np.asarray(shard.mask)
    held = (rng.random(seen.shape) < share) & seen
    for row in np.flatnonzero(~(seen & ~held).any(axis=1) & seen.any(axis=1)):
        held[row, np.flatnonzero(seen[row])[0]] = False
    mask = seen & ~held
    return Shard(X, _like(mask, X), shard.features, _like(held, X))


def hold_out_all(federation: Federation, share: float, seed: int) -> Federation:
    """Let every client hold out cells of its own choice, from a stream of its own."""

    def stream(name: str) -> np.random.Generator:
        digest = hashlib.sha256(repr((int(seed), name, "holdout")).encode()).digest()
        return np.random.default_rng(np.frombuffer(digest, dtype=np.uint32))

    def opener(name: str) -> Callable[[], Shard]:
        return lambda: hold_out(federation.shard(name), share, stream(name))

    return Federation({name: opener(name) for name in federation.names})  # where a client is needed, and only there


def _hold_out_stored(shard: Shard, share: float, rng: np.random.Generator) -> Shard:
    X: Any = shard.X
    nnz: int = X.nnz
    held = rng.random(nnz) < share
    starts = X.indptr[:-1][np.diff(X.indptr) > 0]
    held[starts[np.logical_and.reduceat(held, starts)] if len(starts) else []] = False
    rows = stored_rows(X)

    def part(which: np.ndarray) -> Any:
        indptr = np.concatenate(([0], np.cumsum(np.bincount(rows[which], minlength=X.shape[0]))))
        return scipy.sparse.csr_array((X.data[which], X.indices[which], indptr), shape=X.shape)

    return Shard(part(~held), "stored", shard.features, part(held))


def _dense(X: Array) -> Array:
    if not is_sparse(X):
        return X
    if X.shape[0] * X.shape[1] > MOST_CELLS:
        raise DataError(
            f"Holding out cells of a sparse matrix needs its zeros written out, but {X.shape[0]} × {X.shape[1]} cells "
            "are too many. Take fewer rows or columns, or say missing_values='unstored' if unstored cells are missing."
        )
    return X.toarray()


def _like(mask: np.ndarray, X: Array) -> Array:
    return X.new_tensor(mask) != 0 if hasattr(X, "detach") else mask
