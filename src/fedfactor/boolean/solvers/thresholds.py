"""Thresholds that turn relaxed factors into Boolean ones, searched on a grid."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from fedfactor.boolean import bit_matrix as bits
from fedfactor.boolean.solvers.result import Clock, Factored

__all__ = ["code_length", "search_thresholds", "wrong_cells"]

Cost = Callable[[np.ndarray, np.ndarray, np.ndarray], float]
_POINTS = 100
GRID = np.linspace(1e-12, 1.0, _POINTS)
"""The grid of the FELB paper: 100 equidistant thresholds from 1e-12 to 1."""


def wrong_cells(X: np.ndarray, U: np.ndarray, V: np.ndarray) -> float:
    """Count the cells in which packed X differs from the Boolean product of U (bytes) and packed V.

    Examples
    --------
    >>> import numpy as np
    >>> wrong_cells(np.array([[7]], np.uint64), np.ones((1, 1), np.uint8), np.array([[9]], np.uint64))
    3.0
    """
    ones, made, both = bits.count_cells(X, U, V)
    return float(ones + made - 2 * both)


def code_length(X: np.ndarray, U: np.ndarray, V: np.ndarray) -> float:
    r"""Return the length in bits of the data encoded by a code table of the components and the single columns.

    A component that is used :math:`u_s = |U_{:s}|` times gets a code of :math:`-\log_2(u_s / (|U| + |N|))` bits, a
    column that must be corrected :math:`n_j = |N_{:j}|` times likewise, with N the wrong cells; the table itself is
    written with the columns' frequencies in X. Components that do not pay for their line in the table make it longer,
    so that the shortest code chooses how many there are.

    References
    ----------
    .. [1] S. Hess, K. Morik, N. Piatkowski, "The PRIMPING routine", Data Min. Knowl. Discov. 31 (2017).
       doi:10.1007/s10618-017-0508-z

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[3], [3]], np.uint64)
    >>> code_length(X, np.ones((2, 1), np.uint8), X[:1]) < code_length(X, np.zeros((2, 1), np.uint8), X[:1])
    True
    """
    m = 64 * X.shape[1]
    noise = bits.unpack(X ^ bits.product(U, V), m).sum(axis=0, dtype=np.int64)
    used = U.sum(axis=0, dtype=np.int64)
    columns = bits.unpack(X, m).sum(axis=0, dtype=np.int64)
    both = int(used.sum() + noise.sum())
    if both == 0:
        return 0.0
    # A column that never occurs may still be in a component: it is written as the rarest one there could be.
    letters = -np.log2(np.maximum(columns, 0.5) / max(1, int(columns.sum())))
    counts = np.concatenate((used[used > 0], noise[noise > 0]))
    data = float(-(counts * np.log2(counts / both)).sum())
    lines = bits.unpack(V[used > 0], m) @ letters if (used > 0).any() else np.zeros(0)
    return data + float(lines.sum() + letters[noise > 0].sum() - np.log2(counts / both).sum())


def search_thresholds(
    X: np.ndarray,
    U: np.ndarray,
    V: np.ndarray,
    *,
    cost: Cost = wrong_cells,
    full: bool = False,
    clock: Clock | None = None,
) -> Factored:
    """Binarise ``U ≥ α``, ``V ≥ β`` with the α and β of least cost.

    Parameters
    ----------
    X : ndarray of uint64
        Packed data.
    U, V : ndarray, shape (n, k) and (k, m)
        Relaxed factors.
    cost : callable
        Of packed X, U as bytes, packed V.
    full : bool
        Look at all 100 × 100 pairs; else at every fifth of either, then around the best.
    clock : Clock, optional
        When its time is up the best so far is returned.

    Examples
    --------
    >>> import numpy as np
    >>> found = search_thresholds(np.array([[1]], np.uint64), np.array([[0.3]]), np.array([[0.9, 0.1]]))
    >>> found.U, found.V
    (array([[1]], dtype=uint8), array([[1, 0]], dtype=uint8))
    """
    clock = Clock(None) if clock is None else clock
    looked: dict[tuple[int, int], float] = {}

    def at(a: int, b: int) -> float:
        # Equal numbers of cells above two thresholds are the same cells.
        key = (int((U >= GRID[a]).sum()), int((V >= GRID[b]).sum()))
        if key not in looked:
            looked[key] = cost(X, (U >= GRID[a]).astype(np.uint8), bits.pack(V >= GRID[b]))
        return looked[key]

    def scan(choices: list[tuple[int, int]], best: tuple[float, int, int]) -> tuple[float, int, int]:
        for a, b in choices:
            if math.isfinite(best[0]) and clock.over():
                break
            best = min(best, (at(a, b), a, b), key=lambda one: one[0])
        return best

    step = 1 if full else 5
    best = scan([(a, b) for b in range(0, _POINTS, step) for a in range(0, _POINTS, step)], (math.inf, 0, 0))
    if not full:
        near = [[i for i in range(c - 4, c + 5) if 0 <= i < _POINTS] for c in best[1:]]
        best = scan([(a, b) for b in near[1] for a in near[0]], best)
    _, a, b = best
    return Factored((U >= GRID[a]).astype(np.uint8), (V >= GRID[b]).astype(np.uint8), finished=not clock.rang)
