"""What a server of sums keeps track of: how boldly to extrapolate, and for whom the sums speak."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from fedfactor.core.tree import tree_map

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Extrapolation:
    """How boldly V is extrapolated, and for how many rounds the loss has hardly moved."""

    beta: float
    most: float
    flat: int
    good: bool = True

    def after(self, loss: float | None, before: float, tol: float, rounding: float = 0.0) -> Extrapolation:
        """Speed up while the loss falls; slow down, and take that pace for the most, when it rises (Ang and Gillis).

        A rise below ``rounding`` is none: the order of additions would decide it, and with it who owns which row.

        Examples
        --------
        >>> Extrapolation(0.5, 1.0, 0).after(9.0, 10.0, tol=0.0).beta
        0.525
        >>> Extrapolation(0.5, 1.0, 0).after(11.0, 10.0, tol=0.0).good
        False
        >>> Extrapolation(0.5, 1.0, 0).after(10.0 + 1e-15, 10.0, tol=0.0, rounding=1e-14).good
        True
        """
        if loss is None:
            return Extrapolation(
                self.beta, self.most, 0, good=False
            )  # without a loss nothing would notice an overshoot
        if loss > before + rounding:
            return Extrapolation(self.beta / 1.5, self.beta, 0, good=False)
        hardly = tol > 0 and np.isfinite(before) and before - loss <= tol * before
        most = min(1.0, 1.05 * self.most)
        return Extrapolation(min(most, 1.05 * self.beta), most, self.flat + 1 if hardly else 0)


def stand_in(up: T, share: float, last: T | None) -> T:
    """Scale the sums of those who came to the whole federation; those who stayed away speak through the last sums."""
    if share == 1:
        return up
    if last is None:
        return tree_map(lambda now: now / share, up)
    return tree_map(lambda old, now: (1 - share) * old + now, last, up)


def cohort(participants: tuple[str, ...]) -> int:
    """Name a set of participants by a number."""
    return int.from_bytes(hashlib.sha256("\0".join(participants).encode()).digest()[:8], "little")
