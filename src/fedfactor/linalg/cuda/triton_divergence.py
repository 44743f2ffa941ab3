"""Triton kernels for multiplicative steps, called by :mod:`fedfactor.linalg.cuda.divergence`.

A β-divergence of order 1 is Kullback-Leibler, of order 0 Itakura-Saito. No kernel writes an n × m array: the fit ``UV``
and its weights exist only in the registers of one tile.
"""

from __future__ import annotations

import triton
import triton.language as tl


def rows_tile(KP: int) -> tuple[int, int, int, int]:
    """Return rows and columns of a tile, warps and pipeline stages for the step on U."""
    return (64, 64, 4, 3) if KP <= 32 else (64, 32, 4, 3)


def sums_tile(KP: int) -> tuple[int, int, int, int]:
    """Return rows and columns of a tile, warps and pipeline stages for the sums over rows."""
    return (32, 128, 4, 3) if KP <= 32 else (32, 64, 4, 3)


@triton.jit
def weights_of(x, y, seen, floor, ORDER: tl.constexpr):
    """Return the two parts of the slope of the divergence with respect to y, zero where nothing was observed."""
    if ORDER == 1:
        able = seen & (y > 0)
        above = tl.where(able, x / tl.where(able, y, 1.0), 0.0)
        below = tl.where(seen, 1.0, 0.0)
    else:
        y = tl.maximum(y, floor)
        if ORDER == 0:
            inverse = 1 / y
            below = tl.where(seen, inverse, 0.0)
            above = tl.where(seen, x * inverse * inverse, 0.0)
        else:
            power = tl.exp2((ORDER - 1) * tl.log2(y))
            below = tl.where(seen, power, 0.0)
            above = tl.where(seen, x * power / y, 0.0)
    return above, below


@triton.jit
def cells_of(x, y, seen, floor, ORDER: tl.constexpr):
    """Return the divergence of each cell, zero where nothing was observed."""
    if ORDER == 1:
        positive = x > 0
        ratio = tl.where(positive, x, 1.0) / tl.where(positive, y, 1.0)
        cell = tl.where(positive, x * tl.log(ratio), 0.0) - x + y
    else:
        y = tl.maximum(y, floor)
        if ORDER == 0:
            ratio = tl.where(seen, x, 1.0) / tl.where(seen, y, 1.0)
            cell = ratio - tl.log(ratio) - 1
        else:
            x_power = tl.where(x > 0, tl.exp2(ORDER * tl.log2(tl.where(x > 0, x, 1.0))), 0.0)
            y_power = tl.exp2((ORDER - 1) * tl.log2(y))
            cell = (x_power + (ORDER - 1) * y_power * y - ORDER * x * y_power) / (ORDER * (ORDER - 1))
    return tl.where(seen, cell, 0.0)


@triton.jit
def further(ratio):
    """Return the factor of a step beyond the multiplicative one that still never raises the divergence."""
    root = tl.sqrt(ratio)
    return ratio * tl.where(ratio <= 2.72, root * tl.sqrt(root), tl.where(ratio <= 21.7, root, 1.0))


@triton.jit
def stepped(u, above, cost, POWER: tl.constexpr, FURTHER: tl.constexpr):
    """Return u after one multiplicative step."""
    ratio = tl.where(cost > 0, above / tl.where(cost > 0, cost, 1.0), 0.0)
    if FURTHER:
        ratio = further(ratio)
    elif POWER == 0.5:
        ratio = tl.sqrt(ratio)
    elif POWER != 1:
        ratio = tl.where(ratio > 0, tl.exp2(POWER * tl.log2(tl.where(ratio > 0, ratio, 1.0))), 0.0)
    return u * ratio


@triton.jit
def rows_kernel(
    X,
    M,
    U,
    V,
    mass,
    out,
    n,
    m,
    down,
    right,
    mass_down,
    K,
    sweeps,
    l1,
    l2,
    floor,
    ORDER: tl.constexpr,
    POWER: tl.constexpr,
    FURTHER: tl.constexpr,
    MASKED: tl.constexpr,
    KP: tl.constexpr,
    BN: tl.constexpr,
    BM: tl.constexpr,
):
    """Write U after some multiplicative steps; all steps of a block of rows in one launch."""
    rows = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    comps = tl.arange(0, KP)
    there = (rows < n)[:, None] & (comps < K)[None, :]
    place = rows[:, None] * K + comps[None, :]
    u = tl.load(U + place, there, 0.0)
    for _ in range(sweeps):
        above = tl.zeros([BN, KP], tl.float32)
        cost = tl.zeros([BN, KP], tl.float32)
        for j in range(0, m, BM):
            cols = j + tl.arange(0, BM)
            seen = (rows < n)[:, None] & (cols < m)[None, :]
            x = tl.load(X + rows[:, None] * down + cols[None, :] * right, seen, 0.0)
            if MASKED:
                seen = seen & (tl.load(M + rows[:, None] * m + cols[None, :], seen, 0) != 0)
            v = tl.load(V + comps[:, None] * m + cols[None, :], (comps < K)[:, None] & (cols < m)[None, :], 0.0)
            a, b = weights_of(x, tl.dot(u, v, input_precision="tf32x3"), seen, floor, ORDER)
            turned = tl.trans(v)
            above += tl.dot(a, turned, input_precision="tf32x3")
            if ORDER != 1:
                cost += tl.dot(b, turned, input_precision="tf32x3")
        if ORDER == 1:
            cost = tl.load(mass + rows[:, None] * mass_down + comps[None, :], there, 0.0)
        u = stepped(u, above, cost + l1 + l2 * u, POWER, FURTHER)
    tl.store(out + place, u, there)


