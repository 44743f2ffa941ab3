"""Short formulas and limits of the privacy room, each against figures worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fedfactor
from fedfactor.aggregation import Robust
from fedfactor.algorithms import PooledNMF
from fedfactor.core.algorithm import Meta
from fedfactor.core.entropy import Entropy
from fedfactor.core.errors import DataError, IncompatibleError
from fedfactor.privacy.ledger import Ledger
from fedfactor.privacy.subjects import _refuse_rounded


def test_uniform_numbers_lie_inside_whatever_bits_are_drawn(monkeypatch):
    monkeypatch.setattr(Entropy, "words", lambda self, count: np.array([0, 2**63, 2**64 - 1], np.uint64))
    low, middle, high = Entropy.seeded(1).uniforms(3)
    assert (low, high) == (2.0**-53, 1 - 2.0**-53)
    assert middle == 0.5 + 2.0**-53


@pytest.mark.parametrize(("kind", "most"), [(np.float32, 2**24), (np.float64, 2**53)])
def test_ids_that_a_float_rounds_are_refused(kind, most):
    _refuse_rounded("north", "patient", np.array([most - 1, 1 - most], kind))
    with pytest.raises(DataError, match=f"{most:,} or beyond"):
        _refuse_rounded("north", "patient", np.array([1, most + 2], kind))
    _refuse_rounded("north", "patient", np.array([most + 2], np.int64))


@pytest.mark.parametrize(
    ("robust", "least"),
    [
        (Robust("median"), 3),
        (Robust("trimmed-mean"), 3),
        (Robust("group-median"), 6),
        (Robust("group-median", groups=5), 10),
    ],
)
def test_how_many_clients_a_robust_rule_needs(robust, least):
    def check(count):
        robust.check(PooledNMF(2), Meta(4, tuple(f"c{i:02d}" for i in range(count))), {})

    check(least)
    with pytest.raises(IncompatibleError, match=f"at least {least} clients, there are {least - 1}"):
        check(least - 1)


def test_a_trimmed_mean_keeps_one_client_at_least():
    assert [Robust("trimmed-mean", trim=0.49).withstands(n) for n in (3, 4, 5, 100)] == [1, 1, 2, 49]
    assert [Robust("trimmed-mean", trim=0.25).withstands(n) for n in (8, 9)] == [2, 3]


@pytest.mark.slow
def test_the_survey_of_rows_costs_a_twentieth_of_the_budget(tmp_path):
    """In Gaussian terms: one over the square of the noise, of the survey against that of all rounds."""
    X = np.random.default_rng(0).random((1500, 4))
    asked = fedfactor.dp(epsilon=4.0, delta=1e-5, unit="row", ledger=tmp_path / "books.jsonl", noise_seed=0)
    fedfactor.run(PooledNMF(2), {"a": X[:500], "b": X[500:1000], "c": X[1000:]}, rounds=5, seed=0, privacy=asked)
    survey, *rounds = Ledger(tmp_path / "books.jsonl").entries()
    assert survey.what == "survey"
    assert len(rounds) == 5
    cost = [1 / entry.noise_multiplier**2 for entry in (survey, *rounds)]
    assert math.isclose(cost[0] / sum(cost), 0.05, rel_tol=1e-9)
