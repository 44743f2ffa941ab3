"""Run a federation in a process of its own and measure the most memory it held."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import fedfactor

HEAD = """
import json, sys, threading, time
import numpy as np, psutil
from scipy import sparse
import fedfactor
from fedfactor.algorithms import PooledNMF
from fedfactor.io.partition import split_rows

me = psutil.Process()
# Imports, compiled kernels and thread pools cost the same for any data: spend them before measuring.
small = sparse.random_array((60, 30), density=0.3, rng=np.random.default_rng(0), format="csr")
fedfactor.run(PooledNMF(3), {"a": small[:30], "b": small[30:]}, rounds=2, seed=0)
fedfactor.run(PooledNMF(3), {"a": small[:30].toarray(), "b": small[30:].toarray()}, rounds=2, seed=0)
before = peak = me.memory_info().rss
done = False

def watch():
    global peak
    while not done:
        peak = max(peak, me.memory_info().rss)
        time.sleep(0.002)

def report(run, data, **more):
    global done, peak
    done = True
    peak = max(peak, me.memory_info().rss)
    U = sum(kept.U.nbytes for kept in run.factors.values())
    print(json.dumps({"data_bytes": data, "U_bytes": U, "peak_rss": peak, "peak_above_start": peak - before,
                      "rounds": run.rounds, "seconds": run.seconds, "relative_error": run.relative_error, **more}))
"""

MANY_OWNERS = (
    HEAD
    + """
rng = np.random.default_rng(1)
owners = {f"owner {i:04d}": rng.random((20, 500)) for i in range(1000)}
threading.Thread(target=watch, daemon=True).start()
run = fedfactor.run(PooledNMF(10, tol=0.0), owners, rounds=10, seed=0)
report(run, 1000 * 20 * 500 * 8)
"""
)

LARGE_SPARSE = (
    HEAD
    + """
n, m, per_row, parts = 200_000, 2_000, 20, 50
rng = np.random.default_rng(1)
indices = np.empty((n, per_row), dtype=np.int32)
values = np.empty((n, per_row))
for start in range(0, n, 5_000):  # one column out of every hundred: sorted, distinct, and no large temporary arrays
    stop = start + 5_000
    indices[start:stop] = np.arange(0, m, m // per_row) + rng.integers(m // per_row, size=(5_000, per_row))
    values[start:stop] = rng.random((5_000, per_row))
indptr = np.arange(0, n * per_row + 1, per_row, dtype=np.int32)
X = sparse.csr_array((values.ravel(), indices.ravel(), indptr), shape=(n, m))
assert np.shares_memory(X.data, values) and np.shares_memory(X.indices, indices)
with_rows = me.memory_info().rss
threading.Thread(target=watch, daemon=True).start()
labels = np.repeat(np.arange(parts), n // parts)
if sys.argv[1] == "random":
    labels = rng.permutation(labels)
run = fedfactor.run(PooledNMF(20, tol=0.0), split_rows(X, labels), rounds=10, seed=0)
report(run, X.data.nbytes + X.indices.nbytes + X.indptr.nbytes, peak_above_rows=peak - with_rows)
"""
)


def measure(script: str, *arguments: str) -> dict[str, Any]:
    """Run a script and return what it reports."""
    environment = {**os.environ, "PYTHONPATH": str(Path(fedfactor.__file__).parents[1])}
    done = subprocess.run(
        [sys.executable, "-c", script, *arguments], env=environment, capture_output=True, text=True, timeout=900
    )
    if done.returncode:
        raise RuntimeError(f"the measured run failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout)
