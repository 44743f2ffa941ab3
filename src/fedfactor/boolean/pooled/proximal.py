"""The proximal form of PooledBMF: FELB's steps, with V stepped on sums of all clients."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from fedfactor.boolean.felb import pull_at
from fedfactor.boolean.pooled.messages import Factor, RowGradients, Sums
from fedfactor.boolean.product import hashed_rows
from fedfactor.boolean.proximal_maps import Pull, integrality_gap, prox_step
from fedfactor.core.algorithm import Meta, Round
from fedfactor.core.client_data import Shard
from fedfactor.core.pytree import Array, record, to_numpy, tree_map
from fedfactor.core.wire import Leaf, Spec
from fedfactor.linalg.factors import unit_rows
from fedfactor.linalg.nnls import squared_error
from fedfactor.linalg.products import as_like, cross, gram, gram_rows, squared_norm, sums
from fedfactor.linalg.row_clipping import clipped_gradient, doubles, noisy_round


@record("pooled_bmf.Local")
class Local:
    """Stays home: U now and one step ago, and ``‖X‖²``."""

    U: Array
    U_prev: Array
    total: Array


@record("pooled_bmf.Server")
class Server:
    """V now and one step ago, the last sums of the whole federation, and how the last round went."""

    V: Array
    V_prev: Array
    up: Sums | None
    n_clients: Array
    moved: Array
    gap: Array
    sse: Array
    total: Array


def proximal_messages(algorithm: Any, meta: Meta) -> dict[type, Spec]:
    """One factor down, the sums up."""
    k = algorithm.n_components
    m = meta.n_features
    wide = Leaf(meta.dtype, (k, m))
    square = Leaf(meta.dtype, (k, k))
    if algorithm.row_clip is not None:
        return {Factor: {"V": wide}, RowGradients: {"D": Leaf("float64", (k, m))}}
    return {Factor: {"V": wide}, Sums: {"G": square, "A": wide, "total": Leaf("float64", ())}}


def start(algorithm: Any, meta: Meta, at: Round) -> tuple[Server, Factor]:
    """Draw V."""
    drawn = at.shared_rng("V").random((algorithm.n_components, meta.n_features))
    V = (drawn if algorithm.begin is None else to_numpy(algorithm.begin.V)).astype(meta.dtype)
    if algorithm.row_clip is not None:
        V = unit_rows(V)
    nothing = np.float64(np.nan)
    half = np.float64(0.5)
    far = np.float64(np.inf)
    return Server(V, V, None, np.int64(meta.n_clients), far, half, nothing, nothing), Factor(V)


def start_rows(algorithm: Any, shard: Shard, at: Round) -> Local:
    """Start each row of U at numbers that look random but depend on that row of X alone."""
    salt = at.shared_rng("salt").integers(0, 256, size=(algorithm.n_components, shard.n_features))
    U = hashed_rows(shard.X, salt)
    return Local(U, U, np.float64(squared_norm(shard.X)))


def _pull(algorithm: Any, index: int, step: int) -> Pull:
    return pull_at(algorithm, index * algorithm.local_steps + step, algorithm.gamma)


def step_rows(algorithm: Any, shard: Shard, state: Local, down: Factor, at: Round) -> tuple[Local, Sums | RowGradients]:
    """Step on U with V fixed, then send what the steps on V depend on."""
    X = shard.X
    U = state.U
    U_prev = state.U_prev
    if algorithm.row_clip is not None:
        first = np.zeros(U.shape) if at.index == 0 else U
        U, D = clipped_gradient(first, doubles(X), down.V, bound=algorithm.row_clip, sweeps=algorithm.local_steps)
        return Local(U, U, state.total), RowGradients(D)
    V = as_like(down.V, X)
    G = gram_rows(V)
    B = cross(X, V)
    for s in range(algorithm.local_steps):
        U, U_prev = prox_step(U, U_prev, G, B, _pull(algorithm, at.index, s)), U
    return Local(U, U_prev, state.total), Sums(gram(U), sums(U, X), state.total)


def step_factor(algorithm: Any, state: Server, up: Sums | RowGradients, at: Round) -> tuple[Server, Factor]:
    """Step on V with the sums fixed."""
    share = len(at.participants) / int(state.n_clients)
    if isinstance(up, RowGradients):
        sent, mean = noisy_round(
            state.V_prev, state.V, up.D, index=at.index, rows=float(algorithm.row_count or 1) * share
        )
        return replace(state, V=mean, V_prev=sent), Factor(sent)
    pooled = stand_in(up, share, state.up)
    V = as_like(state.V, up.A)
    V_prev = as_like(state.V_prev, up.A)
    G = pooled.G
    B = pooled.A.T
    before = V
    for s in range(algorithm.server_steps):
        V, V_prev = prox_step(V.T, V_prev.T, G, B, _pull(algorithm, at.index, s)).T, V
    sse = np.nan if up.total is None else squared_error(float(up.total), up.A, up.G, V)
    total = np.nan if up.total is None else float(up.total)
    server = Server(
        V=V,
        V_prev=V_prev,
        up=Sums(pooled.G, pooled.A),
        n_clients=state.n_clients,
        moved=np.float64(abs(V - before).max()),
        gap=np.float64(integrality_gap(V)),
        sse=np.float64(sse),
        total=np.float64(total),
    )
    return server, Factor(V)


def stand_in(up: Sums, share: float, last: Sums | None) -> Sums:
    """Scale the sums of the participating clients to the whole federation; the others count by their last sums."""
    now = Sums(up.G, up.A)
    if share >= 1:
        return now
    if last is None:
        return tree_map(lambda part: part / share, now)
    return tree_map(lambda old, part: (1 - share) * old + part, last, now)
