"""Inputs and switches shared by the kernel tests."""

from __future__ import annotations

import numpy as np
import pytest

from fedfactor.linalg.compiled import compile as compiled


@pytest.fixture(params=["compiled", "plain"])
def path(request, monkeypatch):
    """Run a test with numba and as if it were not installed."""
    if request.param == "plain":
        monkeypatch.setattr(compiled, "load_numba", lambda: None)
    elif compiled.load_numba() is None:
        pytest.skip("numba is not installed")
    return request.param


def frozen(*arrays):
    """Mark arrays read-only: a kernel that writes to its inputs then fails."""
    for array in arrays:
        array.flags.writeable = False
    return arrays if len(arrays) > 1 else arrays[0]


def problem(n, m, k, seed=0, dtype=np.float64, density=1.0):
    """Return X, U, V with some zeros in all of them."""
    rng = np.random.default_rng([7, seed])
    X = rng.random((n, m)) * (rng.random((n, m)) < density)
    U, V = rng.random((n, k)) * (rng.random((n, k)) < 0.8), rng.random((k, m)) * (rng.random((k, m)) < 0.8)
    return frozen(X.astype(dtype), U.astype(dtype), V.astype(dtype))
