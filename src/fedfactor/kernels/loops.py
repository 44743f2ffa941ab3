"""Plain loops, written to be compiled by :mod:`fedfactor.kernels.compiled`. They allocate scratch only, never copies of data."""

from __future__ import annotations

import numpy as np

LANES = 32


def solve_rows(W, G, B, out, sweeps, floor, l1, tol):
    """Run cyclic coordinate descent on all rows of `W`, ``LANES`` rows side by side.

    One row alone is a chain: coordinate t+1 needs the gradient that t changed. Rows do not depend on each other, so a
    group of them is kept transposed in scratch and each step is one vector operation over the group. The last group is padded, so
    every row sees the same arithmetic wherever it stands.
    """
    n, k = W.shape
    w = np.empty((k, LANES), W.dtype)
    g = np.empty((k, LANES), W.dtype)
    delta = np.empty(LANES, W.dtype)
    moved = np.empty(LANES, np.float64)
    first = np.empty(LANES, np.float64)
    live = np.empty(LANES, W.dtype)
    zero = l1 - l1
    one = zero + 1
    for start in range(0, n, LANES):
        width = min(LANES, n - start)
        for t in range(k):
            for j in range(width):
                w[t, j] = W[start + j, t]
                g[t, j] = l1 - B[start + j, t]
            for j in range(width, LANES):
                w[t, j] = zero
                g[t, j] = zero
        for t in range(k):
            for r in range(k):
                c = G[t, r]
                for j in range(LANES):
                    g[r, j] += c * w[t, j]
        live[:] = one
        for sweep in range(sweeps):
            if tol > 0:
                moved[:] = 0.0
            for t in range(k):
                h = G[t, t]
                if h <= floor:
                    continue
                inverse = one / h
                for j in range(LANES):
                    x = max(w[t, j] - g[t, j] * inverse, zero)
                    delta[j] = (x - w[t, j]) * live[j]
                    w[t, j] += delta[j]
                if tol > 0:
                    for j in range(LANES):
                        moved[j] += delta[j] * delta[j]
                for r in range(k):
                    c = G[t, r]
                    for j in range(LANES):
                        g[r, j] += c * delta[j]
            if tol > 0:
                if sweep == 0:
                    first[:] = moved
                going = False
                for j in range(LANES):
                    if moved[j] <= tol * tol * first[j]:
                        live[j] = zero
                    elif live[j] > 0:
                        going = True
                if not going:
                    break
        for t in range(k):
            for j in range(width):
                out[start + j, t] = w[t, j]


def gather(indptr, indices, data, D, start, stop, out):
    """Rows ``start:stop`` of (CSR matrix) @ D."""
    k = D.shape[1]
    for i in range(start, stop):
        row = out[i]
        for q in range(k):
            row[q] = 0
        for p in range(indptr[i], indptr[i + 1]):
            value = data[p]
            source = D[indices[p]]
            for q in range(k):
                row[q] += value * source[q]


def scatter(indptr, indices, data, U, start, stop, out):
    """Add (rows ``start:stop`` of the CSR matrix)ᵀ @ U to `out`."""
    k = U.shape[1]
    for i in range(start, stop):
        source = U[i]
        for p in range(indptr[i], indptr[i + 1]):
            value = data[p]
            row = out[indices[p]]
            for q in range(k):
                row[q] += value * source[q]


def solve_rows_stored(indptr, indices, data, U, Vt, start, stop, sweeps, tol, out):
    """Coordinate descent on the stored cells of each row, on the residual of these cells."""
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
        for t in range(k):
            value = out[i, t]
            total = zero
            for p in range(size):
                residual[p] -= value * local[t, p]
                total += local[t, p] * local[t, p]
            norms[t] = total
        first = 0.0
        for sweep in range(sweeps):
            moved = 0.0
            for t in range(k):
                if norms[t] <= zero:
                    continue
                total = zero
                for p in range(size):
                    total += local[t, p] * residual[p]
                delta = max(out[i, t] + total / norms[t], zero) - out[i, t]
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
