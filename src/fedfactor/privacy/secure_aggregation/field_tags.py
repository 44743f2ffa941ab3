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

_LOW = np.uint64((1 << 32) - 1)
_BLOCK = 1 << 16


def coefficients(key: bytes, count: int) -> np.ndarray:
    """Stretch a key to elements of the field (the bias of the reduction is below 2^-60 per element)."""
    return _reduced(mask_words(key, count))


def linear_tag(weights: np.ndarray, words: np.ndarray) -> int:
    """Return the inner product of field elements and 64-bit words, modulo the prime.

    Examples
    --------
    >>> linear_tag(np.array([3, 5], np.uint64), np.array([7, 2**64 - 1], np.uint64)) == (21 + 5 * (2**64 - 1)) % PRIME
    True
    """
    total = 0
    for start in range(0, words.size, _BLOCK):
        total += _block_tag(weights[start : start + _BLOCK], words[start : start + _BLOCK])
    return total % PRIME


def accumulate(total: np.ndarray, carries: np.ndarray, words: np.ndarray) -> None:
    """Add words to a total in place, and count where it overflowed."""
    np.add(total, words, out=total)
    carries += total < words


def tag_of_total(weights: np.ndarray, total: np.ndarray, carries: np.ndarray) -> int:
    """Return the linear tag of a total over the integers: 2^64 is 8 modulo the prime."""
    return (linear_tag(weights, total) + 8 * linear_tag(weights, carries.astype(np.uint64))) % PRIME


def _block_tag(weights: np.ndarray, words: np.ndarray) -> int:
    """Multiply by halves of 32 bits, so that no product exceeds 64 bits."""
    values = _reduced(words)
    low_weight = weights & _LOW
    high_weight = weights >> np.uint64(32)
    low_value = values & _LOW
    high_value = values >> np.uint64(32)
    low = _sum(low_weight * low_value)
    middle = _sum(low_weight * high_value) + _sum(high_weight * low_value)
    high = _sum(high_weight * high_value)
    return (low + (middle << 32) + (high << 64)) % PRIME


def _sum(products: np.ndarray) -> int:
    """Add 64-bit numbers exactly: the halves of a block of 2^16 of them cannot overflow."""
    return int((products & _LOW).sum()) + (int((products >> np.uint64(32)).sum()) << 32)


def _reduced(words: np.ndarray) -> np.ndarray:
    prime = np.uint64(PRIME)
    folded = (words & prime) + (words >> np.uint64(61))
    return np.where(folded >= prime, folded - prime, folded)
