"""Several starts: which methods offer them, what is run, and which run is kept."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from fedfactor import algorithms, estimators
from fedfactor.engines.restarts import RESTARTED, best_of, restart_seed, starts_of
from fedfactor.nmf.pooled.warm_start import Begin


def test_the_methods_are_those_whose_estimators_offer_n_init():
    """The command goes by this list, so that it need not load the estimators."""
    known = {name for name in estimators.__all__ if name in dir(algorithms)}
    offering = {name for name in known if "n_init" in getattr(estimators, name)._get_param_names()}
    assert offering == set(RESTARTED)


@pytest.mark.parametrize(
    ("method", "n_init", "private", "starts"),
    [
        (algorithms.PooledNMF(2), None, False, ["auto"]),
        (algorithms.PooledNMF(2), 4, False, ["auto", "random"] * 2),
        (algorithms.PooledNMF(2), 4, True, ["auto", "random"] * 2),
        (algorithms.PooledNMF(2, start="wide"), 2, False, ["wide"] * 2),
        (algorithms.PooledNMF(2, n_private=1), None, False, ["auto", "random"] * 3),
        (algorithms.PooledNMF(2, n_private=1), None, True, ["auto"]),
        (algorithms.PooledNMF(2, begin=Begin(np.ones((2, 3)))), 4, False, ["auto"]),
    ],
)
def test_the_usual_start_and_a_drawn_one_take_turns(method, n_init, private, starts):
    assert [each.start for each in starts_of(method, n_init, private=private)] == starts


def test_methods_without_a_choice_of_start_are_repeated():
    method = algorithms.FELB(2)
    assert starts_of(method, 3) == [method] * 3


def test_the_run_with_the_least_summed_error_is_kept():
    """The first start has the seed itself, the others seeds of their own that depend on it alone."""
    errors, asked = [3.0, 1.0, 2.0], []

    def run(place, method, seed):
        asked.append((place, method, seed))
        return SimpleNamespace(place=place, measured=SimpleNamespace(score=SimpleNamespace(sse=errors[place])))

    methods = [algorithms.FELB(k) for k in (1, 2, 3)]
    assert best_of(methods, 7, run).place == 1
    assert asked == [(place, methods[place], restart_seed(7, place)) for place in range(3)]
    seeds = [seed for _, _, seed in asked]
    assert seeds[0] == 7
    assert len(set(seeds)) == 3
    assert max(seeds) < 2**63
