"""Run on every rank: every algorithm of the library in rounds, against the reference; rank 0 prints JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from mpi4py import MPI

from fedfactor import algorithms
from fedfactor.engines.mpi.engine import MPIEngine

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.engines.every_algorithm import apart_from_local


def compare(name, reduction):
    # AsynSD and AsynSSD have no order of arrival to compare with, so here they run in rounds.
    apart, same = apart_from_local(name, MPIEngine(reduction=reduction, asynchronous=False))
    return {"apart": max(MPI.COMM_WORLD.allgather(apart)), "same_history": same}


found = {
    reduction: {name: compare(name, reduction) for name in sorted(algorithms.__all__)}
    for reduction in ("ordered", "allreduce")
}
if MPI.COMM_WORLD.rank == 0:
    json.dump(found, sys.stdout)
