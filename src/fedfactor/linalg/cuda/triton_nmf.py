"""Kernels for a CUDA GPU, called by :mod:`fedfactor.linalg.cuda.launch`; this module needs Triton."""

from __future__ import annotations

import triton
import triton.language as tl

MOST = 64
"""Components that one launch serves: with more, sums no longer fit into registers."""


def cross_tile(KP: int, half: bool) -> tuple[int, int, int, int]:
    """Return rows and columns of a block, warps, and stages of reading ahead: the fastest of some on an H200."""
    if half and KP > 32:
        return 256, 64, 8, 4
    return (128, 64, 4, 3) if half or KP <= 32 else (128, 32, 4, 3)


def sums_tile(KP: int, half: bool, m: int) -> tuple[int, int, int, int, bool]:
    """Return rows and columns of a block, warps, stages, and whether columns, not components, come first."""
    if m <= 128:
        return 32, 128, 4, 3, KP > 32
    if KP <= 32:
        return 32, 256, 4, 3, False
    return (64, 256, 8, 3, True) if half else (32, 256, 8, 4, True)


@triton.jit
def cross_kernel(
    X,
    V,
    out,
    table,
    n,
    m,
    down,
    right,
    K,
    KP: tl.constexpr,
    BN: tl.constexpr,
    BM: tl.constexpr,
    HALF: tl.constexpr,
    ALIGNED: tl.constexpr,
    LEVEL: tl.constexpr,
):
    """Write V Xᵀ, a block of rows of a client's X at a time; the table holds their positions and destinations."""
    place = table + tl.program_id(0) * 3
    start = tl.multiple_of(tl.load(place), ALIGNED)
    first = tl.multiple_of(tl.load(place + 1), LEVEL)
    count = tl.load(place + 2).to(tl.int32)
    rows = tl.arange(0, BN)
    comps = tl.arange(0, KP)
    acc = tl.zeros([BN, KP], tl.float32)
    for j in range(0, m, BM):
        cols = j + tl.arange(0, BM)
        x = tl.load(
            X + start + rows[:, None] * down + cols[None, :] * right, (rows < count)[:, None] & (cols < m)[None, :], 0.0
        )
        v = tl.load(V + comps[None, :] * m + cols[:, None], (comps < K)[None, :] & (cols < m)[:, None], 0.0)
        # Matrix units cut off digits of a sum that they keep; added here, it is rounded.
        if HALF:
            high = v.to(x.dtype)
            acc += tl.dot(x, (v - high.to(tl.float32)).to(x.dtype), tl.dot(x, high))
        else:
            acc = tl.dot(x, v, acc, input_precision="tf32x3")
    into = out + comps[None, :].to(tl.int64) * n + first + rows[:, None]
    tl.store(into, acc, (comps < K)[None, :] & (rows < count)[:, None])


@triton.jit
def sums_kernel(
    X,
    U,
    out,
    table,
    n,
    m,
    down,
    right,
    K,
    KP: tl.constexpr,
    BN: tl.constexpr,
    BM: tl.constexpr,
    HALF: tl.constexpr,
    COLUMNS: tl.constexpr,
    ALIGNED: tl.constexpr,
    LEVEL: tl.constexpr,
):
    """Write UᵀX of one part of a client's rows and a block of columns."""
    place = table + tl.program_id(1) * 3
    start = tl.multiple_of(tl.load(place), ALIGNED)
    first = tl.multiple_of(tl.load(place + 1), LEVEL)
    count = tl.load(place + 2).to(tl.int32)
    cols = tl.program_id(0) * BM + tl.arange(0, BM)
    comps = tl.arange(0, KP)
    rows = tl.arange(0, BN)
    X += start
    U += first
    x_at = rows[:, None] * down + cols[None, :] * right
    u_at = comps[None, :].to(tl.int64) * n + rows[:, None]
    acc = tl.zeros([BM, KP] if COLUMNS else [KP, BM], tl.float32)
    for i in range(0, count, BN):
        there = i + rows < count
        x = tl.load(X + x_at, there[:, None] & (cols < m)[None, :], 0.0)
        u = tl.load(U + u_at, (comps < K)[None, :] & there[:, None], 0.0)
        # Matrix units cut off digits of a sum that they keep; added here, it is rounded.
        if HALF:
            high = u.to(x.dtype)
            low = (u - high.to(tl.float32)).to(x.dtype)
            if COLUMNS:
                acc += tl.dot(tl.trans(x), low, tl.dot(tl.trans(x), high))
            else:
                acc += tl.dot(tl.trans(low), x, tl.dot(tl.trans(high), x))
        elif COLUMNS:
            acc += tl.dot(tl.trans(x), u, input_precision="tf32x3")
        else:
            acc += tl.dot(tl.trans(u), x, input_precision="tf32x3")
        X += BN * down
        U += BN
    if COLUMNS:
        acc = tl.trans(acc)
    into = out + (tl.program_id(1) * K + comps[:, None]).to(tl.int64) * m + cols[None, :]
    tl.store(into, acc, (comps < K)[:, None] & (cols < m)[None, :])


