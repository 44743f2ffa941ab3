"""What every rank of one measurement runs: ``mpiexec -n N python -m papers.dsanls.job '{...}'``."""

from __future__ import annotations

import json
import sys
import time
from itertools import pairwise
from typing import Any

import numpy as np

from fedfactor.algorithms import DSANLS, DistributedNMF, GridNMF, SynSSD
from fedfactor.core.client_data import Federation
from fedfactor.core.grid import block_federation, even_bounds, grid_federation, grid_of
from fedfactor.engines.mpi.engine import MPIEngine, load_mpi
from fedfactor.engines.run import run
from fedfactor.nmf.distributed.sketches import sketch_width
from papers.dsanls import secure
from papers.dsanls.datasets import load

__all__ = ["measure"]


def measure(cell: dict[str, Any]) -> dict[str, Any]:
    """Run one method on this job's ranks and tell the seconds of each iteration, errors where known, and bytes sent."""
    MPI = load_mpi()
    if "parties" in cell:
        return _parties(MPI.COMM_WORLD, cell)
    comm, X = MPI.COMM_WORLD, load(cell["data"], cell["full"])
    k, T, (name, *words) = cell["k"], cell["iterations"], cell["method"].split()
    ranks = comm.Get_size()
    engine = MPIEngine(size=ranks)
    # The rounds that end an iteration: one has a first round before it, the other brings the error a round later.
    if name == "DSANLS":
        method: Any = DSANLS(k, words[0], cell["ratio"], words[1], iterations=T, leak="ignore")  # type: ignore[arg-type]
        federation, rounds, ends = grid_federation(X, ranks), 2 * T + 1, slice(1, 2 * T, 2)
    elif name == "grid":
        method, federation = GridNMF(k, words[0]), block_federation(X, grid_of(ranks, X.shape))  # type: ignore[arg-type]
        rounds, ends = 2 * T + 1, slice(2, None, 2)
    else:
        method, federation = DistributedNMF(k, words[0]), Federation(_rows(X, ranks))  # type: ignore[arg-type]
        rounds, ends = T, slice(None)
    run(method, federation, engine=engine, rounds=3, seed=cell["seed"])  # compile, off the clock
    comm.Barrier()
    found = run(method, federation, engine=engine, rounds=rounds, seed=cell["seed"])
    seconds = np.cumsum([record.seconds for record in found.history]).tolist()
    errors = [record.metrics.get("relative_error") for record in found.history]
    return {
        "seconds_exchange": _exchange_seconds(comm, method, X.shape, T),
        "seconds": seconds[ends],
        "errors": None if name == "DSANLS" else errors[ends],
        "final": found.relative_error,
        "sent": found.environment["rank_sent_bytes"],
    }


def _exchange_seconds(comm: Any, method: Any, shape: tuple[int, int], iterations: int) -> float | None:
    """Time all-reduces of the sizes that a run exchanges, apart from any computation; None for grids."""
    k, (n, m) = method.n_components, shape
    if isinstance(method, DSANLS):
        sizes = [k * sketch_width(m, method.ratio, k), k * sketch_width(n, method.ratio, k)]
    elif isinstance(method, DistributedNMF):
        sizes = [k * m + k * k]
    else:
        return None
    buffers = [np.zeros(size) for size in sizes]
    comm.Barrier()
    began = time.perf_counter()
    for _ in range(iterations):
        for buffer in buffers:
            comm.allreduce(buffer)
    return time.perf_counter() - began


def _parties(comm: Any, cell: dict[str, Any]) -> dict[str, Any]:
    """Run a secure method with one party on a rank; without rounds rank 0 is the server and has no party."""
    method = secure.methods(cell["k"])[cell["method"]]
    federation = Federation(secure.opened(cell))
    engine = MPIEngine(size=comm.Get_size())
    run(method, federation, engine=engine, rounds=2, seed=cell["seed"])  # compile, off the clock
    comm.Barrier()
    began = time.perf_counter()
    rounds = secure.rounds_of(method, cell["exchanges"])
    found = run(method, federation, engine=engine, rounds=rounds, seed=cell["seed"])
    seconds = time.perf_counter() - began
    alone = getattr(type(method), "asynchronous", False)
    arrivals = len(found.history) * (1 if alone else cell["parties"])
    alternations = arrivals * (1 if isinstance(method, SynSSD) else 10) / cell["parties"]
    return {
        "speed": alternations / seconds,
        "messages": arrivals / cell["parties"],
        "sent": found.bytes_up // cell["parties"],
        "final": found.relative_error,
    }


def _rows(X: Any, parts: int) -> list[Any]:
    return [X[first:last] for first, last in pairwise(even_bounds(X.shape[0], parts))]


if __name__ == "__main__":
    told = measure(json.loads(sys.argv[1]))
    if load_mpi().COMM_WORLD.Get_rank() == 0:
        json.dump(told, sys.stdout)
