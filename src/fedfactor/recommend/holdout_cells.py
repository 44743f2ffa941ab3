"""Cells that are held out to judge by: chosen by what a user's row is, not by who owns it."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from fedfactor.core.pytree import Array

__all__ = ["cells_aside", "only_cells"]


def cells_aside(R: Array, share: float, key: int) -> np.ndarray:
    """Mark a share of the stored cells, independent of which client owns the rows and of their order.

    Parameters
    ----------
    R : CSR matrix of shape (n, m)
    share : float
        Below 1.
    key : int
        Another key marks other cells.

    Returns
    -------
    bool array of shape (nnz,)

    Notes
    -----
    A cell is marked when a hash of the key, of the items in its row and of its own item falls below the share.

    Examples
    --------
    >>> R = scipy.sparse.csr_array(np.ones((40, 50)) - np.tri(40, 50))
    >>> bool(0.15 < cells_aside(R, 0.2, 7).mean() < 0.25)
    True
    """
    if not share:
        nnz: int = R.nnz
        return np.zeros(nnz, bool)
    of_items = _mixed(np.arange(R.shape[1], dtype=np.uint64) ^ _mixed(np.array([key], np.int64).view(np.uint64)))
    cells = of_items[R.indices]
    running = np.concatenate([np.zeros(1, np.uint64), np.cumsum(cells, dtype=np.uint64)])  # wraps, as a hash may
    of_users = _mixed(running[R.indptr[1:]] - running[R.indptr[:-1]])
    drawn = _mixed(cells ^ np.repeat(of_users, np.diff(R.indptr)))
    return drawn < np.uint64(int(share * 2.0**64))


def only_cells(R: Array, which: Array) -> scipy.sparse.csr_array:
    """Return a matrix of the marked cells alone.

    Examples
    --------
    >>> only_cells(scipy.sparse.csr_array(np.array([[4.0, 5.0]])), np.array([False, True])).toarray()
    array([[0., 5.]])
    """
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(which)])[R.indptr].astype(R.indptr.dtype)
    return scipy.sparse.csr_array((R.data[which], R.indices[which], ends), shape=R.shape)


def _mixed(x: np.ndarray) -> np.ndarray:
    """Scramble 64-bit words (a step of splitmix64)."""
    with np.errstate(over="ignore"):
        x = x + np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))
