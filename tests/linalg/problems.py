"""Inputs shared by the tests of kernels."""

from __future__ import annotations

import numpy as np


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
