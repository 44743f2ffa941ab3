"""Plain loops over bits and proximal steps, written to be compiled by :mod:`fedfactor.linalg.compiled.compile`.

A Boolean row of m cells is ``ceil(m / 64)`` words; bit j of word w is cell ``64 w + j``, and the bits beyond m are
zero.
"""

from __future__ import annotations

import numpy as np

# Letters of the arguments: see compiled.py.
PLANS = {
    "prox_step": ("RRRWsssssn", "contract"),
    "count_bits": ("pbpz", "contract"),
    "refit_bits": ("ppnB", "contract"),
    "cover_scores": ("ppzpttE", "contract"),
    "tile_scores": ("pztE", "contract"),
    "best_attribute": ("pppppzznz", "contract"),
}

_ONE = np.uint64(1)
_TWO = np.uint64(2)
_FOUR = np.uint64(4)
_TOP = np.uint64(56)
_M1 = np.uint64(0x5555555555555555)
_M2 = np.uint64(0x3333333333333333)
_M4 = np.uint64(0x0F0F0F0F0F0F0F0F)
_H = np.uint64(0x0101010101010101)
_NONE = np.uint64(0)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


def popcount(word):
    """Count the ones of a word; compilers know this idiom and use the machine's own instruction."""
    word = word - ((word >> _ONE) & _M1)
    word = (word & _M2) + ((word >> _TWO) & _M2)
    word = (word + (word >> _FOUR)) & _M4
    return np.int64((word * _H) >> _TOP)


def prox_step(Y, YG, B, out, eta, kappa, lam, gamma, eps, printed):
    """``prox(Y − η (Y G − B))`` of two elastic nets around 0 and 1, then the unit box, cell by cell.

    The plain form has no branch that a compiler could not turn into a choice between two numbers, so that it fills
    whole vector registers.
    """
    n, k = Y.shape
    zero = eta - eta
    one = zero + 1
    half = one / 2
    shrink = one / (one + lam)
    if gamma > zero or printed:
        for i in range(n):
            for q in range(k):
                z = Y[i, q] - eta * (YG[i, q] - B[i, q])
                centre = one if z > half else zero
                if gamma > zero:
                    near = min(max(one - z if z > half else z, eps), one - eps)
                    shrink = one / (one + lam / (one - np.exp(-gamma * near)))
                x = z - centre
                size = abs(x) - kappa
                if size < zero and (printed == 0 or x == zero):
                    size = zero
                x = (size if x > zero else -size) * shrink + centre
                out[i, q] = min(max(x, zero), one)
        return
    for i in range(n):
        for q in range(k):
            z = Y[i, q] - eta * (YG[i, q] - B[i, q])
            centre = one if z > half else zero
            x = z - centre
            size = abs(x) - kappa
            size = size if size > zero else zero
            x = (size if x > zero else -size) * shrink + centre
            x = x if x > zero else zero
            out[i, q] = x if x < one else one


def count_bits(X, U, V, out):
    """Add the ones of X, of U∘V and of both at once to `out`."""
    n, words = X.shape
    k = V.shape[0]
    made = np.zeros(words, np.uint64)
    for i in range(n):
        for w in range(words):
            made[w] = _NONE
        for q in range(k):
            if U[i, q]:
                row = V[q]
                for w in range(words):
                    made[w] |= row[w]
        ones = np.int64(0)
        covered = np.int64(0)
        both = np.int64(0)
        x = X[i]
        for w in range(words):
            ones += popcount(x[w])
            covered += popcount(made[w])
            both += popcount(made[w] & x[w])
        out[0] += ones
        out[1] += covered
        out[2] += both


def refit_bits(X, V, sweeps, out):
    """Choose components row by row: greedily by gain, then by flips until nothing changes or the sweeps are used."""
    n, words = X.shape
    k = V.shape[0]
    cover = np.empty(words, np.uint64)
    others = np.empty(words, np.uint64)
    live = np.empty(k, np.bool_)
    for i in range(n):
        choose_greedily(X[i], V, cover, live, out[i])
        for _ in range(sweeps):
            if not flip_while_better(X[i], V, cover, others, out[i]):
                break


def choose_greedily(x, V, cover, live, chosen):
    """Take the component of largest gain until none gains; `cover` becomes what the chosen ones cover."""
    k, words = V.shape
    for w in range(words):
        cover[w] = _NONE
    for q in range(k):
        chosen[q] = 0
        live[q] = True
    for _ in range(k):
        best = np.int64(0)
        found = -1
        for q in range(k):
            if not live[q]:
                continue
            new = np.int64(0)
            right = np.int64(0)
            row = V[q]
            for w in range(words):
                fresh = row[w] & ~cover[w]
                new += popcount(fresh)
                right += popcount(fresh & x[w])
            if right == 0:
                live[q] = False  # covers nothing that is still open, and never will
            elif 2 * right - new > best:
                best = 2 * right - new
                found = q
        if found < 0:
            break
        chosen[found] = 1
        live[found] = False
        row = V[found]
        for w in range(words):
            cover[w] |= row[w]


