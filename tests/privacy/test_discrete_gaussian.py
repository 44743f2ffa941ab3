"""The sampler against the exact distribution, and against a library of good name where it is installed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chisquare, ks_2samp, kstest

from fedfactor.core.entropy import Entropy
from fedfactor.privacy.discrete_gaussian import _below, discrete_gaussian


def p_value(draws: np.ndarray, sigma: int) -> float:
    support = np.arange(-12 * sigma, 12 * sigma + 1)
    chance = np.exp(-(support**2) / (2 * sigma**2))
    expected = chance / chance.sum() * draws.size
    seen = np.bincount(np.clip(draws, support[0], support[-1]) - support[0], minlength=support.size)
    common = expected > 8
    rest = max(draws.size - expected[common].sum(), 1e-9)
    return chisquare(
        np.append(seen[common], draws.size - seen[common].sum()), np.append(expected[common], rest), sum_check=False
    ).pvalue


@pytest.mark.slow
@pytest.mark.parametrize("bits", [0, 2, 5])
def test_chi_square_values_are_uniform(bits):
    found = [p_value(discrete_gaussian(20_000, bits, Entropy.seeded(i, "chi", bits)), 1 << bits) for i in range(25)]
    assert kstest(found, "uniform").pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("bits", [6, 20, 24])
def test_mean_and_spread(bits):
    draws = discrete_gaussian(200_000, bits, Entropy.seeded(3, "spread", bits)) / 2.0**bits
    assert abs(draws.mean()) < 4 / np.sqrt(draws.size)
    assert abs(draws.std() - 1) < 4 / np.sqrt(2 * draws.size)


def test_against_opendp():
    opendp = pytest.importorskip("opendp.prelude")
    opendp.enable_features("contrib")
    space = opendp.vector_domain(opendp.atom_domain(T="i64")), opendp.l2_distance(T=float)
    theirs = opendp.m.make_gaussian(*space, scale=64.0)([0] * 20_000)
    assert ks_2samp(theirs, discrete_gaussian(20_000, 6, Entropy.seeded(5, "opendp"))).pvalue > 1e-3


def test_too_wide_is_refused():
    with pytest.raises(ValueError, match="from 0 to 25"):
        discrete_gaussian(3, 26, Entropy())


def test_secret_entropy_never_repeats_and_seeded_does():
    assert Entropy().take(16) != Entropy().take(16)
    one, two = (Entropy.seeded(1, "a") for _ in range(2))
    assert one.take(8) == two.take(8)
    assert one.take(8) != Entropy.seeded(1, "a").take(8)
    assert Entropy().secret
    assert not one.secret


def test_draws_below_a_bound_reject_the_ragged_end_and_nothing_else():
    class Listed:
        def __init__(self, *numbers):
            self.left = list(numbers)

        def words(self, size):
            return np.array([self.left.pop(0) for _ in range(size)], np.uint64)

    for bound in (3, 5, 7, 12):
        last = 2**64 - 2**64 % bound - 1  # as many numbers up to here give each remainder
        found = _below(4, bound, Listed(last, last + 1, 4, last - 1, last + 1, 8))
        assert found.tolist() == [bound - 1, 8 % bound, 4 % bound, bound - 2]
    assert _below(2, 8, Listed(2**64 - 1, 2**64 - 2)).tolist() == [7, 6]
