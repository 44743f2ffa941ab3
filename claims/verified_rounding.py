"""Parties whose processors round differently refuse no honest question: 100 rounds under three kernels of OpenBLAS.

Every party takes the server's step itself and compares. Here the parties are processes of their own whose OpenBLAS has
the kernels of three processors (OPENBLAS_CORETYPE), over HTTPS. That rounding differs is shown: on this machine alone
they give at least two different V's. The run is finished, no party refused anything, and V is that of the local engine
but for rounding.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

import fedfactor
from claims import _flower as real
from fedfactor.core.client_data import Federation
from fedfactor.federation.trial import Trial
from fedfactor.io.read import load_shard
from fedfactor.network.client_storage import ClientFolder

CORES = ("Haswell", "Sandybridge", "SkylakeX")
VARIABLE = "OPENBLAS_CORETYPE"
METHODS: dict[str, dict[str, Any]] = {
    "PooledNMF": {"tol": 0.0},
    "FedAvgNMF": {"weights": "equal"},
    "PooledCF": {},
}
"""Methods, with their settings: the first two on dense rows, the last one on ratings."""

ROUNDS = 100
TOLERANCE = 1e-8
"""How far V may be from that of the local engine, relative to its largest number."""


def alone(files: dict[str, Path], name: str, rounds: int) -> str:
    """Run on this machine, in the present process; return a digest of V."""
    return hashlib.sha256(np.ascontiguousarray(_local(files, name, rounds)).tobytes()).hexdigest()[:16]


def _local(files: dict[str, Path], name: str, rounds: int) -> np.ndarray:
    missing = "unstored" if name == "PooledCF" else None
    more = {"missing_values": missing} if missing else {}
    owners = {party: load_shard(file, **more) for party, file in files.items()}
    algorithm = getattr(fedfactor.algorithms, name)(n_components=3, **METHODS[name])
    run = fedfactor.run(algorithm, Federation(owners), rounds=rounds, seed=5, privacy="secure-sum")
    return np.asarray(run.factors["north"].V)


def distinct(files: dict[str, Path], name: str, rounds: int) -> int:
    """Count the different V's of the three kernels."""
    found: set[str] = set()
    for core in CORES:
        command = [sys.executable, "-m", "claims.verified_rounding", name, str(rounds), *map(str, files.values())]
        done = subprocess.run(command, env={**os.environ, VARIABLE: core}, capture_output=True, text=True, check=True)
        found.add(done.stdout.strip())
    return len(found)


def federated(folder: Path, files: dict[str, Path], name: str, rounds: int) -> dict[str, Any]:
    """Run between three processes with a kernel each; return how it ended, and what was refused."""
    changes = real.terms(name, rounds, **METHODS[name])
    changes["privacy"] |= {"protect": "secure-sum", "allow": ["small-client"]}
    if name == "PooledCF":
        changes["preprocess"] = {"missing_values": "unstored"}
    before = os.environ.get(VARIABLE)
    with Trial(folder, files, changes) as trial:
        try:
            for party, core in zip(files, CORES, strict=True):
                os.environ[VARIABLE] = core
                trial.join(party)
        finally:
            os.environ.pop(VARIABLE)
            if before is not None:
                os.environ[VARIABLE] = before
        trial.coordinator.start()
        status = trial.coordinator.wait(1500.0)
    V = real.factors(trial)["north"].V if status["state"] == "finished" else np.full(1, np.nan)
    wanted = _local(files, name, rounds)
    return {
        "state": status["state"],
        "rounds": status["round"],
        "refused": sum("reason" in line for party in files for line in ClientFolder(trial.folder(party)).sent()),
        "difference": float(np.abs(V - wanted).max() / np.abs(wanted).max()),
    }


def compare(folder: Path, rounds: int, methods: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Run these methods."""
    found: dict[str, dict[str, Any]] = {}
    for name in methods:
        place = folder / name
        place.mkdir()
        files = real.write_ratings(place) if name == "PooledCF" else real.write_rows(place, columns=60, rows=120)
        found[name] = {
            "different_V": distinct(files, name, rounds),
            **federated(place / "all", files, name, rounds),
        }
    return found


def holds(found: dict[str, dict[str, Any]]) -> bool:
    """Return whether every run is finished without a refusal, and rounding did differ."""
    right = all(
        about["state"] == "finished" and not about["refused"] and about["difference"] <= TOLERANCE
        for about in found.values()
    )
    return right and max(about["different_V"] for about in found.values()) > 1


def claim() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        found = compare(Path(folder), ROUNDS, METHODS)
    return {**found, "cores": list(CORES), "holds": holds(found)}


if __name__ == "__main__":
    print(alone(dict(zip(real.PARTIES, map(Path, sys.argv[3:]), strict=True)), sys.argv[1], int(sys.argv[2])))
