"""Small federations on which an algorithm can show every fault: few rows, odd sizes, all dtypes and layouts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse

from fedfactor.core.algorithm import Algorithm, Domain, Meta
from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.grid import BlockShard, GridShard, block_federation, grid_federation, grid_of

N_FEATURES = 13
ROWS = {"east": 37, "north": 41, "west": 53}
"""Distinct primes, larger than any rank or width here, so that a dimension that counts rows gives itself away."""


def small_data(
    domain: Domain = Domain.NONNEGATIVE, n_rows: Mapping[str, int] = ROWS, dtype: str = "float64"
) -> dict[str, Any]:
    """Rows of three clients around one low-rank matrix, each client with its own mix.

    Examples
    --------
    >>> {name: X.shape for name, X in small_data().items()}
    {'east': (37, 13), 'north': (41, 13), 'west': (53, 13)}
    """
    rng = np.random.default_rng(20_240_131)
    V = rng.random((3, N_FEATURES)) * (rng.random((3, N_FEATURES)) < 0.6)
    found: dict[str, Any] = {}
    for position, (name, rows) in enumerate(n_rows.items()):
        U = rng.random((rows, 3)) * (0.2 + (np.arange(3) == position % 3))
        X = U @ V + 0.05 * rng.random((rows, N_FEATURES))
        if domain == Domain.BINARY:
            X = X > np.median(X)
        elif domain == Domain.REAL:
            X = X - X.mean()
        found[name] = X.astype(dtype)
    return found


def variants(algorithm: Algorithm, data: Mapping[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    """Name → federation of every kind of data that the algorithm declares."""
    plain = dict(small_data(algorithm.domain) if data is None else data)
    found = {
        "dense": plain,
        "float32": {name: X.astype(np.float32) for name, X in plain.items()},
        "sparse": {name: sparse.csr_array(X) for name, X in plain.items()},
    }
    if algorithm.handles_missing:
        found["masked"] = with_holes(plain)
        found["masked float32"] = {name: X.astype(np.float32) for name, X in found["masked"].items()}
    return found


def with_holes(owners: Mapping[str, Any]) -> dict[str, Any]:
    """Mark cells as missing at every client but the first, who has them all: one federation may hold both."""
    rng = np.random.default_rng(7)
    found: dict[str, Any] = {}
    for position, (name, X) in enumerate(owners.items()):
        X = (X.toarray() if sparse.issparse(X) else np.array(X)).astype(np.float64)
        if position:
            X[rng.random(X.shape) < 0.2] = np.nan
        found[name] = X
    return found


def federation_for(algorithm: Algorithm, owners: Mapping[str, Any], missing_values: Any = None) -> Federation:
    """Make the federation that an algorithm works on: clients of rows, or nodes with rows and columns of one matrix.

    Examples
    --------
    >>> from fedfactor.algorithms import DSANLS
    >>> federation_for(DSANLS(2), small_data()).shard("east").bounds
    (0, 37, 0, 5)
    """
    layout = algorithm.layout
    names = sorted(owners)
    if layout == "rows":
        return Federation(owners, missing_values=missing_values)
    stack = sparse.vstack if any(sparse.issparse(X) for X in owners.values()) else np.vstack
    X = stack([owners[name] for name in names])
    if layout == "blocks":
        return block_federation(X, grid_of(len(names), X.shape), names)
    return grid_federation(X, {name: owners[name].shape[0] for name in names})


def empty_shard(algorithm: Algorithm, meta: Meta) -> Shard:
    """Make the shard of a client who has nothing."""
    rows = np.zeros((0, meta.n_features), dtype=meta.dtype)
    layout = algorithm.layout
    if layout == "blocks":
        return BlockShard(rows, position=(meta.n_clients, 0), starts=(meta.n_rows or 0, 0), width=meta.n_features)
    if layout == "rows":
        return Shard(rows)
    return GridShard(rows, columns=np.zeros((meta.n_rows or 0, 0), dtype=meta.dtype))


def partitions(X: Any) -> dict[str, dict[str, Any]]:
    """Split the same rows in every way that should not matter, the order of rows included."""
    n: int = X.shape[0]
    rng = np.random.default_rng(3)
    shuffled = rng.permutation(n)
    by_sum = np.argsort(np.asarray(X.sum(axis=1)).ravel(), kind="stable")
    return {
        "one owner": {"all": X},
        "four random owners": _cut(X, shuffled, 4),
        "five owners by size of rows": _cut(X, by_sum, 5),
        "owners of few rows": _cut(X, np.arange(n), max(1, n // 6)),
    }


def _cut(X: Any, order: np.ndarray, parts: int) -> dict[str, Any]:
    return {f"owner {i:03d}": X[rows] for i, rows in enumerate(np.array_split(order, parts))}
