"""What releases cost together: dp-accounting keeps the books, this file asks it the right questions."""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from fedfactor.core.errors import MissingExtraError

__all__ = ["Accountant", "Release", "analytic_epsilon", "calibrate", "epsilon_of"]

Accountant = Literal["rdp", "pld"]


@dataclass(frozen=True, slots=True)
class Release:
    """One thing the server learned: Gaussian noise of a multiplier, perhaps sampled; a multiplier of 0 is no noise.

    Other noise is counted by the ε that one release of it costs at δ = 0 (`epsilon`), where that is proven.
    """

    noise_multiplier: float
    sampling: float = 1.0
    epsilon: float | None = None


def epsilon_of(releases: Iterable[Release], delta: float, accountant: Accountant = "rdp") -> float:
    """Return the ε that all releases cost together at δ, for neighbours that differ by adding or removing one unit.

    Parameters
    ----------
    releases : iterable of Release
    delta : float
    accountant : {"rdp", "pld"}
        ``"rdp"`` is the certified bound, which also covers noise on the integer grid; ``"pld"`` the tight figure for
        continuous noise. Without sampling the latter is exact. For releases with an `epsilon` both are bounds.

    Examples
    --------
    >>> round(epsilon_of([Release(37.3063)] * 100, 1e-5, "pld"), 3)
    1.0
    >>> epsilon_of([Release(0.0)], 1e-5)
    inf
    >>> epsilon_of([Release(0.0, epsilon=0.5)] * 4, 1e-5)
    2.0
    """
    every = list(releases)
    pure = [release.epsilon for release in every if release.epsilon is not None]
    gaussian = [release for release in every if release.epsilon is None]
    return _with_pure(pure, gaussian, delta, accountant) if pure else _gaussian_epsilon(gaussian, delta, accountant)


def _with_pure(pure: list[float], gaussian: list[Release], delta: float, accountant: Accountant) -> float:
    """Add what holds at δ = 0 to the rest; many small releases together cost less (zCDP: Bun and Steinke 2016)."""
    if not all(0 < epsilon < math.inf for epsilon in pure):
        return math.inf
    added = math.fsum(pure) + _gaussian_epsilon(gaussian, delta, accountant)
    if any(release.noise_multiplier <= 0 or release.sampling < 1 for release in gaussian):
        return added
    rho = math.fsum([*(e * e / 2 for e in pure), *(1 / (2 * r.noise_multiplier**2) for r in gaussian)])
    return min(added, rho + 2 * math.sqrt(rho * math.log(1 / delta)))


def _gaussian_epsilon(releases: list[Release], delta: float, accountant: Accountant) -> float:
    counted = Counter(releases)
    if any(release.noise_multiplier <= 0 for release in counted):
        return math.inf
    if not counted:
        return 0.0
    plain = sum(n / r.noise_multiplier**2 for r, n in counted.items() if r.sampling == 1)
    if accountant == "pld" and all(r.sampling == 1 for r in counted):
        return analytic_epsilon(math.sqrt(plain), delta)
    try:
        import dp_accounting as books
        from dp_accounting import pld, rdp
    except ImportError:
        raise MissingExtraError.named("dp-accounting", "privacy", "A privacy ledger") from None
    # Gaussian releases without sampling compose exactly into one, which is faster and a little tighter to account for.
    events: list[books.DpEvent] = [books.GaussianDpEvent(1 / math.sqrt(plain))] if plain else []
    for release, n in counted.items():
        if release.sampling < 1:
            one = books.PoissonSampledDpEvent(release.sampling, books.GaussianDpEvent(release.noise_multiplier))
            events.append(books.SelfComposedDpEvent(one, n))
    books_kept = rdp.RdpAccountant() if accountant == "rdp" else pld.PLDAccountant(value_discretization_interval=1e-3)
    for event in events:
        books_kept.compose(event)
    return float(books_kept.get_epsilon(delta))


def analytic_epsilon(mu: float, delta: float) -> float:
    r"""Return the exact ε of one Gaussian release whose sensitivity is μ standard deviations (Balle and Wang 2018).

    Examples
    --------
    >>> round(analytic_epsilon(1 / 3.730631634, 1e-5), 6)
    1.0
    """
    if mu == 0 or _gaussian_delta(mu, 0.0) <= delta:
        return 0.0
    low = 0.0
    high = 1.0
    while _gaussian_delta(mu, high) > delta:
        low = high
        high = 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if _gaussian_delta(mu, middle) > delta else (low, middle)
    return high


def _gaussian_delta(mu: float, epsilon: float) -> float:
    from scipy.special import log_ndtr

    first = math.exp(log_ndtr(mu / 2 - epsilon / mu))
    return first - math.exp(min(700.0, epsilon + log_ndtr(-mu / 2 - epsilon / mu)))


@functools.lru_cache(maxsize=64)
def calibrate(
    epsilon: float, delta: float, rounds: float = 1, *, sampling: float = 1.0, accountant: Accountant = "rdp"
) -> float:
    """Return the smallest noise multiplier with which so many releases together cost at most (ε, δ).

    Parameters
    ----------
    epsilon, delta : float
        The budget of all releases together.
    rounds : float
        Number of releases; a fraction stands for a release with a fraction of the cost.
    sampling : float
        Chance of taking part in each release.
    accountant : {"rdp", "pld"}
        The certified bound (about 8 % more noise) or the tight figure.

    Examples
    --------
    >>> round(calibrate(1.0, 1e-5, 100, accountant="pld"), 2)
    37.31
    """
    if not (epsilon > 0 and 0 < delta < 1 and rounds > 0):
        raise ValueError(f"A budget needs epsilon > 0, 0 < delta < 1 and rounds > 0, got {epsilon}, {delta}, {rounds}.")

    def cost(z: float, which: Accountant) -> float:
        if sampling == 1:
            return epsilon_of([Release(z / math.sqrt(rounds))], delta, which)
        return epsilon_of([Release(z, sampling)] * round(rounds), delta, which)

    low = 1e-2
    high = 1.0
    while cost(high, "rdp") > epsilon:
        low = high
        high = 2 * high
    high = _bisect(cost, "rdp", low, high, epsilon)
    if accountant == "pld":  # the fine books are slow at small noise, so they are asked near the coarse answer only
        while cost(high, "pld") > epsilon:  # they round upwards on a grid: with many sampled releases that may show
            high *= 1.05
        high = _bisect(cost, "pld", 0.5 * high, high, epsilon)
    return high


def _bisect(
    cost: Callable[[float, Accountant], float], which: Accountant, low: float, high: float, epsilon: float
) -> float:
    while high - low > 1e-5 * high:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if cost(middle, which) > epsilon else (low, middle)
    return high
