"""Numbers as integers that wrap around: 64 bits for arrays, 128 bits for single numbers such as a loss."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fedfactor.core.errors import ProtocolError

__all__ = ["WIDE_FRACTION", "add", "from_wide", "join", "quantise", "subtract", "to_wide"]

WIDE_FRACTION = 64
"""Fractional bits of a wide number."""


def add(a: np.ndarray, b: np.ndarray, wide: int) -> np.ndarray:
    """Add vectors of 64-bit words whose last 2 × `wide` words are low halves, then high halves, of 128-bit numbers."""
    c = a + b
    if wide:
        low, high = slice(-2 * wide, -wide), slice(-wide, None)
        c[high] += c[low] < a[low]
    return c


def subtract(a: np.ndarray, b: np.ndarray, wide: int) -> np.ndarray:
    """Subtract such vectors."""
    c = a - b
    if wide:
        low, high = slice(-2 * wide, -wide), slice(-wide, None)
        c[high] -= a[low] < b[low]
    return c


def quantise(values: np.ndarray, fraction: int, terms: int) -> np.ndarray:
    """Round to multiples of ``2^-fraction`` as int64, or refuse what could wrap around in a sum of so many terms."""
    scaled = np.rint(np.ldexp(values, fraction))
    most = float(np.abs(scaled).max(initial=0.0))
    if not most * terms < 2.0**62:
        fits = int(62 - math.ceil(math.log2(max(terms, 1))) - math.ceil(math.log2(max(most, 1.0)))) + fraction
        raise ProtocolError(
            f"A value of {math.ldexp(most, -fraction):.3g} summed over {terms} clients could leave the 64-bit ring of "
            f"the secure sum at {fraction} fractional bits. Scale the data down, or use SecureSum(fractional_bits="
            f"{max(fits - 2, 1)}) with some room."
        )
    return scaled.astype(np.int64)


def to_wide(numbers: Sequence[float]) -> np.ndarray:
    """Write single numbers as 128-bit integers: low words, then high words."""
    whole = [int(math.ldexp(float(x), WIDE_FRACTION)) % (1 << 128) for x in numbers]
    halves = [w & ((1 << 64) - 1) for w in whole] + [w >> 64 for w in whole]
    return np.array(halves, dtype=np.uint64)


def from_wide(words: np.ndarray) -> list[float]:
    """Read what :func:`to_wide` wrote."""
    count = words.size // 2
    found = []
    for low, high in zip(words[:count].tolist(), words[count:].tolist(), strict=True):
        whole = low | high << 64
        found.append(math.ldexp(whole - (1 << 128) if whole >> 127 else whole, -WIDE_FRACTION))
    return found


def join(values: np.ndarray, wide: Sequence[float]) -> np.ndarray:
    """Lay int64 values and wide numbers end to end as 64-bit words."""
    return np.concatenate([values.view(np.uint64), to_wide(wide)])
