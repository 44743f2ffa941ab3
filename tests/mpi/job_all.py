"""Run on every rank: every algorithm of the library in rounds, against the reference; rank 0 prints JSON."""

from __future__ import annotations

import json
import sys

import numpy as np
from mpi4py import MPI

import fedfactor
from fedfactor import LocalEngine, algorithms
from fedfactor.engines.mpi.engine import MPIEngine
from fedfactor.testing.data import federation_for, small_data

SETTINGS = {
    "DSANLS": {"leak": "ignore", "iterations": 3},
    "FedDMF": {"hidden": 8, "epochs": 1, "refine": 1, "batch_size": 64},
    "FedSPLIT": {"iterations": 5},
    "BooleanVotes": {"solver": "grecond"},
}

ROUNDS = 5


def compare(name):
    algorithm = getattr(algorithms, name)(3, **SETTINGS.get(name, {}))
    owners = small_data(algorithm.domain)
    # AsynSD and AsynSSD have no order of arrival to compare with, so here they run in rounds.
    engine = MPIEngine(reduction="ordered", asynchronous=False)
    run = fedfactor.run(algorithm, federation_for(algorithm, owners), engine=engine, rounds=ROUNDS, seed=2)
    reference = fedfactor.run(
        algorithm, federation_for(algorithm, owners), engine=LocalEngine(workers=2), rounds=ROUNDS, seed=2
    )
    apart = 0.0
    for owner, kept in run.factors.items():
        for part in ("U", "V"):
            ours, theirs = (np.asarray(getattr(each, part)) for each in (kept, reference.factors[owner]))
            apart = max(apart, float(np.abs(ours - theirs).max(initial=0) / max(np.abs(theirs).max(initial=0), 1e-300)))
    same = [r.participants for r in run.history] == [r.participants for r in reference.history]
    return {"apart": max(MPI.COMM_WORLD.allgather(apart)), "rounds": run.rounds, "same_history": same}


found = {name: compare(name) for name in sorted(algorithms.__all__)}
if MPI.COMM_WORLD.rank == 0:
    json.dump(found, sys.stdout)
