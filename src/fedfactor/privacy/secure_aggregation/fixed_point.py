"""Numbers as integers that wrap around: 64 bits for arrays, 128 bits for single numbers such as a loss."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence

import numpy as np

from fedfactor.core.errors import ProtocolError

__all__ = ["WIDE_FRACTION", "add", "from_wide", "join", "quantise", "subtract", "to_wide"]

WIDE_FRACTION = 64
"""Fractional bits of a wide number."""

_WIDE_MOST = 2.0**56
"""Largest wide number: larger ones are cut, so that sums of up to a hundred do not wrap around."""

logger = logging.getLogger("fedfactor")


def add(a: np.ndarray, b: np.ndarray, wide: int) -> np.ndarray:
    """Add vectors of 64-bit words whose last 2 × `wide` words are low halves, then high halves, of 128-bit numbers."""
    c = a + b
    if wide:
        low = slice(-2 * wide, -wide)
        high = slice(-wide, None)
        c[high] += c[low] < a[low]
    return c


def subtract(a: np.ndarray, b: np.ndarray, wide: int) -> np.ndarray:
    """Subtract such vectors."""
    c = a - b
    if wide:
        low = slice(-2 * wide, -wide)
        high = slice(-wide, None)
        c[high] -= a[low] < b[low]
    return c


def quantise(values: np.ndarray, fraction: int, terms: int, *, cut: bool = False) -> np.ndarray:
    """Round to multiples of ``2^-fraction`` as int64, where no sum of so many terms wraps around.

    Parameters
    ----------
    values : array
    fraction : int
        Fractional bits.
    terms : int
        How many such vectors will be added.
    cut : bool
        What happens to values that are too large. False, in a simulation: an error that says what to do. True, between
        parties: they are cut, because whether one was refused would reveal its rows; the client's own log records it.

    Examples
    --------
    >>> quantise(np.array([1.5, -1e30]), 1, 2, cut=True)
    array([                   3, -2305843009213693952])
    """
    most = float(2**62 // max(terms, 1))
    known = np.nan_to_num(values)
    room = math.ldexp(most, -fraction)
    largest = float(np.abs(known).max(initial=0.0))
    if largest > room:
        told = (
            f"Values too large for secure aggregation of {terms} clients at {fraction} fractional bits (at most "
            f"{room:.3g}). "
            f"Scale the data down, or use SecureSum(fractional_bits={max(fraction - _excess(largest / room), 1)})."
        )
        if not cut:
            raise ProtocolError(told)
        logger.warning("%s They were cut, and the result is wrong where they count.", told)
    return np.rint(np.ldexp(np.clip(known, -room, room), fraction)).astype(np.int64)


def _excess(ratio: float) -> int:
    """Count the bits that values are too long, with two to spare."""
    return math.ceil(math.log2(ratio)) + 2


def to_wide(numbers: Sequence[float]) -> np.ndarray:
    """Write single numbers as 128-bit integers: low words, then high words."""
    whole = [int(math.ldexp(max(-_WIDE_MOST, min(_WIDE_MOST, float(x))), WIDE_FRACTION)) % (1 << 128) for x in numbers]
    halves = [w & ((1 << 64) - 1) for w in whole] + [w >> 64 for w in whole]
    return np.array(halves, dtype=np.uint64)


def from_wide(words: np.ndarray) -> list[float]:
    """Read what :func:`to_wide` wrote."""
    count = words.size // 2
    found: list[float] = []
    for low, high in zip(words[:count].tolist(), words[count:].tolist(), strict=True):
        whole = low | high << 64
        found.append(math.ldexp(whole - (1 << 128) if whole >> 127 else whole, -WIDE_FRACTION))
    return found


def join(values: np.ndarray, wide: Sequence[float]) -> np.ndarray:
    """Lay int64 values and wide numbers end to end as 64-bit words."""
    return np.concatenate([values.view(np.uint64), to_wide(wide)])
