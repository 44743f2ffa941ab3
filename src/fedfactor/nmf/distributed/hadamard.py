"""Columns of the Walsh–Hadamard transform, written out or applied by the fast transform."""

from __future__ import annotations

import math

import numpy as np

__all__ = ["hadamard_rows", "hadamard_transform"]

_CELLS = 1 << 20
"""Padded cells that are transformed at one time."""


def hadamard_rows(start: int, stop: int, index: np.ndarray) -> np.ndarray:
    """Return rows ``start:stop`` and columns ``index`` of the Hadamard matrix of signs: −1 to the shared bits.

    Examples
    --------
    >>> hadamard_rows(0, 2, np.array([0, 1]))
    array([[ 1.,  1.],
           [ 1., -1.]])
    """
    shared = np.arange(start, stop, dtype=np.uint64)[:, None] & index.astype(np.uint64)[None, :]
    return 1.0 - 2.0 * (np.bitwise_count(shared) & 1)


def hadamard_transform(X: np.ndarray, signs: np.ndarray, index: np.ndarray, width: int) -> np.ndarray:
    """Return ``(X ∗ signs) H[:, index] / √width`` by the fast transform: O(n p log p) for p padded columns.

    Examples
    --------
    >>> hadamard_transform(np.eye(2), np.ones(2), np.array([1]), 1)
    array([[ 1.],
           [-1.]])
    """
    n, m = X.shape
    padded = 1 << max(0, m - 1).bit_length()
    out = np.empty((n, width), X.dtype)
    rows = max(1, _CELLS // padded)
    for first in range(0, n, rows):
        part = X[first : first + rows]
        work = np.zeros((part.shape[0], padded), X.dtype)
        work[:, :m] = part * signs.astype(X.dtype)
        half = 1
        while half < padded:
            pairs = work.reshape(-1, padded // (2 * half), 2, half)
            low = pairs[:, :, 0].copy()
            high = pairs[:, :, 1]
            pairs[:, :, 0] += high
            np.subtract(low, high, out=high)
            half *= 2
        out[first : first + rows] = work[:, index]
    return out / X.dtype.type(math.sqrt(width))
