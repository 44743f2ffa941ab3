"""Plain loops of the search for Boolean components, written to be compiled by :mod:`fedfactor.linalg.compiled.compile`.

Data are two matrices of bits: the cells that are observed ones, and those that are observed zeros. A missing cell is in
neither, so that it counts for nothing. A zero that is covered costs `penalty`, a one that is not covered costs 1. Row i
stands for ``times[i]`` equal rows.
"""

from __future__ import annotations

import numpy as np

from fedfactor.linalg.compiled.boolean_loops import popcount

# Letters of the arguments: see compiled.py.
PLANS = {
    "choose_rows": ("ppzpbnnnnBz", "contract"),
    "column_votes": ("ppzbpnZ", "contract"),
    "cover_gains": ("ppzppnz", "contract"),
    "take_where_it_pays": ("pppnPz", "contract"),
    "swap_gains": ("ppzbppZ", "contract"),
}

_NONE = np.uint64(0)
_ONE = np.uint64(1)


def gain_of(ones, zeros, row, covered, penalty):
    """Count what covering by `row` adds to what is covered: ones, less `penalty` for each zero."""
    gain = np.int64(0)
    for w in range(ones.shape[0]):
        fresh = row[w] & ~covered[w]
        gain += popcount(fresh & ones[w]) - penalty * popcount(fresh & zeros[w])
    return gain


def cost_of(ones, zeros, covered, penalty):
    """Count the ones that are left and the zeros that are covered."""
    cost = np.int64(0)
    for w in range(ones.shape[0]):
        cost += popcount(ones[w] & ~covered[w]) + penalty * popcount(zeros[w] & covered[w])
    return cost


def cover_twice(V, on, covered, twice):
    """Unite the rows of V that are on, and mark what two or more of them cover."""
    for w in range(V.shape[1]):
        covered[w] = _NONE
        twice[w] = _NONE
    for q in range(V.shape[0]):
        if on[q]:
            for w in range(V.shape[1]):
                twice[w] |= covered[w] & V[q, w]
                covered[w] |= V[q, w]


def add_greedily(ones, zeros, V, on, covered, penalty, banned):
    """Add the component with the largest gain as long as there is one."""
    for _ in range(V.shape[0]):
        best = np.int64(0)
        chosen = -1
        for q in range(V.shape[0]):
            if on[q] or q == banned:
                continue
            gain = gain_of(ones, zeros, V[q], covered, penalty)
            if gain > best:
                best = gain
                chosen = q
        if chosen < 0:
            return
        on[chosen] = 1
        for w in range(V.shape[1]):
            covered[w] |= V[chosen, w]


def improve(ones, zeros, V, on, covered, twice, others, penalty, sweeps):
    """Turn single components on or off, and put one in the place of another, while that gains."""
    k, words = V.shape
    cover_twice(V, on, covered, twice)
    for _ in range(sweeps):
        changed = False
        for q in range(k):
            if on[q]:
                for w in range(words):  # what the others cover
                    others[w] = covered[w] & (twice[w] | ~V[q, w])
            else:
                for w in range(words):
                    others[w] = covered[w]
            gain = gain_of(ones, zeros, V[q], others, penalty)
            best = np.int64(0)
            chosen = -1  # nothing in the place of q
            if gain > 0:
                best = gain
                chosen = q
            if on[q]:
                for p in range(k):
                    if not on[p]:
                        other = gain_of(ones, zeros, V[p], others, penalty)
                        if other > best:
                            best = other
                            chosen = p
            if (chosen == q) == (on[q] != 0) and (chosen == q or chosen < 0):
                continue
            changed = True
            on[q] = 0
            if chosen >= 0:
                on[chosen] = 1
            cover_twice(V, on, covered, twice)
        if not changed:
            return


def choose_rows(ones, zeros, times, V, hint, use_hint, thorough, sweeps, penalty, out, cost):
    """Choose components row by row.

    Greedily, then by exchanges, and if `thorough` once more without each component that is on; with a hint, what
    exchanges make of it, if that is at least as good. Adds to `cost` the cost without and with the hint.
    """
    n, words = ones.shape
    k = V.shape[0]
    on = np.zeros(k, np.uint8)
    trial = np.zeros(k, np.uint8)
    covered = np.zeros(words, np.uint64)
    anew = np.zeros(words, np.uint64)
    twice = np.zeros(words, np.uint64)
    others = np.zeros(words, np.uint64)
    for i in range(n):
        for w in range(words):
            covered[w] = _NONE
        for q in range(k):
            on[q] = 0
        add_greedily(ones[i], zeros[i], V, on, covered, penalty, -1)
        improve(ones[i], zeros[i], V, on, covered, twice, others, penalty, sweeps)
        best = cost_of(ones[i], zeros[i], covered, penalty)
        if thorough:
            for q in range(k):
                if not on[q] or best == 0:
                    continue
                for p in range(k):
                    trial[p] = on[p]
                trial[q] = 0
                cover_twice(V, trial, anew, twice)
                add_greedily(ones[i], zeros[i], V, trial, anew, penalty, q)
                improve(ones[i], zeros[i], V, trial, anew, twice, others, penalty, sweeps)
                found = cost_of(ones[i], zeros[i], anew, penalty)
                if found < best:
                    best = found
                    for p in range(k):
                        on[p] = trial[p]
        cost[0] += times[i] * best
        if use_hint:
            for q in range(k):
                trial[q] = hint[i, q]
            improve(ones[i], zeros[i], V, trial, anew, twice, others, penalty, sweeps)
            found = cost_of(ones[i], zeros[i], anew, penalty)
            if found <= best:
                best = found
                for q in range(k):
                    on[q] = trial[q]
        cost[1] += times[i] * best
        for q in range(k):
            out[i, q] = on[q]


