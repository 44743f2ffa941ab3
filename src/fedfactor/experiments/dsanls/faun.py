"""The rival at its best: alternating NMF on a two-dimensional grid of blocks, which avoids most communication.

Rank (i, j) of a p × q grid holds block M_ij alone and works on U_i and V_j. Two sums an iteration are all that travels:
over its row of ranks for U_i, n k / p numbers, and over its column of ranks for V_j, k m / q numbers. One column of
ranks (q = 1) is the one-dimensional method. The communicator of mpi4py is handed in; nothing here imports it.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedfactor.algorithms.distributed_nmf import one_step
from fedfactor.core.grid import even_bounds
from fedfactor.kernels.products import cross, gram, gram_rows, squared_norm, sums

__all__ = ["Curve", "grid_nmf", "grid_of"]


@dataclass(frozen=True, slots=True)
class Curve:
    """Relative error after chosen iterations, the seconds they took, and what one rank sent."""

    iterations: tuple[int, ...]
    errors: tuple[float, ...]
    seconds: tuple[float, ...]
    sent: int


def grid_of(ranks: int, shape: tuple[int, int]) -> tuple[int, int]:
    """Choose the p × q grid whose ranks send least: about ``n / p + m / q`` numbers for each component.

    Examples
    --------
    >>> grid_of(4, (1000, 1000)), grid_of(4, (100_000, 10))
    ((2, 2), (4, 1))
    """
    n, m = shape
    choices = [(p, ranks // p) for p in range(1, ranks + 1) if ranks % p == 0]
    # A sum over one rank alone costs nothing.
    # Of equal ones, take the squarest.
    return min(choices, key=lambda pq: ((pq[1] > 1) * n / pq[0] + (pq[0] > 1) * m / pq[1], abs(pq[0] - pq[1])))


def grid_nmf(
    comm: Any,
    block: Any,
    U: np.ndarray,
    V: np.ndarray,
    grid: tuple[int, int],
    *,
    solver: str = "hals",
    iterations: int = 100,
    measure: tuple[int, ...] = (),
) -> tuple[np.ndarray, np.ndarray, Curve]:
    """Factor a matrix whose blocks lie on a grid of ranks; every rank calls this with its own block.

    Parameters
    ----------
    comm : communicator
        Of mpi4py, with p q ranks; rank r is at row ``r // q`` and column ``r % q``.
    block : array or sparse matrix, shape (n_i, m_j)
    U, V : array, shapes (n_i, k) and (k, m_j)
        Where to start; equal on all ranks of a row, and of a column.
    grid : tuple of int
        p and q.
    solver : {"hals", "mu", "bpp"}
    iterations : int
    measure : tuple of int
        Iterations after which the error is measured, off the clock.

    Returns
    -------
    U, V : arrays
        This rank's.
    Curve
    """
    p, q = grid
    if p * q != comm.Get_size():
        raise ValueError(f"A grid of {p} × {q} needs {p * q} ranks, but there are {comm.Get_size()}.")
    row, column = comm.Split(comm.Get_rank() // q), comm.Split(comm.Get_rank() % q)
    whole = comm.allreduce(squared_norm(block))
    taken, clock, sent = list[tuple[int, float, float]](), 0.0, 0
    for t in range(1, iterations + 1):
        began = time.perf_counter()
        Y, G, first = _added(row, cross(block, V), gram_rows(V))
        U = one_step(solver, U, G, Y)
        Z, H, second = _added(column, sums(U, block), gram(U))
        V = np.ascontiguousarray(one_step(solver, V.T, H, Z.T).T)
        clock += time.perf_counter() - began
        sent += first + second
        if t in measure:
            mine = float(np.sum(H * gram_rows(V), dtype=np.float64) - 2 * np.sum(Z * V, dtype=np.float64))
            taken.append((t, math.sqrt(max(whole + row.allreduce(mine), 0.0) / whole), clock))
    row.Free()
    column.Free()
    measured, errors, seconds = zip(*taken, strict=True) if taken else ((), (), ())
    return U, V, Curve(measured, errors, seconds, sent)


def _added(comm: Any, A: np.ndarray, G: np.ndarray) -> tuple[np.ndarray, np.ndarray, int]:
    """Add two arrays over some ranks in one collective."""
    if comm.Get_size() == 1:
        return A, G, 0
    packed = np.concatenate((A.ravel(), G.ravel()))
    total = np.empty_like(packed)
    comm.Allreduce(packed, total)
    return total[: A.size].reshape(A.shape), total[A.size :].reshape(G.shape), packed.nbytes


def block_of(shape: tuple[int, int], grid: tuple[int, int], rank: int) -> tuple[slice, slice]:
    """Tell which rows and columns of the matrix a rank holds.

    Examples
    --------
    >>> block_of((4, 6), (2, 2), 3)
    (slice(2, 4, None), slice(3, 6, None))
    """
    i, j = divmod(rank, grid[1])
    rows, columns = even_bounds(shape[0], grid[0]), even_bounds(shape[1], grid[1])
    return slice(rows[i], rows[i + 1]), slice(columns[j], columns[j + 1])
