"""The books against exact figures, and the bounds in the right order."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedfactor.privacy.accounting import Release, analytic_epsilon, calibrate, epsilon_of

dp_accounting = pytest.importorskip("dp_accounting")


@pytest.mark.parametrize(("epsilon", "delta", "sigma"), [(1, 1e-5, 3.7306), (0.5, 1e-5, 7.0318), (10, 1e-5, 0.4999)])
def test_the_analytic_gaussian_has_its_known_values(epsilon, delta, sigma):
    assert analytic_epsilon(1 / sigma, delta) == pytest.approx(epsilon, rel=2e-4)
    assert calibrate(float(epsilon), delta, 1, accountant="pld") == pytest.approx(sigma, rel=1e-4)


@pytest.mark.parametrize("rounds", [1, 10, 100])
@pytest.mark.parametrize("epsilon", [1.0, 4.0])
def test_tight_books_agree_with_an_independent_implementation(rounds, epsilon):
    from dp_accounting.pld import accountant, common

    theirs = accountant.get_smallest_gaussian_noise(common.DifferentialPrivacyParameters(epsilon, 1e-5), rounds, 1)
    assert calibrate(epsilon, 1e-5, rounds, accountant="pld") == pytest.approx(theirs, rel=1e-3)
    assert epsilon_of([Release(theirs)] * rounds, 1e-5, "pld") == pytest.approx(epsilon, rel=1e-3)


@pytest.mark.slow
def test_numerical_privacy_loss_agrees_with_the_analytic_figure_to_a_thousandth():
    books = dp_accounting.pld.PLDAccountant()
    books.compose(dp_accounting.SelfComposedDpEvent(dp_accounting.GaussianDpEvent(10.0), 100))
    assert epsilon_of([Release(10.0)] * 100, 1e-5, "pld") == pytest.approx(books.get_epsilon(1e-5), rel=1e-3)


@pytest.mark.parametrize(("z", "sampling", "rounds"), [(1.0, 0.01, 100), (2.0, 0.1, 50), (10.0, 1.0, 100)])
def test_the_certified_bound_lies_above_the_tight_figure(z, sampling, rounds):
    releases = [Release(z, sampling)] * rounds
    certified, tight = epsilon_of(releases, 1e-5, "rdp"), epsilon_of(releases, 1e-5, "pld")
    assert tight <= certified <= 2 * tight


@pytest.mark.slow
def test_calibrated_noise_keeps_the_budget_and_not_much_more():
    for accountant in ("rdp", "pld"):
        z = calibrate(1.0, 1e-5, 30, accountant=accountant)
        spent = epsilon_of([Release(z)] * 30, 1e-5, accountant)
        assert 0.999 < spent <= 1.0
    z = calibrate(1.0, 1e-5, 50, sampling=0.1)
    assert 0.99 < epsilon_of([Release(z, 0.1)] * 50, 1e-5) <= 1.0


def test_releases_without_noise_cost_everything():
    assert epsilon_of([Release(5.0), Release(0.0)], 1e-5) == math.inf
    assert epsilon_of([], 1e-5) == 0


def test_the_papers_calibration_composes_to_the_figures_in_the_docs():
    from fedfactor.privacy import PaperNoise

    per_release = PaperNoise("gaussian", 1.0, 1e-5, sensitivity=math.sqrt(5000))
    assert per_release.true_epsilon(5000, 1) <= 1
    assert per_release.true_epsilon(5000, 100) == pytest.approx(10.39, abs=0.01)
    assert PaperNoise("gaussian", 1.0, 0.05, sensitivity=50).true_epsilon(5000, 100) == pytest.approx(23.8, abs=0.1)
    assert PaperNoise("laplace", 1.0, sensitivity=500).true_epsilon(5000, 1) == 10


class TestReleasesThatCostAtDeltaZero:
    def test_few_add_up_and_many_cost_less_than_their_sum(self):
        one = Release(0.0, epsilon=0.1)
        assert epsilon_of([one] * 3, 1e-5) == pytest.approx(0.3)
        # 400 of 0.1 are ρ = 400 · 0.1² / 2 = 2, hence 2 + 2 √(2 ln 10⁵).
        assert epsilon_of([one] * 400, 1e-5) == pytest.approx(2 + 2 * math.sqrt(2 * math.log(1e5)))

    def test_they_add_to_gaussian_ones(self):
        gaussian = Release(20.0)
        alone = epsilon_of([gaussian], 1e-5)
        assert epsilon_of([gaussian, Release(0.0, epsilon=0.01)], 1e-5) == pytest.approx(alone + 0.01)
        assert epsilon_of([Release(0.0), Release(0.0, epsilon=0.01)], 1e-5) == math.inf

    @pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
    def test_a_cost_that_is_none_is_without_bound(self, epsilon):
        assert epsilon_of([Release(0.0, epsilon=epsilon)], 1e-5) == math.inf


def test_the_papers_theta_bounds_the_norm_before_the_noise():
    from fedfactor.privacy import PaperNoise

    half = np.full(4, 0.5)  # no noise at the median of its distribution
    assert PaperNoise("gaussian", 1.0, theta=1.0).spoil(np.array([3.0, 0.0, 4.0, 0.0]), half) == pytest.approx(
        [0.6, 0.0, 0.8, 0.0]
    )
    assert PaperNoise("laplace", 1.0, theta=9.0).spoil(np.array([3.0, 0.0, 4.0, 0.0]), half) == pytest.approx(
        [3, 0, 4, 0]
    )


def test_one_release_needs_no_more_than_its_own_noise():
    assert analytic_epsilon(0.0, 1e-5) == 0.0
    assert analytic_epsilon(1e-7, 1e-5) == 0.0  # δ alone covers it
    assert analytic_epsilon(20.0, 1e-5) > 200
    assert Release(2.0) == Release(2.0, 1.0, None)


def test_plain_and_sampled_releases_are_counted_together():
    plain, sampled = Release(8.0), Release(8.0, 0.5)
    together, *alone = (epsilon_of(releases, 1e-5) for releases in ([plain, sampled], [plain], [sampled]))
    assert max(alone) < together < sum(alone)
    assert epsilon_of([sampled] * 3, 1e-5) > alone[1]
    assert epsilon_of([plain] * 4, 1e-5, "pld") == pytest.approx(epsilon_of([Release(4.0)], 1e-5, "pld"), rel=1e-9)
    assert epsilon_of([plain] * 4, 1e-5) == pytest.approx(epsilon_of([Release(4.0)], 1e-5), rel=1e-9)


def test_the_smallest_cost_of_pure_releases_is_told():
    one = Release(0.0, epsilon=0.1)
    assert epsilon_of([one], 1e-5) == 0.1
    rho = 400 * 0.1**2 / 2
    assert epsilon_of([one] * 400, 1e-5) == pytest.approx(rho + 2 * math.sqrt(rho * math.log(1e5)))
    mixed = rho + 1 / (2 * 4.0**2)
    assert epsilon_of([one] * 400 + [Release(4.0)], 1e-5) == pytest.approx(mixed + 2 * math.sqrt(mixed * math.log(1e5)))
    sampled = [one] * 400 + [Release(4.0, 0.5)]
    assert epsilon_of(sampled, 1e-5) == pytest.approx(40 + epsilon_of([Release(4.0, 0.5)], 1e-5))
    assert epsilon_of([one, Release(0.0)], 1e-5) == math.inf


@pytest.mark.parametrize(("epsilon", "delta", "rounds"), [(0, 1e-5, 1), (1, 0, 1), (1, 1, 1), (1, 1e-5, 0)])
def test_budgets_that_are_none(epsilon, delta, rounds):
    with pytest.raises(ValueError, match="A budget needs epsilon > 0"):
        calibrate(epsilon, delta, rounds)


def test_calibrated_noise_is_the_least():
    z = calibrate(1.0, 1e-5, 4)
    assert epsilon_of([Release(z)] * 4, 1e-5) <= 1.0 < epsilon_of([Release(0.999 * z)] * 4, 1e-5)
    assert calibrate(1.0, 1e-5) == pytest.approx(z / 2, rel=1e-4)
    assert calibrate(50.0, 1e-5) < 1
