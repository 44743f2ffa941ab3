"""Noise that parties agree on in a file: each derives the same parameters from it, independently of others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from fedfactor.core.algorithm import Algorithm, Meta
from fedfactor.core.errors import IncompatibleError
from fedfactor.privacy.accounting import calibrate
from fedfactor.privacy.dp import dp
from fedfactor.privacy.ledger import Entry
from fedfactor.privacy.minimums import Minimums
from fedfactor.privacy.noise_shares import secure_for_noise
from fedfactor.privacy.pipeline import Books, Channel
from fedfactor.privacy.planner import alike_for_noise, bound_rows, check_bears, check_links, noise_links, spread_of
from fedfactor.privacy.secure_aggregation.transform import SecureSum

__all__ = ["agree_on_noise", "noisy_channel", "whole_cohort"]


def whole_cohort(n_clients: int) -> SecureSum:
    """Return the secure aggregation between parties: all take part, or it starts again."""
    return SecureSum(min_clients=n_clients, threshold=1.0)


def agree_on_noise(
    given: Mapping[str, Any], algorithm: Algorithm, meta: Meta, rounds: int
) -> tuple[Algorithm, dict[str, Any]]:
    """Set an algorithm for the noise that was agreed on, and find how much of it so many rounds need.

    Parameters
    ----------
    given : mapping
        Settings of :func:`fedfactor.dp`.
    algorithm, meta
        Of the run.
    rounds : int
        Over which the budget is spread.

    Returns
    -------
    algorithm : Algorithm
        With the bound on rows, or equal weights.
    noise : dict
        The settings with the noise multiplier. It is rounded up to four digits, so that another version of the
        accountant finds the same one: parties with different ones could not add their uploads.
    """
    asked = dp(**given)
    check_bears(asked, algorithm, meta)
    exact = asked.noise_multiplier or calibrate(asked.epsilon, asked.delta, rounds, accountant=asked.accountant)
    noise = {**given, "noise_multiplier": _rounded_up(exact)}
    if asked.unit == "client":
        algorithm = alike_for_noise(algorithm, meta)
    else:
        if asked.row_bound is None or asked.rows is None:
            raise IncompatibleError("Noise for rows needs row_bound and rows, as public numbers.")
        honest = secure_for_noise(asked, whole_cohort(meta.n_clients), Minimums(), algorithm, meta)[1]
        spread = noise["noise_multiplier"] * spread_of(asked, honest, meta)
        algorithm, _ = bound_rows(algorithm, meta, asked.row_bound, asked.rows, spread)
    noisy_channel(noise, algorithm, meta, "")
    return algorithm, noise


def noisy_channel(noise: Mapping[str, Any], algorithm: Algorithm, meta: Meta, run: str) -> Channel:
    """Make the channel of an agreed noise, for a party or for the server, whose books are the parties' own."""
    asked = dp(**noise)
    secure, honest = secure_for_noise(asked, whole_cohort(meta.n_clients), Minimums(), algorithm, meta)
    assert secure is not None
    assert asked.noise_multiplier is not None
    stated = algorithm.sensitivity(meta)
    size = 0.0 if stated is None else stated[1]
    links = (*noise_links(asked, asked.noise_multiplier, size, honest, meta), secure)
    check_links(links, algorithm, meta)
    entry = Entry(run, 0, asked.noise_multiplier, asked.unit, algorithm=type(algorithm).__name__)
    about: dict[str, Any] = {} if stated is None else {"row_bound": asked.row_bound, "rows": asked.rows}
    return Channel(links, algorithm, meta, Books([], entry), run, asked=asked, about=about, simulation=False)


def _rounded_up(z: float) -> float:
    """Round up to four digits.

    Examples
    --------
    >>> _rounded_up(22.33441)
    22.34
    """
    step = 10.0 ** (math.floor(math.log10(z)) - 3)
    return float(f"{math.ceil(z / step * (1 - 1e-12)) * step:.3e}")
