"""What differential privacy would cost in error on one's own data: a simulation that spends nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedfactor.core.client_data import Federation
from fedfactor.core.method import Method, algorithm_of
from fedfactor.engines.run import run
from fedfactor.privacy.dp import DP, dp

__all__ = ["CostOfNoise", "cost_of_noise"]


@dataclass(frozen=True, slots=True)
class CostOfNoise:
    """Relative errors of simulated runs with noise, beside those without.

    Attributes
    ----------
    epsilons : tuple of float
    errors : array, shape (len(epsilons), repeats)
        Of all rows (all observed values), with U solved for the V that would be released.
    without_noise : float
        The smallest error of as many runs without noise.
    asked : DP
        Unit, δ and public numbers of all runs.
    """

    epsilons: tuple[float, ...]
    errors: np.ndarray
    without_noise: float
    asked: DP

    @property
    def ratios(self) -> np.ndarray:
        """Errors divided by that without noise."""
        return self.errors / self.without_noise

    def summary(self) -> dict[str, Any]:
        """Return plain data, labelled as what it is."""
        return {
            "simulation": "no ε was spent; errors are those of all rows, without noise: do not publish them",
            "unit": self.asked.unit,
            "delta": self.asked.delta,
            "error_without_noise": self.without_noise,
            "epsilons": list(self.epsilons),
            "errors": self.errors.tolist(),
            "ratios": self.ratios.tolist(),
        }


def cost_of_noise(
    data: Federation | Mapping[str, Any],
    algorithm: Method,
    *,
    epsilons: Sequence[float] = (0.5, 1.0, 2.0, 4.0, 8.0),
    privacy: DP | None = None,
    repeats: int = 3,
    rounds: int | None = None,
    seed: int = 0,
    progress: Callable[[int, int, float], None] | None = None,
) -> CostOfNoise:
    """Simulate private runs for several ε, and measure the error of each beside that without noise.

    Everything runs in one process on all rows, noise is drawn from a seed, and no ledger is written: nothing is spent,
    and the result is not private. It depends on the rows without noise, so keep it, and the ε that is chosen by it,
    among those who may see the rows; choose on data of the same kind where ε itself is to be published.

    Parameters
    ----------
    data : Federation or mapping of client to rows
    algorithm : Algorithm or estimator
        Such as ``PooledNMF(10)``.
    epsilons : sequence of float
    privacy : DP, optional
        Unit, δ and public numbers, as made by :func:`fedfactor.dp`; its ε and ledger are not used.
    repeats : int
        Runs for each ε, with other initializations and noise.
    rounds : int, optional
        By default what each private run chooses.
    seed : int
    progress : function of (done, total, error), optional

    Returns
    -------
    CostOfNoise

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import PooledNMF
    >>> X = np.random.default_rng(0).random((300, 2)) @ np.random.default_rng(1).random((2, 6))
    >>> found = cost_of_noise(dict(zip("abc", np.split(X, 3))), PooledNMF(2), epsilons=(1, 100), repeats=1)
    >>> bool(found.ratios[0, 0] > found.ratios[1, 0] > 1)
    True
    """
    federation = data if isinstance(data, Federation) else Federation(data)
    asked = dp(1.0) if privacy is None else privacy
    method = algorithm_of(algorithm)
    plain = min(run(method, federation, rounds=rounds, seed=seed + i).relative_error for i in range(repeats))
    errors = np.zeros((len(epsilons), repeats))
    for place in np.ndindex(errors.shape):
        number = place[1]
        noisy = replace(asked, epsilon=float(epsilons[int(place[0])]), ledger=None, noise_seed=seed + number)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = run(method, federation, rounds=rounds, seed=seed + number, privacy=noisy)
        errors[place] = made.measured.relative_error
        if progress is not None:
            progress(place[0] * repeats + number + 1, errors.size, float(errors[place]))
    return CostOfNoise(tuple(map(float, epsilons)), errors, float(plain), asked)
