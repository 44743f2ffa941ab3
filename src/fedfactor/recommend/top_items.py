"""The best items of each user, from factors, without a matrix of users × items."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedfactor.core.pytree import Array
from fedfactor.linalg.compiled.compile import kernel
from fedfactor.linalg.products import over_rows

__all__ = ["best_by_blocks", "best_items"]

_CELLS = 1 << 22  # users × items whose scores may exist at one time
_LONG = 200  # lists up to this length are kept by insertion, which is quick while few items get in


def best_items(U: Array, V: Array, seen: Array, n: int, *, skip_seen: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Return the columns of the n largest entries of each row of ``U V``, largest first, and these entries.

    Parameters
    ----------
    U : array of shape (users, k)
    V : array of shape (k, m)
    seen : CSR matrix of shape (users, m)
        Cells that are left out.
    n : int
        At most m. Where fewer cells are left, the list ends in −inf.
    skip_seen : bool
        False: leave nothing out.

    Returns
    -------
    columns : int array of shape (users, n)
        Equal entries: the earlier column first.
    scores : array of shape (users, n)

    Examples
    --------
    >>> import scipy.sparse
    >>> seen = scipy.sparse.csr_array(np.array([[0.0, 1.0, 0.0]]))
    >>> best_items(np.ones((1, 1)), np.array([[1.0, 3.0, 2.0]]), seen, 2)
    (array([[2, 0]]), array([[2., 1.]]))
    """
    kind = seen.indices.dtype
    run = kernel("best_items", V.dtype, kind) if n <= _LONG and V.shape[0] else None
    if run is None:
        return best_by_blocks(lambda some: U[some] @ V, seen, n, skip_seen=skip_seen)
    U, V = np.ascontiguousarray(U, V.dtype), np.ascontiguousarray(V)
    indptr = np.asarray(seen.indptr, kind)
    found, scores = np.zeros(len(U) * n, np.int64), np.full((len(U), n), -np.inf, V.dtype)
    # Users cost the same whatever they rated, so blocks of equal numbers of users balance.
    even = np.arange(len(U) + 1)
    over_rows(
        lambda _, start, stop: run(indptr, seen.indices, U, V, n, int(skip_seen), start, stop, found, scores),
        even,
        1 if len(U) * V.size < _CELLS else 16,
    )
    return found.reshape(len(U), n), scores


def best_by_blocks(
    scores_of: Callable[[slice], np.ndarray], seen: Array, n: int, *, skip_seen: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Do the same for any scores, a few users at a time: for networks, without numba, and for long lists.

    Parameters
    ----------
    scores_of : callable
        Returns a new array with the scores of all items for a slice of the users.
    seen, n, skip_seen
        As for :func:`best_items`.

    Examples
    --------
    >>> import scipy.sparse
    >>> seen = scipy.sparse.csr_array(np.array([[0.0, 1.0, 0.0]]))
    >>> best_by_blocks(lambda some: np.array([[1.0, 3.0, 2.0]])[some], seen, 2)
    (array([[2, 0]]), array([[2., 1.]]))
    """
    users, m = seen.shape
    found = np.empty((users, n), np.int64)
    scores = None
    step = max(1, _CELLS // m)
    for start in range(0, users, step):
        some = slice(start, start + step)
        block = scores_of(some)
        cells = seen[some]
        if scores is None:
            scores = np.empty((users, n), block.dtype)
        if skip_seen:
            block[np.repeat(np.arange(len(block)), np.diff(cells.indptr)), cells.indices] = -np.inf
        order = np.argsort(-block, axis=1, kind="stable")[:, :n]
        found[some] = order
        scores[some] = np.take_along_axis(block, order, axis=1)
    return found, np.empty((0, n)) if scores is None else scores
