"""Noise that somebody knows, starts that noise spoils, and budgets that contradict each other."""

from __future__ import annotations

import numpy as np
import pytest

import fedfactor
from fedfactor.algorithms import PooledNMF
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.federation import Federation
from fedfactor.privacy import Ledger, Minimums
from fedfactor.privacy.noise import Gaussian
from fedfactor.privacy.plan import make_plan

pytest.importorskip("dp_accounting")
pytest.importorskip("cryptography")


def owners(n_clients=6):
    rng = np.random.default_rng(0)
    X = rng.random((n_clients * 40, 3)) @ rng.random((3, 12))
    return {f"c{i}": part for i, part in enumerate(np.split(X, n_clients))}


def plan(*parts):
    return make_plan(parts, PooledNMF(3), Federation(owners()), 3, simulation=True)


def honest(made):
    return next(link.honest for link in made.channel.links if isinstance(link, Gaussian))


def test_a_coordinator_who_is_a_client_knows_its_own_noise():
    budget = fedfactor.dp(1.0, row_bound=3.0, rows=240)
    apart = plan(budget)
    assert honest(plan(budget, Minimums(coordinator_is_client=True))) == honest(apart) - 1
    assert "its own share" in " ".join(apart.channel.report(3)["not_covered"])
    covered = plan(fedfactor.dp(1.0, row_bound=3.0, rows=240, colluding=1))
    assert honest(covered) == honest(apart) - 1
    assert "its own share" not in " ".join(covered.channel.report(3)["not_covered"])
    with pytest.raises(IncompatibleError, match="nobody is left"):
        plan(fedfactor.dp(1.0, row_bound=3.0, rows=240, colluding=4), Minimums(coordinator_is_client=True))


def test_pooled_nmf_for_whole_clients_starts_without_the_sums_that_noise_spoils():
    privacy = fedfactor.dp(1.0, unit="client", clip=1.0)
    run = fedfactor.run(PooledNMF(3), owners(), rounds=3, seed=0, privacy=privacy)
    assert np.isfinite(run.V).all()
    assert run.algorithm.start == "random"
    assert run.privacy["epsilon"] <= 1
    with pytest.raises(IncompatibleError, match="noise spoils"):
        fedfactor.run(PooledNMF(3, start="wide"), owners(), rounds=3, seed=0, privacy=privacy)


@pytest.mark.parametrize("twice", [(Ledger(epsilon=0.1), Ledger(epsilon=9.0)), (Minimums(), Minimums(strict=True))])
def test_of_two_budgets_neither_is_dropped_in_silence(twice):
    with pytest.raises(IncompatibleError, match="only one could count"):
        plan(fedfactor.dp(1.0), *twice)
    with pytest.raises(IncompatibleError, match="two DP"):
        plan(fedfactor.dp(1.0), fedfactor.dp(100.0))


@pytest.mark.parametrize(
    "settings", [{"epsilon": 0.0}, {"epsilon": float("nan")}, {"delta": 2.0}, {"unit": "rows"}, {"accountant": "gdp"}]
)
def test_books_that_could_hold_nothing_are_refused_when_they_are_opened(settings):
    with pytest.raises(ValueError, match=r"epsilon > 0|must be row"):
        Ledger(**settings)
