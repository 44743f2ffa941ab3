"""What is done with item factors before and after they are stacked."""

from __future__ import annotations

import numpy as np
import pytest

from fedfactor.recommend.fedsplit.joint_nmf import fill_unrated, joint_factors, outliers, row_rms


def test_joint_factors_recover_what_was_stacked():
    rng = np.random.default_rng(0)
    V = rng.random((3, 40)) * (rng.random((3, 40)) < 0.5)
    S = rng.random((25, 3)) @ V
    M, found, error = joint_factors(S, 3, iterations=500, tol=0)
    assert error < 1e-2
    np.testing.assert_allclose(M @ found, S, atol=0.05)


@pytest.mark.slow
def test_masked_joint_factors_ignore_what_is_masked():
    rng = np.random.default_rng(1)
    S = rng.random((30, 2)) @ rng.random((2, 40))
    mask = rng.random(S.shape) < 0.6
    spoilt = np.where(mask, S, 100 * rng.random(S.shape))
    M, V, error = joint_factors(spoilt, 2, mask=mask, iterations=500, tol=0)
    assert error < 0.01
    assert np.abs(M @ V - S)[~mask].mean() < 0.05
    assert joint_factors(spoilt, 2)[2] > 0.2


def test_more_components_than_rows():
    M, V, _ = joint_factors(np.random.default_rng(0).random((2, 9)), 4)
    assert M.shape == (2, 4)
    assert V.shape == (4, 9)


@pytest.mark.parametrize("how", ["draw", "mean", "keep"])
def test_filling_changes_unrated_items_only(how):
    rng = np.random.default_rng(0)
    V, rated = rng.random((3, 50)), rng.random(50) < 0.5
    filled = fill_unrated(V, rated, how, np.random.default_rng(1))
    np.testing.assert_array_equal(filled[:, rated], V[:, rated])
    assert np.array_equal(filled, V) == (how == "keep")
    assert (filled > 0).all()


def test_drawn_entries_repeat_none_and_look_like_the_rest():
    rng = np.random.default_rng(0)
    V, rated = rng.random((2, 4000)), np.arange(4000) < 2000
    filled = fill_unrated(V, rated, "draw", rng)
    for row in filled:
        assert len(np.unique(row)) == len(row)
        assert abs(row[rated].mean() - row[~rated].mean()) < 0.1
    assert fill_unrated(V, np.zeros(4000, bool), "draw", rng) is V


def test_sizes():
    V = np.array([[3.0, 3.0], [0.0, 0.0]])
    assert row_rms(V).ravel().tolist() == [3, 1]
    assert outliers([0.0, 0.0, 5.0], 20).tolist() == [False] * 3
    assert outliers([np.inf, 1.0, 1.0], 20).tolist() == [True, False, False]
    assert outliers([np.nan], 20).tolist() == [True]
