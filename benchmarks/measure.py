"""Clocks, errors, and what the machine can do at best."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.sparse

from fedfactor.core.threads import for_blocks


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


def product_cost(X: Any, k: int) -> tuple[int, int]:
    """Return the bytes of X, and the operations of its two products with k components: 2 a stored cell, twice."""
    if scipy.sparse.issparse(X):
        return X.data.nbytes + X.indices.nbytes + X.indptr.nbytes, 4 * X.nnz * k
    return X.nbytes, 4 * X.size * k


def sparse_products(X: Any, k: int, repeats: int = 7) -> dict[str, float]:
    """Return the seconds in which each program at hand forms both products of sparse rows on all cores.

    A factor's rows are found at random places, so the rate of a square product is out of reach for all of them. SciPy
    works on blocks of rows, and for the second product on a copy of X by columns, which costs it nothing here; torch,
    where it is installed, brings Intel's library; ours are the loops of a round, without its sweeps.
    """
    from fedfactor.linalg.single_pass import one_pass, sums_of_rows

    rng = np.random.default_rng(0)
    V, U = (rng.random(shape, dtype=np.float32) for shape in ((k, X.shape[1]), (X.shape[0], k)))
    rows, columns = scipy.sparse.csr_array(X), scipy.sparse.csr_array(X.T)

    def by_scipy(M: Any, D: np.ndarray) -> float:
        parts = [M[a : a + -(-M.shape[0] // 16)] for a in range(0, M.shape[0], -(-M.shape[0] // 16))]
        return least(lambda: for_blocks(lambda a, _: parts[a] @ D, len(parts), 1), repeats)

    found = {
        "ours": least(lambda: one_pass(X, V, U, sweeps=0, sums=False), repeats)
        + least(lambda: sums_of_rows(U, X), repeats),
        "scipy": by_scipy(rows, np.ascontiguousarray(V.T)) + by_scipy(columns, U),
    }
    try:
        import torch
    except ImportError:
        return found
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # sparse tensors are called beta there
        tensors = [
            torch.sparse_csr_tensor(*(torch.from_numpy(part) for part in (M.indptr, M.indices, M.data)), size=M.shape)
            for M in (rows, columns)
        ]
    factors = [torch.from_numpy(np.ascontiguousarray(V.T)), torch.from_numpy(U)]
    found["torch"] = sum(least(lambda M=M, D=D: M @ D, repeats) for M, D in zip(tensors, factors, strict=True))
    return found
