"""Sets with planted components: those that all clients share, and those that one client has for itself.

The claim looks at the seeds in `JUDGED` only; whatever had to be chosen was chosen on others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

JUDGED = (100, 101, 102, 103)
CLIENTS = 4
ROWS = 150
COLUMNS = 60
SHARED = 3
NOISE = 0.02


@dataclass(frozen=True)
class Planted:
    """Rows of each client, the shared components, each client's own ones, and the loss that suits the cells."""

    rows: dict[str, np.ndarray]
    V: np.ndarray
    Q: dict[str, np.ndarray]
    loss: str = "frobenius"

    @property
    def n_private(self) -> int:
        return len(next(iter(self.Q.values())))


def _sparse(rng: np.random.Generator, k: int) -> np.ndarray:
    """Draw components of which about half of the cells are zero."""
    return rng.gamma(1.0, 1.0, (k, COLUMNS)) * (rng.random((k, COLUMNS)) < 0.5) + 1e-3


def _bumps(rng: np.random.Generator, centers: np.ndarray) -> np.ndarray:
    """Draw smooth components around these columns, each of which overlaps with its neighbours."""
    width = rng.uniform(0.06, 0.09, (len(centers), 1)) * COLUMNS
    return np.exp(-0.5 * ((np.arange(COLUMNS) - centers[:, None]) / width) ** 2)


def _loadings(rng: np.random.Generator, k: int) -> np.ndarray:
    """Draw a row of U for each row: two in five of its cells are zero."""
    return rng.gamma(1.0, 1.0, (ROWS, k)) * (rng.random((ROWS, k)) < 0.6)


def _unit(V: np.ndarray) -> np.ndarray:
    return V / np.linalg.norm(V, axis=1, keepdims=True)


def _planted(
    rng: np.random.Generator, V: np.ndarray, Q: dict[str, np.ndarray], *, constant: bool = False, noise: float = NOISE
) -> Planted:
    V = _unit(V)
    Q = {name: _unit(own) for name, own in Q.items()}
    rows: dict[str, np.ndarray] = {}
    for name, own in Q.items():
        P = np.ones((ROWS, len(own))) if constant else _loadings(rng, len(own))
        X = _loadings(rng, SHARED) @ V + P @ own
        rows[name] = np.maximum(X + noise * X.mean() * rng.standard_normal(X.shape), 0)
    return Planted(rows, V, Q)


def _names() -> list[str]:
    return [f"site {place}" for place in range(CLIENTS)]


def constant(seed: int) -> Planted:
    """Every row of a client has the same addition."""
    rng = np.random.default_rng([1, seed])
    return _planted(rng, _sparse(rng, SHARED), {name: _sparse(rng, 1) for name in _names()}, constant=True)


def two(seed: int) -> Planted:
    """Each client has two components of its own."""
    rng = np.random.default_rng([2, seed])
    return _planted(rng, _sparse(rng, SHARED), {name: _sparse(rng, 2) for name in _names()})


def bumps(seed: int) -> Planted:
    """Smooth components that overlap, shared and own ones in any order."""
    rng = np.random.default_rng([3, seed])
    every = SHARED + CLIENTS
    centers = (np.arange(every) + 0.5 + rng.uniform(-0.15, 0.15, every)) * COLUMNS / every
    centers = rng.permutation(centers)
    own = {name: _bumps(rng, centers[[SHARED + place]]) for place, name in enumerate(_names())}
    return _planted(rng, _bumps(rng, centers[:SHARED]), own)


def counts(seed: int) -> Planted:
    """Counts whose mean is a product, about five to a cell."""
    rng = np.random.default_rng([4, seed])
    found = _planted(rng, _sparse(rng, SHARED), {name: _sparse(rng, 1) for name in _names()}, noise=0.0)
    scale = 5 / np.mean([X.mean() for X in found.rows.values()])
    rows = {name: rng.poisson(scale * X).astype(float) for name, X in found.rows.items()}
    return Planted(rows, found.V, found.Q, "kullback-leibler")


def missing(seed: int) -> Planted:
    """Of all cells 30 % are missing."""
    rng = np.random.default_rng([5, seed])
    found = _planted(rng, _sparse(rng, SHARED), {name: _sparse(rng, 1) for name in _names()})
    rows = {name: np.where(rng.random(X.shape) < 0.3, np.nan, X) for name, X in found.rows.items()}
    return Planted(rows, found.V, found.Q)


KINDS: dict[str, Callable[[int], Planted]] = {
    "constant": constant,
    "two private": two,
    "overlapping bumps": bumps,
    "counts": counts,
    "30 % missing": missing,
}


def least_cosine(planted: np.ndarray, found: np.ndarray) -> float:
    """Return the cosine of the planted component that is found worst, each matched with one that was found."""
    norms = np.linalg.norm(found, axis=1, keepdims=True)
    cosines = _unit(planted) @ np.divide(found, norms, out=np.zeros_like(found), where=norms > 0).T
    return float(cosines[linear_sum_assignment(-cosines)].min())


def cosines(planted: Planted, model: Any) -> tuple[float, float]:
    """Return the least cosine of shared and of own components."""
    own = [least_cosine(Q, np.asarray(model.components_private_[name])) for name, Q in planted.Q.items()]
    return least_cosine(planted.V, np.asarray(model.components_)), min(own)
