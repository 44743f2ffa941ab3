"""What a client counts on its own rows in the search for Boolean components. All that comes out are whole numbers.

Equal rows can be merged into one with a multiplicity: every count is then the same to the last bit, in less time.
Rows are two matrices of bits, the observed ones and the observed zeros, so that a missing cell counts for nothing. A
zero that is covered costs `penalty`; a one that is not covered costs 1.
"""

from __future__ import annotations

import numpy as np

from fedfactor.boolean import bit_matrix as bits
from fedfactor.boolean import counting_cuda as on_card
from fedfactor.boolean.packed_rows import Bits, column_counts, merged, observed, sampled, signed_counts
from fedfactor.core.threads import for_blocks
from fedfactor.linalg.compiled.compile import kernel

__all__ = [
    "Bits",
    "choose",
    "column_counts",
    "column_votes",
    "cover_gains",
    "merged",
    "observed",
    "rows_with",
    "sampled",
    "signed_counts",
    "swap_gains",
    "take",
]

_REAL = np.dtype(np.float64)
_SWEEPS = 20
_CELLS = 1 << 24  # cells of a dense product that may exist at one time


def rows_with(rows: Bits, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Count, for each set of columns, the rows that have all of them, and how many of those have each column.

    Parameters
    ----------
    rows : Bits
    columns : ndarray of int, shape (q, d)
        Sets of up to d columns; repeat one to name fewer. A negative number names no row at all.

    Returns
    -------
    together : ndarray of int64, shape (q, m)
    count : ndarray of int64, shape (q,)

    Examples
    --------
    >>> import numpy as np
    >>> rows_with(observed(np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])), np.array([[0, 0], [0, 1]]))
    (array([[2, 1, 1],
           [1, 1, 0]]), array([2, 1]))
    """
    q = len(columns)
    together = np.zeros((q, rows.m), np.int64)
    count = np.zeros(q, np.int64)
    block = max(1, _CELLS // max(1, rows.m + q))
    for start in range(0, len(rows.ones), block):
        times = None if rows.times is None else rows.times[start : start + block, None]
        # A block has fewer rows than single precision can count, unless they are merged.
        real = np.float32 if times is None or times.sum() < 1 << 24 else np.float64
        cells = bits.unpack(rows.ones[start : start + block], rows.m).astype(real)
        has = np.where(columns[:, 0] >= 0, cells[:, columns[:, 0]], real(0))
        for more in columns.T[1:]:
            has *= cells[:, more]
        if times is not None:
            has *= times.astype(real)
        together += np.rint(has.T @ cells).astype(np.int64)
        count += has.sum(axis=0, dtype=np.float64).astype(np.int64)
    return together, count


def choose(
    rows: Bits, V: np.ndarray, hint: np.ndarray | None = None, *, penalty: int = 1, thorough: bool = True
) -> tuple[np.ndarray, tuple[int, int]]:
    """Choose, for each row alone, the components whose union comes close to it.

    Greedily; then by turning single components on or off and by exchanging one for another while that helps; then, if
    `thorough`, once more without each of those that are on. A hint is improved by exchanges and taken if that is at
    least as good.

    Parameters
    ----------
    rows : Bits
    V : ndarray of uint64, shape (k, w)
    hint : ndarray of uint8, shape (n, k), optional
        A choice to start from.
    penalty : int
        Cost of a covered zero.
    thorough : bool
        Takes several times as long.

    Returns
    -------
    U : ndarray of uint8, shape (n, k)
    cost : (int, int)
        Of the rows without the hint, and with it; merged rows count as often as they occur.

    Examples
    --------
    >>> import numpy as np
    >>> rows = observed(np.array([[1.0, 1.0, 1.0, 0.0]]))
    >>> choose(rows, np.array([[3], [12], [4]], np.uint64))
    (array([[1, 0, 1]], dtype=uint8), (0, 0))
    """
    if len(rows.ones) and on_card.serves(rows.card, V):
        return on_card.choose(rows.card, rows.ones, rows.zeros, V, hint, penalty, thorough, _SWEEPS)
    n = len(rows.ones)
    k = len(V)
    out = np.zeros((n, k), np.uint8)
    start = out if hint is None else np.ascontiguousarray(hint, np.uint8)
    V = np.ascontiguousarray(V)
    run = kernel("choose_rows", _REAL)
    block = max(16, (1 << 18) // max(1, k * V.shape[1])) if run is not None else max(1, (1 << 22) // max(1, V.size))
    cost = np.zeros((max(1, -(-n // block)), 2), np.int64)
    times = rows.multiplicity

    def share(a: int, b: int) -> None:
        part = (rows.ones[a:b], rows.zeros[a:b], times[a:b], V, start[a:b], int(hint is not None), int(thorough))
        if run is not None:
            run(*part, _SWEEPS, penalty, out[a:b], cost[a // block])
        else:
            out[a:b], cost[a // block] = _choose_together(*part, penalty)

    for_blocks(share, n, block)
    return out, tuple(cost.sum(axis=0).tolist())  # type: ignore[return-value]


def column_votes(rows: Bits, U: np.ndarray, V: np.ndarray, *, penalty: int = 1) -> np.ndarray:
    """Count what each component would gain from covering each column, all other cells of V held.

    Returns
    -------
    ndarray of int64, shape (k, m)
        Over the rows that have the component, in cells that no other of their components covers: ones less `penalty`
        for each zero. Above 0 the component should have the column, below 0 it should not.

    Examples
    --------
    >>> import numpy as np
    >>> rows = observed(np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]]))
    >>> column_votes(rows, np.ones((2, 1), np.uint8), np.array([[1]], np.uint64))
    array([[ 2,  0, -2]])
    """
    if len(rows.ones) and on_card.serves(rows.card, V):
        return on_card.column_votes(rows.card, rows.ones, rows.zeros, U, V, rows.m, penalty)
    out = np.zeros((len(V), rows.m), np.int64)
    run = kernel("column_votes", _REAL)
    if run is not None:
        run(rows.ones, rows.zeros, rows.multiplicity, np.ascontiguousarray(U), np.ascontiguousarray(V), penalty, out)
        return out
    once = np.zeros_like(rows.ones)
    twice = np.zeros_like(rows.ones)
    for q, row in enumerate(V):
        mine = np.where(U[:, q, None] > 0, row, np.uint64(0))
        twice |= once & mine
        once |= mine
    for q, row in enumerate(V):
        on = U[:, q] > 0
        free = ~once[on] | (row & ~twice[on])
        times = rows.multiplicity[on]
        right, wrong = (times @ bits.unpack(free & part[on], rows.m) for part in rows[:2])
        out[q] = right - penalty * wrong
    return out


def cover_gains(rows: Bits, covered: np.ndarray, candidates: np.ndarray, *, penalty: int = 1) -> np.ndarray:
    """Count, for every candidate, the gains of those rows that would take it.

    Examples
    --------
    >>> import numpy as np
    >>> rows = observed(np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    >>> cover_gains(rows, np.zeros((2, 1), np.uint64), np.array([[3], [5]], np.uint64))
    array([2, 0])
    """
    if len(rows.ones) and on_card.serves(rows.card, candidates[:1]):
        return on_card.cover_gains(rows.card, rows.ones, rows.zeros, covered, candidates, penalty)
    out = np.zeros(len(candidates), np.int64)
    run = kernel("cover_gains", _REAL)
    if run is None:
        for c, row in enumerate(candidates):
            out[c] = rows.multiplicity @ np.maximum(_gain(rows.ones, rows.zeros, row, covered, penalty), 0)
        return out
    block = max(8, (1 << 20) // max(1, rows.ones.size))
    data = (rows.ones, rows.zeros, rows.multiplicity, covered)
    for_blocks(lambda a, b: run(*data, candidates[a:b], penalty, out[a:b]), len(candidates), block)
    return out


def take(rows: Bits, row: np.ndarray, covered: np.ndarray, *, penalty: int = 1) -> np.ndarray:
    """Cover by `row`, in place, wherever that gains; return where it did.

    Examples
    --------
    >>> import numpy as np
    >>> covered = np.zeros((2, 1), np.uint64)
    >>> take(observed(np.array([[1.0, 1.0], [0.0, 0.0]])), np.array([3], np.uint64), covered), covered.tolist()
    (array([ True, False]), [[3], [0]])
    """
    run = kernel("take_where_it_pays", _REAL)
    if run is None:
        took = _gain(rows.ones, rows.zeros, row, covered, penalty) > 0
        covered[took] |= row
        return took
    took = np.zeros(len(covered), np.int64)
    run(rows.ones, rows.zeros, np.ascontiguousarray(row)[None], penalty, covered, took)
    return took > 0


def swap_gains(rows: Bits, U: np.ndarray, V: np.ndarray, pool: np.ndarray) -> np.ndarray:
    """Count what it would gain to put each row of the pool in the place of each component.

    Returns
    -------
    ndarray of int64, shape (k, len(pool))
        Cells that become right less cells that become wrong, when rows lose the one and take the other where it pays.

    Examples
    --------
    >>> import numpy as np
    >>> rows = observed(np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0]]))
    >>> swap_gains(rows, np.ones((2, 1), np.uint8), np.array([[1]], np.uint64), np.array([[3], [4]], np.uint64))
    array([[ 2, -2]])
    """
    k = len(V)
    size = len(pool)
    if len(rows.ones) and size and on_card.serves(rows.card, V):
        out = on_card.swap_gains(rows.card, rows.ones, rows.zeros, U, V, pool)
        return out[:k] + out[k]
    out = np.zeros((k + 1, size), np.int64)
    run = kernel("swap_gains", _REAL)
    if run is not None:
        pool, V, U = (np.ascontiguousarray(part) for part in (pool, V, U))
        block = max(8, -(-size // 4))
        parts = {a: np.zeros((k + 1, min(a + block, size) - a), np.int64) for a in range(0, size, block)}
        data = (rows.ones, rows.zeros, rows.multiplicity, U, V)
        for_blocks(lambda a, b: run(*data, pool[a:b], parts[a]), size, block)
        out = np.concatenate(list(parts.values()), axis=1) if parts else out
        return out[:k] + out[k]
    covered = bits.product(U, V)
    times = rows.multiplicity
    for c, row in enumerate(pool):
        out[k, c] = times @ np.maximum(_gain(rows.ones, rows.zeros, row, covered, 1), 0)
    for q in range(k):
        on = U[:, q] > 0
        part, rest = rows.rows(on), U[on].copy()
        rest[:, q] = 0
        others = bits.product(rest, V)
        lost = times[on] @ _gain(part.ones, part.zeros, V[q], others, 1)
        for c, row in enumerate(pool):
            here = times[on] @ np.maximum(_gain(part.ones, part.zeros, row, others, 1), 0)
            beside = times[on] @ np.maximum(_gain(part.ones, part.zeros, row, covered[on], 1), 0)
            out[q, c] = here - lost - beside
    return out[:k] + out[k]


def _gain(ones: np.ndarray, zeros: np.ndarray, row: np.ndarray, covered: np.ndarray, penalty: int) -> np.ndarray:
    fresh = row & ~covered
    return bits.ones_of(fresh & ones) - penalty * bits.ones_of(fresh & zeros)


def _cost(ones: np.ndarray, zeros: np.ndarray, U: np.ndarray, V: np.ndarray, penalty: int) -> np.ndarray:
    covered = bits.product(U, V)
    return bits.ones_of(ones & ~covered) + penalty * bits.ones_of(zeros & covered)


def _choose_together(
    ones: np.ndarray,
    zeros: np.ndarray,
    times: np.ndarray,
    V: np.ndarray,
    hint: np.ndarray,
    use_hint: int,
    thorough: int,
    penalty: int,
) -> tuple[np.ndarray, tuple[int, int]]:
    """Do what the loop does without numba, all rows at a time."""
    data, k = (ones, zeros, V, penalty), len(V)
    U = _improved(*data, _greedy(*data, np.zeros((len(ones), k), np.uint8), -1))
    best = _cost(ones, zeros, U, V, penalty)
    for q in range(k if thorough else 0):
        try_ = (U[:, q] > 0) & (best > 0)
        if not try_.any():
            continue
        part = (ones[try_], zeros[try_], V, penalty)
        trial = U[try_].copy()
        trial[:, q] = 0
        trial = _improved(*part, _greedy(*part, trial, q))
        found = _cost(part[0], part[1], trial, V, penalty)
        better = found < best[try_]
        where = np.flatnonzero(try_)[better]
        U[where], best[where] = trial[better], found[better]
    alone = int(times @ best)
    if use_hint:
        trial = _improved(*data, hint.copy())
        found = _cost(ones, zeros, trial, V, penalty)
        U = np.where((found <= best)[:, None], trial, U)
        best = np.minimum(found, best)
    return U, (alone, int(times @ best))


def _greedy(ones: np.ndarray, zeros: np.ndarray, V: np.ndarray, penalty: int, U: np.ndarray, banned: int) -> np.ndarray:
    covered = bits.product(U, V)
    rows = np.arange(len(ones))
    for _ in range(len(V)):
        gain = np.stack([_gain(ones, zeros, row, covered, penalty) for row in V], axis=1)
        gain[U > 0] = 0
        if banned >= 0:
            gain[:, banned] = 0
        best = gain.argmax(axis=1)
        sel = gain[rows, best] > 0
        if not sel.any():
            break
        U[rows[sel], best[sel]] = 1
        covered[sel] |= V[best[sel]]
    return U


def _improved(ones: np.ndarray, zeros: np.ndarray, V: np.ndarray, penalty: int, U: np.ndarray) -> np.ndarray:
    rows = np.arange(len(ones))
    for _ in range(_SWEEPS):
        before = U.copy()
        for q in range(len(V)):
            was_on = U[:, q] > 0
            U[:, q] = 0
            others = bits.product(U, V)
            gain = np.stack([_gain(ones, zeros, row, others, penalty) for row in V], axis=1)
            gain[U > 0] = 0
            gain[~was_on] = np.where(np.arange(len(V)) == q, gain[~was_on], 0)
            # Of equals q itself, then the first: exchanges must gain.
            best = np.where(gain[:, q] >= gain.max(axis=1), q, gain.argmax(axis=1))
            sel = gain[rows, best] > 0
            U[rows[sel], best[sel]] = 1
        if (U == before).all():
            break
    return U
