"""Importing fedfactor must stay light: an edge client imports it and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src"

GUESTS = {"torch", "flwr", "mpi4py", "distributed", "matplotlib", "sklearn", "numba", "scipy", "pandas"}
MODULES = ["fedfactor", "fedfactor.algorithms"]
PROBE = """
import json, sys, time
begin = time.perf_counter()
import {module}
seconds = time.perf_counter() - begin
print(json.dumps({{"seconds": seconds, "roots": sorted({{name.partition(".")[0] for name in sys.modules}})}}))
"""


def probe(module):
    """Import a module in a fresh interpreter; tell how long it took and what came along."""
    command = [sys.executable, "-c", PROBE.format(module=module)]
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}  # the tree under test, installed or not
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("module", MODULES)
def test_import_wakes_no_guest(module):
    assert GUESTS & set(probe(module)["roots"]) == set()


@pytest.mark.integration  # a timing: not while other tests run
@pytest.mark.parametrize("module", MODULES)
def test_import_takes_less_than_half_a_second(module):
    assert min(probe(module)["seconds"] for _ in range(5)) < 0.5


@pytest.mark.slow
def test_a_run_in_the_clear_loads_nothing_of_privacy():
    code = """
import json, sys
import numpy as np, fedfactor
from fedfactor.algorithms import PooledNMF
fedfactor.run(PooledNMF(2), [np.ones((9, 4)), np.eye(4)], rounds=1, seed=0)
print(json.dumps([name for name in sys.modules if name.startswith("fedfactor.privacy")]))
"""
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
