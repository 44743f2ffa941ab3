"""What the server of a Boolean search makes of summed counts: candidates, further column sets to count, better columns.

Nothing here sees a row. All inputs are whole numbers that were added up, so the results do not depend on who owns what.
"""

from __future__ import annotations

import numpy as np

__all__ = [
    "candidate_sets",
    "column_pairs",
    "first_columns",
    "flip_columns",
    "from_octets",
    "most_promising",
    "to_octets",
]

_CLOSE = 0.9  # a column that so many of the rows have belongs to the set already: adding it would find nothing new
_PROPOSED = 4  # columns by which each set is extended
_LEAST_ROWS = 3  # rows that a pair of columns must share to be worth counting


def to_octets(V: np.ndarray) -> np.ndarray:
    """Pack zeros and ones along the last axis, eight to a byte: the form in which components travel.

    Examples
    --------
    >>> to_octets(np.array([[1, 0, 1]])).tolist()
    [[5]]
    """
    return np.packbits(V.astype(bool), axis=-1, bitorder="little")


def from_octets(octets: np.ndarray, m: int) -> np.ndarray:
    """Unpack what :func:`to_octets` made.

    Examples
    --------
    >>> from_octets(np.array([[5]], np.uint8), 3).tolist()
    [[1, 0, 1]]
    """
    return np.unpackbits(octets, axis=-1, count=m, bitorder="little")


def first_columns(ones: np.ndarray, most: int) -> np.ndarray:
    """List the columns whose rows are to be counted: those with ones, or the `most` frequent of them, by position.

    Returns
    -------
    ndarray of int32, shape (most, 2)
        Each column twice, as sets of two; −1 where there are fewer.

    Examples
    --------
    >>> first_columns(np.array([3, 0, 5]), 3).tolist()
    [[0, 0], [2, 2], [-1, -1]]
    """
    order = np.argsort(-ones, kind="stable")[:most]
    named = np.sort(order[ones[order] > 0])
    out = np.full((most, 2), -1, np.int32)
    out[: len(named)] = named[:, None]
    return out


def candidate_sets(
    together: np.ndarray, count: np.ndarray, observed: np.ndarray, thresholds: tuple[float, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Let each set of rows propose the columns that at least a share of its rows have: ASSO's candidates.

    Parameters
    ----------
    together : ndarray of int, shape (q, m)
        Rows of set i that have column j.
    count : ndarray of int, shape (q,)
        Rows of set i.
    observed : ndarray of float, shape (m,)
        Share of the cells of each column that were observed.
    thresholds : tuple of float
        The shares.

    Returns
    -------
    sets : ndarray of uint8, shape (len(thresholds), q, ceil(m / 8))
        The candidates, packed.
    gain : ndarray of int64, shape (len(thresholds), q)
        What a candidate gains if exactly the rows that propose it take it.

    Examples
    --------
    >>> sets, gain = candidate_sets(np.array([[4, 3, 1]]), np.array([4]), np.ones(3), (0.5,))
    >>> from_octets(sets, 3).tolist(), gain.tolist()
    ([[[1, 1, 0]]], [[6]])
    """
    size = count[:, None] * observed
    sets: list[np.ndarray] = []
    gains: list[np.ndarray] = []
    for threshold in thresholds:
        # A tiny allowance: 0.7 times 10 is a little more than 7 in binary.
        inside = (together >= threshold * size - 1e-6 * size) & (count[:, None] > 0)
        sets.append(to_octets(inside))
        gains.append(np.where(inside, 2 * together - size, 0).sum(axis=1).astype(np.int64))
    return np.array(sets), np.array(gains)


def most_promising(sets: np.ndarray, gain: np.ndarray, most: int) -> np.ndarray:
    """Drop repeated and empty candidates of one threshold, and keep the `most` with the largest gain, in their order.

    Examples
    --------
    >>> most_promising(np.array([[3], [1], [3], [0]], np.uint8), np.array([5, 2, 5, 0]), 3).tolist()
    [[3], [1], [0]]
    """
    out = np.zeros((most, sets.shape[1]), np.uint8)
    _, first = np.unique(sets, axis=0, return_index=True)
    kept = np.sort(first)
    kept = kept[sets[kept].any(axis=1)]
    if len(kept) > most:
        kept = np.sort(kept[np.argsort(-gain[kept], kind="stable")[:most]])
    out[: len(kept)] = sets[kept]
    return out


def column_pairs(columns: np.ndarray, together: np.ndarray, count: np.ndarray, most: int) -> np.ndarray:
    """Choose pairs of columns whose common rows may share more than the rows of either.

    Each column is joined with those that most of its rows have and that do not belong to it anyway; pairs with many
    rows and many columns in common come first.

    Examples
    --------
    >>> together = np.array([[9, 5, 8], [5, 6, 2], [8, 2, 8]])
    >>> column_pairs(np.array([[0, 0], [1, 1], [2, 2]]), together, np.array([9, 6, 8]), 2).tolist()
    [[0, 2], [0, 1]]
    """
    out = np.full((most, 2), -1, np.int32)
    seen: dict[tuple[int, int], int] = {}
    gain = np.maximum(2 * together - count[:, None], 0).sum(axis=1)
    for i in np.argsort(-gain, kind="stable"):
        if count[i] == 0:
            continue
        rows = np.where((together[i] < _CLOSE * count[i]) & (together[i] >= min(_LEAST_ROWS, count[i])), together[i], 0)
        width = int((2 * together[i] >= count[i]).sum()) + 1
        for j in np.argsort(-rows, kind="stable")[:_PROPOSED]:
            if rows[j] == 0:
                break
            pair = (min(int(columns[i, 0]), int(j)), max(int(columns[i, 0]), int(j)))
            seen[pair] = max(seen.get(pair, 0), int(rows[j]) * width)
    for place, pair in enumerate(sorted(seen, key=lambda pair: (-seen[pair], pair))[:most]):
        out[place] = pair
    return out


def flip_columns(V: np.ndarray, votes: np.ndarray, both: np.ndarray) -> np.ndarray:
    """Change cells of V so that the cost of the rows that were counted falls for certain.

    Columns do not touch one another. In one column each change gains the sum of votes as long as no row has two of
    the components that change; as `both` bounds how many such rows there are, further changes are made only where they
    gain more than these rows could take back.

    Parameters
    ----------
    V : ndarray of 0 and 1, shape (k, m)
    votes : ndarray of int, shape (k, m)
        See :func:`fedfactor.boolean.counting.column_votes`.
    both : ndarray of int, shape (k, k)
        The most that rows with both components can take back: their number, times the penalty.

    Returns
    -------
    ndarray of uint8, shape (k, m)

    Examples
    --------
    >>> flip_columns(np.array([[1, 0, 1]]), np.array([[5, 2, -3]]), np.array([[9]])).tolist()
    [[1, 1, 0]]
    """
    gain = np.where(V > 0, -votes, votes).astype(np.int64)
    spoiled = np.zeros_like(gain)
    flips = np.zeros(V.shape, bool)
    m: int = V.shape[1]
    columns = np.arange(m)
    for _ in range(len(V)):
        left = np.where(flips, -1, gain - spoiled)
        best = left.argmax(axis=0)
        sure = left[best, columns] > 0
        if not sure.any():
            break
        flips[best[sure], columns[sure]] = True
        spoiled[:, sure] += both[best[sure]].T
    return (V.astype(np.uint8) ^ flips).astype(np.uint8)
