"""A lower bound on ε from one run of the real code, with rows planted to be found."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.stats import binom

from fedfactor.engines.run import run
from fedfactor.linalg.row_clipping import clipped_sums
from fedfactor.nmf.pooled.algorithm import FIRST_STEPS, PooledNMF
from fedfactor.privacy.dp import as_parts
from fedfactor.privacy.upload_recorder import Listener

__all__ = ["Canaries", "epsilon_lower_bound", "plant_canaries", "score_canaries"]


@dataclass(frozen=True, slots=True)
class Canaries:
    """Rows with a column of their own each, and the coin that decided which of them took part."""

    rows: np.ndarray
    included: np.ndarray


def plant_canaries(n_canaries: int, rng: np.random.Generator) -> Canaries:
    """Make rows of norm 1: half of each lies where every V reaches it, the other half on a column of its own."""
    rows = np.full((n_canaries, n_canaries), math.sqrt(0.5 / n_canaries))
    np.fill_diagonal(rows, rows.diagonal() + math.sqrt(0.5))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return Canaries(rows, rng.random(n_canaries) < 0.5)


def score_canaries(
    canaries: Canaries, privacy: Any, *, rank: int = 2, rounds: int = 100, n_clients: int = 10, seed: int = 0
) -> np.ndarray:
    """Run PooledNMF on the included canaries and score all of them from what the server saw.

    The attacker knows the rows, the code and every V, so it knows what each canary would have added in each round. From
    what was released it takes the half of it that chance would have included (V adapts to those who are there, and
    their sum then hides in it), and scores a canary by its inner product with the rest, on the canary's own column.
    """
    algorithm = PooledNMF(rank)
    heard = Listener()
    parts = np.array_split(canaries.rows[canaries.included], n_clients)
    channel = (heard, *as_parts(privacy))
    run(algorithm, dict(zip(map(str, range(n_clients)), parts, strict=True)), rounds=rounds, seed=seed, privacy=channel)
    U = np.zeros((len(canaries.rows), rank))
    own = np.arange(len(canaries.rows))
    scores = np.zeros(len(canaries.rows))
    for at, total, down in heard.rounds:
        sweeps = max(algorithm.local_steps, FIRST_STEPS) if at.index == 0 else algorithm.local_steps
        V = np.asarray(down.V, np.float64)
        clip = float(down.clip)
        U, everybody = clipped_sums(U, canaries.rows, V, clip=clip, bound=1.0, sweeps=sweeps)
        rest = U @ V - canaries.rows
        size = np.linalg.norm(U, axis=1) * np.linalg.norm(rest, axis=1)
        scores += np.einsum("jk,kj->j", U, total.D - everybody.D / 2) * rest[own, own] / np.maximum(size, clip)
    return scores


def epsilon_lower_bound(scores: np.ndarray, included: np.ndarray, delta: float, level: float = 0.95) -> dict[str, Any]:
    """Bound ε from below by how many canaries the scores distinguish, in one run.

    Parameters
    ----------
    scores : array
        Higher: more likely included.
    included : bool array
        Who was.
    delta : float
        Of the claim.
    level : float
        Confidence; divided over the numbers of guesses that are tried.

    Returns
    -------
    dict
        The bound, the guesses it rests on, how many were right, and the most this many canaries could ever show.

    Notes
    -----
    Bounds of this kind are loose (about threefold on a correct mechanism): they catch mistakes, they certify nothing.

    References
    ----------
    .. [1] T. Steinke, M. Nasr, M. Jagielski, "Privacy auditing with one (1) training run", NeurIPS 2023.
       arXiv:2305.08846

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> coin = rng.random(500) < 0.5
    >>> epsilon_lower_bound(rng.normal(size=500), coin, 1e-5)["epsilon"] < 0.5
    True
    >>> epsilon_lower_bound(coin + 0.0, coin, 1e-5)["epsilon"] > 3
    True
    """
    m = scores.size
    tries = sorted({r for r in (20, 50, 100, 200, 400, 800, m) if r <= m})
    order = np.argsort(scores, kind="stable")
    best: dict[str, Any] = {"epsilon": 0.0, "guesses": 0, "right": 0}
    for r in tries:
        low = order[: r // 2]
        high = order[m - (r - r // 2) :]
        right = int((~included[low]).sum() + included[high].sum())
        bound = _bound(m, r, right, delta, (1 - level) / len(tries))
        if bound > best["epsilon"]:
            best = {"epsilon": bound, "guesses": r, "right": right}
    best["canaries"] = m
    best["most_it_could_show"] = _bound(m, m, m, delta, (1 - level) / len(tries))
    return best


def _bound(m: int, r: int, right: int, delta: float, p: float) -> float:
    if _chance(m, r, right, 0.0, delta) > p:
        return 0.0
    low = 0.0
    high = 1.0
    while _chance(m, r, right, high, delta) < p and high < 100:
        low = high
        high = high + 1
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if _chance(m, r, right, middle, delta) < p else (low, middle)
    return low


def _chance(m: int, r: int, right: int, epsilon: float, delta: float) -> float:
    """Bound the chance of so many right guesses under (ε, δ): theorem 5.2 of the reference."""
    q = 1 / (1 + math.exp(-epsilon))
    beyond = float(binom.sf(right - 1, r, q))
    steps = np.cumsum(binom.pmf(np.arange(right - 1, -1, -1), r, q)) / np.arange(1, right + 1)
    return min(1.0, beyond + float(steps.max(initial=0.0)) * delta * 2 * m)
