"""Kill a checkpointed run with SIGKILL at random moments, resume it until it is done, and compare bits."""

from __future__ import annotations

import hashlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import fedfactor
from fedfactor import algorithms
from fedfactor.core.errors import FedfactorError
from fedfactor.engines.checkpoint import Snapshot

ROUNDS = 60
ALGORITHMS = ("PooledNMF", "FedAvgNMF")

SCRIPT = """
import hashlib, sys, time
import numpy as np
import fedfactor
from fedfactor import algorithms
from fedfactor.core.pytree import leaves

folder, name, backend = sys.argv[1:4]
rng = np.random.default_rng(0)
owners = {f"owner {i}": rng.random((60, 5)) @ rng.random((5, 80)) for i in range(6)}
algorithm = getattr(algorithms, name)(n_components=5, tol=0.0)
engine = fedfactor.LocalEngine(backend, workers=2)
started = []

def pace(record):
    # Workers and compiled kernels take their time to start: only now may a kill come, so that it falls into rounds.
    if not started:
        started.append(print("ready", flush=True))
    time.sleep(0.005)

run = fedfactor.run(algorithm, owners, engine=engine, rounds=int(sys.argv[4]), seed=1,
                    checkpoint=None if folder == "-" else folder, callbacks=(pace,))
digest = hashlib.sha256()
for owner, kept in run.factors.items():
    for path, leaf in leaves(kept):
        digest.update(np.ascontiguousarray(leaf).tobytes())
print(digest.hexdigest(), run.rounds, flush=True)
"""


def start(folder: Path | str, name: str, backend: str = "threads") -> subprocess.Popen[str]:
    """Start a run in a process of its own."""
    command = [sys.executable, "-c", SCRIPT, str(folder), name, backend, str(ROUNDS)]
    # The very code that this process runs, whatever else may be installed.
    environment = {**os.environ, "PYTHONPATH": str(Path(fedfactor.__file__).parents[1])}
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def finish(process: subprocess.Popen[str]) -> str:
    """Wait for a run and return its last line: digest of all factors, and rounds."""
    out, _ = process.communicate(timeout=300)
    if process.returncode != 0:
        raise RuntimeError(f"a run ended with code {process.returncode}")
    return out.split("\n")[-2]


def undisturbed(name: str) -> tuple[str, float]:
    """Run without a checkpoint; return the last line and the seconds from the first sign of life."""
    process = start("-", name)
    assert process.stdout is not None
    process.stdout.readline()
    begin = time.perf_counter()
    return finish(process), time.perf_counter() - begin


def killed_until_done(
    folder: Path, name: str, kills: int, seed: int, seconds: float, backend: str = "threads"
) -> dict[str, Any]:
    """Kill one run ``kills`` times at random moments, looking at the checkpoint after each, then let it end."""
    chance = random.Random(seed)
    getattr(algorithms, name)  # bytes never cause an import, so whoever looks into a checkpoint must do so
    found: dict[str, Any] = {"kills": 0, "in_mid_run": 0, "unreadable": 0, "steps_back": 0, "rounds_at_kills": []}
    before = 0
    for _ in range(kills):
        process = start(folder, name, backend)
        assert process.stdout is not None
        process.stdout.readline()
        # All kills together take about the time of one run, so that each falls into its course.
        time.sleep(chance.uniform(0.0, 2 * seconds / kills))
        process.send_signal(signal.SIGKILL)
        process.communicate()
        found["kills"] += process.returncode == -signal.SIGKILL
        reached = _rounds_in(folder / "run.safetensors")
        found["unreadable"] += reached is None
        found["steps_back"] += (reached or 0) < before
        before = max(before, reached or 0)
        found["rounds_at_kills"].append(reached)
        found["in_mid_run"] += reached is not None and 0 < reached < ROUNDS
    found["result"] = finish(start(folder, name, backend))
    return found


def _rounds_in(file: Path) -> int | None:
    """Rounds that a checkpoint holds: 0 when there is none yet, None when it cannot be read."""
    if not file.exists():
        return 0
    try:
        return Snapshot.from_bytes(file.read_bytes()).next_round
    except (FedfactorError, ValueError, KeyError):
        return None


def digest_of(text: str) -> str:
    """Shorten a result for the evidence."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]
