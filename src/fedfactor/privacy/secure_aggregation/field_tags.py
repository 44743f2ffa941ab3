"""Linear tags over the field of 2^61 − 1 elements, and totals of 64-bit words over the integers.

A total of words is kept as the sum modulo 2^64 and the number of times that it overflowed, so that a linear tag of the
total is the sum of the tags of its terms.
"""

from __future__ import annotations

import numpy as np

from fedfactor.privacy.secure_aggregation.primitives import mask_words

__all__ = ["PRIME", "accumulate", "coefficients", "linear_tag", "tag_of_total"]

PRIME = (1 << 61) - 1
"""Order of the field of the tags, a Mersenne prime."""

_BLOCK = 1 << 14
"""Words that are multiplied at once: their limbs stay in cache, and sums of products of limbs are far below 2^53."""


def coefficients(key: bytes, count: int) -> np.ndarray:
    """Stretch a key to 64-bit words, which stand for elements of the field (with a bias below 2^-60 each)."""
    return mask_words(key, count)


def linear_tag(weights: np.ndarray, words: np.ndarray) -> int:
    """Return the inner product of field elements and 64-bit words, modulo the prime.

    Products of 16-bit limbs are summed in double precision, which is exact in blocks.

    Examples
    --------
    >>> linear_tag(np.array([3, 5], np.uint64), np.array([7, 2**64 - 1], np.uint64)) == (21 + 5 * (2**64 - 1)) % PRIME
    True
    """
    return _inner(weights, words, 4)


def accumulate(total: np.ndarray, carries: np.ndarray, words: np.ndarray) -> None:
    """Add words to a total in place, and count where it overflowed."""
    np.add(total, words, out=total)
    carries += total < words


def tag_of_total(weights: np.ndarray, total: np.ndarray, carries: np.ndarray) -> int:
    """Return the linear tag of a total over the integers: 2^64 is 8 modulo the prime."""
    return (linear_tag(weights, total) + 8 * _inner(weights, carries.astype(np.uint64), 1)) % PRIME


def _inner(weights: np.ndarray, words: np.ndarray, limbs: int) -> int:
    """Return an inner product modulo the prime, where words have so many limbs of 16 bits."""
    sums = np.zeros((4, limbs), object)
    for start in range(0, words.size, _BLOCK):
        one = _limbs(weights[start : start + _BLOCK], 4)
        other = _limbs(words[start : start + _BLOCK], limbs)
        sums += (one @ other.T).astype(np.int64).astype(object)
    return sum(int(sums[i, j]) << 16 * (i + j) for i in range(4) for j in range(limbs)) % PRIME


def _limbs(words: np.ndarray, count: int) -> np.ndarray:
    """Cut 64-bit words into rows of their 16-bit limbs, lowest first."""
    return np.ascontiguousarray(words, "<u8").view("<u2").reshape(-1, 4)[:, :count].T.astype(np.float64, order="C")
