"""Run on every rank: an asynchronous run with a bad client; rank 0 prints what every rank knows of that client."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from mpi4py import MPI

import fedfactor
from fedfactor.engines.mpi.engine import MPIEngine

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.network.naughty_clients import BadStream

X = np.random.default_rng(0).gamma(0.5, 1.0, (60, 8))
owners = {"north": X[:20], "south": X[20:40], "west": X[40:]}
run = fedfactor.run(BadStream(2), owners, engine=MPIEngine(asynchronous=True), rounds=4, seed=0)
named = [(r.participants, r.rejected) for r in run.history if "west" in r.participants + r.rejected]
told = MPI.COMM_WORLD.gather(named)
if MPI.COMM_WORLD.rank == 0:
    json.dump(told, sys.stdout)
