"""Compare Itakura-Saito and the β-divergences ½ and 1.5 with the best of three pooled scikit-learn runs.

Scikit-learn's solver "mu" with 400 iterations and tol 0 from three random starts; PooledNMF by default, seeds 101, 102
and 103, rows split unevenly among three owners. Five tables that no parameter was settled on, two of them with more
than 2,000 columns: ``python -m benchmarks.divergences``.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.decomposition import NMF

import fedfactor
from fedfactor.algorithms import PooledNMF

SEEDS = (101, 102, 103)
BETAS = (0.0, 0.5, 1.5)


def mixture(seed: int, n: int, m: int, k: int, *, sparsity: float, noise: float) -> np.ndarray:
    """Draw a product of gamma factors with gamma noise."""
    rng = np.random.default_rng(seed)
    mean = rng.gamma(sparsity, size=(n, k)) @ rng.gamma(sparsity, size=(k, m)) + 0.01
    return mean * rng.gamma(noise, 1 / noise, (n, m))


def tables() -> Iterator[tuple[str, np.ndarray, int]]:
    """Return name, positive rows and rank of each table."""
    yield "wine", np.asarray(load_wine().data) + 1e-3, 4
    yield "breast cancer", np.asarray(load_breast_cancer().data)[:300] + 1e-3, 5
    yield "gamma mixture, 40 columns", mixture(2001, 250, 40, 5, sparsity=0.5, noise=3), 5
    yield "gamma mixture, 2,500 columns", mixture(2002, 120, 2500, 6, sparsity=0.4, noise=2), 6
    scale = 10.0 ** np.random.default_rng(2003).uniform(-1, 2, 2200)
    yield "raw units, 2,200 columns", mixture(2004, 100, 2200, 5, sparsity=0.3, noise=4) * scale, 5


def best_pooled(X: np.ndarray, k: int, beta: float) -> float:
    ends = []
    for seed in range(3):
        model = NMF(k, solver="mu", beta_loss=beta, init="random", random_state=seed, max_iter=400, tol=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ends.append(float(model.fit(X).reconstruction_err_ ** 2 / 2))
    return min(ends)


def main() -> None:
    """Print, for each table and β, the divergence over the best of scikit-learn's, the rounds and the status."""
    for name, X, k in tables():
        cuts = np.split(np.arange(len(X)), [len(X) // 10, len(X) // 2])
        owners = {owner: X[rows] for owner, rows in zip("abc", cuts, strict=True)}
        for beta in BETAS:
            best = best_pooled(X, k, beta)
            runs = [fedfactor.run(PooledNMF(k, loss=beta), owners, seed=seed) for seed in SEEDS]
            print(name, beta, [(round(float(r.score.sse) / 2 / best, 4), r.rounds, r.status) for r in runs], flush=True)


if __name__ == "__main__":
    main()