@triton.jit
def account_kernel(A, G, V, out, m, K, KP: tl.constexpr, BM: tl.constexpr):
    """Write ⟨G V − 2 A, V⟩ of a block of columns, in double precision."""
    cols = tl.program_id(0) * BM + tl.arange(0, BM)
    comps = tl.arange(0, KP)
    inside = (comps < K)[:, None] & (cols < m)[None, :]
    v = tl.load(V + comps[:, None] * m + cols[None, :], inside, 0.0).to(tl.float64)
    acc = tl.zeros([BM], tl.float64)
    for j in range(K):
        line = tl.load(G + j * K + comps, comps < K, 0.0).to(tl.float64)
        mine = tl.load(V + j * m + cols, cols < m, 0.0).to(tl.float64)
        acc += mine * (tl.sum(line[:, None] * v, 0) - 2 * tl.load(A + j * m + cols, cols < m, 0.0).to(tl.float64))
    tl.store(out + tl.program_id(0), tl.sum(acc, 0))


@triton.jit
def gather_kernel(starts, places, data, D, out, n, K, KP: tl.constexpr, BLOCK: tl.constexpr):
    """Write a row of stored cells times the rows of D that they name."""
    row = tl.program_id(0).to(tl.int64)
    comps = tl.arange(0, KP)
    end = tl.load(starts + row + 1)
    acc = tl.zeros([KP], tl.float32)
    for p in range(tl.load(starts + row), end, BLOCK):
        at = p + tl.arange(0, BLOCK)
        which = tl.load(places + at, at < end, 0).to(tl.int64)
        value = tl.load(data + at, at < end, 0.0)
        lines = tl.load(D + which[:, None] * K + comps[None, :], (at < end)[:, None] & (comps < K)[None, :], 0.0)
        acc += tl.sum(value[:, None] * lines, 0)
    tl.store(out + comps.to(tl.int64) * n + row, acc, comps < K)


@triton.jit
def sweep_few_kernel(
    W,
    B,
    G,
    out,
    n,
    sweeps,
    l1,
    tol2,
    K: tl.constexpr,
    KP: tl.constexpr,
    BLOCK: tl.constexpr,
    TRACK: tl.constexpr,
):
    """Sweep over up to 32 components, the slopes of which are kept up to date in the registers of one thread a row.

    A first time round, in which nothing moves, takes what the start explains off the products.
    """
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    comps = tl.arange(0, KP)
    place = comps[:, None].to(tl.int64) * n + rows[None, :]
    there = (comps < K)[:, None] & (rows < n)[None, :]
    u = tl.load(W + place, there, 0.0)
    slope = tl.load(B + place, there, 0.0) - l1
    live = tl.full([BLOCK], 1.0, u.dtype)
    first = tl.zeros([BLOCK], u.dtype)
    sweep = 0
    going = 1
    while (sweep <= sweeps) & (going > 0):
        beginning = sweep == 0
        moved = tl.zeros([BLOCK], u.dtype)
        for j in tl.static_range(K):
            line = tl.load(G + j * K + comps, comps < K, 0.0)
            h = tl.load(G + j * K + j)
            inverse = tl.where(h > 0, 1 / tl.where(h > 0, h, 1.0), 0.0)
            here = comps[:, None] == j
            old = tl.sum(tl.where(here, u, 0.0), 0)
            step = tl.maximum(old + tl.sum(tl.where(here, slope, 0.0), 0) * inverse, 0.0) - old
            if TRACK:
                step = step * live
                moved += step * step
            u = tl.where(here & (sweep > 0), (old + step)[None, :], u)
            slope -= tl.where(beginning, old, step)[None, :] * line[:, None]
        if TRACK:
            first = tl.where(sweep == 1, moved, first)
            live = tl.where((sweep > 0) & (moved <= tol2 * first), 0.0, live)
            going = tl.max((live > 0).to(tl.int32), 0)
        sweep += 1
    tl.store(out + place, u, there)


@triton.jit
def sixteen_steps(mine, slope, moved, live, G, first, K: tl.constexpr, TRACK: tl.constexpr):
    """Let sixteen components from `first` on take their steps, each of which corrects the slopes of the others."""
    part = tl.arange(0, 16)
    some = first + part
    for j in tl.static_range(16):
        t = first + j
        line = tl.load(G + t * K + some, (some < K) & (t < K), 0.0)
        h = tl.load(G + t * K + t, t < K, 0.0)
        inverse = tl.where(h > 0, 1 / tl.where(h > 0, h, 1.0), 0.0)
        here = part[:, None] == j
        old = tl.sum(tl.where(here, mine, 0.0), 0)
        step = tl.maximum(old + tl.sum(tl.where(here, slope, 0.0), 0) * inverse, 0.0) - old
        if TRACK:
            step = step * live
            moved += step * step
        mine = tl.where(here, (old + step)[None, :], mine)
        slope -= step[None, :] * line[:, None]
    return mine, moved


