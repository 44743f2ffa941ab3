"""Data with known factors, for tests, examples and experiments, whole or unevenly spread over clients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedfactor.core.errors import DataError
from fedfactor.core.random_streams import stream
from fedfactor.io.partition import split_evenly

__all__ = ["Planted", "planted_boolean", "planted_nmf"]


@dataclass(frozen=True, slots=True)
class Planted:
    """A matrix and the factors it was made from.

    Attributes
    ----------
    X : ndarray of shape (n, m)
        What the clients hold, noise included.
    U, V : ndarray of shape (n, k) and (k, m)
        The factors without noise.
    labels : ndarray of int of shape (n,)
        The client of each row, contiguous.
    floor : float
        What the planted factors themselves leave unexplained: print it beside every result. The relative error
        ‖X − UV‖/‖X‖, or for Boolean data the cells in which X and U∘V differ, over the ones of X.
    """

    X: np.ndarray
    U: np.ndarray
    V: np.ndarray
    labels: np.ndarray
    floor: float


def planted_nmf(
    n: int,
    m: int,
    k: int,
    *,
    noise: float = 0.0,
    density: float = 0.4,
    n_clients: int = 1,
    per_client: int | None = None,
    seed: int = 0,
    dtype: Any = np.float64,
) -> Planted:
    """Plant non-negative factors: ``X = max(U V + noise · rms(U V) · N(0, 1), 0)``.

    Parameters
    ----------
    n, m, k : int
        Rows, columns, components.
    noise : float, default=0
        Standard deviation of the noise, relative to the root mean square of U V.
    density : float, default=0.4
        Share of non-zero entries in U and V; each row of U and of V has at least one.
    n_clients : int, default=1
        Clients, with equal numbers of contiguous rows.
    per_client : int, optional
        Client c holds only this many of the components: c, c + 1, ... (mod k). None: every client holds all.
    seed : int, default=0
        Same seed, same data.
    dtype : dtype, default=float64
        Of X, U and V.

    Returns
    -------
    Planted
        Data, factors, clients and noise floor.

    Examples
    --------
    >>> from fedfactor.datasets.synthetic import planted_nmf
    >>> data = planted_nmf(60, 20, 4, noise=0.1, n_clients=3, per_client=2)
    >>> data.X.shape, bool((data.X >= 0).all()), 0.0 < data.floor < 0.1
    ((60, 20), True, True)
    """
    _check_sizes(n, m, k)
    if not 0 < density <= 1 or noise < 0:
        raise DataError(
            f"density must lie in (0, 1] and noise must not be negative, but they are {density} and {noise}."
        )
    labels = split_evenly(n, n_clients, seed=None)
    U = _sparse_factor(stream("planted nmf U", seed), _held(labels, k, per_client), density)
    V = _sparse_factor(stream("planted nmf V", seed), np.ones((k, m), bool), density)
    U = U.astype(dtype)
    V = V.astype(dtype)
    clean = U @ V
    X = clean
    if noise:
        spread = noise * float(np.sqrt(np.mean(np.square(clean, dtype=np.float64))))
        # The normal draws are the largest array here: made in the target type, changed in place.
        X = stream("planted nmf noise", seed).standard_normal((n, m), dtype=np.dtype(dtype).type)
        X *= spread
        X += clean
        np.maximum(X, 0, out=X)
    floor = float(np.linalg.norm(X - clean) / np.linalg.norm(X))
    return Planted(X, U, V, labels, floor)


def planted_boolean(
    n: int,
    m: int,
    k: int,
    *,
    tile: tuple[float, float] = (0.1, 0.3),
    in_tile: float = 0.9,
    background: float = 0.0,
    flips: float = 0.0,
    n_clients: int = 1,
    per_client: int | None = None,
    seed: int = 0,
    dtype: Any = np.float32,
) -> Planted:
    """Plant Boolean tiles: k random sets of rows times random sets of columns, OR-ed, then damaged.

    Parameters
    ----------
    n, m, k : int
        Rows, columns, tiles.
    tile : (float, float), default=(0.1, 0.3)
        Smallest and largest share of the rows, and of the columns, in one tile.
    in_tile : float, default=0.9
        Share of a tile's cells that are one.
    background : float, default=0
        Chance of a one in any cell outside the tiles.
    flips : float, default=0
        Chance that a cell is turned over after all that (destructive noise), 0 to 0.5.
    n_clients, per_client, seed, dtype
        As in :func:`planted_nmf`; a tile's share of rows is then taken from the clients that hold it.

    Returns
    -------
    Planted
        Data, factors, clients and noise floor; all entries are 0 or 1.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor.datasets.synthetic import planted_boolean
    >>> data = planted_boolean(200, 50, 3, in_tile=1.0)
    >>> bool(np.array_equal(data.X, (data.U @ data.V > 0)))
    True
    >>> data.floor
    0.0
    """
    _check_sizes(n, m, k)
    low, high = tile
    shares = {"tile": (low, high), "in_tile": (in_tile,), "background": (background,), "flips": (2 * flips,)}
    wrong = [name for name, values in shares.items() if not all(0 <= value <= 1 for value in values)]
    if wrong or low > high:
        raise DataError(
            f"{(wrong or ['tile'])[0]} is out of range: shares lie in [0, 1], flips in [0, 0.5], tile rises."
        )
    labels = split_evenly(n, n_clients, seed=None)
    held = _held(labels, k, per_client)
    U = np.zeros((n, k), dtype)
    V = np.zeros((k, m), dtype)
    rng = stream("planted tiles", seed)
    for component in range(k):
        U[_share(rng, np.flatnonzero(held[:, component]), low, high), component] = 1
        V[component, _share(rng, np.arange(m), low, high)] = 1
    truth = U @ V > 0.5
    rng = stream("planted tile noise", seed)
    X = np.where(truth, rng.random((n, m), dtype=np.float32) < in_tile, False)
    if background:
        X |= ~truth & (rng.random((n, m), dtype=np.float32) < background)
    if flips:
        X ^= rng.random((n, m), dtype=np.float32) < flips
    floor = np.count_nonzero(X != truth) / max(1, np.count_nonzero(X))
    return Planted(X.astype(dtype), U, V, labels, float(floor))


def _check_sizes(n: int, m: int, k: int) -> None:
    if min(n, m, k) < 1:
        raise DataError(f"Rows, columns and components must be positive, but they are {n}, {m} and {k}.")


def _held(labels: np.ndarray, k: int, per_client: int | None) -> np.ndarray:
    """Return which row may use which component."""
    q = k if per_client is None else per_client
    if not 1 <= q <= k:
        raise DataError(f"per_client={per_client} is out of range: an owner holds 1 to {k} components.")
    return (np.arange(k) - labels[:, None]) % k < q


def _sparse_factor(rng: np.random.Generator, allowed: np.ndarray, density: float) -> np.ndarray:
    factor = rng.uniform(0.2, 1.0, allowed.shape) * (rng.random(allowed.shape) < density) * allowed
    empty = np.flatnonzero(~factor.any(axis=1))
    # The largest of random keys is a random allowed place.
    place = np.argmax(rng.random((len(empty), allowed.shape[1])) * allowed[empty], axis=1)
    factor[empty, place] = 1.0
    return factor


def _share(rng: np.random.Generator, among: np.ndarray, low: float, high: float) -> np.ndarray:
    count = round(rng.uniform(low, high) * len(among))
    return rng.choice(among, size=min(len(among), max(1, count)), replace=False)
