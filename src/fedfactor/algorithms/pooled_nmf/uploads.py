"""The client's side of PooledNMF: what is summed over its rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace

from fedfactor.algorithms.pooled_nmf.messages import CountSums, Local, MaskedSums, Sums
from fedfactor.core.federation import Shard
from fedfactor.core.tree import Array
from fedfactor.kernels.factors import stacked
from fedfactor.kernels.nmf.counts import count_sums
from fedfactor.kernels.nmf.missing_cells import Penalty, masked_sums, ridge_cost
from fedfactor.kernels.nmf.steps import squared_error
from fedfactor.kernels.products import gram, sums, total


def square_sums(shard: Shard, state: Local, V: Array, told: dict[str, Any]) -> Sums | MaskedSums:
    """Sum what the best V depends on for the squared loss; an owner's own components count as explained."""
    U, k, both, whole = state.U, V.shape[0], stacked(V, state.Q), state.total
    if shard.mask is not None:
        N, D, sse = masked_sums(U, shard.X, shard.mask, both)
        return MaskedSums(gram(U[:, :k]), N[:k], D[:k], sse=np.float64(sse), total=whole, **told)
    G, A = gram(U), sums(U, shard.X)
    if bool(state.masked):  # this owner has every cell, another has not
        sse = np.float64(squared_error(float(whole), A, G, both))
        return MaskedSums(G[:k, :k], A[:k], (G @ both)[:k], sse=sse, total=whole, **told)
    if state.Q is None:
        return Sums(G, A, total=whole, **told)
    rest = np.float64(squared_error(float(whole), A[k:], G[k:, k:], state.Q))
    return Sums(G[:k, :k], A[:k] - G[:k, k:] @ state.Q, total=whole, rest=rest, **told)


def divergence_sums(shard: Shard, state: Local, V: Array, told: dict[str, Any]) -> CountSums:
    """Sum what the step on V depends on for counts."""
    N, D, loss = count_sums(state.U, shard.X, V, shard.mask)
    if bool(state.masked) and D.shape != N.shape:
        D = D + 0 * N  # this owner has every cell, another has not
    return CountSums(N, D, sse=np.float64(2 * loss), total=state.total, **told)


def paid(U: Array, pay: Penalty, shard: Shard, V: Array) -> np.float64:
    """Return twice what U pays, the ridge of rows with missing cells included."""
    xp = array_namespace(U)
    squares = xp.sum(U * U, axis=0)
    weights = np.broadcast_to(np.asarray(pay.l2, dtype=np.float64), (U.shape[1],))
    cost = 2 * pay.l1 * total(U) + sum(float(w) * float(q) for w, q in zip(weights, squares, strict=True))
    if shard.mask is not None and pay.ridge:
        cost += pay.ridge * ridge_cost(U, shard.X, shard.mask, V)
    return np.float64(cost)


def column_lengths(U: Array) -> Array:
    """Return sums and squared norms of the columns of U, as two rows."""
    xp = array_namespace(U)
    return xp.stack([xp.sum(U, axis=0), xp.sum(U * U, axis=0)])
