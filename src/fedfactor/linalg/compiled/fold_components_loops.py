"""The loop of :mod:`fedfactor.nmf.pooled.fold_components`, written for :mod:`fedfactor.linalg.compiled.compile`.

A start is worked on from its first step to its last without leaving the compiled code: single steps take some ten
microseconds. Products and sweeps are those of :mod:`fedfactor.linalg.compiled.single_pass_loops`.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from fedfactor.linalg.compiled import nmf_loops as nmf
from fedfactor.linalg.compiled import single_pass_loops as one_pass

# Letters of the arguments: see compiled.py.
PLANS = {"fold_start": ("RRWWWQWWWWDnnnnt", "contract")}

_BUILT = ("dots", "sweep_group", "load_group", "add_gram", "overlap", "outer_tile", "outer_column", "ROWS", "TILE")
dots = sweep_group = load_group = add_gram = overlap = outer_tile = outer_column = fold_columns = cast("Any", None)
ROWS = TILE = 0


def prepare(numba) -> None:
    """Take the pieces that the loops over rows are made of."""
    if TILE:
        return
    room = globals()
    room["fold_columns"] = numba.njit(nmf.fold_columns, nogil=True, fastmath={"contract"})
    free = {"contract", "reassoc", "nsz"}
    plain = (packed_again, inverse_of, add_products, clear)
    room.update({loop.__name__: numba.njit(loop, nogil=True, fastmath=free) for loop in (inner, images_of)})
    room.update({loop.__name__: numba.njit(loop, nogil=True) for loop in plain})
    room.update({name: getattr(one_pass, name) for name in _BUILT})


def packed_again(V, packed):
    """Put V into tiles, as :func:`fedfactor.linalg.single_pass.packed_tiles` does; its columns fill registers."""
    k, m = V.shape
    across = packed.shape[3]
    for t in range(k):
        for c in range(m // across):
            for j in range(across):
                packed[t // TILE, c + 1, t % TILE, j] = V[t, c * across + j]


def inverse_of(G, inverse):
    """Fill `inverse` with ``1 / G_tt``, zero where there is none."""
    zero = G[0, 0] - G[0, 0]
    for t in range(G.shape[0]):
        inverse[0, t] = zero
        if G[t, t] > zero and np.isfinite(1 / G[t, t]):
            inverse[0, t] = 1 / G[t, t]


def inner(P, Q, out):
    """Fill `out` with ``P Qᵀ``."""
    for t in range(P.shape[0]):
        for q in range(Q.shape[0]):
            total = P[0, 0] - P[0, 0]
            for r in range(P.shape[1]):
                total += P[t, r] * Q[q, r]
            out[t, q] = total


def images_of(columns, G, images):
    """Fill `images` with ``columns @ G``."""
    for t in range(columns.shape[0]):
        for r in range(G.shape[1]):
            images[t, r] = 0
        for s in range(G.shape[0]):
            weight = columns[t, s]
            if weight != 0:
                for r in range(G.shape[1]):
                    images[t, r] += weight * G[s, r]


def clear(A):
    """Fill a matrix with zeros; a loop of its own compiles ten times as fast as an assignment to a slice."""
    for t in range(A.shape[0]):
        for q in range(A.shape[1]):
            A[t, q] = 0


def add_products(rows, ldx, count, whole, like, W, cross):
    """Add ``WX`` of `count` rows, whose address is given, to `cross`, in double precision."""
    padded, lanes = W.shape
    across = like.shape[3]
    size = like.itemsize
    lda = cross.shape[1]
    w = W.ctypes.data
    a = cross.ctypes.data
    for c in range(0, whole - whole % ROWS, ROWS):
        for q in range(0, padded, TILE):
            place = a + (q * lda + c * across) * 8
            outer_tile(like, cross, rows + c * across * size, ldx, count, w + q * lanes * size, lanes, place, lda, rows)
    for c in range(whole - whole % ROWS, whole):
        for q in range(0, padded, TILE):
            place = a + (q * lda + c * across) * 8
            outer_column(like, cross, rows + c * across * size, ldx, count, w + q * lanes * size, lanes, place, lda)


def fold_start(R, G, left, V, last, cross, flat, W, B, ends, kept, across, steps, sweeps, first_sweeps, margin):
    """Alternate on one start, extrapolating V while the loss (less a constant) falls; return the loss.

    Without G (no rows) the problem is ``‖R − left V‖²``; with it ``⟨G, (left V)(left V)ᵀ⟩ − 2⟨R, left V⟩``. `V` is
    where to go on from, `last` the V that was reached, `left` belongs to both; all are changed in place. The columns of
    R and V fill registers. `cross`, in double precision, `flat`, `W`, `B`, `ends` and `kept` are scratch.
    """
    K, m = R.shape
    k = left.shape[1]
    padded, lanes = W.shape
    whole = m // across
    size = R.itemsize
    packed = flat.reshape(padded // TILE, whole + 2, TILE, across)
    group = lanes // ROWS * ROWS
    VV = np.zeros((k, k), R.dtype)
    small = np.zeros((k, k), R.dtype)
    exact = np.zeros((padded, padded))
    new = np.zeros((padded, padded))
    inverse = np.zeros((1, k), R.dtype)
    columns = np.zeros((k, K), R.dtype)
    images = np.zeros((k, K), R.dtype)
    AV = np.zeros((K, k), R.dtype)
    true = G.shape[0] > 0
    zero = W[0, 0] - W[0, 0]
    before = np.inf
    loss = np.inf
    beta = 0.5
    bold = np.zeros(1, R.dtype)
    for step in range(steps):
        packed_again(V, packed)
        for top in range(0, k, group):
            count = min(group, k - top)
            dots(packed, V.ctypes.data + top * m * size, m, count, whole, ends.ctypes.data, B, kept)
            for j in range(count):
                for t in range(k):
                    VV[top + j, t] = B[t, j]
        clear(cross)
        clear(exact)
        inverse_of(VV, inverse)
        for top in range(0, K, group):
            count = min(group, K - top)
            rows = R.ctypes.data + top * m * size
            dots(packed, rows, m, count, whole, ends.ctypes.data, B, kept)
            if true:
                for j in range(count):
                    for t in range(k):
                        AV[top + j, t] = B[t, j]
            else:
                load_group(left, top, count, W)
                sweep_group(W, B, VV, inverse, k, first_sweeps if step == 0 else sweeps, zero)
                for t in range(k):
                    for j in range(count):
                        left[top + j, t] = W[t, j]
                    for j in range(count, lanes):
                        W[t, j] = zero
                add_products(rows, m, count, whole, packed, W, cross)
                add_gram(W, exact)
        if true:
            for t in range(k):
                for r in range(K):
                    columns[t, r] = left[r, t]
            images_of(columns, G, images)
            fold_columns(G, AV, VV, columns, images, 2)
            inner(images, columns, small)
            for t in range(k):
                for r in range(K):
                    left[r, t] = columns[t, r]
            for top in range(0, K, group):
                count = min(group, K - top)
                load_group(left, top, count, W)
                add_products(R.ctypes.data + top * m * size, m, count, whole, packed, W, cross)
        else:
            for t in range(k):
                for q in range(k):
                    small[t, q] = exact[t, q]
        inverse_of(small, inverse)
        clear(new)
        explained = 0.0
        for top in range(0, m, lanes):
            count = min(lanes, m - top)
            for t in range(k):
                for j in range(count):
                    W[t, j] = V[t, top + j]
                    B[t, j] = cross[t, top + j]
                for j in range(count, lanes):
                    W[t, j] = zero
                    B[t, j] = zero
            sweep_group(W, B, small, inverse, k, sweeps, zero)
            add_gram(W, new)
            explained += overlap(W, B, k)
            for t in range(k):
                for j in range(count):
                    V[t, top + j] = W[t, j]
        loss = -2 * explained
        for t in range(k):
            for q in range(k):
                loss += small[t, q] * new[t, q]
        good = loss <= before + margin * abs(loss)
        bold[0] = beta if good else 0.0
        ahead = bold[0]
        for t in range(k):
            for j in range(m):
                here = V[t, j]
                V[t, j] = max(here + ahead * (here - last[t, j]), zero)
                last[t, j] = here
        beta = min(1.0, 1.05 * beta) if good else beta / 1.5
        before = loss
    return loss
