"""What every local Boolean solver returns, and how it watches the clock."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from fedfactor.boolean import bit_matrix as bits

__all__ = ["Clock", "Factored", "better", "from_lists"]


@dataclass(frozen=True, slots=True)
class Factored:
    """Boolean factors of one matrix.

    Attributes
    ----------
    U, V : ndarray of uint8, shape (n, k) and (k, m)
        Zeros and ones; components that were not needed, or not reached in time, are zero.
    finished : bool
        False when the time limit cut the search short.
    n_iter : int
        Iterations of a relaxed solver; 1 for a greedy one.
    """

    U: np.ndarray
    V: np.ndarray
    finished: bool = True
    n_iter: int = 1


class Clock:
    """Measures whether a time limit has passed; None never does.

    Examples
    --------
    >>> Clock(None).over(), Clock(0.0).over()
    (False, True)
    """

    def __init__(self, seconds: float | None) -> None:
        if seconds is not None and not seconds >= 0:
            raise ValueError(f"time_limit={seconds} must be a number of seconds, at least 0, or None.")
        self._end = None if seconds is None else time.monotonic() + seconds
        self.rang = False

    def over(self) -> bool:
        """Return whether the time is up, and remember it."""
        self.rang = self.rang or (self._end is not None and time.monotonic() >= self._end)
        return self.rang

    @property
    def left(self) -> float | None:
        """Seconds left, None without a limit."""
        return None if self._end is None else max(0.0, self._end - time.monotonic())


def from_lists(us: list[np.ndarray], vs: list[np.ndarray], n: int, m: int, k: int, *, finished: bool) -> Factored:
    """Stack the components that were found and pad with zeros up to k.

    Examples
    --------
    >>> import numpy as np
    >>> from_lists([np.ones(2)], [np.ones(3)], 2, 3, 2, finished=True).V
    array([[1, 1, 1],
           [0, 0, 0]], dtype=uint8)
    """
    U = np.zeros((n, k), np.uint8)
    V = np.zeros((k, m), np.uint8)
    for q, (u, v) in enumerate(zip(us, vs, strict=True)):
        U[:, q] = u
        V[q] = v
    return Factored(U, V, finished)


def better(X: np.ndarray, found: list[Factored]) -> Factored:
    """Return the first of several factorizations of packed X with the fewest wrong cells."""

    def wrong(one: Factored) -> int:
        ones, made, both = bits.count_cells(X, one.U, bits.pack(one.V))
        return ones + made - 2 * both

    return min(found, key=wrong)
