"""Cluster centres of stacked components: the baselines that do not care which client a component came from."""

from __future__ import annotations

import numpy as np

from fedfactor.linalg.alignment.assignment import squared_distances

__all__ = ["fuzzy_means", "k_means"]


def k_means(rows: np.ndarray, k: int, rng: np.random.Generator, *, iterations: int = 100) -> np.ndarray:
    """Return k cluster centres (Lloyd's algorithm from a k-means++ start); an empty cluster keeps its centre.

    Parameters
    ----------
    rows : ndarray, shape (n, m)
    k : int
    rng : Generator
        For the start.
    iterations : int
        Most iterations.

    Returns
    -------
    ndarray, shape (k, m)

    References
    ----------
    .. [1] D. Arthur, S. Vassilvitskii, "k-means++: the advantages of careful seeding", SODA 2007.

    Examples
    --------
    >>> import numpy as np
    >>> centres = k_means(np.array([[0.0], [0.0], [9.0]]), 2, np.random.default_rng(0))
    >>> sorted(centres.ravel().tolist())
    [0.0, 9.0]
    """
    centres = _spread(rows, k, rng)
    for _ in range(iterations):
        nearest = squared_distances(centres, rows).argmin(axis=1)
        counts = np.bincount(nearest, minlength=k)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, rows)
        new = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres)
        if np.array_equal(new, centres):
            break
        centres = new
    return centres


def fuzzy_means(
    rows: np.ndarray,
    k: int,
    rng: np.random.Generator,
    *,
    fuzzifier: float = 2.0,
    iterations: int = 200,
    tol: float = 1e-6,
) -> np.ndarray:
    """Return k centres of fuzzy c-means: every row belongs to every cluster, the nearer the more.

    Parameters
    ----------
    rows, k, rng, iterations
        As in :func:`k_means`.
    fuzzifier : float
        Above 1; towards 1 memberships become hard.
    tol : float
        Stop when the centres move by less than this share of their norm.

    Returns
    -------
    ndarray, shape (k, m)

    References
    ----------
    .. [1] J. C. Dunn, "Well-separated clusters and optimal fuzzy partitions", J. Cybernetics 4 (1974).
       doi:10.1080/01969727408546059

    Examples
    --------
    >>> import numpy as np
    >>> centres = fuzzy_means(np.array([[0.0], [0.0], [9.0]]), 2, np.random.default_rng(0))
    >>> sorted(centres.ravel().round(2).tolist())
    [0.0, 9.0]
    """
    centres = _spread(rows, k, rng)
    for _ in range(iterations):
        # Relative distances: the largest membership is 1 before scaling, so that no power overflows.
        distances = np.maximum(squared_distances(centres, rows), 1e-30)
        memberships = (distances.min(axis=1, keepdims=True) / distances) ** (1 / (fuzzifier - 1))
        memberships /= memberships.sum(axis=1, keepdims=True)
        weights = memberships**fuzzifier
        new = (weights.T @ rows) / weights.sum(axis=0)[:, None]
        moved = np.linalg.norm(new - centres)
        centres = new
        if moved <= tol * np.linalg.norm(centres):
            break
    return centres


def _spread(rows: np.ndarray, k: int, rng: np.random.Generator) -> np.ndarray:
    """Choose k rows one by one, far ones more likely."""
    chosen = [int(rng.integers(len(rows)))]
    nearest = squared_distances(rows[chosen], rows)[:, 0]
    for _ in range(k - 1):
        total = float(nearest.sum())
        chosen.append(int(rng.choice(len(rows), p=nearest / total) if total > 0 else rng.integers(len(rows))))
        nearest = np.minimum(nearest, squared_distances(rows[chosen[-1:]], rows)[:, 0])
    return rows[chosen].copy()
