"""Several initializations of one method: which are run, with which seeds, and which run is kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedfactor.core.algorithm import Algorithm
from fedfactor.core.run import Run

__all__ = ["RESTARTED", "best_of", "restart_seed", "starts_of"]

RESTARTED = ("BooleanVotes", "FALB", "FELB", "PooledBMF", "PooledNMF")
"""Methods whose result depends on the initialization, so that the best of several is offered."""


def starts_of(algorithm: Any, n_init: int | None = None, *, private: bool = False) -> list[Algorithm]:
    """Return the algorithm once for each initialization.

    Parameters
    ----------
    algorithm : Algorithm
    n_init : int, optional
        How many; by default 1, and 6 where clients have components of their own: one start alone often takes a strong
        component of one client for one that all share, and the summed error shows it.
    private : bool
        Whether something protects uploads: by default there is then one start.

    Returns
    -------
    list of Algorithm
        One only when it begins at given components. Of PooledNMF the usual start and a drawn one take turns: neither
        is the better on all data. Other methods draw every start, each with a seed of its own.

    Examples
    --------
    >>> from fedfactor.algorithms import PooledNMF
    >>> [each.start for each in starts_of(PooledNMF(2), 3)], len(starts_of(PooledNMF(2, n_private=1)))
    (['auto', 'random', 'auto'], 6)
    """
    if getattr(algorithm, "begin", None) is not None:
        return [algorithm]
    if not hasattr(algorithm, "n_private"):
        return [algorithm] * (n_init or 1)
    usual = 6 if algorithm.n_private and not private else 1
    starts = [algorithm] * (usual if n_init is None else n_init)
    if algorithm.start == "auto":
        starts[1::2] = [replace(each, start="random") for each in starts[1::2]]
    return starts


def restart_seed(seed: int, start: int) -> int:
    """Return the seed of an initialization: of the first it is the seed itself."""
    if start == 0:
        return seed
    return int(np.random.SeedSequence([seed, start]).generate_state(1, np.uint64)[0] >> np.uint64(1))


def best_of(starts: Sequence[Algorithm], seed: int, run: Callable[[int, Algorithm, int], Run]) -> Run:
    """Run every initialization with a seed of its own; return the run with the least summed error.

    Parameters
    ----------
    starts : sequence of Algorithm
    seed : int
        Of the first.
    run : function
        Takes the number of the start, the algorithm and the seed.

    Returns
    -------
    Run
    """
    found = [run(place, each, restart_seed(seed, place)) for place, each in enumerate(starts)]
    return min(found, key=lambda each: float(each.measured.score.sse))
