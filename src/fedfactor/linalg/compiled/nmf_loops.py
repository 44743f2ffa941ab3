"""Plain loops, written to be compiled by :mod:`fedfactor.linalg.compiled.compile`. Scratch only, no copies."""

from __future__ import annotations

import numpy as np


def gather(indptr, indices, data, D, start, stop, out):
    """Rows ``start:stop`` of (CSR matrix) @ D; four cells at a time save loads and stores of the sum."""
    k = D.shape[1]
    acc = np.empty(k, D.dtype)
    for i in range(start, stop):
        for q in range(k):
            acc[q] = 0
        begin = indptr[i]
        end = indptr[i + 1]
        whole = begin + (end - begin) // 4 * 4
        for p in range(begin, whole, 4):
            v0 = data[p]
            v1 = data[p + 1]
            v2 = data[p + 2]
            v3 = data[p + 3]
            d0 = D[indices[p]]
            d1 = D[indices[p + 1]]
            d2 = D[indices[p + 2]]
            d3 = D[indices[p + 3]]
            for q in range(k):
                acc[q] = acc[q] + v0 * d0[q] + v1 * d1[q] + v2 * d2[q] + v3 * d3[q]
        for p in range(whole, end):
            value = data[p]
            source = D[indices[p]]
            for q in range(k):
                acc[q] += value * source[q]
        for q in range(k):
            out[i, q] = acc[q]


def scatter(indptr, indices, data, U, start, stop, out):
    """Add (rows ``start:stop`` of the CSR matrix)ᵀ @ U to `out`, whose columns may be padded beyond those of U."""
    k = U.shape[1]
    padded = out.shape[1]
    source = np.zeros(padded, U.dtype)
    for i in range(start, stop):
        for q in range(k):
            source[q] = U[i, q]
        for p in range(indptr[i], indptr[i + 1]):
            value = data[p]
            row = out[indices[p]]
            for q in range(padded):
                row[q] += value * source[q]


def rounded(wide, out, first, last):
    """Write the transpose of rows ``first:last`` of `wide`, sums in double precision, to `out`.

    A few rows at a time, so that both stay in cache.
    """
    for start in range(first, last, 32):
        for q in range(out.shape[0]):
            for j in range(start, min(start + 32, last)):
                out[q, j] = wide[j, q]


def squares(values, start, stop):
    """Return the sum of squares of entries ``start:stop``, in double precision."""
    total = 0.0
    for i in range(start, stop):
        value = np.float64(values[i])
        total += value * value
    return total


def ahead(V, last, beta, unit, sent, lengths, first, stop):
    """Write ``[V + β (V − last)]₊`` to `sent` and V to `unit`, rows of both divided by the lengths of the former.

    Sums have a loop of their own: one that also writes is compiled twice, for arrays that lie close and for others, and
    the two round differently.
    """
    m = V.shape[1]
    zero = beta - beta
    parts = np.zeros(16)  # sums side by side: one alone would wait for itself at every addition
    whole = m - m % 16
    for t in range(first, stop):
        line = sent[t]
        for j in range(m):
            line[j] = max(V[t, j] + beta * (V[t, j] - last[t, j]), zero)
        parts[:] = 0
        for j in range(0, whole, 16):
            few = line[j : j + 16]
            for i in range(16):
                parts[i] += np.float64(few[i]) * np.float64(few[i])
        for j in range(whole, m):
            parts[0] += np.float64(line[j]) * np.float64(line[j])
        total = 0.0
        for i in range(16):
            total += parts[i]
        lengths[t, 0] = np.sqrt(total) if total > 0 else 1.0
        length = lengths[t, 0]
        for j in range(m):
            sent[t, j] /= length
            unit[t, j] = V[t, j] / length


def solve_rows_stored(indptr, indices, data, U, Vt, start, stop, sweeps, tol, l1, l2, ridge, out):
    """Coordinate descent on the stored cells of each row, on their residual; `l2` is 1 × k, `ridge` three shares."""
    k = U.shape[1]
    longest = 0
    for i in range(start, stop):
        longest = max(longest, indptr[i + 1] - indptr[i])
    local = np.empty((k, longest), U.dtype)
    residual = np.empty(longest, U.dtype)
    norms = np.empty(k, U.dtype)
    zero = tol - tol
    for i in range(start, stop):
        base = indptr[i]
        size = indptr[i + 1] - base
        for t in range(k):
            out[i, t] = U[i, t]
        for p in range(size):
            residual[p] = data[base + p]
            column = Vt[indices[base + p]]
            for t in range(k):
                local[t, p] = column[t]
        mean = zero
        for t in range(k):
            value = out[i, t]
            total = zero
            for p in range(size):
                residual[p] -= value * local[t, p]
                total += local[t, p] * local[t, p]
            norms[t] = total
            mean += total / k
        weight = (ridge[0] + (ridge[1] + ridge[2] / max(size, 1)) / max(size, 1)) * mean
        first = 0.0
        for sweep in range(sweeps):
            moved = 0.0
            for t in range(k):
                if norms[t] <= zero:
                    continue
                total = -l1
                for p in range(size):
                    total += local[t, p] * residual[p]
                extra = l2[0, t] + weight
                old = out[i, t]
                delta = max((old * norms[t] + total) / (norms[t] + extra), zero) - old
                if delta != zero:
                    out[i, t] += delta
                    moved += delta * delta
                    for p in range(size):
                        residual[p] -= delta * local[t, p]
            if sweep == 0:
                first = moved
            if moved <= tol * tol * first:
                break


def stored_sums(indptr, indices, data, U, Vt, start, stop, N, D):
    """Add the rows' share of Uᵀ(M∗X) to `N` and of Uᵀ(M∗UV) to `D` (both transposed), return their squared error."""
    k = U.shape[1]
    error = 0.0
    for i in range(start, stop):
        u = U[i]
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            column = Vt[j]
            fitted = data[p] - data[p]
            for q in range(k):
                fitted += u[q] * column[q]
            value = data[p]
            error += np.float64(value - fitted) ** 2
            numerator = N[j]
            denominator = D[j]
            for q in range(k):
                numerator[q] += value * u[q]
                denominator[q] += fitted * u[q]
    return error


def fold_columns(
    G: np.ndarray, AV: np.ndarray, VV: np.ndarray, columns: np.ndarray, images: np.ndarray, sweeps: int
) -> None:
    """Improve the columns of H (here rows) one after the other, each by sweeps of coordinate descent.

    `images` is ``columns @ G``, kept up to date: it is the gradient of every coordinate.
    """
    k, K = columns.shape
    target = np.empty(K, G.dtype)
    for t in range(k):
        own = VV[t, t]
        if own <= 0:
            continue
        image = images[t]
        column = columns[t]
        for r in range(K):
            target[r] = AV[r, t] / own + image[r]
        for q in range(k):
            share = VV[t, q] / own
            other = images[q]
            for r in range(K):
                target[r] -= share * other[r]
        for _ in range(sweeps):
            for r in range(K):
                if G[r, r] > 0:
                    step = max(column[r] - (image[r] - target[r]) / G[r, r], 0.0) - column[r]
                    if step != 0:
                        column[r] += step
                        line = G[r]
                        for c in range(K):
                            image[c] += step * line[c]
