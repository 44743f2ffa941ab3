"""Columns that too few rows fill: found by securely aggregated counts, and kept out of everything that follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse

from fedfactor.core.client_data import Federation, Shard
from fedfactor.privacy.minimums import Minimums
from fedfactor.privacy.secure_aggregation.transform import SecureSum, sum_securely

__all__ = ["Support", "column_support", "rare_columns", "without_columns"]


@dataclass(frozen=True, slots=True)
class Support:
    """How many rows, and how many clients, fill each column."""

    rows: np.ndarray
    clients: np.ndarray

    def below(self, minimums: Minimums) -> np.ndarray:
        """Return the columns with values, but too few of them."""
        few = (self.rows < minimums.column_rows) | (self.clients < minimums.column_clients)
        return np.flatnonzero(few & (self.rows > 0))


def column_counts(shard: Shard) -> np.ndarray:
    """Count the rows of one client that fill each column."""
    X = shard.X
    if scipy.sparse.issparse(X):
        return np.bincount(np.asarray(X.indices)[np.asarray(X.data) != 0], minlength=X.shape[1])
    if hasattr(X, "detach"):
        X = X.detach().cpu().numpy()
    seen = X != 0
    if shard.mask is not None and not isinstance(shard.mask, str):
        seen = seen & np.asarray(shard.mask)
    return np.asarray(seen.sum(axis=0), dtype=np.int64)


def column_support(federation: Federation, settings: SecureSum, run: bytes) -> Support:
    """Sum counts over clients; the server sees the totals per column, no client's own."""
    vectors: dict[str, np.ndarray] = {}
    for name in federation.names:
        counts = column_counts(federation.shard(name)).astype(np.int64)
        vectors[name] = np.concatenate([counts, (counts > 0).astype(np.int64)])
    total = sum_securely(vectors, settings, run, index=-2)
    return Support(*np.split(total, 2))


def without_columns(shard: Shard, columns: np.ndarray, *, merge: bool) -> Shard:
    """Return the shard with these columns at zero; merged, their sum stands in the first of them."""
    X: Any = shard.X
    if scipy.sparse.issparse(X):
        keep = np.ones(X.shape[1])
        keep[columns] = 0
        kept = scipy.sparse.csr_array(X @ scipy.sparse.diags_array(keep)).astype(X.dtype)
        if merge:
            rest = np.asarray(X[:, columns].sum(axis=1)).ravel()
            there = np.flatnonzero(rest)
            spot = (rest[there], (there, np.full(there.size, columns[0])))
            kept = kept + scipy.sparse.csr_array(spot, shape=X.shape, dtype=X.dtype)
        kept.eliminate_zeros()
        return Shard(kept, shard.mask, shard.features, shard.holdout)
    kept = X.clone() if hasattr(X, "clone") else np.array(X)
    rest = kept[:, columns].sum(axis=1)
    kept[:, columns] = 0
    if merge:
        kept[:, columns[0]] = rest
    return Shard(kept, shard.mask, shard.features, shard.holdout)


def rare_columns(
    federation: Federation, minimums: Minimums, settings: SecureSum, run: bytes, *, simulation: bool
) -> tuple[Federation, np.ndarray]:
    """Find columns below the minimum and keep them out; return the federation to work with, and the columns."""
    if "rare-columns" in minimums.allow:
        return federation, np.zeros(0, np.int64)
    rare = column_support(federation, settings, run).below(minimums)
    if not rare.size:
        return federation, rare
    if minimums.rare_columns == "refuse":
        finding = (
            f"{rare.size} columns are filled by fewer than {minimums.column_rows} rows or {minimums.column_clients} "
            f"clients (the first is column {rare[0]}), and such a column shows those rows' parts in any sum"
        )
        minimums.judge("rare-columns", finding, simulation=simulation)
        return federation, np.zeros(0, np.int64)
    merge = minimums.rare_columns == "merge"
    shards = {name: without_columns(federation.shard(name), rare, merge=merge) for name in federation.names}
    changed = Federation(shards)
    if merge and column_support(changed, settings, run).below(minimums).size:
        shards = {name: without_columns(federation.shard(name), rare, merge=False) for name in federation.names}
        changed = Federation(shards)
    return changed, rare
