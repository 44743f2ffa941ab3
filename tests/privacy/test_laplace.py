"""Laplace noise: its bound, its distribution, and what a run with it says, in a simulation and between parties."""

from __future__ import annotations

import math

import numpy as np
import pytest

import fedfactor
from fedfactor.algorithms import FedAvgNMF
from fedfactor.core.algorithm import Round
from fedfactor.core.client_data import Federation
from fedfactor.core.entropy import Entropy
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.flattened_upload import Parcel
from fedfactor.core.transforms import Site
from fedfactor.engines.local.virtual_clock import VirtualEngine
from fedfactor.privacy import Clip, Laplace, Ledger, describe
from fedfactor.privacy.discrete_gaussian import discrete_laplace
from fedfactor.privacy.planner import make_plan
from fedfactor.testing.data import small_data
from fedfactor.testing.plain_loop import apart
from fedfactor.testing.probe_algorithm import Probe
from tests.network.in_process import InProcessEngine

SITE = Site("north", Round(0, 0), 3, None)


class TestNoise:
    def test_its_distribution_is_the_discrete_laplace(self):
        draws = discrete_laplace(200_000, 1, Entropy.seeded(3, "laplace"))
        p = math.exp(-0.5)
        for value in range(-4, 5):
            expected = (1 - p) / (1 + p) * p ** abs(value)
            assert np.mean(draws == value) == pytest.approx(expected, abs=4 * math.sqrt(expected / draws.size))

    def test_its_scale_is_the_norm_over_epsilon(self):
        noise = Laplace(norm=2.0, epsilon=0.5).encode(Parcel(np.zeros(20_000), ()), SITE).floats
        assert np.abs(noise).mean() == pytest.approx(4.0, rel=0.05)

    def test_two_uploads_never_share_noise(self):
        link, parcel = Laplace(1.0, 1.0), Parcel(np.zeros(8), ())
        assert not np.array_equal(link.encode(parcel, SITE).values, link.encode(parcel, SITE).values)


class TestBound:
    @pytest.mark.parametrize("values", [
        np.array([3.0, -4.0]), np.full(1000, 1e300), np.full(7, 5e-324), np.array([1e-9, 1e200]), np.ones(3) / 3,
        np.random.default_rng(0).standard_normal(5000), np.zeros(4),
    ])  # fmt: skip
    @pytest.mark.parametrize("epsilon", [0.003, 1.0, 77.7])
    def test_the_steps_of_an_upload_are_at_most_epsilon_scales(self, values, epsilon):
        link = Laplace(1.0, epsilon)
        steps = link._steps(values)
        assert int(np.abs(steps).sum()) <= epsilon * 2**22
        assert (steps * np.sign(values) >= 0).all()

    def test_an_upload_within_the_bound_is_only_rounded(self):
        link, values = Laplace(1.0, 1.0), np.array([0.25, -0.5, 0.125])
        assert np.array_equal(link._steps(values) * link.grid(3), values)

    @pytest.mark.parametrize("wrong", [np.nan, np.inf])
    def test_what_is_not_finite_says_nothing(self, wrong):
        assert not Laplace(1.0, 1.0)._steps(np.array([wrong, 0.5])).any()

    def test_it_is_measured_from_the_upload_that_says_nothing_new(self):
        neutral, link = np.array([5.0, 6.0]), Laplace(1.0, 1e6)
        site = Site("north", Round(0, 0), 3, neutral)
        sent = link.encode(Parcel(neutral + [0.25, 0.0], ()), site)
        assert link.decode(sent, ("north",), neutral).values == pytest.approx([5.25, 6.0], abs=1e-3)


@pytest.mark.parametrize(
    ("links", "said"),
    [
        ((Laplace(0.0, 1.0),), "positive, finite"),
        ((Laplace(1.0, math.nan),), "positive, finite"),
        ((Laplace(1.0, 1.0, bits=60),), "bits from 10 to 25"),
        ((Laplace(1.0, 1e12),), "too fine"),
        ((Clip(1.0), Laplace(1.0, 1.0)), "Leave Clip out"),
    ],
)
def test_what_cannot_protect_is_refused_before_round_0(links, said):
    with pytest.raises((ValueError, IncompatibleError), match=said):
        fedfactor.run(FedAvgNMF(2), small_data(), rounds=1, privacy=links)


def test_a_simulation_says_what_it_cost():
    ledger = Ledger(unit="client")
    run = fedfactor.run(FedAvgNMF(2), small_data(), rounds=3, seed=1, privacy=(Laplace(1.0, 0.5), ledger))
    assert [entry.epsilon for entry in ledger.entries()] == [0.5] * 3
    assert ledger.epsilon(1e-5) == pytest.approx(1.5)
    found = run.privacy
    assert found["epsilon"] == pytest.approx(1.5)
    assert found["epsilon_each"] == 0.5
    assert found["unit"] == "client"
    assert found["channel"] == ["Laplace"]
    assert found["sees"]["server"] == "every client's noisy upload in each round"
    assert "noise_multiplier" not in found
    assert "ε = 1.5" in describe(found)


def test_a_budget_ends_the_run():
    ledger = Ledger(unit="client", epsilon=1.1)
    run = fedfactor.run(FedAvgNMF(2), small_data(), rounds=5, seed=1, privacy=(Laplace(1.0, 0.5), ledger))
    assert (run.status, run.rounds) == ("budget", 2)


@pytest.mark.parametrize("kind", ["local", "virtual clock", "remote parties"])
def test_engines_agree(kind, tmp_path):
    """With next to no noise the factors are those of a run that is clipped only; with much of it they are not."""
    engines = {
        "local": fedfactor.LocalEngine,
        "virtual clock": lambda: VirtualEngine(barrier=True),
        "remote parties": lambda: InProcessEngine(tmp_path),
    }
    algorithm, runs = Probe(gathers=False), {}
    for label, make, epsilon in (
        ("reference", fedfactor.LocalEngine, 1e8), ("quiet", engines[kind], 1e8), ("loud", engines[kind], 0.1),
    ):  # fmt: skip
        federation = Federation(small_data("real"))
        plan = make_plan((Laplace(0.5, epsilon),), algorithm, federation, 3, simulation=True)
        runs[label] = make().run(algorithm, federation, rounds=3, seed=6, channel=plan.channel)
    assert apart(runs["quiet"].V, runs["reference"].V) < 1e-5
    assert apart(runs["loud"].V, runs["reference"].V) > 1e-2
    for entry in ("channel", "sees", "not_covered", "guarantee", "unit", "epsilon", "epsilon_each"):
        assert runs["quiet"].privacy[entry] == runs["reference"].privacy[entry]
