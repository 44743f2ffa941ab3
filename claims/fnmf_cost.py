"""Alignment is cheap: LAP takes less than 5 % of a round, Sinkhorn less than 50 %.

k = 50, m = 5,000, four clients of 1,000 rows, ten local steps, one thread. Processor time inside plans and
barycenters, at the clients and at the server, over that of whole rounds; coordinate descent and iPALM. Planted factors
with noise.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import fedfactor.nmf.fnmf.algorithm as fnmf
from fedfactor.algorithms import FNMF
from fedfactor.core.algorithm import Meta, Round
from fedfactor.core.client_data import Shard
from fedfactor.core.threads import limit_threads
from fedfactor.data import planted_nmf, split_rows

K, M, ROWS, CLIENTS, ROUNDS = 50, 5000, 1000, 4, 2
LIMITS = {"lap": 0.05, "sinkhorn": 0.5}


class Clock:
    """Adds up the time spent in a function."""

    def __init__(self, work: Any) -> None:
        self.work, self.seconds = work, 0.0

    def __call__(self, *args: Any, **options: Any) -> Any:
        """Call the function, with the clock running."""
        began = time.process_time()
        try:
            return self.work(*args, **options)
        finally:
            self.seconds += time.process_time() - began


def rounds(method: FNMF, owners: dict[str, np.ndarray]) -> None:
    """Run clients and server one after the other, with one thread for products."""
    meta = Meta(M, tuple(sorted(owners)))
    shards = {name: Shard.of(X) for name, X in owners.items()}
    server, down = method.init_server(meta, Round(0, 0))
    states = {name: method.init_client(shard, meta, Round(0, 0, name)) for name, shard in shards.items()}
    for index in range(ROUNDS):
        ups = {}
        for name, shard in shards.items():
            states[name], ups[name] = method.client_step(shard, states[name], down, Round(0, index, name))
        server, down = method.server_step(server, ups, Round(0, index, participants=meta.clients))


def share(method: FNMF, owners: dict[str, np.ndarray]) -> dict[str, float]:
    plan, middle = fnmf.plan, fnmf.barycenter
    clocks = Clock(plan), Clock(middle)
    fnmf.plan, fnmf.barycenter = clocks
    try:
        began = time.process_time()
        with limit_threads(1):
            rounds(method, owners)
        whole = time.process_time() - began
    finally:
        fnmf.plan, fnmf.barycenter = plan, middle
    aligning = sum(clock.seconds for clock in clocks)
    return {"round_s": whole / ROUNDS, "aligning_s": aligning / ROUNDS, "share": aligning / whole}


def claim() -> dict:
    data = planted_nmf(CLIENTS * ROWS, M, K, noise=0.1, n_clients=CLIENTS)
    owners = split_rows(data.X, data.labels)
    found: dict[str, Any] = {}
    for alignment in LIMITS:
        for solver in ("hals", "gradient"):
            method = FNMF(K, alignment=alignment, local_solver=solver, local_steps=10, tol=0.0)
            found[f"{alignment}, {solver}"] = share(method, owners)
            print(alignment, solver, found[f"{alignment}, {solver}"], flush=True)
    holds = all(found[f"{a}, {s}"]["share"] < limit for a, limit in LIMITS.items() for s in ("hals", "gradient"))
    return {**found, "holds": bool(holds)}
