"""PooledPCA with noise that hides a row, over ten clients (δ = 1e-5, ε = 1 and 4, ten components), leaves at most 5 %
more variance unexplained than the better of two central mechanisms with the same accountant that see all rows in one
place: the same noise, drawn once, and Analyze Gauss (independent noise on the upper half of the second moment). Three
sets, rows scaled to norm 1, means of five draws; the shares of noise cover three clients that may drop out. Needs
``FEDFACTOR_DATA``.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from scipy import sparse

import fedfactor
from claims._pca import DENSE, SPARSE, splits
from fedfactor.algorithms import PooledPCA
from fedfactor.decomposition.second_moments import CONSTANT, ROW_NORM
from fedfactor.privacy import PrivacyWarning
from fedfactor.privacy.accounting import calibrate

RANK, EPSILONS, DELTA, DRAWS, MOST = 10, (1.0, 4.0), 1e-5, range(5), 1.05
SETS = ("Fashion-MNIST", "CBCL faces", "mushrooms")


def unit_rows(X: Any) -> np.ndarray:
    X = X.toarray() if sparse.issparse(X) else X
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), 1e-300)


def leading(G: np.ndarray, total: np.ndarray, n: int) -> np.ndarray:
    C = G - np.outer(total, total) / n
    return np.linalg.eigh((C + C.T) / 2)[1][:, ::-1][:, :RANK].T


def central(X: np.ndarray, z: float, draw: int, *, gauss: bool) -> np.ndarray:
    """Return components from one noisy second moment and mean; what one row changes has norm 1 and at most √2 c."""
    rng, m = np.random.default_rng([draw, gauss]), X.shape[1]
    if gauss:  # noise of one size on the upper half; a row changes it by at most 1, and c Σx by at most c
        weight = math.sqrt(2) * CONSTANT
        size = z * math.sqrt(1 + weight**2)
        noise = np.triu(rng.normal(0, size, (m, m)))
        noise += np.triu(noise, 1).T
        moved = rng.normal(0, size / weight, m)
    else:  # off the diagonal, noise is smaller by √2: that is the norm of the whole matrix
        size = z * ROW_NORM
        noise = rng.normal(0, size / math.sqrt(2), (m, m))
        noise = np.triu(noise, 1) + np.triu(noise, 1).T + np.diag(rng.normal(0, size, m))
        moved = rng.normal(0, size / (math.sqrt(2) * CONSTANT), m)
    return leading(X.T @ X + noise, X.sum(axis=0) + moved, len(X))


def unexplained(X: np.ndarray, V: np.ndarray) -> float:
    centered = X - X.mean(axis=0)
    return float(1 - np.sum((centered @ V.T) ** 2) / np.sum(centered**2))


def claim() -> dict:
    warnings.simplefilter("ignore", PrivacyWarning)
    figures: dict[str, Any] = {}
    for name in SETS:
        X = unit_rows({**DENSE, **SPARSE}[name]())
        owners = splits(X)["random"]
        figures[name] = {"no noise": unexplained(X, leading(X.T @ X, X.sum(axis=0), len(X)))}
        for epsilon in EPSILONS:
            z = calibrate(epsilon, DELTA, 1)
            found: dict[str, list[float]] = {"federated": [], "central": [], "Analyze Gauss": []}
            for draw in DRAWS:
                privacy = fedfactor.dp(epsilon, DELTA, row_bound=1.0, rows=len(X), noise_seed=draw)
                run = fedfactor.run(PooledPCA(RANK), owners, seed=draw, privacy=privacy)
                found["federated"].append(unexplained(X, np.asarray(run.V, np.float64)))
                found["central"].append(unexplained(X, central(X, z, draw, gauss=False)))
                found["Analyze Gauss"].append(unexplained(X, central(X, z, draw, gauss=True)))
            means = {way: float(np.mean(each)) for way, each in found.items()}
            ratio = means["federated"] / min(means["central"], means["Analyze Gauss"])
            figures[name][f"ε = {epsilon:g}"] = means | {"ratio": ratio}
        print(name, X.shape, figures[name], flush=True)
    ratios = [each["ratio"] for found in figures.values() for each in found.values() if isinstance(each, dict)]
    return {"unexplained": figures, "holds": bool(max(ratios) <= MOST)}
