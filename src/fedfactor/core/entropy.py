"""Where noise, keys and masks come from: the operating system, never the seed of a run, which all clients know."""

from __future__ import annotations

import hashlib
import os

import numpy as np

__all__ = ["Entropy"]


class Entropy:
    """A stream of random bytes.

    Parameters
    ----------
    key : bytes, optional
        None: the operating system's generator, secret and never repeated. A key: the same bytes every time, for
        *simulations*; knowledge of the key removes the noise, so a ledger says that it was used.

    Examples
    --------
    >>> Entropy.seeded(7, "north", "noise").take(2) == Entropy.seeded(7, "north", "noise").take(2)
    True
    >>> Entropy().words(3).dtype
    dtype('uint64')
    """

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key
        self._calls = 0

    @classmethod
    def seeded(cls, seed: int, *names: object) -> Entropy:
        """Make a repeatable stream, named apart from all others of the same seed."""
        return cls(hashlib.sha256(repr((int(seed), *map(str, names))).encode()).digest())

    @property
    def secret(self) -> bool:
        """Return whether the stream cannot be repeated."""
        return self._key is None

    def take(self, size: int) -> bytes:
        """Return so many fresh bytes."""
        if self._key is None:
            return os.urandom(size)
        self._calls += 1
        return hashlib.shake_256(self._key + self._calls.to_bytes(8, "little")).digest(size)

    def words(self, count: int) -> np.ndarray:
        """Return so many uniform 64-bit integers."""
        return np.frombuffer(self.take(8 * count), dtype="<u8")

    def uniforms(self, count: int) -> np.ndarray:
        """Return floats strictly inside (0, 1), on a grid of 2⁻⁵²: good enough for mechanisms without a proof."""
        return ((self.words(count) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
