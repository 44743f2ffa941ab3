"""How far predicted ratings are off, by client and in all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from fedfactor.core.pytree import Array

__all__ = ["Interval", "RatingErrors", "mae", "mean_interval", "rating_errors", "rmse"]


def rmse(true: Array, predicted: Array) -> float:
    """Return the root mean square error: the root of the *mean* over ratings.

    Examples
    --------
    >>> rmse([1.0, 2.0], [1.0, 4.0])
    1.4142135623730951
    """
    return math.sqrt(float(np.mean(np.square(_apart(true, predicted)))))


def mae(true: Array, predicted: Array) -> float:
    """Return the mean absolute error.

    Examples
    --------
    >>> mae([1.0, 2.0], [1.0, 4.0])
    1.0
    """
    return float(np.mean(np.abs(_apart(true, predicted))))


def _apart(true: Array, predicted: Array) -> np.ndarray:
    true = np.asarray(true, np.float64)
    predicted = np.asarray(predicted, np.float64)
    if true.shape != predicted.shape or not true.size:
        raise ValueError(f"{true.shape} ratings cannot be compared with {predicted.shape} predictions.")
    return true - predicted


class Interval(NamedTuple):
    """A mean and half the width of its 95 % interval (0 for a single value)."""

    mean: float
    half_width: float


def mean_interval(values: Array) -> Interval:
    """Return the mean of independent values and its 95 % interval by Student's t.

    Examples
    --------
    >>> mean_interval([1.0, 2.0, 3.0])
    Interval(mean=2.0, half_width=2.4841377117...)
    """
    values = np.asarray(values, np.float64)
    if len(values) < 2:
        return Interval(float(values.mean()), 0.0)
    from scipy.stats import t

    error = values.std(ddof=1) / len(values) ** 0.5
    return Interval(float(values.mean()), float(t.ppf(0.975, len(values) - 1) * error))


class RatingErrors(NamedTuple):
    """Errors of all clients: mean over clients (macro) with its interval, over ratings (micro), and client by
    client.
    """

    macro_rmse: Interval
    micro_rmse: float
    macro_mae: Interval
    micro_mae: float
    by_owner: dict[str, float]


def rating_errors(true: Mapping[str, Array], predicted: Mapping[str, Array]) -> RatingErrors:
    """Compare ratings with predictions, client by client; clients without ratings are left out.

    Parameters
    ----------
    true, predicted : mapping of client to array
        Ratings, and predictions in the same order.

    Examples
    --------
    >>> rating_errors({"a": [1.0], "b": [2.0, 2.0]}, {"a": [2.0], "b": [2.0, 2.0]}).micro_rmse
    0.5773502691896257
    """
    names = [name for name in sorted(true) if len(true[name])]
    if not names:
        raise ValueError("No owner has a rating to compare with.")
    by_owner = {name: rmse(true[name], predicted[name]) for name in names}
    absolute = [mae(true[name], predicted[name]) for name in names]
    every = [np.concatenate([np.asarray(side[name]) for name in names]) for side in (true, predicted)]
    return RatingErrors(
        mean_interval(list(by_owner.values())), rmse(*every), mean_interval(absolute), mae(*every), by_owner
    )
