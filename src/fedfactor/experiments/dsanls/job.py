"""What every rank of one measurement runs: ``mpiexec -n N python -m fedfactor.experiments.dsanls.job '{...}'``."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

from fedfactor.algorithms import DSANLS, DistributedNMF, SynSSD
from fedfactor.core.federation import Federation
from fedfactor.core.grid import grid_federation
from fedfactor.core.protocol import Round
from fedfactor.engines.mpi.engine import MPIEngine, load_mpi
from fedfactor.engines.run import run
from fedfactor.experiments.dsanls import secure
from fedfactor.experiments.dsanls.datasets import load
from fedfactor.experiments.dsanls.faun import block_of, grid_nmf, grid_of
from fedfactor.threads import limit_threads

__all__ = ["measure"]


def measure(cell: dict[str, Any]) -> dict[str, Any]:
    """Run one method on this job's ranks and tell the seconds of each iteration, errors where known, and bytes sent."""
    MPI = load_mpi()
    if "parties" in cell:
        return _parties(MPI.COMM_WORLD, cell)
    comm, X = MPI.COMM_WORLD, load(cell["data"], cell["full"])
    k, T, name = cell["k"], cell["iterations"], cell["method"]
    with limit_threads(1):
        if name.startswith("grid "):
            return _on_grid(comm, X, name.split()[1], k, T, cell["marks"])
    engine = MPIEngine(size=comm.Get_size())
    if name.startswith("DSANLS"):
        _, kind, solver = name.split()
        method: Any = DSANLS(k, kind, cell["ratio"], solver, iterations=T, leak="ignore")  # type: ignore[arg-type]
        federation = grid_federation(X, comm.Get_size())
        per_iteration = 2
    else:
        method, per_iteration = DistributedNMF(k, name.split()[1]), 1  # type: ignore[arg-type]
        federation = Federation({str(i): part for i, part in enumerate(_rows(X, comm.Get_size()))})
    run(method, federation, engine=engine, rounds=1 + per_iteration, seed=cell["seed"])  # compile, off the clock
    comm.Barrier()
    found = run(method, federation, engine=engine, rounds=None if per_iteration == 2 else T, seed=cell["seed"])
    seconds = np.cumsum([record.seconds for record in found.history]).tolist()
    errors = [record.metrics.get("relative_error") for record in found.history]
    return {
        "seconds": seconds[1::2][:T] if per_iteration == 2 else seconds,
        "errors": None if per_iteration == 2 else errors,
        "final": found.relative_error,
        "sent": found.environment["rank_sent_bytes"],
    }


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
    return [X[block_of(X.shape, (parts, 1), rank)[0]] for rank in range(parts)]


def _on_grid(comm: Any, X: Any, solver: str, k: int, T: int, marks: list[int]) -> dict[str, Any]:
    grid = grid_of(comm.Get_size(), X.shape)
    rows, columns = block_of(X.shape, grid, comm.Get_rank())
    block = X[rows][:, columns]
    mean = float(X.sum()) / (X.shape[0] * X.shape[1])
    at = Round(0, 0)
    U = (4 * mean / k * at.shared_rng("U").random((X.shape[0], k))).astype(X.dtype)[rows]
    V = np.ascontiguousarray(at.shared_rng("V").random((k, X.shape[1])).astype(X.dtype)[:, columns])
    grid_nmf(comm, block, U, V, grid, solver=solver, iterations=2)  # compile, off the clock
    began = time.perf_counter()
    _, _, curve = grid_nmf(comm, block, U, V, grid, solver=solver, iterations=T, measure=tuple(marks))
    seconds = time.perf_counter() - began
    final = curve.errors[-1] if curve.errors else None
    about = {"marks": curve.iterations, "errors": curve.errors, "seconds": curve.seconds, "final": final}
    return {**about, "sent": curve.sent, "grid": grid, "wall": seconds}


if __name__ == "__main__":
    told = measure(json.loads(sys.argv[1]))
    if load_mpi().COMM_WORLD.Get_rank() == 0:
        json.dump(told, sys.stdout)
