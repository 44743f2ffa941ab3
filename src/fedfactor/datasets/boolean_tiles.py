"""Planted Boolean tiles of the FELB paper: tiles of ones at random places, destructive noise, rows dealt to clients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["Tiles", "even_tiles", "uneven_tiles"]


@dataclass(frozen=True, slots=True)
class Tiles:
    """The rows of each client, and the loss of the planted factors (mean over clients, or pooled when rows are
    dealt).
    """

    owners: dict[str, np.ndarray]
    V: np.ndarray
    floor: float


def even_tiles(
    n: int, m: int, k: int, n_clients: int, *, flips: float = 0.0, dense: float = 1.0, seed: int = 0
) -> Tiles:
    """Plant k tiles, each on 10 to 30 % of rows and columns, flip cells, and deal the rows at random.

    The paper's tiles are about 90 % `dense` and lie in binomial noise, which are the `flips` here.

    Examples
    --------
    >>> data = even_tiles(40, 10, 2, 4, flips=0.05)
    >>> sorted(data.owners)[:2], data.owners["00"].shape
    (['00', '01'], (10, 10))
    """
    rng = np.random.default_rng(seed)
    U = np.zeros((n, k), bool)
    V = np.zeros((k, m), bool)
    for tile in range(k):
        share = rng.uniform(0.1, 0.3)
        U[:, tile] = rng.random(n) < share
        share = rng.uniform(0.1, 0.3)
        V[tile] = rng.random(m) < share
    clean = U.astype(np.float32) @ V.astype(np.float32) > 0.5
    X = clean ^ (rng.random((n, m)) < flips) if flips else clean
    if dense < 1:
        X = X & ~(clean & (rng.random((n, m)) >= dense))
    floor = np.count_nonzero(X != clean) / max(1, np.count_nonzero(X))
    parts = np.array_split(np.random.default_rng(seed).permutation(n), n_clients)
    return Tiles(_named([X[rows] for rows in parts]), V, floor)


def uneven_tiles(n: int, m: int, k: int, n_clients: int, *, held: int = 2, flips: float = 0.0, seed: int = 0) -> Tiles:
    """Plant k tiles of which every client holds only some, drawn at random; half of its rows are in each of them.

    Examples
    --------
    >>> uneven_tiles(40, 10, 5, 4).floor
    0.0
    """
    rng = np.random.default_rng(seed)
    V = np.zeros((k, m), bool)
    for tile in range(k):
        V[tile] = rng.random(m) < rng.uniform(0.1, 0.3)
    owners: list[np.ndarray] = []
    losses: list[float] = []
    for _ in range(n_clients):
        U = np.zeros((n // n_clients, k), bool)
        for tile in rng.choice(k, held, replace=False):
            U[rng.random(n // n_clients) < 0.5, tile] = True
        clean = U.astype(np.float32) @ V.astype(np.float32) > 0.5
        X = clean ^ (rng.random(clean.shape) < flips)
        owners.append(X)
        losses.append(np.count_nonzero(X != clean) / max(1, np.count_nonzero(X)))
    return Tiles(_named(owners), V, float(np.mean(losses)))


def _named(parts: list[np.ndarray]) -> dict[str, np.ndarray]:
    width = max(2, len(str(len(parts) - 1)))
    return {f"{place:0{width}d}": part.astype(np.float64) for place, part in enumerate(parts)}
