"""Plain loops for the loss of counts on stored cells, to be compiled by :mod:`fedfactor.linalg.compiled.compile`."""

from __future__ import annotations

import numpy as np

# Letters of the arguments: see compiled.py.
PLANS = {
    "count_rows": ("iidRRRnnnnssW", "fast"),
    "count_sums": ("iidRRnnW", "fast"),
}


def count_rows(indptr, indices, data, U, Vt, mass, start, stop, sweeps, bold, l1, l2, out):
    """Multiplicative steps on rows ``start:stop``; `mass` (1 or n rows) holds what each component sums to for a row."""
    k = U.shape[1]
    acc = np.empty(k, U.dtype)
    zero = l1 - l1
    for i in range(start, stop):
        weight = mass[i] if mass.shape[0] > 1 else mass[0]
        row = out[i]
        for t in range(k):
            row[t] = U[i, t]
        for _ in range(sweeps):
            for t in range(k):
                acc[t] = zero
            for p in range(indptr[i], indptr[i + 1]):
                column = Vt[indices[p]]
                fitted = zero
                for t in range(k):
                    fitted += row[t] * column[t]
                if fitted > zero:
                    ratio = data[p] / fitted
                    for t in range(k):
                        acc[t] += ratio * column[t]
            for t in range(k):
                cost = weight[t] + l1 + l2 * row[t]
                ratio = acc[t] / cost if cost > zero else zero
                row[t] *= ratio
                if bold and ratio <= 21.7:  # the same powers as in kernels/nmf/counts.py, boldly
                    root = np.sqrt(ratio)
                    row[t] *= root * np.sqrt(root) if ratio <= 2.72 else root


def count_sums(indptr, indices, data, U, Vt, start, stop, N):
    """Add the rows' share of Uᵀ(X / UV), transposed, to `N`; return Σ x log(x / uv) and Σ uv over stored cells."""
    k = U.shape[1]
    logs = 0.0
    mass = 0.0
    for i in range(start, stop):
        u = U[i]
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            column = Vt[j]
            fitted = data[p] - data[p]
            for t in range(k):
                fitted += u[t] * column[t]
            x = data[p]
            mass += fitted
            if x > 0:
                if fitted > 0:
                    ratio = x / fitted
                    logs += np.float64(x) * np.log(np.float64(ratio))
                    row = N[j]
                    for t in range(k):
                        row[t] += ratio * u[t]
                else:
                    logs += np.inf
    return logs, mass
