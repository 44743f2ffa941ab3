"""The rank of a joint step, chosen by the server from what it holds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedfactor.recommend.fedsplit.joint_nmf import joint_factors

__all__ = ["tune_joint_rank"]


def tune_joint_rank(
    S: Any, ranks: Sequence[int] = range(2, 31, 2), *, folds: int = 5, iterations: int = 100, seed: int = 0
) -> tuple[int, dict[int, float]]:
    """Choose the rank of stacked item factors by entries held out of the stack, as the FedSPLIT paper does.

    Parameters
    ----------
    S : array of shape (rows, m)
        All clients' item factors, one below the other.
    ranks : sequence of int
        Tried, as far as the stack has as many rows.
    folds : int
        Random fifths of the entries that are held out for each rank.
    iterations : int
    seed : int

    Returns
    -------
    best : int
    errors : dict of int to float
        Relative errors on held-out entries.

    Notes
    -----
    It measures how well the stack is explained, noise of small clients included, not how well ratings are predicted;
    for that see :func:`~fedfactor.evaluation.recommender_tuning.choose_recommender`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> tune_joint_rank(rng.random((20, 2)) @ rng.random((2, 40)), (1, 2), folds=2)[0]
    2
    """
    S = np.asarray(S)
    shape: tuple[int, ...] = S.shape
    tried = [k for k in ranks if k <= min(S.shape)]
    if not tried:
        raise ValueError(f"None of the ranks {list(ranks)} fits a stack of {S.shape[0]} rows and {S.shape[1]} items.")
    errors: dict[int, list[float]] = {k: [] for k in tried}
    for fold in range(folds):
        mask = np.random.default_rng([31, seed, fold]).random(shape) >= 0.2
        for k in tried:
            M, V, _ = joint_factors(S, k, mask=mask, iterations=iterations)
            left = (S - M @ V)[~mask]
            errors[k].append(float(np.linalg.norm(left) / np.linalg.norm(S[~mask])))
    means = {k: float(np.mean(values)) for k, values in errors.items()}
    return min(means, key=lambda k: means[k]), means
