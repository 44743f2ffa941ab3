"""Every algorithm of the library on another engine, against the reference: settings, data and the comparison."""

from __future__ import annotations

import numpy as np

import fedfactor
from fedfactor import LocalEngine, algorithms
from fedfactor.testing.data import federation_for, small_data

SETTINGS = {
    "DSANLS": {"leak": "ignore", "iterations": 3},
    "FedDMF": {"hidden": 8, "epochs": 1, "refine": 1, "batch_size": 64},
    "FedSPLIT": {"iterations": 5},
    "BooleanVotes": {"solver": "grecond"},
}

ROUNDS = 5


def sums(name):
    """Tell whether an algorithm's server needs nothing but sums of uploads."""
    algorithm = getattr(algorithms, name)(3, **SETTINGS.get(name, {}))
    owners = small_data(algorithm.domain)
    meta = federation_for(algorithm, owners).prepare(algorithm.domain)
    return all(getattr(kind, "uplink", "sum") == "sum" for kind in algorithm.messages(meta))


def apart_from_local(name, engine):
    """Run on an engine and on the reference; returns how far factors lie apart, and whether histories are the same."""
    algorithm = getattr(algorithms, name)(3, **SETTINGS.get(name, {}))
    owners = small_data(algorithm.domain)
    run, reference = (
        fedfactor.run(algorithm, federation_for(algorithm, owners), engine=each, rounds=ROUNDS, seed=2)
        for each in (engine, LocalEngine(workers=2))
    )
    apart = 0.0
    for owner, kept in run.factors.items():
        for part in ("U", "V"):
            ours, theirs = (np.asarray(getattr(each, part)) for each in (kept, reference.factors[owner]))
            apart = max(apart, float(np.abs(ours - theirs).max(initial=0) / max(np.abs(theirs).max(initial=0), 1e-300)))
    same = [r.participants for r in run.history] == [r.participants for r in reference.history]
    return apart, same and run.rounds == reference.rounds
