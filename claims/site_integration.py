"""Cells of two laboratories, one of which adds a pattern of its own to every cell: with one private component a client,
the laboratories mix (median iLISI at least 1.5 of at most 2, and above that of PooledNMF without private components
in each of three deals), and cell types stay apart (median cLISI at most 5 % above). LISI is that of Korsunsky et al.
(2019): perplexity 30 among 90 neighbours. 700 PBMC cells, ten components. Needs ``FEDFACTOR_DATA``.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy.optimize import brentq

from claims._pca import DENSE, _folder
from fedfactor import PooledNMF

RANK, SEEDS, NEIGHBOURS, PERPLEXITY, MIXED, APART = 10, (0, 1, 2), 90, 30, 1.5, 1.05


def lisi(points: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the effective number of labels around each point."""
    squares = ((points[:, None] - points[None]) ** 2).sum(axis=2)
    kinds = np.unique(labels)
    found = np.empty(len(points))
    for row, distances in enumerate(squares):
        near = np.argsort(distances, kind="stable")[1 : NEIGHBOURS + 1]
        d = distances[near] - distances[near].min()

        def weights(log_beta: float, d: np.ndarray = d) -> np.ndarray:
            p = np.exp(-d * np.exp(log_beta))
            return p / p.sum()

        def too_wide(log_beta: float) -> float:
            p = weights(log_beta)
            return float(-(p * np.log(np.maximum(p, 1e-300))).sum() - np.log(PERPLEXITY))

        scale = -np.log(max(d.mean(), 1e-300))
        p = weights(brentq(too_wide, scale - 15, scale + 15))
        shares = np.array([p[labels[near] == kind].sum() for kind in kinds])
        found[row] = 1 / (shares**2).sum()
    return found


def planted(seed: int) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray]:
    """Deal cells to two laboratories; the second adds the same pattern, in a strength that varies, to each cell."""
    rng = np.random.default_rng(seed)
    X = DENSE["PBMC cells"]()
    X = X - X.min(axis=0)
    types = np.load(_folder() / "gene" / "pbmc68k_reduced_meta.npz", allow_pickle=True)["y"]
    site = rng.integers(0, 2, len(X))
    pattern = 2 * X.std() * (rng.random(X.shape[1]) < 0.2) * rng.gamma(2.0, 0.5, X.shape[1])
    X = X + np.where(site == 1, rng.uniform(0.8, 1.2, len(X)), 0)[:, None] * pattern
    order = np.argsort(site, kind="stable")
    return {"basel": X[site == 0], "lund": X[site == 1]}, site[order], types[order]


def unit(U: np.ndarray) -> np.ndarray:
    return U / np.maximum(np.linalg.norm(U, axis=1, keepdims=True), 1e-12)


def claim() -> dict[str, Any]:
    warnings.simplefilter("ignore")
    figures: dict[str, Any] = {}
    holds = True
    for seed in SEEDS:
        rows, site, types = planted(seed)
        medians = {}
        for private in (0, 1):
            model = PooledNMF(RANK, n_private=private, random_state=seed).fit(rows)
            U = unit(np.concatenate([np.asarray(model.client_factors_[name]) for name in ("basel", "lund")]))
            medians[private] = float(np.median(lisi(U, site))), float(np.median(lisi(U, types)))
        figures[f"deal {seed}"] = {
            "iLISI without": medians[0][0], "iLISI with": medians[1][0],
            "cLISI without": medians[0][1], "cLISI with": medians[1][1],
        }  # fmt: skip
        print(figures[f"deal {seed}"], flush=True)
        mixed = medians[1][0] >= MIXED and medians[1][0] > medians[0][0]
        holds = holds and mixed and medians[1][1] <= APART * medians[0][1]
    return {"deals": figures, "holds": holds}
