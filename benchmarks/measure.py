"""Clocks, errors, and what the machine can do at best."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse

from fedfactor.threads import for_blocks


def seconds(call: Callable[[], Any]) -> tuple[float, Any]:
    """Return the wall time of one call, and what it returned."""
    start = time.perf_counter()
    result = call()
    return time.perf_counter() - start, result


def least(call: Callable[[], Any], repeats: int) -> float:
    """Return the shortest of several times: the machine's limit, not its mood."""
    call()
    return min(seconds(call)[0] for _ in range(repeats))


def explicit_error(X: Any, U: np.ndarray, V: np.ndarray, block: int = 1000) -> float:
    """Return ``‖X - UV‖ / ‖X‖`` from the residual itself, in double precision, block of rows by block of rows."""
    V = V.astype(np.float64)
    sse = total = 0.0
    for start in range(0, X.shape[0], block):
        rows = X[start : start + block]
        rows = (rows.toarray() if scipy.sparse.issparse(rows) else rows).astype(np.float64)
        total += float(np.vdot(rows, rows))
        rows -= U[start : start + block].astype(np.float64) @ V
        sse += float(np.vdot(rows, rows))
    return float(np.sqrt(sse / total))


def read_bandwidth(repeats: int = 7) -> float:
    """Return the bytes per second at which all cores together read an array far larger than the caches."""
    data = np.ones(1 << 26, np.float32)
    piece = data.size // 32
    return data.nbytes / least(lambda: for_blocks(lambda a, b: data[a:b].max(), data.size, piece), repeats)


def gemm_rate(repeats: int = 5, size: int = 2000) -> float:
    """Return the floating-point operations per second of a square product in single precision."""
    A = np.random.default_rng(0).random((size, size), dtype=np.float32)
    return 2 * size**3 / least(lambda: A @ A, repeats)


def sweep_cost(X: Any, k: int, local_steps: int, server_steps: int) -> tuple[int, int]:
    """Return the bytes of X that a round reads (once) and the operations that it needs.

    Products with X: 2 per stored cell and component, twice. Sweeps: ``2 k²`` per row of U and per column of V.
    """
    n, m = X.shape
    if scipy.sparse.issparse(X):
        cells, size = X.nnz, X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    else:
        cells, size = X.size, X.nbytes
    return size, 4 * cells * k + 2 * k * k * (n * local_steps + m * server_steps) + 2 * k * k * (n + m)
