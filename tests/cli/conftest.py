from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SOURCE = Path(__file__).resolve().parents[2] / "src"


@pytest.fixture
def rows():
    """Three owners with rows of rank 3, non-negative, named columns in mind."""
    rng = np.random.default_rng(5)
    V = rng.random((3, 6))
    return {name: rng.random((n, 3)) @ V for name, n in (("east", 12), ("north", 9), ("west", 15))}


@pytest.fixture
def files(tmp_path, rows):
    folder = tmp_path / "data"
    folder.mkdir()
    for name, X in rows.items():
        np.savez(folder / f"{name}.npz", X=X)
    return folder


def start(*words, wait=True, first=None, **options):
    """Start ``python -m fedfactor`` as a user would, in a process of its own; `first` comes before all on the path."""
    path = os.pathsep.join(map(str, [SOURCE] if first is None else [first, SOURCE]))
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1", "MPLBACKEND": "Agg"}
    command = [sys.executable, "-m", "fedfactor", *map(str, words)]
    if wait:
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, **options)
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, **pipes, **options)


@pytest.fixture(scope="session")
def shell():
    return start
