"""The loops of the search for Boolean components on a CUDA GPU; this module needs Triton.

The same steps in the same order as in :mod:`fedfactor.linalg.compiled.boolean_search_loops`, so that all counts
agree. A program has some rows, whose words lie side by side; which components a row has are the bits of one number.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def gain_of(ones, zeros, row, covered, penalty):
    """Count what covering by `row` adds to what is covered, for each row of data."""
    fresh = row & ~covered
    return tl.sum(libdevice.popc(fresh & ones) - penalty * libdevice.popc(fresh & zeros), 1)


@triton.jit
def cost_of(ones, zeros, covered, penalty):
    """Count the ones that are left and the zeros that are covered."""
    return tl.sum(libdevice.popc(ones & ~covered) + penalty * libdevice.popc(zeros & covered), 1)


@triton.jit
def component(V, q, words, W: tl.constexpr):
    """Load one component, as a line."""
    place = tl.arange(0, W)
    return tl.load(V + q * words + place, place < words, 0)[None, :]


@triton.jit
def cover_twice(V, on, words, K: tl.constexpr, W: tl.constexpr):
    """Unite the components that are on, and mark what two or more of them cover."""
    covered = tl.zeros([on.shape[0], W], tl.int64)
    twice = tl.zeros([on.shape[0], W], tl.int64)
    for q in range(K):
        mine = tl.where(((on >> q) & 1)[:, None] > 0, component(V, q, words, W), 0)
        twice |= covered & mine
        covered |= mine
    return covered, twice


@triton.jit
def add_greedily(ones, zeros, V, on, covered, live, penalty, banned, words, K: tl.constexpr, W: tl.constexpr):
    """Add the component with the largest gain as long as there is one."""
    place = tl.arange(0, W)
    going = 1
    while going > 0:
        best = tl.zeros([on.shape[0]], tl.int32)
        chosen = tl.full([on.shape[0]], -1, tl.int32)
        for q in range(K):
            gain = gain_of(ones, zeros, component(V, q, words, W), covered, penalty)
            better = live & (gain > best) & (((on >> q) & 1) == 0) & (q != banned)
            best = tl.where(better, gain, best)
            chosen = tl.where(better, q, chosen)
        found = chosen >= 0
        on = tl.where(found, on | (tl.full([on.shape[0]], 1, tl.int64) << tl.maximum(chosen, 0).to(tl.int64)), on)
        at = V + tl.maximum(chosen, 0)[:, None] * words + place[None, :]
        covered |= tl.load(at, found[:, None] & (place < words)[None, :], 0)
        going = tl.max(found.to(tl.int32), 0)
    return on, covered


@triton.jit
def improve(ones, zeros, V, on, live, penalty, sweeps, words, K: tl.constexpr, W: tl.constexpr):
    """Turn single components on or off, and put one in the place of another, while that gains."""
    one = tl.full([on.shape[0]], 1, tl.int64)
    covered, twice = cover_twice(V, on, words, K, W)
    sweep = 0
    going = 1
    while (sweep < sweeps) & (going > 0):
        going = 0
        for q in range(K):
            row = component(V, q, words, W)
            has = ((on >> q) & 1) > 0
            others = tl.where(has[:, None], covered & (twice | ~row), covered)
            gain = gain_of(ones, zeros, row, others, penalty)
            best = tl.maximum(gain, 0)
            chosen = tl.where(gain > 0, q, -1)
            if tl.max((has & live).to(tl.int32), 0) > 0:
                for p in range(K):
                    other = gain_of(ones, zeros, component(V, p, words, W), others, penalty)
                    better = has & (((on >> p) & 1) == 0) & (other > best)
                    best = tl.where(better, other, best)
                    chosen = tl.where(better, p, chosen)
            stays = tl.where(has, chosen == q, chosen < 0)
            moves = live & ~stays
            if tl.max(moves.to(tl.int32), 0) > 0:
                going = 1
                new = on & ~(one << q)
                new = tl.where(chosen >= 0, new | (one << tl.maximum(chosen, 0).to(tl.int64)), new)
                on = tl.where(moves, new, on)
                covered, twice = cover_twice(V, on, words, K, W)
        sweep += 1
    return on, covered


@triton.jit(do_not_specialize=["n", "words", "penalty"])
def choose_kernel(
    ones_at,
    zeros_at,
    V,
    hint,
    out,
    cost,
    n,
    words,
    penalty,
    sweeps,
    K: tl.constexpr,
    W: tl.constexpr,
    BLOCK: tl.constexpr,
    HINT: tl.constexpr,
    THOROUGH: tl.constexpr,
):
    """Choose components row by row, and write each row's cost without and with the hint."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    place = tl.arange(0, W)
    at = rows[:, None] * words + place[None, :]
    inside = (rows < n)[:, None] & (place < words)[None, :]
    ones = tl.load(ones_at + at, inside, 0)
    zeros = tl.load(zeros_at + at, inside, 0)
    live = rows < n
    on = tl.zeros([BLOCK], tl.int64)
    covered = tl.zeros([BLOCK, W], tl.int64)
    on, covered = add_greedily(ones, zeros, V, on, covered, live, penalty, -1, words, K, W)
    on, covered = improve(ones, zeros, V, on, live, penalty, sweeps, words, K, W)
    best = cost_of(ones, zeros, covered, penalty)
    if THOROUGH:
        for q in range(K):
            tries = live & (((on >> q) & 1) > 0) & (best > 0)
            if tl.max(tries.to(tl.int32), 0) > 0:
                trial = on & ~(tl.full([BLOCK], 1, tl.int64) << q)
                anew, _ = cover_twice(V, trial, words, K, W)
                trial, anew = add_greedily(ones, zeros, V, trial, anew, tries, penalty, q, words, K, W)
                trial, anew = improve(ones, zeros, V, trial, tries, penalty, sweeps, words, K, W)
                found = cost_of(ones, zeros, anew, penalty)
                better = tries & (found < best)
                on = tl.where(better, trial, on)
                best = tl.where(better, found, best)
    tl.store(cost + rows * 2, best, live)
    if HINT:
        trial = tl.load(hint + rows, live, 0)
        trial, anew = improve(ones, zeros, V, trial, live, penalty, sweeps, words, K, W)
        found = cost_of(ones, zeros, anew, penalty)
        on = tl.where(found <= best, trial, on)
        best = tl.minimum(best, found)
    tl.store(cost + rows * 2 + 1, best, live)
    tl.store(out + rows, on, live)


