"""What a server of sums keeps track of: the step of the extrapolation, and the participants of the sums."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from fedfactor.core.pytree import tree_map
from fedfactor.linalg.products import as_like

T = TypeVar("T")

RECENT = 4.0
"""The mean of past losses weighs round t by this power of t: most of it comes from the last quarter of the rounds."""

PATIENCE = 3
"""Flat rounds in a row after which a run has converged."""

FAR = 10.0
"""Times the rounds so far: no more of them are predicted."""

GAIN = 50.0
"""Times ``tol`` is the share of the loss that all further rounds together may be expected to bring when a run ends."""


@dataclass(frozen=True, slots=True)
class Extrapolation:
    """How boldly V is extrapolated, and for how many rounds little has been expected of further ones.

    Plain numbers, or tensors without dimensions on a GPU, where the decision is taken without waiting for it.

    ``mean``, ``count``: weighted mean of past losses, and rounds in it. Where the loss falls as ``a + b / t``, the mean
    exceeds it by ``b / (RECENT t)``, so that all further rounds will bring ``RECENT`` times this difference.
    """

    beta: Any
    most: Any
    flat: Any
    mean: Any = 0.0
    count: Any = 0.0
    good: Any = True

    def after(self, loss: Any, before: Any, tol: float, rounding: Any = 0.0) -> Extrapolation:
        """Speed up while the loss falls; slow down, and take that pace for the most, when it rises (Ang and Gillis).

        A round is flat when it lowers the loss by less than ``tol``. The last one of ``PATIENCE`` flat rounds counts
        only when all further ones are expected to lower the loss by less than ``GAIN`` times that share: steps become
        small long before a slow descent has ended.

        A rise below ``rounding`` is none: the order of additions would decide it, and with it who owns which row. A
        rise by less than ``tol`` brings as little as such a fall: a ridge that follows from V lets losses creep up.

        Examples
        --------
        >>> Extrapolation(0.5, 1.0, 0).after(9.0, 10.0, tol=0.0).beta
        0.525
        >>> Extrapolation(0.5, 1.0, 0).after(11.0, 10.0, tol=0.0).good
        False
        >>> Extrapolation(0.5, 1.0, 0).after(10.0 + 1e-15, 10.0, tol=0.0, rounding=1e-14).good
        True
        >>> [Extrapolation(0.5, 1.0, 1).after(loss, 10.0, tol=1e-4).flat for loss in (9.0, 9.9999, 10.0001, 11.0)]
        [0, 2, 2, 0]
        >>> [Extrapolation(0.5, 1.0, 2, mean, 200.0).after(9.9999, 10.0, tol=1e-4).flat for mean in (10.005, 10.03)]
        [3, 2]
        """
        if loss is None:
            # Without a loss nothing would notice an overshoot.
            return Extrapolation(self.beta, self.most, 0, good=False)
        mean, count = self._remembered(loss, before)
        rise = loss > before + rounding
        most = 1.05 * self.most
        faster = 1.05 * self.beta
        hardly = (before < np.inf) & (abs(before - loss) <= tol * before) & (tol > 0)
        ended = abs(RECENT * (mean - loss)) <= GAIN * tol * loss + rounding
        if hasattr(loss, "is_cuda"):
            most = most.clip(max=1.0)
            faster = faster.minimum(most)
            # A number times 1, and another times 0: no choice that the processor would have to make.
            back = rise.double()
            on = (~rise).double()
            longer = self.flat + 1
            flat = hardly * (ended * longer + ~ended * longer.clip(max=PATIENCE - 1))
            beta = back * self.beta / 1.5 + on * faster
            return Extrapolation(beta, back * self.beta + on * most, flat, mean, count, on)
        flat = 0
        if hardly:
            flat = self.flat + 1 if ended else min(self.flat + 1, PATIENCE - 1)
        if rise:
            return Extrapolation(self.beta / 1.5, self.beta, flat, mean, count, good=False)
        most = min(1.0, most)
        return Extrapolation(min(most, faster), most, flat, mean, count)

    def _remembered(self, loss: Any, before: Any) -> tuple[Any, Any]:
        """Return the mean with this loss in it, and the rounds; where no loss came before, both begin with this one."""
        count = (before < np.inf) * self.count + 1
        return self.mean + (RECENT + 1) / (RECENT + count) * (loss - self.mean), count


def more_rounds(mean: float, count: float, loss: float, tol: float) -> float:
    """Return how many more rounds it will take until further ones are expected to bring less than ``GAIN * tol``.

    At most ``FAR`` times those so far: few rounds do not show how the loss falls in the end.

    Examples
    --------
    >>> more_rounds(10.0125, 100.0, 10.0, tol=1e-4), more_rounds(10.0, 100.0, 10.0, tol=1e-4)
    (0.0, 0.0)
    >>> more_rounds(10.05, 100.0, 10.0, tol=1e-4), more_rounds(20.0, 5.0, 10.0, tol=1e-4)
    (300.0, 50.0)
    """
    if not loss > 0:
        return 0.0
    expected = RECENT * abs(mean - loss) / loss
    return float(np.ceil(count * min(max(round(expected / (GAIN * tol), 6) - 1, 0.0), FAR)))


def beside(loss: Any, *numbers: Any) -> tuple[Any, ...]:
    """Return numbers as the loss is: plain, or on its GPU.

    Examples
    --------
    >>> beside(3.0, np.float64(1.0), 2)
    (1.0, 2.0)
    """
    if hasattr(loss, "is_cuda"):
        return tuple(as_like(np.float64(each) if isinstance(each, float) else each, loss) for each in numbers)
    return tuple(float(each) for each in numbers)


def margin(whole: float, loss: Any) -> Any:
    """Return what the order of additions may change in a loss of data of this squared norm.

    Of double precision, also for single: there a margin of its own would hide rises that matter near the end.
    """
    largest = loss.clip(whole) if hasattr(loss, "is_cuda") else max(whole, loss or 0.0)
    return 8 * float(np.finfo(np.float64).eps) * largest


def as_leaf(number: Any) -> Any:
    """Return a number as a leaf of a state: a tensor as it is."""
    return number if hasattr(number, "is_cuda") else np.float64(number)


def is_zero(number: Any) -> bool:
    """Return whether a plain number is zero; tensors on a GPU are not inspected.

    Examples
    --------
    >>> is_zero(0.0), is_zero(0.5)
    (True, False)
    """
    return not hasattr(number, "is_cuda") and number == 0


def stand_in(up: T, share: float, last: T | None) -> T:
    """Scale the sums of the participating clients to the whole federation; the others count by their last sums."""
    if share == 1:
        return up
    if last is None:
        return tree_map(lambda now: now / share, up)
    return tree_map(lambda old, now: (1 - share) * as_like(old, now) + now, last, up)


def cohort(participants: tuple[str, ...]) -> int:
    """Name a set of participants by a number."""
    return int.from_bytes(hashlib.sha256("\0".join(participants).encode()).digest()[:8], "little")
