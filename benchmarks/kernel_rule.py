"""One pass over the rows: hand-emitted vector code against plain numba loops with BLAS blocks.

Both compute U by coordinate descent for a fixed V, then ``UᵀU`` and ``UᵀX``, with the same sums in double precision
and the same number of threads. Vector code stays in the library only while it is at least :data:`FACTOR` times as
fast on at least :data:`ENOUGH` of the seven sets.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numba
import numpy as np
import scipy.sparse
from threadpoolctl import threadpool_limits

from benchmarks.datasets import OTHERS, RANK, SETS, load
from fedfactor.core.threads import usable_cores
from fedfactor.linalg.compiled import vector_code
from fedfactor.linalg.single_pass import one_pass

PAGE = Path(vector_code.__file__).with_name("README.md")
BEGIN = "<!-- written by python -m benchmarks.kernel_rule --store -->"
END = "<!-- until here -->"
BUSY = os.getloadavg()[0]

FACTOR = 1.5
ENOUGH = 4
SWEEPS = 3
BLOCK = 1 << 20
"""Bytes of rows that the plain version works on together: they stay in the second cache between both products."""


@numba.njit(nogil=True, fastmath=True)
def _sweep(W, B, G, sweeps):
    """Coordinate descent for rows side by side: W and B are k × rows, so that the inner loop is one long vector."""
    k, n = W.shape
    moved = np.empty(n, W.dtype)
    for _ in range(sweeps):
        for t in range(k):
            if G[t, t] <= 0:
                continue
            inverse = 1 / G[t, t]
            for j in range(n):
                moved[j] = B[t, j]
            for q in range(k):
                g = G[t, q]
                for j in range(n):
                    moved[j] -= g * W[q, j]
            for j in range(n):
                W[t, j] = max(W[t, j] + moved[j] * inverse, 0)


@numba.njit(nogil=True, fastmath=True)
def _products_of_rows(indptr, indices, data, D, start, stop, out):
    """Rows ``start:stop`` of a CSR matrix times D."""
    k = D.shape[1]
    for i in range(start, stop):
        row = out[i - start]
        row[:] = 0
        stop_fours = indptr[i] + (indptr[i + 1] - indptr[i]) // 4 * 4
        for p in range(indptr[i], stop_fours, 4):  # four cells at a time save loads and stores of the sum
            a, b, c, d = D[indices[p]], D[indices[p + 1]], D[indices[p + 2]], D[indices[p + 3]]
            for q in range(k):
                row[q] += data[p] * a[q] + data[p + 1] * b[q] + data[p + 2] * c[q] + data[p + 3] * d[q]
        for p in range(stop_fours, indptr[i + 1]):
            d = D[indices[p]]
            for q in range(k):
                row[q] += data[p] * d[q]


def plain_dense(X: np.ndarray, V: np.ndarray, U: np.ndarray, threads: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """U, ``UᵀU`` and ``UᵀX`` from blocks of dense rows."""
    n, m = X.shape
    k = V.shape[0]
    G = V @ V.T
    out = np.empty_like(U)
    rows = max(64, BLOCK // (m * X.itemsize) // 64 * 64)
    parts = np.array_split(np.arange(0, n, rows), threads)

    def part(starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        H = np.zeros((k, k))
        A = np.zeros((k, m))
        for start in starts:
            block = X[start : start + rows]
            W = np.ascontiguousarray(U[start : start + rows].T)
            _sweep(W, V @ block.T, G, SWEEPS)
            out[start : start + rows] = W.T
            H += W @ W.T
            A += W @ block
        return H, A

    sums = list(_pool(threads).map(part, parts))
    return out, sum(h for h, _ in sums), sum(a for _, a in sums)


def plain_sparse(
    X: Any, V: np.ndarray, U: np.ndarray, turned: Any, threads: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """U, ``UᵀU`` and ``UᵀX`` from stored cells, by rows for U and by columns for the sums."""
    n, m = X.shape
    k = V.shape[0]
    G = V @ V.T
    D = np.ascontiguousarray(V.T)
    out = np.empty_like(U)
    rows = 256
    bounds = np.searchsorted(X.indptr, np.linspace(0, X.nnz, 8 * threads + 1))
    bounds[0], bounds[-1] = 0, n

    def part(place: int) -> np.ndarray:
        H = np.zeros((k, k))
        B = np.empty((rows, k), V.dtype)
        for start in range(bounds[place], bounds[place + 1], rows):
            stop = min(start + rows, bounds[place + 1])
            _products_of_rows(X.indptr, X.indices, X.data, D, start, stop, B)
            W = np.ascontiguousarray(U[start:stop].T)
            _sweep(W, np.ascontiguousarray(B[: stop - start].T), G, SWEEPS)
            out[start:stop] = W.T
            H += W @ W.T
        return H

    H = sum(_pool(threads).map(part, range(8 * threads)))
    A = np.empty((m, k), V.dtype)
    cuts = np.searchsorted(turned.indptr, np.linspace(0, X.nnz, 8 * threads + 1))
    cuts[0], cuts[-1] = 0, m

    def column(place: int) -> None:
        a, b = cuts[place], cuts[place + 1]
        _products_of_rows(turned.indptr, turned.indices, turned.data, out, a, b, A[a:b])

    list(_pool(threads).map(column, range(8 * threads)))
    return out, H, A.T


_pools: dict[int, ThreadPoolExecutor] = {}


def _pool(threads: int) -> ThreadPoolExecutor:
    return _pools.setdefault(threads, ThreadPoolExecutor(threads))


def compare(label: str, threads: int = 2, repeats: int = 15) -> dict[str, Any] | None:
    """Milliseconds of a pass, both ways in turn; None where the set is not at hand."""
    X = load(label)
    if X is None:
        return None
    sparse = scipy.sparse.issparse(X)
    X = X.tocsr() if sparse else np.ascontiguousarray(X)
    turned = X.tocsc() if sparse else None
    rng = np.random.default_rng(0)
    V = rng.random((RANK, X.shape[1]), dtype=np.float32)
    U = rng.random((X.shape[0], RANK), dtype=np.float32)

    def plain() -> Any:
        return plain_sparse(X, V, U, turned, threads) if sparse else plain_dense(X, V, U, threads)

    def vector() -> Any:
        return one_pass(X, V, U, sweeps=SWEEPS)

    with threadpool_limits(1, "blas"):
        a, b = vector(), plain()
        apart = max(float(np.abs(a[i] - b[i]).max() / np.abs(b[i]).max()) for i in range(3))
        if apart > 1e-3:
            raise AssertionError(f"{label}: the two passes differ by {apart:.1e}.")
        wall: dict[str, list[float]] = {"vector": [], "plain": []}
        busy: dict[str, list[float]] = {"vector": [], "plain": []}
        for _ in range(repeats):
            for name, call in (("vector", vector), ("plain", plain)):
                start, used = time.perf_counter(), time.process_time()
                call()
                wall[name].append(1e3 * (time.perf_counter() - start))
                busy[name].append(1e3 * (time.process_time() - used))
    return {
        "set": label,
        "vector ms": min(wall["vector"]),
        "plain ms": min(wall["plain"]),
        "ratio": min(wall["plain"]) / min(wall["vector"]),
        "ratio of CPU time": statistics.median(busy["plain"]) / statistics.median(busy["vector"]),
        "largest difference": apart,
    }


def table() -> list[dict[str, Any]]:
    """All sets at hand."""
    return [found for label in (*SETS, *OTHERS) if (found := compare(label)) is not None]


def markdown(rows: list[dict[str, Any]]) -> str:
    """Return the table of the README, with the machine below it."""
    heads = list(rows[0])
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for row in rows:
        cells = (f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values())
        lines.append("| " + " | ".join(cells) + " |")
    over = sum(row["ratio"] >= FACTOR for row in rows)
    load = " to ".join(f"{each:.1f}" for each in (BUSY, os.getloadavg()[0]))
    return "\n".join(
        [
            *lines,
            "",
            f"Least of fifteen times each, in turn, on two threads; load {load} on {usable_cores()} cores; numba "
            f"{numba.__version__}, NumPy {np.__version__}. Vector code is at least {FACTOR} times as fast on {over} of "
            f"{len(rows)} sets: it {'stays' if over >= ENOUGH else 'goes'}.",
        ]
    )


def main() -> None:
    """Print the table, or write it into the README of the vector code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.kernel_rule", description=__doc__)
    parser.add_argument("--store", action="store_true", help=f"write the table to {PAGE.name} beside the vector code")
    text = markdown(table())
    print(text)
    if parser.parse_args().store:
        before, _, rest = PAGE.read_text().partition(BEGIN)
        PAGE.write_text(before + BEGIN + "\n\n" + text + "\n\n" + END + rest.partition(END)[2])


if __name__ == "__main__":
    main()
