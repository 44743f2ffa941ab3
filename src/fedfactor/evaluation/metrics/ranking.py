"""How good a list of recommendations is, against what users turned out to like."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fedfactor.core.pytree import Array

__all__ = ["RankingScores", "ranking_scores"]


class RankingScores(NamedTuple):
    """Means over users who liked something, of lists of n, and how many users.

    Precision, recall, NDCG; ``hit_rate``: lists with at least one liked item; ``mrr``: one over the place of the first
    one, 0 where there is none; ``coverage``: share of all items that are on some list.
    """

    precision: float
    recall: float
    ndcg: float
    n_users: int
    hit_rate: float = 0.0
    mrr: float = 0.0
    coverage: float = 0.0


def ranking_scores(recommended: Array, liked: Any, n: int | None = None) -> RankingScores:
    r"""Score lists of recommended items against held-out ones.

    Parameters
    ----------
    recommended : int array of shape (users, length)
        Columns of items, best first; −1 where a list is shorter.
    liked : CSR matrix of shape (users, items)
        Stored cells are the items that users turned out to like.
    n : int, optional
        Length of the lists that are scored; by default all of it.

    Returns
    -------
    RankingScores
        Precision divides by n, recall by the number of liked items, NDCG is
        :math:`\sum_{p \text{ hit}} 1/\log_2(p + 1)` over its largest value. Users who liked nothing are left out.

    Examples
    --------
    >>> from scipy.sparse import csr_array
    >>> ranking_scores(np.array([[2, 0]]), csr_array(np.array([[0, 0, 1.0]])))
    RankingScores(precision=0.5, recall=1.0, ndcg=1.0, n_users=1, hit_rate=1.0, mrr=1.0, coverage=0.666...)
    """
    recommended = np.asarray(recommended)
    n = int(recommended.shape[1]) if n is None else n
    if not 1 <= n <= recommended.shape[1]:
        raise ValueError(f"n={n} must lie in 1..{recommended.shape[1]}, the length of the lists.")
    if recommended.shape[0] != liked.shape[0]:
        raise ValueError(f"There are {recommended.shape[0]} lists for {liked.shape[0]} users.")
    gains = 1 / np.log2(np.arange(2, n + 2))
    best = np.concatenate(([0.0], np.cumsum(gains)))
    found: list[tuple[float, ...]] = []
    for row in range(liked.shape[0]):
        wanted = liked.indices[liked.indptr[row] : liked.indptr[row + 1]]
        if len(wanted):
            hits = np.isin(recommended[row, :n], wanted)
            first = 1 / (1 + int(hits.argmax())) if hits.any() else 0.0
            ndcg = hits @ gains / best[min(n, len(wanted))]
            found.append((hits.sum() / n, hits.sum() / len(wanted), ndcg, float(hits.any()), first))
    if not found:
        raise ValueError("No user liked anything, so there is nothing to compare with.")
    precision, recall, ndcg, hit_rate, mrr = np.mean(found, axis=0).tolist()
    listed = np.unique(recommended[:, :n])
    coverage = float((listed >= 0).sum() / max(1, liked.shape[1]))
    return RankingScores(precision, recall, ndcg, len(found), hit_rate, mrr, coverage)
