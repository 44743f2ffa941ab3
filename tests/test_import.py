"""Importing fedfactor must stay light: an edge client imports it and nothing else, and a command what it needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src"

GUESTS = {"torch", "flwr", "mpi4py", "distributed", "matplotlib", "sklearn", "numba", "scipy", "pandas"}
MODULES = ["fedfactor.algorithms", "fedfactor.cli"]  # either imports fedfactor first
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
def test_import_takes_less_than_half_a_second():
    assert min(probe("fedfactor.algorithms")["seconds"] for _ in range(5)) < 0.5


COMMANDS = """
import json, sys
from fedfactor.cli import app

found = {{}}
for name, words in {commands!r}.items():
    try:
        app(words, prog_name="fedfactor")
    except SystemExit as end:
        assert not end.code, (name, end.code)
    found[name] = sorted(sys.modules)
print(json.dumps(found))
"""


@pytest.mark.slow
def test_commands_wake_what_they_need(tmp_path):
    """A fit of small files takes no longer than it must: scikit-learn alone takes more than a second to load."""
    for name in ("north", "south"):
        lines = [f"{i % 3 + 1}.5,{i % 2}.25,{i % 5}.5" for i in range(9)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["lead,zinc,iron", *lines]))
    north, south, out = (str(tmp_path / name) for name in ("north.csv", "south.csv", "out"))
    fit = ["fit", north, south, "-k", "2", "--rounds", "2", "-q", "-o", out]
    commands = {
        "help": ["fit", "--help"],
        "inspect": ["inspect", north],
        "fit": [*fit, "--no-report"],
        "transform": ["transform", out, north, "-o", str(tmp_path / "u.csv")],
        "export": ["export", out, "-o", str(tmp_path / "v.csv")],
        "page": [*fit, "--overwrite"],
    }
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", COMMANDS.format(commands=commands)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    loaded = {name: set(modules) for name, modules in json.loads(done.stdout.splitlines()[-1]).items()}
    assert set(loaded) == set(commands)
    assert loaded["help"] & GUESTS == set()
    assert loaded["inspect"] & GUESTS == {"scipy"}
    assert loaded["export"] & GUESTS == {"scipy", "numba"}
    assert loaded["page"] & GUESTS == {"scipy", "numba", "matplotlib"}
    assert loaded["export"] & {"scipy.stats", "scipy.optimize"} == set()


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
