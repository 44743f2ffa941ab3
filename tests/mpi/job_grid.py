"""Run on every rank: the two-dimensional grid against the same iterations in one process."""

from __future__ import annotations

import json
import sys

import numpy as np
from mpi4py import MPI

from fedfactor.algorithms.distributed_nmf import one_step
from fedfactor.experiments.dsanls.faun import block_of, grid_nmf

rng = np.random.default_rng(0)
X = rng.random((30, 3)) @ rng.random((3, 22)) + 0.01 * rng.random((30, 22))
U0, V0 = rng.random((30, 4)), rng.random((4, 22))
comm = MPI.COMM_WORLD
found = {}
for grid in [(p, comm.size // p) for p in range(1, comm.size + 1) if comm.size % p == 0]:
    for solver in ("hals", "mu", "bpp"):
        rows, columns = block_of(X.shape, grid, comm.rank)
        U, V, curve = grid_nmf(
            comm, X[rows, columns], U0[rows], V0[:, columns], grid, solver=solver, iterations=6, measure=(1, 6)
        )
        A, B = U0, V0
        for _ in range(6):
            A = one_step(solver, A, B @ B.T, X @ B.T)
            B = one_step(solver, B.T, A.T @ A, X.T @ A).T
        apart = max(np.abs(U - A[rows]).max(), np.abs(V - B[:, columns]).max())
        error = abs(curve.errors[1] - np.linalg.norm(X - A @ B) / np.linalg.norm(X))
        (i, j), k = grid, 4
        n_i, m_j = rows.stop - rows.start, columns.stop - columns.start
        wire = 6 * 8 * ((j > 1) * (n_i * k + k * k) + (i > 1) * (k * m_j + k * k))
        found[f"{grid} {solver}"] = [max(comm.allgather(float(apart))), float(error), int(curve.sent == wire)]
if comm.rank == 0:
    json.dump(found, sys.stdout)
