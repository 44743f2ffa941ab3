"""Gaussian and Laplace noise on the integers, drawn exactly: no floating-point number takes part.

Noise drawn as floating-point numbers has holes and a grid that depend on the value it hides, and gives the value away
(Mironov 2012). Integers have no such holes.
"""

from __future__ import annotations

import numpy as np

from fedfactor.core.entropy import Entropy

__all__ = ["MOST_BITS", "discrete_gaussian", "discrete_laplace"]

MOST_BITS = 25
"""Largest power of two for the standard deviation: beyond it squares would leave 64 bits."""

_ONE = np.uint64(1)


def discrete_gaussian(size: int, bits: int, entropy: Entropy) -> np.ndarray:
    r"""Draw integers with :math:`P(y) \propto \exp(-y^2 / (2\sigma^2))`, :math:`\sigma = 2^{bits}`.

    Parameters
    ----------
    size : int
        How many.
    bits : int
        Base-two logarithm of the standard deviation, 0 to 25. Any other standard deviation is had by choosing the grid
        that the integers count in.
    entropy : Entropy
        Source of bytes.

    Returns
    -------
    int64 array, shape (size,)

    Notes
    -----
    Rejection from a discrete Laplace distribution of scale σ (Canonne, Kamath and Steinke, algorithms 1–3). With a
    power of two, ``(|y| − σ)² / 2σ²`` is a fraction whose parts fit 64 bits, so every comparison is exact. NumPy is
    not constant in time: an observer of the clock is outside the threat model.

    References
    ----------
    .. [1] C. Canonne, G. Kamath, T. Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020.
       arXiv:2004.00010

    Examples
    --------
    >>> y = discrete_gaussian(10000, 10, Entropy.seeded(0, "example"))
    >>> 0.95 < float(y.std()) / 2**10 < 1.05
    True
    """
    if bits != int(bits) or not 0 <= bits <= MOST_BITS:
        raise ValueError(f"bits={bits!r} must be a whole number from 0 to {MOST_BITS}: the squares must fit 64 bits.")
    sigma = 1 << int(bits)
    found: list[np.ndarray] = []
    have = 0
    while have < size:
        y = _some_laplace(int(1.35 * (size - have)) + 64, int(bits), entropy)
        distance = np.abs(np.abs(y) - sigma)
        if int(distance.max(initial=0)) >= 1 << 31:  # fail closed; the chance is below exp(−60) per draw
            raise OverflowError("A draw of noise left the range in which it can be exact. Draw again.")
        squares = distance.astype(np.uint64) ** np.uint64(2)
        kept = y[_bernoulli_exp(squares, 2 * int(bits) + 1, entropy)]
        found.append(kept)
        have += kept.size
    return np.concatenate(found)[:size] if found else np.zeros(0, np.int64)


def discrete_laplace(size: int, bits: int, entropy: Entropy) -> np.ndarray:
    r"""Draw integers with :math:`P(y) \propto \exp(-|y| / b)`, :math:`b = 2^{bits}`.

    Parameters
    ----------
    size : int
        How many.
    bits : int
        Base-two logarithm of the scale, 0 to 25.
    entropy : Entropy
        Source of bytes.

    Returns
    -------
    int64 array, shape (size,)

    Examples
    --------
    >>> y = discrete_laplace(10000, 10, Entropy.seeded(0, "example"))
    >>> 0.95 < float(np.abs(y).mean()) / 2**10 < 1.05
    True
    """
    if bits != int(bits) or not 0 <= bits <= MOST_BITS:
        raise ValueError(f"bits={bits!r} must be a whole number from 0 to {MOST_BITS}.")
    found = [np.zeros(0, np.int64)]
    have = 0
    while have < size:
        found.append(_some_laplace(size - have, int(bits), entropy))
        have += found[-1].size
    return np.concatenate(found)[:size]


def _some_laplace(size: int, bits: int, entropy: Entropy) -> np.ndarray:
    """Draw about `size` integers with P(y) ∝ exp(−|y| / 2^bits)."""
    scale = 1 << bits
    low = entropy.words(int(1.65 * size) + 64) & np.uint64(scale - 1)
    low = low[_bernoulli_exp_below_one(low, bits, entropy)]
    high = np.zeros(low.size, np.int64)
    alive = np.arange(low.size)
    while alive.size:  # count successes of exp(−1)
        alive = alive[_bernoulli_exp_below_one(np.ones(alive.size, np.uint64), 0, entropy)]
        high[alive] += 1
    y = low.astype(np.int64) + scale * high
    negative = (entropy.words(low.size) & _ONE).astype(bool)
    return np.where(negative, -y, y)[~(negative & (y == 0))]  # zero must not count twice


def _bernoulli_exp(num: np.ndarray, bits: int, entropy: Entropy) -> np.ndarray:
    """Succeed with probability exp(−num / 2^bits)."""
    whole = (num >> np.uint64(bits)).astype(np.int64)
    rest = num & np.uint64((1 << bits) - 1)
    result = _bernoulli_exp_below_one(rest, bits, entropy)
    alive = np.flatnonzero(result & (whole > 0))
    left = whole[alive]
    while alive.size:
        lucky = _bernoulli_exp_below_one(np.ones(alive.size, np.uint64), 0, entropy)
        result[alive[~lucky]] = False
        left = left - 1
        going = lucky & (left > 0)
        alive = alive[going]
        left = left[going]
    return result


def _bernoulli_exp_below_one(num: np.ndarray, bits: int, entropy: Entropy) -> np.ndarray:
    """Succeed with probability exp(−num / 2^bits), for num ≤ 2^bits, by the parity of a run of coins γ/1, γ/2, …"""
    run = np.zeros(num.size, np.int64)
    alive = np.arange(num.size)
    step = 1
    mask = np.uint64((1 << bits) - 1)
    while alive.size:
        hit = (entropy.words(alive.size) & mask) < num[alive]  # probability γ; at γ = 1 (num = 2^bits) always
        if step > 1:
            hit &= _below(alive.size, step, entropy) == 0
        alive = alive[hit]
        run[alive] += 1
        step += 1
    return run % 2 == 0


def _below(size: int, bound: int, entropy: Entropy) -> np.ndarray:
    """Draw uniform integers below a small bound, rejecting the ragged end."""
    limit = np.uint64((1 << 64) - 1 - (1 << 64) % bound)
    draws = entropy.words(size).copy()
    while (bad := np.flatnonzero(draws > limit)).size:
        draws[bad] = entropy.words(bad.size)
    return draws % np.uint64(bound)
