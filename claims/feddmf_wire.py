"""In a whole run on MovieLens nothing but holdings and item vectors of agreed items leaves a client: every upload is
compared with the client's own state, and withheld items are zero throughout.

Two clients, movies of 20 ratings or more, three epochs; ten items of each client are withheld.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedfactor.algorithms import FedDMF
from fedfactor.core.algorithm import Round
from fedfactor.core.client_items import open_columns
from fedfactor.core.pytree import leaves, nbytes, tree_sum
from fedfactor.recommend.feddmf.messages import Done, Holdings, Published, Vectors
from papers.feddmf.split import movies, split


def claim() -> dict:
    part, algorithm = split(movies(20)), FedDMF(epochs=3, refine=1)
    federation = part.federation()
    shards = {n: replace(federation.shard(n), withheld=federation.shard(n).held[::97][:10]) for n in federation.names}
    meta = federation.prepare(algorithm.domain)
    server, down = algorithm.init_server(meta, Round(0, 0))
    states = {n: algorithm.init_client(shards[n], meta, Round(0, 0, n)) for n in shards}
    log, fine, index = [], True, 0
    while not algorithm.converged(server):
        ups = {}
        for name, shard in shards.items():
            items = getattr(down, "items", np.zeros(0, np.int64))
            states[name], up = algorithm.client_step(shard, states[name], down, Round(0, index, name, meta.clients))
            fine &= _only_vectors(up, shard, states[name], items)
            log.append((index, name, type(up).__name__, [path for path, _ in leaves(up)], nbytes(up)))
            ups[name] = up
        server, down = algorithm.server_step(server, tree_sum(ups.values()), Round(0, index, None, meta.clients))
        index += 1
    kinds = {kind: sorted({p for _, _, k, paths, _ in log if k == kind for p in paths}) for kind in {e[2] for e in log}}
    return {"messages": kinds, "uploads": len(log), "bytes_up": sum(entry[4] for entry in log), "holds": bool(fine)}


def _only_vectors(up, shard, state, items) -> bool:
    shared, Q = open_columns(shard), state.weights["Q"]
    match up:
        case Holdings():
            return np.array_equal(np.flatnonzero(up.count), shared)
        case Vectors():
            mine = np.isin(items, shared)
            expected = np.zeros_like(up.Q)
            expected[mine] = Q[np.searchsorted(shard.held, items[mine])]
            return [p for p, _ in leaves(up)] == ["Q", "count"] and np.array_equal(up.Q, expected)
        case Published():
            expected = np.zeros_like(up.Q)
            expected[shared] = Q[np.searchsorted(shard.held, shared)]
            return [p for p, _ in leaves(up)] == ["Q", "count"] and np.array_equal(up.Q, expected)
    return isinstance(up, Done) and [p for p, _ in leaves(up)] == ["n"]
