"""Attacks on what other systems send: a group's own factor (FedSPLIT), and sketches of private matrices (DSANLS)."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["factor_inference", "sketch_recovery"]


def factor_inference(
    X: np.ndarray, H: np.ndarray, share: float, rng: np.random.Generator, *, kind: str = "ratings", ridge: float = 0.05
) -> float:
    """Infer a group's unknown ratings from its factor and a share of known ones.

    Parameters
    ----------
    X : array, shape (n, m)
        The group's ratings, 0 where there is none; the support is taken as known.
    H : array, shape (k, m)
        The factor the group sent.
    share : float
        Share of ratings (or of items) the attacker knows already.
    rng : Generator
        Draws which.
    kind : {"ratings", "items"}
        Whether single ratings or whole items are known.
    ridge : float
        Weight of the penalty on each user's coefficients.

    Returns
    -------
    float
        Relative error over **unknown** ratings only: 1 is no better than guessing 0. Known ones would flatter it.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> H = rng.random((3, 40)); X = rng.random((5, 3)) @ H
    >>> factor_inference(X, H, 0.5, rng, ridge=1e-9) < 1e-6
    True
    """
    there = X > 0
    if kind == "items":
        m: int = X.shape[1]
        known = there & (rng.random(m) < share)[None]
    else:
        known = there & (rng.random(X.shape) < share)
    W = np.zeros((X.shape[0], H.shape[0]))
    for i, cells in enumerate(known):
        h = H[:, cells]
        if cells.any():
            W[i] = np.linalg.solve(h @ h.T + ridge * np.eye(len(h)), h @ X[i, cells])
    unknown = there & ~known
    size = np.linalg.norm(X[unknown])
    return float(np.linalg.norm((X - W @ H)[unknown]) / size) if size > 0 else 0.0


def sketch_recovery(M: np.ndarray, sketches: list[np.ndarray]) -> dict[str, Any]:
    """Recover a private matrix from ``M S_t`` with public sketches ``S_t``.

    Returns
    -------
    dict
        Total width, its rank, and the relative error of the least-norm solution.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> M = rng.random((4, 10))
    >>> sketch_recovery(M, [rng.normal(size=(10, 5)) for _ in range(2)])["relative_error"] < 1e-9
    True
    """
    S = np.hstack(sketches)
    guess = np.linalg.lstsq(S.T, (M @ S).T, rcond=None)[0].T
    return {
        "total_width": int(S.shape[1]),
        "rank": int(np.linalg.matrix_rank(S)),
        "relative_error": float(np.linalg.norm(guess - M) / np.linalg.norm(M)),
    }
