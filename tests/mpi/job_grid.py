"""Run on every rank: blocks on grids of these ranks against the reference engine, and what each rank sent and held."""

from __future__ import annotations

import json
import sys

import numpy as np
from mpi4py import MPI
from scipy import sparse

import fedfactor
from fedfactor.algorithms import GridNMF
from fedfactor.core.grid import block_federation
from fedfactor.engines.mpi.engine import MPIEngine

rng = np.random.default_rng(0)
X = rng.random((31, 3)) @ rng.random((3, 22)) + 0.01 * rng.random((31, 22))
X[X < 0.4] = 0
K, ROUNDS = 3, 7
CASES = [
    ("hals", np.asarray, "allreduce"),
    ("hals", np.asarray, "ordered"),
    ("hals", sparse.csr_array, "ordered"),
    ("mu", np.asarray, "ordered"),
    ("bpp", np.asarray, "ordered"),
]
comm = MPI.COMM_WORLD


def numbers(grid, place):
    """Count what a rank hands over: three sums for V, four for U, with a flag for each rank of its line."""
    (p, q), (i, j) = grid, place
    n_i, m_j = len(np.array_split(np.arange(31), p)[i]), len(np.array_split(np.arange(22), q)[j])
    return 4 * (q > 1) * (n_i * K + K * K + 2 + q) + 3 * (p > 1) * (K * m_j + K * K + 1 + p)


def compare(grid, kind, solver, reduction):
    algorithm = GridNMF(K, solver)
    data = kind(X[:3] if p > 3 and q == 1 else X)  # more ranks than rows: some blocks are empty
    engine = MPIEngine(reduction=reduction)
    run, reference = (
        fedfactor.run(algorithm, block_federation(data, grid), engine=each, rounds=ROUNDS, seed=1)
        for each in (engine, "local")
    )
    apart = max(
        float(np.abs(getattr(kept, part) - getattr(reference.factors[name], part)).max(initial=0))
        for name, kept in run.factors.items()
        for part in ("U", "V")
    )
    told = [(r.participants, r.bytes_up, r.bytes_down) for r in run.history]
    same = told == [(r.participants, r.bytes_up, r.bytes_down) for r in reference.history]
    return {
        "apart": max(comm.allgather(apart)),
        "same": all(comm.allgather(same and run.status == reference.status)),
        "error": abs(run.relative_error - reference.relative_error),
        "held": comm.allgather([list(kept.U.shape) + list(kept.V.shape) for kept in run.factors.values()]),
        "sent": comm.allgather(run.environment["rank_sent_bytes"]),
    }


found = {}
for p, q in [(p, comm.size // p) for p in range(1, comm.size + 1) if comm.size % p == 0]:
    for solver, kind, reduction in CASES:
        key = f"{p}x{q} {solver} {kind.__name__} {reduction}"
        found[key] = compare((p, q), kind, solver, reduction)
        found[key]["wire"] = [8 * numbers((p, q), divmod(rank, q)) for rank in range(comm.size)]
# Two blocks on a rank: groups that share ranks, and groups of one.
found["shared"] = compare((comm.size, 2), np.asarray, "hals", "ordered")
if comm.rank == 0:
    json.dump(found, sys.stdout)
