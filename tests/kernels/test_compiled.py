"""Where compiled loops are kept, and what happens when nowhere is."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("numba")

CODE = """
import numba.core.caching as caching

class Nowhere(caching._CacheLocator):
    @classmethod
    def from_function(cls, py_func, py_file):
        return None

caching.CacheImpl._locator_classes = [Nowhere]
import numpy as np
from fedfactor.kernels.compiled import kernel
from fedfactor.kernels.nmf.steps import solve_rows
assert kernel("sweep_rows", np.dtype(float)) is not None
assert solve_rows(np.zeros((1, 2)), np.eye(2), np.array([[3.0, -1.0]])).tolist() == [[3.0, 0.0]]
"""


@pytest.mark.slow
def test_a_read_only_place_without_a_home_compiles_anew():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