@triton.jit
def sweep_kernel(
    W,
    B,
    G,
    out,
    n,
    sweeps,
    l1,
    tol2,
    K: tl.constexpr,
    KP: tl.constexpr,
    BLOCK: tl.constexpr,
    TRACK: tl.constexpr,
):
    """Sweep over sixteen components at a time.

    One product gives their slopes, then each takes its step and corrects the slopes of the fifteen others. With as many
    threads as rows a thread has these of its row in registers.
    """
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    comps = tl.arange(0, KP)
    part = tl.arange(0, 16)
    which = tl.arange(0, KP // 16)[:, None, None]
    place = comps[:, None].to(tl.int64) * n + rows[None, :]
    there = (comps < K)[:, None] & (rows < n)[None, :]
    u = tl.load(W + place, there, 0.0)
    live = tl.full([BLOCK], 1.0, u.dtype)
    first = tl.zeros([BLOCK], u.dtype)
    sweep = 0
    going = 1
    while (sweep < sweeps) & (going > 0):
        moved = tl.zeros([BLOCK], u.dtype)
        for b in range(KP // 16):
            some = b * 16 + part
            lines = tl.load(G + some[:, None] * K + comps[None, :], (some < K)[:, None] & (comps < K)[None, :], 0.0)
            at = some[:, None].to(tl.int64) * n + rows[None, :]
            slope = tl.load(B + at, (some < K)[:, None] & (rows < n)[None, :], 0.0) - l1
            slope -= tl.dot(lines, u, input_precision="tf32x3")
            parts = tl.reshape(u, [KP // 16, 16, BLOCK])
            mine = tl.sum(tl.where(which == b, parts, 0.0), 0)
            mine, moved = sixteen_steps(mine, slope, moved, live, G, b * 16, K, TRACK)
            u = tl.reshape(tl.where(which == b, mine[None, :, :], parts), [KP, BLOCK])
        if TRACK:
            first = tl.where(sweep == 0, moved, first)
            live = tl.where(moved <= tol2 * first, 0.0, live)
            going = tl.max((live > 0).to(tl.int32), 0)
        sweep += 1
    tl.store(out + place, u, there)


@triton.jit
def sweep_many_kernel(
    W,
    B,
    G,
    out,
    n,
    sweeps,
    l1,
    tol2,
    K: tl.constexpr,
    KP: tl.constexpr,
    BLOCK: tl.constexpr,
    TRACK: tl.constexpr,
):
    """Sweep as `sweep_kernel` does where a row has too many components for the registers of one thread.

    They stay in the result, of which sixteen at a time are worked on.
    """
    rows = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    part = tl.arange(0, 16)
    live = tl.full([BLOCK], 1.0, tl.float32)
    first = tl.zeros([BLOCK], tl.float32)
    for b in range(KP // 16):
        some = b * 16 + part
        at = some[:, None].to(tl.int64) * n + rows[None, :]
        there = (some < K)[:, None] & (rows < n)[None, :]
        tl.store(out + at, tl.load(W + at, there, 0.0), there)
    tl.debug_barrier()
    sweep = 0
    going = 1
    while (sweep < sweeps) & (going > 0):
        moved = tl.zeros([BLOCK], tl.float32)
        for b in range(KP // 16):
            some = b * 16 + part
            at = some[:, None].to(tl.int64) * n + rows[None, :]
            there = (some < K)[:, None] & (rows < n)[None, :]
            slope = tl.load(B + at, there, 0.0) - l1
            for c in range(KP // 32):
                others = c * 32 + tl.arange(0, 32)
                known = others < K
                lines = tl.load(G + some[:, None] * K + others[None, :], (some < K)[:, None] & known[None, :], 0.0)
                from_here = out + others[:, None].to(tl.int64) * n + rows[None, :]
                u = tl.load(from_here, known[:, None] & (rows < n)[None, :], 0.0)
                slope -= tl.dot(lines, u, input_precision="tf32x3")
            mine = tl.load(out + at, there, 0.0)
            mine, moved = sixteen_steps(mine, slope, moved, live, G, b * 16, K, TRACK)
            tl.debug_barrier()
            tl.store(out + at, mine, there)
            tl.debug_barrier()
        if TRACK:
            first = tl.where(sweep == 0, moved, first)
            live = tl.where(moved <= tol2 * first, 0.0, live)
            going = tl.max((live > 0).to(tl.int32), 0)
        sweep += 1
