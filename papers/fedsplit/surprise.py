"""Surprise's NMF and SVD on the same splits, in an interpreter that has Surprise; a benchmark, never a dependency."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from papers.fedsplit.protocol import Split, group_errors

__all__ = ["HOW", "found", "measure", "timing"]

HOW = (
    "pip install scikit-surprise, or set FEDFACTOR_SURPRISE_PYTHON to the Python of an environment that has it (it may "
    "need 'numpy<2')."
)
MODELS = {"NMF": {"biased": False}, "NMF with biases": {"biased": True}, "SVD": {}}

# Runs on its own: it may live in another environment, so it knows NumPy and Surprise only.
SCRIPT = """
import json, sys, time
from collections import defaultdict
import numpy as np
from surprise import NMF, SVD
from surprise.trainset import Trainset
data = np.load(sys.argv[1])
jobs = json.loads(sys.argv[3])
u, i, r = data["u"], data["i"], data["r"]
users, items = defaultdict(list), defaultdict(list)
for a, b, c in zip(u.tolist(), i.tolist(), r.tolist()):
    users[a].append((b, c)); items[b].append((a, c))
n, m = int(data["n"]), int(data["m"])
T = Trainset(users, items, n, m, len(r), (1, 5), {a: a for a in range(n)}, {b: b for b in range(m)})
out = {}
for name, (kind, options) in jobs.items():
    began, busy = time.perf_counter(), time.process_time()
    A = {"NMF": NMF, "SVD": SVD}[kind](random_state=0, **options).fit(T)
    seconds, cpu = time.perf_counter() - began, time.process_time() - busy
    e = (A.pu[data["tu"]] * A.qi[data["ti"]]).sum(1)
    if kind == "SVD" or options.get("biased"):
        e = e + T.global_mean + A.bu[data["tu"]] + A.bi[data["ti"]]
    out[name] = {"seconds": seconds, "cpu": cpu, "predicted": e.tolist()}
json.dump(out, open(sys.argv[2], "w"))
"""


def python() -> str | None:
    """Return the interpreter that has Surprise, or None."""
    named = os.environ.get("FEDFACTOR_SURPRISE_PYTHON")
    if named:
        return named
    return sys.executable if importlib.util.find_spec("surprise") else None


def found() -> bool:
    """Tell whether Surprise can be run."""
    return python() is not None


def _run(train: Any, rows: Any, columns: Any, jobs: dict[str, Any]) -> dict[str, Any]:
    C = train.tocoo()
    with tempfile.TemporaryDirectory() as folder:
        data, answer = Path(folder) / "data.npz", Path(folder) / "answer.json"
        np.savez(data, u=C.row, i=C.col, r=C.data, tu=rows, ti=columns, n=C.shape[0], m=C.shape[1])
        command = [str(python()), "-c", SCRIPT, str(data), str(answer), json.dumps(jobs)]
        subprocess.run(command, check=True, timeout=3600, env={**os.environ, "PYTHONPATH": ""})
        return json.loads(answer.read_text())


def measure(split: Split) -> dict[str, Any]:
    """Return errors of Surprise's central models, defaults throughout, on one split."""
    T = split.test.tocoo()
    jobs = {name: ("SVD" if name == "SVD" else "NMF", options) for name, options in MODELS.items()}
    answer = _run(split.train, T.row, T.col, jobs)
    out = {}
    for name, one in answer.items():
        full = np.zeros(split.test.nnz)
        full[:] = one["predicted"]
        places = {(a, b): p for p, (a, b) in enumerate(zip(T.row.tolist(), T.col.tolist(), strict=True))}

        def predict(group: str, rows: Any, columns: Any, full: Any = full, places: Any = places) -> np.ndarray:
            users = split.groups[group][rows].tolist()
            return full[[places[a, b] for a, b in zip(users, columns.tolist(), strict=True)]]

        out[name] = {**group_errors(split, predict), "seconds": one["seconds"]}
    return out


def timing(train: Any, rows: Any, columns: Any, *, k: int, epochs: tuple[int, int]) -> dict[str, Any]:
    """Return seconds of one iteration of Surprise's biased NMF, from two runs, and what the longer run predicts."""
    jobs = {str(e): ("NMF", {"biased": True, "n_factors": k, "n_epochs": e}) for e in epochs}
    answer = _run(train, rows, columns, jobs)
    short, long = (answer[str(e)] for e in epochs)
    return {
        "seconds": (long["seconds"] - short["seconds"]) / (epochs[1] - epochs[0]),
        "cpu": (long["cpu"] - short["cpu"]) / (epochs[1] - epochs[0]),
        "predicted": np.asarray(long["predicted"]),
    }
