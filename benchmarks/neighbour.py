"""What a busy neighbour costs, and whether a cap of one thread is kept."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from contextlib import contextmanager
from typing import Any

import fedfactor
from benchmarks.against import run_ours, run_sklearn
from benchmarks.datasets import RANK
from benchmarks.measure import seconds
from fedfactor.algorithms import PooledNMF

ONE_CORE = """
import json, time
from benchmarks.datasets import load
from benchmarks.neighbour import rounds
X = load({label!r})
rounds(X)
wall, cpu = time.perf_counter(), time.process_time()
rounds(X)
print(json.dumps([time.perf_counter() - wall, time.process_time() - cpu]))
"""


def rounds(X: Any, count: int = 20) -> float:
    """Return the seconds of a run."""
    return seconds(lambda: fedfactor.run(PooledNMF(RANK, tol=0), {"all": X}, rounds=count, seed=0))[0]


@contextmanager
def busy_core():
    """Keep one core busy, by a process of its own."""
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def compare(X: Any, label: str, stop: float | None, repeats: int = 3) -> dict[str, Any]:
    """Time a run alone, beside a busy process, and on one allowed thread (wall against processor seconds).

    Beside the busy process scikit-learn's 200 passes are timed too, and our time until its error, at `stop`, is reached
    (None: that is never reached).
    """
    quiet = statistics.median(rounds(X) for _ in range(repeats))
    with busy_core():
        beside = statistics.median(rounds(X) for _ in range(repeats))
        theirs = run_sklearn(X, 0, 0)[0]
        ours = None if stop is None else statistics.median(run_ours(X, stop, 0)[0] for _ in range(repeats))
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    ran = subprocess.run(
        [sys.executable, "-c", ONE_CORE.format(label=label)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    wall, cpu = json.loads(ran.stdout)
    return {
        "quiet": quiet,
        "beside_a_busy_process": beside,
        "ratio": beside / quiet,
        "sklearn_beside": theirs,
        "ours_to_its_error_beside": ours,
        "against_sklearn_beside": None if ours is None else theirs / ours,
        "one_thread_cpu_per_wall": cpu / wall,
    }
