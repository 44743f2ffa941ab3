"""Mechanisms as papers print them: their figures, and what they really cost."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ndtri

from fedfactor.core.algorithm import Meta, Round
from fedfactor.core.flattened_upload import Parcel
from fedfactor.core.transforms import Site
from fedfactor.privacy import PaperNoise
from fedfactor.privacy.accounting import analytic_epsilon

VALUES = np.array([0.0, 0.5, 1.0])
DRAWN = np.array([0.1, 0.5, 0.8])


def test_defaults_are_those_of_the_papers():
    noise = PaperNoise()
    assert (noise.mechanism, noise.epsilon, noise.delta, noise.sensitivity) == ("gaussian", 1.0, 0.05, 1.0)
    assert (noise.clip, noise.theta, noise.place, noise.noisy, noise.equal_weights) == (None, None, 2, True, True)


@pytest.mark.parametrize(
    "options",
    [{"mechanism": "odd"}, {"epsilon": 0}, {"sensitivity": 0}, {"delta": 0}, {"delta": 1}, {"epsilon": -1}],
)
def test_figures_that_mean_nothing(options):
    with pytest.raises(ValueError, match=r"must be positive|is not known"):
        PaperNoise(**options).check(None, Meta(1, ("a",)), {})


@pytest.mark.parametrize("mechanism", ["gaussian", "laplace", "xor"])
def test_figures_that_do(mechanism):
    PaperNoise(mechanism, 0.5, 0.5, 0.5).check(None, Meta(1, ("a",)), {})


@pytest.mark.parametrize(
    ("noise", "scale"),
    [
        (PaperNoise("gaussian", 2.0, 0.1, 3.0), 3 * math.sqrt(2 * math.log(12.5)) / 2),
        (PaperNoise("laplace", 2.0, sensitivity=3.0), 1.5),
        (PaperNoise("xor", 2.0, sensitivity=4.0), 1 / (1 + math.exp(0.5))),
        (PaperNoise("xor", 1e6), 1 / (1 + math.exp(700))),
    ],
)
def test_scales(noise, scale):
    assert noise.scale == pytest.approx(scale, rel=1e-12)


def test_noise_follows_its_law():
    gaussian = PaperNoise("gaussian", 1.0)
    np.testing.assert_allclose(gaussian.spoil(VALUES, DRAWN), VALUES + gaussian.scale * ndtri(DRAWN))
    laplace = PaperNoise("laplace", 2.0)  # the inverse of the distribution: b·ln(2u) below the middle
    expected = VALUES + 0.5 * np.array([math.log(0.2), 0.0, -math.log(0.4)])
    np.testing.assert_allclose(laplace.spoil(VALUES, DRAWN), expected, atol=1e-15)
    xor = PaperNoise("xor", math.log(4))  # one in five
    assert xor.spoil(np.array([0.0, 1.0, 1.0, 0.0]), np.array([0.1, 0.1, 0.3, 0.9])).tolist() == [1, 0, 1, 0]
    clipped = PaperNoise("gaussian", 1.0, clip=(0.0, 1.0)).spoil(VALUES, DRAWN)
    assert (clipped.min(), clipped.max()) == (0.0, 1.0)


def test_a_bound_on_the_norm_comes_before_the_noise():
    half = np.full(3, 0.5)  # no noise at all
    np.testing.assert_allclose(PaperNoise(theta=1.0).spoil(np.array([3.0, 0.0, 4.0]), half), [0.6, 0.0, 0.8])
    np.testing.assert_allclose(PaperNoise(theta=9.0).spoil(np.array([3.0, 0.0, 4.0]), half), [3.0, 0.0, 4.0])
    np.testing.assert_allclose(PaperNoise(theta=1.0).spoil(np.zeros(3), half), np.zeros(3))


def test_an_upload_gets_as_many_draws_as_it_has_numbers():
    site = Site("a", Round(0, 0), 3, None, 7)
    sent = PaperNoise().encode(Parcel(VALUES, (2.0,)), site)
    again = PaperNoise().spoil(VALUES, site.entropy("paper").uniforms(3))
    np.testing.assert_array_equal(sent.values, again)
    assert sent.side == (2.0,)


def test_what_it_costs_in_truth():
    assert PaperNoise("laplace", 2.0).true_epsilon(6, 5) == pytest.approx(60)
    assert PaperNoise("xor", 2.0).true_epsilon(6, 5) == pytest.approx(60)
    gaussian = PaperNoise("gaussian", 1.0, 0.1)
    assert gaussian.true_epsilon(6, 5) == pytest.approx(analytic_epsilon(math.sqrt(30) / gaussian.scale, 0.1))
    assert gaussian.true_epsilon(6, 5, 0.01) == pytest.approx(analytic_epsilon(math.sqrt(30) / gaussian.scale, 0.01))


def test_it_promises_nothing():
    entry = PaperNoise().event([], None, None)
    assert not entry.proven
    assert not entry.protects
    assert entry.what == "paper calibration: no proven guarantee"
    assert (entry.unit, entry.round, entry.noise_multiplier) == ("client", 0, 0.0)
    assert PaperNoise().sees("an upload") == "an noisy upload"
