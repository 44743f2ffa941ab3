"""Cells of a 0/1 matrix to train on: all ones, and zeros drawn by a stated rule."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedfactor.linalg.products import stored_rows

__all__ = ["ones_of", "training_cells", "zeros_of"]

_CROWDED = 0.5  # above this share of taken cells, the free ones are listed rather than guessed


def ones_of(X: Any, columns: np.ndarray) -> np.ndarray:
    """Number the cells that are not zero, among some columns, row by row.

    Parameters
    ----------
    X : array or CSR matrix of shape (n, m)
    columns : int array of shape (p,)
        Columns that count, rising.

    Returns
    -------
    int64 array, rising
        ``row * p + place``, where ``place`` is the position of the column in ``columns``.

    Examples
    --------
    >>> ones_of(np.array([[1, 0, 1], [0, 1, 1]]), np.array([0, 2]))
    array([0, 1, 3])
    """
    if hasattr(X, "indptr"):
        rows = stored_rows(X)
        there = X.data != 0
        rows = rows[there]
        found = X.indices[there]
    else:
        rows, found = np.nonzero(np.asarray(X))
    place = np.full(X.shape[1], -1, np.int64)
    place[columns] = np.arange(len(columns))
    here = place[found] >= 0
    return np.sort(rows[here].astype(np.int64) * len(columns) + place[found[here]])


def zeros_of(taken: np.ndarray, size: int, n: int | None, rng: np.random.Generator) -> np.ndarray:
    """Draw cells that are not taken, evenly and independently of each other; the same cell may come twice.

    Parameters
    ----------
    taken : int64 array, rising
        Cells that must not be drawn.
    size : int
        Cells are numbered from 0 to ``size − 1``.
    n : int or None
        How many; None: every free cell once, in order.
    rng : Generator

    Returns
    -------
    int64 array of shape (n,)
        Empty when no cell is free.

    Notes
    -----
    Draws and rejects in whole arrays: no loop over pairs.

    Examples
    --------
    >>> zeros_of(np.array([0, 1, 3]), 5, None, np.random.default_rng(0))
    array([2, 4])
    >>> set(zeros_of(np.array([0, 1, 3]), 5, 20, np.random.default_rng(0)).tolist())
    {2, 4}
    """
    if n is None or len(taken) > _CROWDED * size:
        free = np.setdiff1d(np.arange(size), taken, assume_unique=True)
        return free if n is None or not len(free) else free[rng.integers(0, len(free), n)]
    found: list[np.ndarray] = []
    missing = n
    while missing > 0:
        drawn = rng.integers(0, size, int(1.1 * missing / (1 - len(taken) / size)) + 16)
        at = np.searchsorted(taken, drawn)
        fresh = drawn[taken[np.minimum(at, len(taken) - 1)] != drawn] if len(taken) else drawn
        found.append(fresh[:missing])
        missing -= len(found[-1])
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def training_cells(
    ones: np.ndarray, size: int, ratio: int | None, rng: np.random.Generator, hidden: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Mix every one with ``ratio`` zeros drawn for it, in random order.

    Parameters
    ----------
    ones : int64 array, rising
        Cells that are one.
    size : int
        Number of cells.
    ratio : int or None
        Zeros for each one; None: every zero once.
    rng : Generator
    hidden : int64 array, rising, optional
        Cells that are kept for validation: never drawn, whatever they hold.

    Returns
    -------
    cells : int64 array
    y : float32 array
        1 or 0.

    Examples
    --------
    >>> cells, y = training_cells(np.array([1, 4]), 10, 2, np.random.default_rng(0))
    >>> len(cells), int(y.sum())
    (6, 2)
    """
    taken = ones if hidden is None else np.union1d(ones, hidden)
    ones = ones if hidden is None else np.setdiff1d(ones, hidden, assume_unique=True)
    zeros = zeros_of(taken, size, None if ratio is None else ratio * len(ones), rng)
    cells = np.concatenate([ones, zeros])
    y = np.zeros(len(cells), np.float32)
    y[: len(ones)] = 1
    order = rng.permutation(len(cells))
    return cells[order], y[order]
