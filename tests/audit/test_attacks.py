"""Attacks on data where the answer is known: each succeeds where it must, and fails where it must."""

from __future__ import annotations

import numpy as np
import pytest

from fedfactor.audit import (
    binary_rows_in_span,
    differencing_error,
    epsilon_lower_bound,
    factor_inference,
    membership_figures,
    reconstruction_rate,
    residual_scores,
    singleton_exposure,
    sketch_recovery,
)


def rows(n, m=300, seed=0, share=0.05):
    return (np.random.default_rng(seed).random((n, m)) < share) * 1.0


@pytest.mark.parametrize("n", [1, 3, 8])
def test_rows_are_read_from_mixtures_of_them(n):
    X, mix = rows(n), np.random.default_rng(1).random((8, n))
    assert reconstruction_rate(X, binary_rows_in_span(mix @ X)) == {"rows": n, "recovered": n, "false": 0}


def test_rows_are_read_through_a_public_factor_that_was_added():
    rng = np.random.default_rng(0)
    X, V, U = rows(5), rng.random((8, 300)), rng.random((5, 8))
    step = U.T @ (U @ V - X)
    assert reconstruction_rate(X, binary_rows_in_span(step, V))["recovered"] == 5


def test_noise_and_many_rows_hide_them():
    X = rows(5)
    mixed = np.random.default_rng(1).random((8, 5)) @ X
    noisy = mixed + 1e-3 * np.random.default_rng(2).normal(size=mixed.shape)
    assert reconstruction_rate(X, binary_rows_in_span(noisy))["recovered"] == 0
    many = rows(40)
    assert binary_rows_in_span(np.random.default_rng(1).random((8, 40)) @ many).size == 0


def test_membership_is_seen_in_a_factor_of_few_rows_and_not_in_one_of_none():
    rng = np.random.default_rng(0)
    X, others = rows(10, seed=1), rows(300, seed=2)
    own = np.linalg.svd(X, full_matrices=False)[2][:8]
    figures = membership_figures(residual_scores(X, own), residual_scores(others, own))
    assert figures["auc"] > 0.95
    assert figures["tpr_at_1%_fpr"] > 0.8
    assert figures["tpr_at_1%_fpr_interval"][0] < figures["tpr_at_1%_fpr"] <= figures["tpr_at_1%_fpr_interval"][1]
    strange = rng.random((8, 300))
    chance = membership_figures(residual_scores(rows(300, seed=3), strange), residual_scores(others, strange))
    assert chance["auc_interval"][0] < 0.5 < chance["auc_interval"][1]
    assert not chance["tpr_at_0.1%_fpr_resolvable"]


def test_few_outsiders_do_not_pin_down_the_rate_of_false_alarms():
    rng = np.random.default_rng(0)
    few, many = (membership_figures(rng.random(100), rng.random(n)) for n in (100, 100_000))
    assert few["false_alarms_at_1%_fpr_at_most"] > 0.03
    assert many["false_alarms_at_1%_fpr_at_most"] < 0.011


@pytest.mark.parametrize("rank", [7, 10])
def test_a_group_s_factor_gives_its_ratings_when_rank_is_near_the_group(rank):
    rng = np.random.default_rng(0)
    X = rows(8, 400, share=0.25) * rng.integers(1, 6, (8, 400))
    _, size, right = np.linalg.svd(X, full_matrices=False)
    H = right[:rank] * size[:rank, None]
    error = factor_inference(X, H, 0.5, rng, ridge=1e-3)
    assert error < (0.05 if rank >= 8 else 0.9)
    assert factor_inference(X, H, 0.02, rng) > error


def test_sketches_add_up_to_the_matrix():
    rng = np.random.default_rng(0)
    M = rng.random((20, 100))
    sketches = [rng.normal(size=(100, 20)) for _ in range(5)]
    assert sketch_recovery(M, sketches[:4])["relative_error"] > 0.1
    found = sketch_recovery(M, sketches)
    assert (found["rank"], found["relative_error"] < 1e-9) == (100, True)


def test_singletons_and_differences():
    rng = np.random.default_rng(0)
    X, U = rng.random((30, 12)), rng.random((30, 4))
    X[:, 9:] = 0
    X[3, 9] = X[3, 10] = X[7, 11] = 2.0
    figures = singleton_exposure(U.T @ X, U, X)
    assert figures == {"singleton_columns": 3, "rows_that_fill_one": 2, "rows_exposed": 2}
    hidden = U.T @ X
    hidden[:, 9:] = 0
    assert singleton_exposure(hidden, U, X)["rows_exposed"] == 0
    before, gone = U.T @ X, U[20:].T @ X[20:]
    assert differencing_error(before, before - gone, gone) < 1e-12


class TestLowerBound:
    @pytest.mark.slow
    def test_grows_with_what_scores_tell(self):
        rng = np.random.default_rng(0)
        coin = rng.random(1000) < 0.5
        bounds = [epsilon_lower_bound(s * coin + rng.normal(size=1000), coin, 1e-5)["epsilon"] for s in (0, 1, 3, 9)]
        assert bounds[0] < 0.3
        assert bounds == sorted(bounds)
        assert bounds[-1] > 4

    @pytest.mark.slow
    def test_is_below_the_truth_for_a_known_mechanism(self):
        """A Gaussian release of sensitivity μ has an exact ε: a bound above it would refute the truth."""
        from fedfactor.privacy.accounting import analytic_epsilon

        for seed, mu in enumerate((0.3, 1.0, 2.0, 3.0)):
            rng = np.random.default_rng(seed)
            coin = rng.random(2000) < 0.5
            bound = epsilon_lower_bound(mu * coin + rng.normal(size=2000), coin, 1e-5)["epsilon"]
            assert bound <= analytic_epsilon(mu, 1e-5)

    def test_says_what_it_could_never_show(self):
        coin = np.arange(100) % 2 == 0
        found = epsilon_lower_bound(coin * 1.0, coin, 1e-5)
        assert found["epsilon"] == pytest.approx(found["most_it_could_show"], rel=0.3)
