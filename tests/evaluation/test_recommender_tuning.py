"""Tuning looks at held-out training ratings only, keeps to its budget, and finds what is planted."""

from __future__ import annotations

import time

import numpy as np
import pytest
from scipy import sparse

from fedfactor import DataError
from fedfactor.algorithms import FedSPLIT, PooledCF, PooledCNMF, PooledEASE
from fedfactor.evaluation.recommender_tuning import RANGES, as_overrides
from fedfactor.selection import (
    choose_recommender,
    rating_folds,
    tune_cnmf,
    tune_joint_rank,
    tune_owners,
    tune_recommender,
)


def ratings(n=40, m=30, seed=0):
    rng = np.random.default_rng([8, seed])
    X = np.clip(3 + rng.normal(size=(n, 1)) + rng.normal(size=(1, m)) + 0.3 * rng.normal(size=(n, m)), 1, 5)
    return sparse.csr_array(np.where(rng.random((n, m)) < 0.5, X, 0))


def test_tuning_stays_in_its_ranges_and_repeats():
    pytest.importorskip("optuna")
    one, two = (tune_cnmf(ratings(), trials=4, folds=2, iterations=10, most_components=4, seed=1) for _ in range(2))
    assert one == two
    assert one.trials == 4
    for name, (low, high) in RANGES.items():
        assert low <= one.settings[name] <= high
    assert 2 <= one.settings["n_components"] <= 4


@pytest.mark.slow
def test_tuning_keeps_to_its_budget():
    pytest.importorskip("optuna")
    began = time.monotonic()
    found = tune_cnmf(ratings(), trials=10_000, folds=2, iterations=20, seconds=0.5)
    assert time.monotonic() - began < 20
    assert 1 <= found.trials < 10_000


def test_owners_tune_at_home_and_fedsplit_takes_it():
    pytest.importorskip("optuna")
    R = ratings()
    owners = {"a": R[:5], "b": R[5:]}
    found = tune_owners(owners, mu=3.0, trials=2, folds=1, iterations=5)
    assert found["a"].settings["n_components"] <= 4
    algorithm = FedSPLIT(2, rank_rule="paper", local_components=20, overrides=as_overrides(found))
    best, errors = choose_recommender([algorithm, PooledCF(2)], owners)
    assert best in (0, 1)
    assert all(np.isfinite(list(errors.values())))


@pytest.mark.slow
def test_a_recommender_is_tuned_within_its_choices_and_its_budget():
    pytest.importorskip("optuna")
    R = ratings()
    owners, choices = {"a": R[:20], "b": R[20:]}, {"refine": (0, 5, 20), "n_components": (1, 2), "iterations": (5, 20)}
    one, two = (tune_recommender(FedSPLIT(1), choices, owners, trials=4, folds=1, seed=3) for _ in range(2))
    assert one == two
    assert one.trials == 4
    assert all(one.settings[name] in values for name, values in choices.items())
    errors = choose_recommender([FedSPLIT(**{"n_components": 1, **one.settings})], owners, seed=3)[1]
    assert one.error == pytest.approx(errors[0])


@pytest.mark.slow
def test_all_combinations_are_tried_when_they_are_few():
    pytest.importorskip("optuna")
    R = ratings()
    owners = {"a": R[:20], "b": R[20:]}
    found = tune_recommender(PooledCNMF(1), {"eta_item": (1e-9, 0.005)}, owners, trials=9, folds=1)
    assert found.trials == 2
    assert found.settings["eta_item"] == 0.005


def test_folds_hold_out_a_fifth():
    R = ratings()
    for kept, held in rating_folds(R, 3, 0):
        assert kept.nnz + held.nnz == R.nnz
        assert held.nnz == round(0.2 * R.nnz)


def test_too_few_ratings_are_refused():
    pytest.importorskip("optuna")
    with pytest.raises(DataError, match="too few"):
        tune_cnmf(sparse.csr_array(np.eye(3)), trials=1)


@pytest.mark.slow
def test_the_planted_rank_of_a_stack_is_found():
    rng = np.random.default_rng(1)
    S = rng.random((30, 4)) @ rng.random((4, 60)) + 0.02 * rng.random((30, 60))
    best, errors = tune_joint_rank(S, (2, 4, 8), folds=2)
    assert best == 4
    assert errors[2] > errors[4]
    with pytest.raises(ValueError, match="None of the ranks"):
        tune_joint_rank(S[:1], (2, 4))


def test_any_scale_is_told_from_the_ratings():
    rng = np.random.default_rng(0)
    R = sparse.random_array((60, 20), density=0.5, format="csr", rng=rng)
    R.data[:] = 20 * np.rint(1 + 4 * R.data)  # 20 to 100
    owners = {"a": R[:30], "b": R[30:]}
    errors = choose_recommender([PooledCF(2)], owners)[1]
    assert errors[0] < 1.2 * R.data.std()


def test_signs_of_interest_are_judged_by_lists():
    rng = np.random.default_rng(1)
    taste, kind = rng.integers(0, 2, 120), np.arange(30) % 2
    X = sparse.csr_array((rng.random((120, 30)) < np.where(taste[:, None] == kind, 0.5, 0.04)).astype(float))
    owners = {"a": X[:60], "b": X[60:]}
    good, bad = PooledCF(2, feedback="implicit"), PooledCF(2, feedback="implicit", ridge_floor=1e6)
    best, errors = choose_recommender({"good": good, "bad": bad, "items": PooledEASE(ridge=5.0)}, owners)
    assert best != "bad"
    assert 0 < errors["good"] < errors["bad"] <= 1
    with pytest.raises(DataError, match="cannot be compared"):
        choose_recommender([good, PooledCF(2)], owners)


def test_the_number_of_exchanges_can_be_tuned():
    pytest.importorskip("optuna")
    rng = np.random.default_rng(2)
    U, V = rng.random((60, 2)), rng.random((2, 25))
    R = sparse.csr_array(np.where(rng.random((60, 25)) < 0.6, 1 + 4 * U @ V / 2, 0))
    owners = {"a": R[:30], "b": R[30:]}
    found = tune_recommender(PooledCNMF(2), {"rounds": (2, 41)}, owners, trials=4, folds=1)
    assert found.settings == {"rounds": 41}
