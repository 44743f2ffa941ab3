"""Where compiled loops are kept, and what happens when nowhere is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import fedfactor

pytest.importorskip("numba")

CODE = """
import numba.core.caching as caching

class Nowhere(caching._CacheLocator):
    @classmethod
    def from_function(cls, py_func, py_file):
        return None

caching.CacheImpl._locator_classes = [Nowhere]
import numpy as np
from fedfactor.linalg.compiled.compile import kernel
from fedfactor.linalg.nnls import solve_rows
assert kernel("sweep_rows", np.dtype(float)) is not None
assert solve_rows(np.zeros((1, 2)), np.eye(2), np.array([[3.0, -1.0]])).tolist() == [[3.0, 0.0]]
"""


@pytest.mark.slow
def test_a_read_only_place_without_a_home_compiles_anew():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


TRANSPOSED = """
import numpy as np
from fedfactor.linalg.compiled.compile import kernel
wide, out = np.arange(256, dtype="f4").reshape(16, 16), np.empty((16, 16), "f4")
kernel("transpose", wide.dtype)(wide, out, 0, 16)
print(bool((out == wide.T).all()))
"""


@pytest.mark.slow
def test_machine_code_is_not_kept_when_what_a_loop_calls_is_written_otherwise(tmp_path):
    shutil.copytree(
        Path(fedfactor.__file__).parent, tmp_path / "fedfactor", ignore=shutil.ignore_patterns("__pycache__")
    )
    called, kept = tmp_path / "fedfactor" / "linalg" / "compiled" / "vector_code" / "dense.py", tmp_path / "kept"
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(kept), "PYTHONDONTWRITEBYTECODE": "1"}

    def right() -> str:
        return subprocess.run(
            [sys.executable, "-c", TRANSPOSED], env=env, capture_output=True, text=True, check=True
        ).stdout.strip()

    assert right() == "True"
    first = sorted(kept.rglob("*.nbc"))
    assert first  # it was kept, and is found again
    written = [path.stat().st_mtime_ns for path in first]
    assert right() == "True"
    assert [path.stat().st_mtime_ns for path in sorted(kept.rglob("*.nbc"))] == written
    text = called.read_text()
    called.write_text(text.replace("for r, row in enumerate(rows):", "for r, row in enumerate(rows[::-1]):"))
    assert called.read_text() != text
    assert right() == "False"
