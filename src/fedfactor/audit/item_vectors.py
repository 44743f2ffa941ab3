"""What published item vectors reveal about the users they were learned from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from fedfactor.audit.findings import Finding
from fedfactor.audit.membership import membership_figures
from fedfactor.core.algorithm import Algorithm
from fedfactor.core.client_data import Federation
from fedfactor.core.client_items import held_columns
from fedfactor.engines.run import run

__all__ = ["fit_scores", "item_vector_membership"]


def fit_scores(X: Any, V: np.ndarray, ridge: float = 1e-3) -> np.ndarray:
    """Score rows of zeros and ones by the share of their variance that item vectors and a constant explain.

    Parameters
    ----------
    X : array of shape (n, m)
        Rows whose membership is asked for.
    V : array of shape (d, m)
        Published vectors, item by item.
    ridge : float
        Relative to the mean square of the vectors.

    Examples
    --------
    >>> fit_scores(np.array([[1.0, 0, 1, 0], [1, 1, 0, 0]]), np.array([[1.0, -1, 1, -1]])).round(2)
    array([1., 0.])
    """
    Z = np.asarray(V, float) - np.asarray(V, float).mean(axis=1, keepdims=True)
    Y = np.asarray(X, float) - np.asarray(X, float).mean(axis=1, keepdims=True)
    G = Z @ Z.T
    A: NDArray[np.float64] = G + ridge * np.trace(G) / len(G) * np.eye(len(G)) + 1e-12 * np.eye(len(G))
    b: NDArray[np.float64] = Z @ Y.T
    P = np.linalg.solve(A, b)
    rest = Y - P.T @ Z
    return 1 - (rest**2).sum(1) / np.maximum((Y**2).sum(1), 1e-12)


def item_vector_membership(
    algorithm: Algorithm, federation: Federation, *, client: str | None = None, seed: int = 0
) -> Finding:
    """Ask of every user of a client whether its vectors were learnt from that user.

    Half of the client's users stay out of the run. The attacker holds the vectors that the client publishes and the
    whole history of the user in question on those items, and guesses "member" where they explain that history well; or,
    with another client's vectors of the common items at hand, where they explain it better than those do. The second
    guess is the sharper one: how well any vectors fit a user depends most of all on how much the user did.

    Parameters
    ----------
    algorithm : Algorithm
        One that publishes item vectors, such as FedDMF.
    federation : Federation
        Clients with interactions.
    client : str, optional
        The client that is attacked; by default the first.
    seed : int

    Returns
    -------
    Finding
        With the AUC of the first guess, ``auc_of_another_client``: the same with vectors of a client that knew none of
        these users, and ``auc_by_comparison``, of the second guess, where another client has items in common.

    Examples
    --------
    >>> from fedfactor.algorithms import FedDMF
    >>> X = (np.random.default_rng(0).random((40, 12)) < 0.4) * 1.0
    >>> quick = FedDMF(2, hidden=4, epochs=1, refine=0)
    >>> finding = item_vector_membership(quick, Federation({"a": X[:20], "b": X[20:]}))
    >>> finding.verdict, 0 <= finding.figures["auc"] <= 1
    ('consistent', True)
    """
    federation.prepare(algorithm.domain)
    client = federation.names[0] if client is None else client
    shard = federation.shard(client)
    order = np.random.default_rng([seed, 71]).permutation(shard.n_rows)
    inside = np.sort(order[: (len(order) + 1) // 2])
    outside = np.sort(order[(len(order) + 1) // 2 :])
    shards = {name: federation.shard(name) for name in federation.names}
    shards[client] = shard.take(inside)
    result = run(algorithm, Federation(shards), seed=seed)
    dense = np.asarray(shard.X.toarray() if sparse.issparse(shard.X) else shard.X)
    figures: dict[str, Any] = {}
    others = [name for name in federation.names if name != client]
    other = others[0] if others else client
    common = np.intersect1d(held_columns(shard), held_columns(shards[other]))

    def scores(name: str, columns: np.ndarray) -> np.ndarray:
        return fit_scores(dense[:, columns], np.asarray(result.factors[name].V, float)[:, columns])

    guesses = {"": scores(client, held_columns(shard)), "_of_another_client": scores(other, common)}
    if others and len(common):
        guesses["_by_comparison"] = scores(client, common) - scores(other, common)
    for word, score in guesses.items():
        found = membership_figures(score[inside], score[outside])
        figures |= {f"{key}{word}": value for key, value in found.items() if key in ("auc", "auc_interval")}
    return Finding(
        "membership from published item vectors",
        "the party that receives a client's item vectors and knows a user's history",
        "none is made: membership is not protected without noise",
        "consistent",
        figures,
        "A weak attack: a low score is no evidence of safety.",
    )
