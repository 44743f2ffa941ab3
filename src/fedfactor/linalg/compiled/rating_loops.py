"""Loops over ratings, to be compiled by :mod:`fedfactor.linalg.compiled.compile`. Scratch only, no copies.

Every pass goes over the users of a block, so that one CSR matrix serves users and items: what items need is added to
buffers that belong to the block.
"""

from __future__ import annotations

import numpy as np

# Letters and freedoms: see :mod:`fedfactor.linalg.compiled.compile`.
PLANS = {
    "rating_biases": ("iidRRdddssnnDD", "fast"),
    "rating_factors": ("iidRRdddssnnnWW", "fast"),
    "implicit_factors": ("iidRRRsssnnnWWW", "fast"),
    "best_items": ("iiRRnnnnzW", "contract"),
}


def rating_biases(indptr, indices, data, U, Vt, bu, bv, rate, mu, gamma, start, stop, out, errors):
    """Move the biases of users ``start:stop``, then add to `errors` what each of their ratings is off by, per item."""
    k = U.shape[1]
    longest = 0
    for i in range(start, stop):
        longest = max(longest, indptr[i + 1] - indptr[i])
    off = np.empty(longest, U.dtype)
    for i in range(start, stop):
        begin = indptr[i]
        size = indptr[i + 1] - begin
        out[i] = bu[i]
        if size == 0:
            continue
        u = U[i]
        total = mu - mu
        for p in range(size):
            j = indices[begin + p]
            v = Vt[j]
            fitted = mu + bu[i] + bv[j]
            for q in range(k):
                fitted += u[q] * v[q]
            off[p] = data[begin + p] - fitted
            total += off[p]
        step = rate[i] * (total / size - gamma * bu[i])
        out[i] = bu[i] + step
        for p in range(size):
            errors[indices[begin + p]] += off[p] - step


def rating_factors(indptr, indices, data, U, Vt, bu, bv, weight, mu, floor, start, stop, items, out, sums):
    """Update U of users ``start:stop``; when `items` is 1 (not 0) add their share of the item sums to `sums`.

    `weight` holds the regularisation of each user. A row of `sums` is an item's numerator, then its denominator.
    Components that are zero everywhere stay so: callers pad with them. Returns the squared error with the new U and the
    old V.
    """
    k = U.shape[1]
    u = np.empty(k, U.dtype)
    num = np.empty(k, U.dtype)
    den = np.empty(k, U.dtype)
    error = 0.0
    zero = mu - mu
    for i in range(start, stop):
        begin = indptr[i]
        end = indptr[i + 1]
        for q in range(k):
            u[q] = U[i, q]
            num[q] = zero
            den[q] = weight[i] * u[q]
        for p in range(begin, end):
            j = indices[p]
            v = Vt[j]
            offset = mu + bu[i] + bv[j]
            fitted = max(offset, zero)
            wanted = data[p] + max(-offset, zero)
            for q in range(k):
                fitted += u[q] * v[q]
            for q in range(k):
                num[q] += v[q] * wanted
                den[q] += v[q] * fitted
        for q in range(k):
            if end > begin and den[q] > zero:
                u[q] = max(u[q] * num[q] / den[q], floor)
            out[i, q] = u[q]
        for p in range(begin, end):
            j = indices[p]
            v = Vt[j]
            offset = mu + bu[i] + bv[j]
            fitted = max(offset, zero)
            wanted = data[p] + max(-offset, zero)
            for q in range(k):
                fitted += u[q] * v[q]
            error += np.float64(wanted - fitted) ** 2
            # Without items every rating adds to one idle row: a branch here would cost all of them a quarter more.
            row = sums[j * items]
            for q in range(k):
                row[q] += u[q] * wanted
                row[k + q] += u[q] * fitted
    return error


def implicit_factors(indptr, indices, data, U, Vt, G, alpha, floor, one, start, stop, items, out, N, D):
    """Do the same for implicit feedback: every cell counts, a stored one with its own weight and a wish of one.

    `data` holds the weights, at least one; `G` is V Vᵀ, which stands for the cells that are not stored.
    """
    k = U.shape[1]
    num = np.empty(k, U.dtype)
    den = np.empty(k, U.dtype)
    error = 0.0
    zero = one - one
    for i in range(start, stop):
        u = U[i]
        new = out[i]
        begin = indptr[i]
        end = indptr[i + 1]
        for q in range(k):
            num[q] = zero
            total = alpha * u[q]
            for t in range(k):
                total += G[q, t] * u[t]
            den[q] = total
        for p in range(begin, end):
            v = Vt[indices[p]]
            fitted = zero
            for q in range(k):
                fitted += u[q] * v[q]
            extra = (data[p] - one) * fitted
            for q in range(k):
                num[q] += v[q] * data[p]
                den[q] += v[q] * extra
        for q in range(k):
            new[q] = max(u[q] * num[q] / den[q], floor) if den[q] > zero else u[q]
        for p in range(begin, end):
            j = indices[p]
            v = Vt[j]
            fitted = zero
            for q in range(k):
                fitted += new[q] * v[q]
            error += data[p] * np.float64(one - fitted) ** 2 - np.float64(fitted) ** 2
            if items != 0:
                numerator = N[j]
                denominator = D[j]
                for q in range(k):
                    numerator[q] += new[q] * data[p]
                    denominator[q] += new[q] * (data[p] - one) * fitted
        for q in range(k):
            for t in range(k):
                error += np.float64(new[q]) * np.float64(G[q, t]) * np.float64(new[t])
    return error


def best_items(indptr, indices, U, V, n, skip, start, stop, found, scores):
    """Keep the `n` items with the largest scores of users ``start:stop``, best first; of equal scores the earlier."""
    k, m = V.shape
    row = np.empty(m, U.dtype)
    low = U.dtype.type(-np.inf)
    for i in range(start, stop):
        for j in range(m):
            row[j] = U[i, 0] * V[0, j]
        for q in range(1, k):
            u = U[i, q]
            v = V[q]
            for j in range(m):
                row[j] += u * v[j]
        if skip != 0:
            for p in range(indptr[i], indptr[i + 1]):
                row[indices[p]] = low
        best = scores[i]
        size = 0
        for j in range(m):
            value = row[j]
            if size == n and value <= best[n - 1]:
                continue
            p = size if size < n else n - 1
            while p > 0 and best[p - 1] < value:
                best[p] = best[p - 1]
                found[i * n + p] = found[i * n + p - 1]
                p -= 1
            best[p] = value
            found[i * n + p] = j
            if size < n:
                size += 1
