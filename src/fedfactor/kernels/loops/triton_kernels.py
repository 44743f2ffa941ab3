"""Kernels for a CUDA card, called by :mod:`fedfactor.kernels.cuda`; this module needs Triton."""

from __future__ import annotations

import triton
import triton.language as tl


def cross_tile(KP: int, half: bool) -> tuple[int, int, int, int]:
    """Return rows and columns of a block, warps, and stages of reading ahead: the fastest of some on an H200."""
    if KP > 64:
        return 128, 32, 8, 2
    return (128, 64, 4, 3) if half or KP <= 32 else (128, 32, 4, 3)


def sums_tile(KP: int, half: bool) -> tuple[int, int, int, int, bool]:
    """Return rows and columns of a block, warps, stages, and whether columns, not components, come first."""
    if KP > 64:
        return 32, 64, 8, 2, True
    if half:
        return (64, 128, 8, 3, True) if KP <= 32 else (64, 128, 4, 3, False)
    return (32, 128, 4, 3, KP > 32)


@triton.jit
def cross_kernel(
    X, V, out, n, m, down, right, K,
    KP: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, HALF: tl.constexpr,
):  # fmt: skip
    """Write V Xᵀ, a block of rows of X at a time."""
    rows = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    comps = tl.arange(0, KP)
    acc = tl.zeros([BN, KP], tl.float32)
    for j in range(0, m, BM):
        cols = j + tl.arange(0, BM)
        x = tl.load(X + rows[:, None] * down + cols[None, :] * right, (rows < n)[:, None] & (cols < m)[None, :], 0.0)
        v = tl.load(V + comps[None, :] * m + cols[:, None], (comps < K)[None, :] & (cols < m)[:, None], 0.0)
        if HALF:
            high = v.to(x.dtype)
            acc = tl.dot(x, high, acc)
            acc = tl.dot(x, (v - high.to(tl.float32)).to(x.dtype), acc)
        else:
            acc = tl.dot(x, v, acc, input_precision="tf32x3")
    tl.store(out + comps[None, :] * n + rows[:, None], acc, (comps < K)[None, :] & (rows < n)[:, None])


@triton.jit
def sums_kernel(
    X, U, out, n, m, part, down, right, K,
    KP: tl.constexpr, BN: tl.constexpr, BM: tl.constexpr, HALF: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write UᵀX of one part of the rows and a block of columns."""
    cols = tl.program_id(0) * BM + tl.arange(0, BM)
    comps = tl.arange(0, KP)
    first = tl.program_id(1) * part
    acc = tl.zeros([BM, KP] if COLUMNS else [KP, BM], tl.float32)
    for i in range(first, min(first + part, n), BN):
        rows = (i + tl.arange(0, BN)).to(tl.int64)
        x = tl.load(X + rows[:, None] * down + cols[None, :] * right, (rows < n)[:, None] & (cols < m)[None, :], 0.0)
        u = tl.load(U + comps[None, :] * n + rows[:, None], (comps < K)[None, :] & (rows < n)[:, None], 0.0)
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
    if COLUMNS:
        acc = tl.trans(acc)
    place = out + (tl.program_id(1) * K + comps[:, None]).to(tl.int64) * m + cols[None, :]
    tl.store(place, acc, (comps < K)[:, None] & (cols < m)[None, :])


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
    W, B, G, out, n, sweeps, l1, tol2,
    K: tl.constexpr, KP: tl.constexpr, BLOCK: tl.constexpr, TRACK: tl.constexpr,
):  # fmt: skip
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
def sweep_kernel(
    W, B, G, out, n, sweeps, l1, tol2,
    K: tl.constexpr, KP: tl.constexpr, BLOCK: tl.constexpr, TRACK: tl.constexpr,
):  # fmt: skip
    """Sweep over sixteen components at a time.

    One product tells their slopes, then each takes its step and corrects the slopes of the fifteen others. With as many
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
            for j in tl.static_range(16):
                t = b * 16 + j
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
            u = tl.reshape(tl.where(which == b, mine[None, :, :], parts), [KP, BLOCK])
        if TRACK:
            first = tl.where(sweep == 0, moved, first)
            live = tl.where(moved <= tol2 * first, 0.0, live)
            going = tl.max((live > 0).to(tl.int32), 0)
        sweep += 1
    tl.store(out + place, u, there)
