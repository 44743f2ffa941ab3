"""Run on every rank: compare the MPI engine with the reference, and let rank 0 print what was found as JSON."""

from __future__ import annotations

import json
import sys

import numpy as np
from mpi4py import MPI

import fedfactor
from fedfactor import LocalEngine
from fedfactor.algorithms import DSANLS, FELB, FNMF, DistributedNMF, FedAvgNMF, PooledNMF, SynSSD
from fedfactor.core.grid import grid_federation
from fedfactor.engines.mpi.engine import MPIEngine
from fedfactor.testing.probe_algorithm import Probe

rng = np.random.default_rng(0)
X = rng.random((90, 4)) @ rng.random((4, 37)) + 0.01 * rng.random((90, 37))


def rows(data=X):
    return {name: data[18 * i : 18 * (i + 1)] for i, name in enumerate("abcde")}


def binary():
    return rows((X > np.median(X)).astype(float))


CASES = {
    "PooledNMF": (PooledNMF(4), rows, 20),
    "FedAvgNMF": (FedAvgNMF(4), rows, 8),
    "FELB": (FELB(3), binary, 8),
    "FNMF": (FNMF(3), rows, 4),
    "DSANLS": (DSANLS(4, iterations=10, leak="ignore"), lambda: grid_federation(X, 5), 21),
    "DistributedNMF": (DistributedNMF(3, "bpp"), rows, 5),
    "SynSSD": (SynSSD(3, local_steps=3), rows, 7),
    "Probe": (Probe(3), lambda: rows(X - X.mean()), 7),
    "float32": (PooledNMF(3), lambda: rows(X.astype(np.float32)), 8),
}


def compare(name, **options):
    algorithm, data, rounds = CASES[name]
    run = fedfactor.run(algorithm, data(), engine=MPIEngine(**options), rounds=rounds, seed=3)
    reference = fedfactor.run(algorithm, data(), engine=LocalEngine(workers=2), rounds=rounds, seed=3)
    worst = 0.0
    for owner, kept in run.factors.items():
        for part in ("U", "V"):
            ours, theirs = getattr(kept, part), getattr(reference.factors[owner], part)
            assert ours.dtype == theirs.dtype
            worst = max(worst, float(np.abs(ours - theirs).max() / np.abs(theirs).max()))
    same = all(
        getattr(a, field) == getattr(b, field)
        for a, b in zip(run.history, reference.history, strict=True)
        for field in ("index", "participants", "bytes_up", "bytes_down")
    )
    same &= run.status == reference.status and list(run.scores) == list(reference.scores)
    worst = max(MPI.COMM_WORLD.allgather(worst))
    everyone = sorted(name for names in MPI.COMM_WORLD.allgather(list(run.factors)) for name in names)
    return {"apart": worst, "same_history": bool(same), "every_owner_once": everyone == sorted(reference.factors)}


found = {
    f"{name} {label}": compare(name, **options)
    for label, options in {
        "allreduce": {},
        "ordered": {"reduction": "ordered"},
        "root": {"trusted": False},
        "drop-outs": {"drop_outs": True},
    }.items()
    for name in CASES
    if label != "drop-outs" or name in ("PooledNMF", "DSANLS", "Probe")
}
if MPI.COMM_WORLD.rank == 0:
    json.dump(found, sys.stdout)
