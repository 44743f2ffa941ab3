"""What weights between items reveal about pairs of items that a single user touched."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse

from fedfactor.audit.findings import Finding
from fedfactor.core.client_data import Federation
from fedfactor.recommend.rating_model import observed

__all__ = ["gram_from_weights", "pair_exposure"]


def gram_from_weights(B: np.ndarray) -> np.ndarray:
    r"""Return, up to a factor, the regularised Gram matrix that weights between items were made from.

    :math:`I - B = P\,\mathrm{diag}(P)^{-1}` with a symmetric P, so that ratios of its diagonal can be read off.

    Examples
    --------
    >>> from fedfactor.recommend.item_weights import item_weights
    >>> G = np.array([[3.0, 1.0, 0.0], [1.0, 2.0, 0.5], [0.0, 0.5, 2.0]])
    >>> found = gram_from_weights(item_weights(G, 1.0)[0])
    >>> np.allclose(found[0] / found[0, 1], [4, 1, 0])
    True
    """
    M = np.eye(len(B)) - B
    # P_ij = M_ij p_j = M_ji p_i: neighbouring columns give each other's scale, from the largest entries on.
    size = np.minimum(np.abs(M), np.abs(M).T)
    np.fill_diagonal(size, 0)
    p = np.full(len(B), np.nan)
    known = np.zeros(len(B), bool)
    start = int(size.sum(axis=0).argmax())
    p[start] = 1.0
    known[start] = True
    while not known.all():
        reach = np.where(known[:, None] & ~known[None, :], size, 0)
        i, j = np.unravel_index(int(reach.argmax()), reach.shape)
        if reach[i, j] == 0:
            p[~known] = 1.0
            break
        p[j] = p[i] * M[j, i] / M[i, j]
        known[j] = True
    return np.linalg.inv(M * p)


def pair_exposure(B: np.ndarray, federation: Federation, told: np.ndarray | None = None) -> Finding:
    """Ask of pairs of items whether one user touched both, or none did, from the weights that all clients receive.

    Parameters
    ----------
    B : array of shape (m, m)
        Weights; items without any are left out.
    federation : Federation
        The clients.
    told : array of bool of shape (m, m), optional
        Pairs that the weights were made of, in either order; others are not asked about. All, unless given.

    Returns
    -------
    Finding
        ``auc``: how well the recovered matrix, less what chance would give, distinguishes pairs of one user from pairs
        of none.
    """
    columns = np.flatnonzero(np.asarray(B).any(axis=0))
    parts = [observed(federation.shard(name).X, federation.shard(name).mask) for name in federation.names]
    X = scipy.sparse.csr_array(scipy.sparse.vstack(parts))[:, columns]
    ones = scipy.sparse.csr_array((np.ones(X.nnz), X.indices, X.indptr), shape=X.shape)
    pairs = (ones.T @ ones).toarray()
    upper = np.triu(np.ones_like(pairs, bool), 1)
    if told is not None:
        upper &= (told | told.T)[np.ix_(columns, columns)]
    once, never = (upper & (pairs == count) for count in (1, 0))
    figures: dict[str, Any] = {
        "pairs_of_one_user": int(once.sum()),
        "share_of_touched_pairs": float(once.sum() / max(1, (upper & (pairs > 0)).sum())),
    }
    attack = "pairs of items that one user touched"
    attacker = "the party that receives the weights"
    claim = "no single user's pair of items is shown"
    if not once.any() or not never.any():
        note = "There are no pairs of items that one user touched, or none that no user touched, to distinguish."
        return Finding(attack, attacker, claim, "not examined", figures, note)
    found = gram_from_weights(np.asarray(B, np.float64)[np.ix_(columns, columns)])
    found = found / abs(np.median(np.diag(found)))
    popular = np.diag(pairs)
    chance = np.outer(popular, popular)
    # What chance gives is no secret: the line through it is taken off before pairs are distinguished.
    both = once | never
    slope = float((found[both] * chance[both]).sum() / (chance[both] ** 2).sum())
    score = found - slope * chance
    figures["auc"] = _auc(score[once], score[never])
    return Finding(attack, attacker, claim, "REFUTED" if figures["auc"] > 0.75 else "consistent", figures)


def _auc(inside: np.ndarray, outside: np.ndarray) -> float:
    order = np.argsort(np.argsort(np.concatenate([inside, outside]), kind="stable"), kind="stable")
    n = len(inside)
    return float((order[:n].sum() - n * (n - 1) / 2) / (n * len(outside)))
