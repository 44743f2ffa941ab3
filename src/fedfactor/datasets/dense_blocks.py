"""Planted data of the FNMF paper: dense blocks at random places and noise; shared and private components."""

from __future__ import annotations

from typing import Literal

import numpy as np

__all__ = ["deal_rows", "dense_blocks", "shared_and_private"]

Noise = Literal["gauss", "exponential", "binomial"]


def dense_blocks(
    n: int,
    m: int,
    k: int,
    *,
    noise: float = 0.05,
    kind: Noise = "gauss",
    seed: int = 0,
    share: tuple[float, float] = (0.1, 0.3),
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Fill a matrix with k dense blocks and add noise.

    Parameters
    ----------
    n, m, k : int
        Rows, columns, blocks.
    noise : float
        Positive part of a normal deviate of this standard deviation, exponential deviate of this mean, or (binomial)
        the chance of a one in a cell.
    kind : {"gauss", "exponential", "binomial"}
    seed : int
    share : (float, float)
        Least and largest share of rows, and of columns, in a block.

    Returns
    -------
    X, U, V : ndarray of shape (n, m), (n, k), (k, m)

    Examples
    --------
    >>> X, U, V = dense_blocks(50, 20, 3)
    >>> X.shape, bool((X >= U @ V).all())
    ((50, 20), True)
    """
    rng = np.random.default_rng(seed)
    U = np.zeros((n, k))
    V = np.zeros((k, m))
    for block in range(k):
        U[rng.random(n) < rng.uniform(*share), block] = 1
        V[block, rng.random(m) < rng.uniform(*share)] = 1
    U *= rng.uniform(0.5, 1.5, U.shape)
    V *= rng.uniform(0.5, 1.5, V.shape)
    draws = {
        "gauss": lambda: np.maximum(rng.normal(0, noise, (n, m)), 0),
        "exponential": lambda: rng.exponential(noise, (n, m)) if noise else np.zeros((n, m)),
        "binomial": lambda: (rng.random((n, m)) < noise).astype(float),
    }
    return U @ V + draws[kind](), U, V


def deal_rows(X: np.ndarray, clients: int, seed: int = 0) -> dict[str, np.ndarray]:
    """Deal the rows of X to clients at random, in equal numbers.

    Examples
    --------
    >>> {name: rows.shape for name, rows in deal_rows(np.ones((5, 2)), 2).items()}
    {'00': (3, 2), '01': (2, 2)}
    """
    parts = np.array_split(np.random.default_rng(seed).permutation(X.shape[0]), clients)
    return {f"{c:02d}": X[rows] for c, rows in enumerate(parts)}


def shared_and_private(
    clients: int,
    rows: int,
    m: int,
    *,
    shared: int = 4,
    private: int = 2,
    noise: float = 0.05,
    seed: int = 0,
) -> tuple[dict[str, np.ndarray], np.ndarray, dict[str, np.ndarray]]:
    """Plant components that all clients share, and some that only one client has.

    Returns
    -------
    X : dict of str to ndarray of shape (rows, m)
    V : ndarray of shape (shared, m)
        What all share.
    own : dict of str to ndarray of shape (private, m)
        What each has beside it.

    Examples
    --------
    >>> X, V, own = shared_and_private(3, 10, 20)
    >>> len(X), V.shape, own["00"].shape
    (3, (4, 20), (2, 20))
    """
    rng = np.random.default_rng([5, seed])

    def components(count: int) -> np.ndarray:
        V = (rng.random((count, m)) < 0.15) * rng.uniform(0.5, 1.5, (count, m))
        V[np.arange(count), rng.integers(m, size=count)] = 1.0  # no component is empty
        return V

    V = components(shared)
    X: dict[str, np.ndarray] = {}
    own: dict[str, np.ndarray] = {}
    for c in range(clients):
        name = f"{c:02d}"
        own[name] = components(private)
        U = (rng.random((rows, shared + private)) < 0.3) * rng.uniform(0.5, 1.5, (rows, shared + private))
        X[name] = U @ np.vstack([V, own[name]]) + np.maximum(rng.normal(0, noise, (rows, m)), 0)
    return X, V, own
