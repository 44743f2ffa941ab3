"""Run on every rank: a run on a grid that is kept in a folder, and may end in the middle; rank 0 prints V's bits."""

from __future__ import annotations

import hashlib
import os
import sys

import numpy as np
from mpi4py import MPI

import fedfactor
from fedfactor.algorithms import GridNMF
from fedfactor.core.grid import block_federation
from fedfactor.engines.checkpoint import Checkpoint
from fedfactor.engines.mpi.engine import MPIEngine

folder, rounds, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
X = np.random.default_rng(0).random((31, 22))


def end(record):
    if record.index + 1 == last < rounds:
        os._exit(3)


run = fedfactor.run(
    GridNMF(4), block_federation(X, (2, 2)), engine=MPIEngine(reduction="ordered"), rounds=rounds, seed=1,
    checkpoint=Checkpoint(folder, every=3), callbacks=(end,),
)  # fmt: skip
(kept,) = run.factors.values()
bits = MPI.COMM_WORLD.allgather(hashlib.sha256(kept.U.tobytes() + kept.V.tobytes()).hexdigest())
if MPI.COMM_WORLD.rank == 0:
    print(*bits)
