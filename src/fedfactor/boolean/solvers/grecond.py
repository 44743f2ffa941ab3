"""GreConD: formal concepts, grown attribute by attribute, that cover the ones and never a zero."""

from __future__ import annotations

import numpy as np

from fedfactor.boolean import bit_matrix as bits
from fedfactor.boolean.solvers.result import Clock, Factored, from_lists
from fedfactor.core.pytree import Array
from fedfactor.linalg.compiled.compile import kernel

__all__ = ["grecond"]
_REAL = np.dtype(np.float64)


def grecond(X: Array, k: int, *, time_limit: float | None = None) -> Factored:
    """Factor a Boolean matrix from below with GreConD.

    Each component is a formal concept (rows E, columns D: D are all columns shared by E, E all rows that have D). It
    starts empty; the attribute whose closure covers most uncovered ones is added as long as that grows the cover.

    Parameters
    ----------
    X : array or sparse matrix of 0 and 1, shape (n, m)
    k : int
        Most components; fewer when everything is covered.
    time_limit : float, optional
        Seconds; what was found by then is returned. Noise makes concepts many and small.

    Returns
    -------
    Factored
        No zero of X is ever covered; with enough components every one is.

    References
    ----------
    .. [1] R. Belohlavek, V. Vychodil, "Discovery of optimal factors in binary data via a novel method of matrix
       decomposition", J. Comput. Syst. Sci. 76 (2010). doi:10.1016/j.jcss.2009.05.002

    Examples
    --------
    >>> import numpy as np
    >>> grecond(np.array([[1, 1, 0], [1, 1, 0], [0, 1, 1]]), 2).V
    array([[1, 1, 0],
           [0, 1, 1]], dtype=uint8)
    """
    m = X.shape[1]
    clock = Clock(time_limit)
    rows, _, times, place = bits.distinct(bits.pack(X))  # equal rows belong to the same concepts
    n = len(rows)
    columns = bits.transpose(rows, m)
    open_ = rows.copy()
    us: list[np.ndarray] = []
    vs: list[np.ndarray] = []
    while len(us) < k and open_.any() and not clock.over():
        extent, intent = _concept(rows, columns, open_, times, clock)
        inside = bits.unpack(extent[None], n)[0].astype(bool)
        if not inside.any() or not intent.any():
            break
        us.append(inside[place])
        vs.append(bits.unpack(intent[None], m)[0])
        open_[inside] &= ~intent
    return from_lists(us, vs, len(place), m, k, finished=not clock.rang)


def _concept(
    rows: np.ndarray, columns: np.ndarray, open_: np.ndarray, times: np.ndarray, clock: Clock
) -> tuple[np.ndarray, np.ndarray]:
    """Grow one concept; return its extent and its intent, packed."""
    search = kernel("best_attribute", _REAL) or _best_attribute
    intent = np.zeros(rows.shape[1], np.uint64)
    n = len(rows)
    extent = bits.pack(np.ones((1, n)))[0]
    left = times * bits.ones_of(open_)
    out = np.zeros(2, np.int64)
    covered = 0
    while True:
        search(rows, columns, open_, intent[None], extent[None], times, left, covered, out)
        if out[0] < 0:
            return extent, intent
        covered = int(out[1])
        extent = extent & columns[out[0]]
        intent = np.bitwise_and.reduce(rows[bits.unpack(extent[None], n)[0] > 0], axis=0)
        if clock.over():
            return extent, intent


def _best_attribute(
    rows: np.ndarray,
    columns: np.ndarray,
    open_: np.ndarray,
    intent: np.ndarray,
    extent: np.ndarray,
    times: np.ndarray,
    left: np.ndarray,
    least: int,
    out: np.ndarray,
) -> None:
    """Do the same as the compiled loop, one attribute at a time."""
    n = rows.shape[0]
    m = columns.shape[0]
    taken = bits.unpack(intent, m)[0]
    out[:] = -1, least
    for j in np.flatnonzero(taken == 0):
        inside = bits.unpack(columns[j : j + 1] & extent, n)[0] > 0
        if left[inside].sum() <= out[1]:
            continue
        closure = np.bitwise_and.reduce(rows[inside], axis=0)
        gain = int(times[inside] @ bits.ones_of(open_[inside] & closure))
        if gain > out[1]:
            out[:] = j, gain