def column_votes(ones, zeros, times, U, V, penalty, out):
    """Add to ``out[q, j]`` what rows that have component q would gain if it covered column j, others as they are."""
    n, words = ones.shape
    k = V.shape[0]
    covered = np.zeros(words, np.uint64)
    twice = np.zeros(words, np.uint64)
    for i in range(n):
        cover_twice(V, U[i], covered, twice)
        for q in range(k):
            if not U[i, q]:
                continue
            for w in range(words):
                free = ~covered[w] | (V[q, w] & ~twice[w])
                right = free & ones[i, w]
                wrong = free & zeros[i, w]
                while right:
                    out[q, 64 * w + popcount((right & (~right + _ONE)) - _ONE)] += times[i]
                    right &= right - _ONE
                while wrong:
                    out[q, 64 * w + popcount((wrong & (~wrong + _ONE)) - _ONE)] -= penalty * times[i]
                    wrong &= wrong - _ONE


def cover_gains(ones, zeros, times, covered, candidates, penalty, out):
    """Add to `out`, for every candidate, the gains of the rows that would take it."""
    n, words = ones.shape
    right = np.empty(words, np.uint64)
    wrong = np.empty(words, np.uint64)
    for i in range(n):
        left = np.int64(0)
        for w in range(words):
            right[w] = ones[i, w] & ~covered[i, w]
            wrong[w] = zeros[i, w] & ~covered[i, w]
            left += popcount(right[w])
        if left == 0:
            continue
        for c in range(candidates.shape[0]):
            gain = np.int64(0)
            for w in range(words):
                gain += popcount(candidates[c, w] & right[w]) - penalty * popcount(candidates[c, w] & wrong[w])
            if gain > 0:
                out[c] += times[i] * gain


def take_where_it_pays(ones, zeros, row, penalty, covered, took):
    """Cover by `row` wherever that gains, and mark in `took` where it did."""
    for i in range(ones.shape[0]):
        if gain_of(ones[i], zeros[i], row[0], covered[i], penalty) > 0:
            took[i] = 1
            for w in range(ones.shape[1]):
                covered[i, w] |= row[0, w]


def swap_gains(ones, zeros, times, U, V, pool, out):
    """Add to ``out[q, c]`` the gain of taking component q away and giving c to the rows for which it pays.

    The last row of `out` is for c beside all components, none of them taken away.
    """
    n, words = ones.shape
    k = V.shape[0]
    size = pool.shape[0]
    covered = np.zeros(words, np.uint64)
    twice = np.zeros(words, np.uint64)
    others = np.zeros(words, np.uint64)
    beside = np.zeros(size, np.int64)
    for i in range(n):
        cover_twice(V, U[i], covered, twice)
        for c in range(size):
            beside[c] = max(0, gain_of(ones[i], zeros[i], pool[c], covered, 1))
            out[k, c] += times[i] * beside[c]
        for q in range(k):
            if not U[i, q]:
                continue
            for w in range(words):
                others[w] = covered[w] & (twice[w] | ~V[q, w])
            lost = gain_of(ones[i], zeros[i], V[q], others, 1)
            for c in range(size):
                # Rows that do not have q gain what they gain beside it; the caller adds that once for all rows.
                gain = max(0, gain_of(ones[i], zeros[i], pool[c], others, 1))
                out[q, c] += times[i] * (gain - lost - beside[c])


def prepare(numba) -> None:
    """Compile what the loops call, once, before the first of them is compiled."""
    global popcount, gain_of, cost_of, cover_twice, add_greedily, improve
    if hasattr(gain_of, "py_func"):
        return
    if not hasattr(popcount, "py_func"):
        popcount = numba.njit(popcount, nogil=True)
    gain_of = numba.njit(gain_of, nogil=True)
    cost_of = numba.njit(cost_of, nogil=True)
    cover_twice = numba.njit(cover_twice, nogil=True)
    add_greedily = numba.njit(add_greedily, nogil=True)
    improve = numba.njit(improve, nogil=True)