def flip_while_better(x, V, cover, others, chosen):
    """Go once over the components, taking or leaving each by what it adds to the others; return whether any changed."""
    k, words = V.shape
    changed = False
    for q in range(k):
        row = V[q]
        on = chosen[q] != 0
        for w in range(words):
            others[w] = _NONE if on else cover[w]
        if on:
            for other in range(k):
                if other != q and chosen[other]:
                    more = V[other]
                    for w in range(words):
                        others[w] |= more[w]
        gain = np.int64(0)
        for w in range(words):
            fresh = row[w] & ~others[w]
            gain += 2 * popcount(fresh & x[w]) - popcount(fresh)
        if (gain > 0) != on:
            changed = True
            chosen[q] = 0 if on else 1
            for w in range(words):
                cover[w] = others[w] if on else others[w] | row[w]
    return changed


def cover_scores(X, cover, times, candidates, reward, penalty, out):
    """Add to `out`, for every candidate row, the gains of those rows of X that would take it; row i occurs times[i]
    times.
    """
    n, words = X.shape
    open_ = np.empty(words, np.uint64)
    wrong = np.empty(words, np.uint64)
    for i in range(n):
        left = np.int64(0)
        for w in range(words):
            open_[w] = X[i, w] & ~cover[i, w]
            wrong[w] = ~X[i, w] & ~cover[i, w]
            left += popcount(open_[w])
        if left == 0:
            continue
        for c in range(candidates.shape[0]):
            right = np.int64(0)
            bad = np.int64(0)
            row = candidates[c]
            for w in range(words):
                right += popcount(row[w] & open_[w])
                bad += popcount(row[w] & wrong[w])
            gain = reward * right - penalty * bad
            if gain > 0:
                out[c] += times[i] * gain


def tile_scores(lines, candidates, share, out):
    """Score the tile that each candidate line spans: all lines that agree with it on enough of its ones."""
    m, words = lines.shape
    for c in range(candidates.shape[0]):
        line = lines[candidates[c]]
        size = np.int64(0)
        for w in range(words):
            size += popcount(line[w])
        need = min(share * size + 1.0, np.float64(size))
        width = np.int64(0)
        ones = np.int64(0)
        for j in range(m):
            both = np.int64(0)
            for w in range(words):
                both += popcount(lines[j, w] & line[w])
            if both >= need:
                width += 1
                ones += both
        out[c] = (size - 1) * (width - 1) - (size * width - ones)


def best_attribute(rows, columns, open_, intent, extent, times, left, least, out):
    """Find the attribute whose closure with the concept so far covers most open cells, more than `least`.

    Row i occurs ``times[i]`` times; ``left[i]`` is the number of open cells of all of them.
    """
    words = rows.shape[1]
    closure = np.empty(words, np.uint64)
    out[0] = -1
    out[1] = least
    for j in range(columns.shape[0]):
        if (intent[0, j // 64] >> np.uint64(j % 64)) & _ONE:
            continue
        bound = np.int64(0)
        size = np.int64(0)
        for w in range(words):
            closure[w] = _ALL
        for v in range(columns.shape[1]):
            word = columns[j, v] & extent[0, v]
            while word:
                i = v * 64 + popcount((word & (~word + _ONE)) - _ONE)
                word &= word - _ONE
                bound += left[i]
                size += times[i]
                for w in range(words):
                    closure[w] &= rows[i, w]
        if bound <= out[1]:
            continue
        width = np.int64(0)
        for w in range(words):
            width += popcount(closure[w])
        if size * width <= out[1]:
            continue
        gain = np.int64(0)
        for v in range(columns.shape[1]):
            word = columns[j, v] & extent[0, v]
            while word:
                i = v * 64 + popcount((word & (~word + _ONE)) - _ONE)
                word &= word - _ONE
                for w in range(words):
                    gain += times[i] * popcount(open_[i, w] & closure[w])
        if gain > out[1]:
            out[0] = j
            out[1] = gain


def prepare(numba) -> None:
    """Compile what the loops call, once, before the first of them is compiled."""
    global popcount, choose_greedily, flip_while_better
    if not hasattr(popcount, "py_func"):  # all kept with the loops that call them: no cache of their own
        popcount = numba.njit(popcount, nogil=True)
        choose_greedily = numba.njit(choose_greedily, nogil=True)
        flip_while_better = numba.njit(flip_while_better, nogil=True)