@triton.jit
def sums_kernel(
    X,
    M,
    U,
    V,
    N,
    D,
    losses,
    n,
    m,
    down,
    right,
    K,
    stretch,
    floor,
    ORDER: tl.constexpr,
    MASKED: tl.constexpr,
    KP: tl.constexpr,
    BN: tl.constexpr,
    BM: tl.constexpr,
):
    """Write U times both weights, and the divergence by columns, of one stretch of rows and a block of columns."""
    cols = tl.program_id(0) * BM + tl.arange(0, BM)
    comps = tl.arange(0, KP)
    inside = (comps < K)[:, None] & (cols < m)[None, :]
    v = tl.load(V + comps[:, None] * m + cols[None, :], inside, 0.0)
    first = tl.program_id(1).to(tl.int64) * stretch
    last = tl.minimum(first + stretch, n)
    above = tl.zeros([KP, BM], tl.float32)
    below = tl.zeros([KP, BM], tl.float32)
    loss = tl.zeros([BM], tl.float64)
    for i in range(first, last, BN):
        rows = i + tl.arange(0, BN)
        seen = (rows < last)[:, None] & (cols < m)[None, :]
        x = tl.load(X + rows[:, None] * down + cols[None, :] * right, seen, 0.0)
        if MASKED:
            seen = seen & (tl.load(M + rows[:, None] * m + cols[None, :], seen, 0) != 0)
        u = tl.load(U + rows[:, None] * K + comps[None, :], (rows < last)[:, None] & (comps < K)[None, :], 0.0)
        y = tl.dot(u, v, input_precision="tf32x3")
        a, b = weights_of(x, y, seen, floor, ORDER)
        turned = tl.trans(u)
        above += tl.dot(turned, a, input_precision="tf32x3")
        if MASKED or ORDER != 1:
            below += tl.dot(turned, b, input_precision="tf32x3")
        loss += tl.sum(cells_of(x, y, seen, floor, ORDER), 0).to(tl.float64)
    into = (tl.program_id(1) * K + comps[:, None]).to(tl.int64) * m + cols[None, :]
    tl.store(N + into, above, inside)
    if MASKED or ORDER != 1:
        tl.store(D + into, below, inside)
    tl.store(losses + tl.program_id(1).to(tl.int64) * m + cols, loss, cols < m)


@triton.jit
def stored_rows_kernel(
    starts,
    places,
    data,
    U,
    Vt,
    mass,
    out,
    K,
    sweeps,
    l1,
    l2,
    FURTHER: tl.constexpr,
    KP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write one row of U after some multiplicative steps for sparse counts, whose unstored cells are zero counts."""
    row = tl.program_id(0).to(tl.int64)
    comps = tl.arange(0, KP)
    begin = tl.load(starts + row)
    end = tl.load(starts + row + 1)
    u = tl.load(U + row * K + comps, comps < K, 0.0)
    cost = tl.load(mass + comps, comps < K, 0.0) + l1
    for _ in range(sweeps):
        above = tl.zeros([KP], tl.float32)
        for p in range(begin, end, BLOCK):
            at = p + tl.arange(0, BLOCK)
            which = tl.load(places + at, at < end, 0).to(tl.int64)
            x = tl.load(data + at, at < end, 0.0)
            lines = tl.load(Vt + which[:, None] * K + comps[None, :], (at < end)[:, None] & (comps < K)[None, :], 0.0)
            y = tl.sum(lines * u[None, :], 1)
            a = tl.where(y > 0, x / tl.where(y > 0, y, 1.0), 0.0)
            above += tl.sum(a[:, None] * lines, 0)
        u = stepped(u, above, cost + l2 * u, 1, FURTHER)
    tl.store(out + row * K + comps, u, comps < K)


@triton.jit
def stored_sums_kernel(
    starts,
    places,
    data,
    U,
    Vt,
    Nt,
    logs,
    K,
    KP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write one column of ``Uᵀ(X / UV)`` and the sum of ``x log(x / uv)`` over its stored cells."""
    column = tl.program_id(0).to(tl.int64)
    comps = tl.arange(0, KP)
    end = tl.load(starts + column + 1)
    v = tl.load(Vt + column * K + comps, comps < K, 0.0)
    above = tl.zeros([KP], tl.float32)
    log = tl.zeros([BLOCK], tl.float64)
    for p in range(tl.load(starts + column), end, BLOCK):
        at = p + tl.arange(0, BLOCK)
        which = tl.load(places + at, at < end, 0).to(tl.int64)
        x = tl.load(data + at, at < end, 0.0)
        lines = tl.load(U + which[:, None] * K + comps[None, :], (at < end)[:, None] & (comps < K)[None, :], 0.0)
        y = tl.sum(lines * v[None, :], 1)
        a = tl.where(y > 0, x / tl.where(y > 0, y, 1.0), 0.0)
        above += tl.sum(a[:, None] * lines, 0)
        positive = x > 0
        ratio = tl.where(positive, x, 1.0) / tl.where(positive, y, 1.0)
        log += tl.where(positive, x * tl.log(ratio), 0.0).to(tl.float64)
    tl.store(Nt + column * K + comps, above, comps < K)
    tl.store(logs + column, tl.sum(log, 0))