@triton.jit(do_not_specialize=["n", "size", "words", "penalty"])
def cover_gains_kernel(
    ones_at,
    zeros_at,
    covered_at,
    candidates,
    out,
    n,
    size,
    words,
    penalty,
    W: tl.constexpr,
    BLOCK: tl.constexpr,
    EACH: tl.constexpr,
):
    """Add up, for some candidates, the gains of the rows that would take them."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    place = tl.arange(0, W)
    at = rows[:, None] * words + place[None, :]
    inside = (rows < n)[:, None] & (place < words)[None, :]
    free = ~tl.load(covered_at + at, inside, 0)
    ones = tl.load(ones_at + at, inside, 0) & free
    zeros = tl.load(zeros_at + at, inside, 0) & free
    for c in range(tl.program_id(1) * EACH, tl.minimum(size, (tl.program_id(1) + 1) * EACH)):
        row = component(candidates, c, words, W)
        gain = tl.sum(libdevice.popc(row & ones) - penalty * libdevice.popc(row & zeros), 1)
        tl.atomic_add(out + c, tl.sum(tl.maximum(gain, 0), 0).to(tl.int64), sem="relaxed")


@triton.jit(do_not_specialize=["n", "size", "words"])
def swap_gains_kernel(
    ones_at,
    zeros_at,
    U,
    V,
    pool,
    out,
    n,
    size,
    words,
    K: tl.constexpr,
    W: tl.constexpr,
    BLOCK: tl.constexpr,
    EACH: tl.constexpr,
):
    """Add up, for each component and some of the pool, the gain of giving the one away and taking the other."""
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    place = tl.arange(0, W)
    at = rows[:, None] * words + place[None, :]
    inside = (rows < n)[:, None] & (place < words)[None, :]
    ones = tl.load(ones_at + at, inside, 0)
    zeros = tl.load(zeros_at + at, inside, 0)
    on = tl.load(U + rows, rows < n, 0)
    covered, twice = cover_twice(V, on, words, K, W)
    begin = tl.program_id(1) * EACH
    end = tl.minimum(size, begin + EACH)
    for c in range(begin, end):
        beside = tl.maximum(gain_of(ones, zeros, component(pool, c, words, W), covered, 1), 0)
        tl.atomic_add(out + K * size + c, tl.sum(beside, 0).to(tl.int64), sem="relaxed")
    for q in range(K):
        has = ((on >> q) & 1) > 0
        if tl.max(has.to(tl.int32), 0) > 0:
            row = component(V, q, words, W)
            others = covered & (twice | ~row)
            lost = gain_of(ones, zeros, row, others, 1)
            for c in range(begin, end):
                other = component(pool, c, words, W)
                beside = tl.maximum(gain_of(ones, zeros, other, covered, 1), 0)
                gain = tl.maximum(gain_of(ones, zeros, other, others, 1), 0) - lost - beside
                tl.atomic_add(out + q * size + c, tl.sum(tl.where(has, gain, 0), 0).to(tl.int64), sem="relaxed")


@triton.jit(do_not_specialize=["n", "words", "penalty", "step"])
def votes_kernel(
    ones_at,
    zeros_at,
    U,
    V,
    out,
    n,
    words,
    penalty,
    step,
    K: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Add up, for one word of columns, what rows that have a component would gain if it covered each column."""
    word = tl.program_id(0)
    bit = tl.arange(0, 64).to(tl.int64)
    start = tl.program_id(1).to(tl.int64) * step
    for first in range(start, tl.minimum(n, start + step), BLOCK):
        rows = first + tl.arange(0, BLOCK)
        live = rows < tl.minimum(n, start + step)
        ones = tl.load(ones_at + rows * words + word, live, 0)
        zeros = tl.load(zeros_at + rows * words + word, live, 0)
        on = tl.load(U + rows, live, 0)
        covered = tl.zeros([BLOCK], tl.int64)
        twice = tl.zeros([BLOCK], tl.int64)
        for q in range(K):
            mine = tl.where(((on >> q) & 1) > 0, tl.load(V + q * words + word), 0)
            twice |= covered & mine
            covered |= mine
        for q in range(K):
            has = ((on >> q) & 1) > 0
            free = tl.where(has, ~covered | (tl.load(V + q * words + word) & ~twice), 0)
            right = ((free & ones)[:, None] >> bit[None, :]) & 1
            wrong = ((free & zeros)[:, None] >> bit[None, :]) & 1
            tl.atomic_add(out + q * words * 64 + word * 64 + bit, tl.sum(right - penalty * wrong, 0), sem="relaxed")
