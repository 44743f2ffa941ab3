"""What one client's item factors reveal about its users' ratings."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from fedfactor.audit.findings import Finding
from fedfactor.core.algorithm import Algorithm
from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.errors import FedfactorError
from fedfactor.core.method import Method, algorithm_of
from fedfactor.core.pytree import is_mapping, leaves, to_numpy
from fedfactor.engines.run import run
from fedfactor.privacy.upload_recorder import Listener
from fedfactor.recommend.holdout_cells import only_cells
from fedfactor.recommend.implicit_feedback import ridge_rows
from fedfactor.recommend.rating_model import observed
from fedfactor.recommend.rating_statistics import item_residuals, pooled_item_biases

__all__ = ["rating_attack", "ratings_back"]

ATTACK = "unknown ratings from one owner's item factors and a quarter of its ratings"
ATTACKER = "the server, which sees each owner's item factors and knows some of the ratings"
CLAIM = "no rating can be read from what one owner sends"
KNOWN = 0.25
"""Share of a client's ratings that the attacker knows already."""
OWNERS = 5
"""Clients that are attacked, the smallest first."""


def ratings_back(
    R: Any, V: np.ndarray, item: np.ndarray, mu: float, common: np.ndarray, rng: np.random.Generator
) -> dict[str, float]:
    """Find users from a quarter of their ratings and a client's item factors, and read off the other ratings.

    Parameters
    ----------
    R : CSR matrix of shape (n, m)
        The client's ratings.
    V : array of shape (k, m)
        Item factors that the attacker saw.
    item : array of shape (m,)
        Item biases that came with them, or those of all clients.
    mu : float
        Mean rating.
    common : array of shape (m,)
        Item biases of all clients together, for the comparison.
    rng : Generator

    Returns
    -------
    dict
        ``back``: share of the unknown ratings that are found to within an eighth of their range (half a star);
        ``back_without``: the same from the known ratings and the biases of all clients alone.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> U, V = rng.normal(size=(6, 2)), rng.normal(size=(2, 80))
    >>> R = scipy.sparse.csr_array(U @ V)
    >>> ratings_back(R, V, np.zeros(80), 0.0, np.zeros(80), rng)["back"] > 0.9
    True
    """
    nnz: int = R.nnz
    known = rng.random(nnz) < KNOWN
    seen, hidden = only_cells(R, known), only_cells(R, ~known).tocoo()
    near = float(np.ptp(R.data)) / 8 if R.nnz else 0.0

    def found(factors: np.ndarray, level: np.ndarray) -> float:
        wide = np.concatenate([factors, np.ones((1, factors.shape[1]))])
        off = type(seen)((seen.data - mu - level[seen.indices], seen.indices, seen.indptr), shape=seen.shape)
        ones = type(seen)((np.ones_like(seen.data), seen.indices, seen.indptr), shape=seen.shape)
        best: tuple[float, np.ndarray] | None = None
        for lam in (1e-3, 1e-1, 10.0):
            U = ridge_rows(ones, off, wide, lam=lam)
            fitted = mu + level[hidden.col] + np.einsum("pk,pk->p", U[hidden.row], wide.T[hidden.col])
            mine = seen.tocoo()
            error = np.abs(mine.data - mu - level[mine.col] - np.einsum("pk,pk->p", U[mine.row], wide.T[mine.col]))
            score = float(error.mean()) if len(error) else np.inf
            if best is None or score < best[0]:
                best = (score, fitted)
        assert best is not None
        fitted = np.clip(best[1], R.data.min(), R.data.max())
        return float((np.abs(fitted - hidden.data) < near).mean())

    if not hidden.nnz or not seen.nnz:
        return {"back": 0.0, "back_without": 0.0}
    return {"back": found(V, item), "back_without": found(np.zeros((1, R.shape[1])), common)}


def rating_attack(algorithm: Method, federation: Federation, *, seed: int = 0) -> Finding:
    """Try it on the clients of fewest users, where a client sends item factors of its own.

    Parameters
    ----------
    algorithm : estimator or Algorithm
        One whose clients send item factors that the server sees, such as FedSPLIT.
    federation : Federation
        Clients with ratings.
    seed : int

    Returns
    -------
    Finding
        ``"REFUTED"`` when three quarters of the unknown ratings come back, and a fifth more than without the upload.
    """
    ratings = {name: observed(*_cells(federation.shard(name))).astype(np.float64) for name in federation.names}
    sent = _factors_sent(algorithm_of(algorithm), federation, seed)
    if not sent:
        note = "No owner sends item factors of its own; its sums are searched for rows instead."
        return Finding(ATTACK, ATTACKER, CLAIM, "does not apply", {}, note)
    every = scipy.sparse.csr_array(scipy.sparse.vstack(list(ratings.values())))
    common = pooled_item_biases(item_residuals(every), np.bincount(every.indices, minlength=every.shape[1]))
    mu = float(every.data.mean())
    smallest = sorted(sent, key=lambda name: ratings[name].shape[0])[:OWNERS]
    rng = np.random.default_rng([seed, 53])
    rows = [ratings_back(ratings[name], *_with_bias(*sent[name], common), mu, common, rng) for name in smallest]
    figures: dict[str, Any] = {word: float(np.median([row[word] for row in rows])) for word in rows[0]}
    shown = figures["back"] >= 0.75 and figures["back"] - figures["back_without"] >= 0.2
    figures |= {"owners": len(smallest), "known": KNOWN, "largest": max(row["back"] for row in rows)}
    return Finding(ATTACK, ATTACKER, CLAIM, "REFUTED" if shown else "consistent", figures)


def _cells(shard: Shard) -> tuple[Any, Any]:
    return shard.X, shard.mask


def _with_bias(V: np.ndarray, item: np.ndarray | None, common: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return V, common if item is None else item


def _factors_sent(algorithm: Algorithm, federation: Federation, seed: int) -> dict[str, tuple[np.ndarray, Any]]:
    """Return the last item factors, and biases, that each client sends in a message of its own."""
    heard = Listener()
    try:
        run(algorithm, federation, seed=seed, privacy=(heard,))
    except FedfactorError:
        return {}
    found: dict[str, tuple[np.ndarray, Any]] = {}
    for _, up, _ in heard.rounds:
        if not is_mapping(up):
            continue
        for name, message in up.items():
            parts = {path: to_numpy(leaf).astype(np.float64) for path, leaf in leaves(message)}
            V = parts.get("V")
            if V is not None and V.ndim == 2 and V.shape[1] == federation.n_features and len(V):
                found[name] = (V, parts.get("item"))
    return found
