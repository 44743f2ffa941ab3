"""Planted data are what they say."""

from __future__ import annotations

import numpy as np
import pytest

from fedfactor.core.errors import DataError
from fedfactor.datasets.synthetic import planted_boolean, planted_nmf


def test_nmf_without_noise_is_the_product() -> None:
    data = planted_nmf(80, 30, 5, dtype=np.float32)
    assert data.X.dtype == data.U.dtype == data.V.dtype == np.float32
    np.testing.assert_allclose(data.X, data.U @ data.V, rtol=1e-6)
    assert data.floor == 0
    assert np.linalg.matrix_rank(data.X.astype(float), tol=1e-4) == 5
    assert data.U.any(axis=1).all()
    assert data.V.any(axis=1).all()


def test_nmf_floor_is_the_error_of_the_planted_factors() -> None:
    data = planted_nmf(300, 100, 4, noise=0.2, seed=3)
    assert (data.X >= 0).all()
    assert data.floor == pytest.approx(np.linalg.norm(data.X - data.U @ data.V) / np.linalg.norm(data.X))
    assert 0.1 < data.floor < 0.2


def test_density_is_that_of_the_factors() -> None:
    data = planted_nmf(2000, 500, 10, density=0.3)
    assert np.mean(data.V > 0) == pytest.approx(0.3, abs=0.03)
    assert np.mean(data.U > 0) == pytest.approx(0.3, abs=0.03)


def test_owners_hold_different_components() -> None:
    for data in (
        planted_nmf(90, 20, 3, n_clients=3, per_client=1),
        planted_boolean(90, 40, 3, n_clients=3, per_client=1),
    ):
        for owner in range(3):
            others = np.delete(data.U[data.labels == owner], owner, axis=1)
            assert not others.any()
            assert data.U[data.labels == owner, owner].any()


def test_no_stream_is_the_one_a_solver_may_start_with() -> None:
    data = planted_nmf(20, 10, 3, density=1.0, seed=0)
    for seed in (0, [0], [0, 0]):
        start = np.random.default_rng(seed).random(data.U.shape)
        assert abs(np.corrcoef(start.ravel(), data.U.ravel())[0, 1]) < 0.6
    assert abs(np.corrcoef(data.U[:10].ravel(), data.V.T.ravel())[0, 1]) < 0.6


def test_same_seed_same_data() -> None:
    np.testing.assert_array_equal(planted_nmf(9, 8, 2, noise=0.1).X, planted_nmf(9, 8, 2, noise=0.1).X)
    assert (planted_nmf(9, 8, 2).X != planted_nmf(9, 8, 2, seed=1).X).any()
    np.testing.assert_array_equal(planted_boolean(9, 8, 2, flips=0.1).X, planted_boolean(9, 8, 2, flips=0.1).X)


def test_boolean_tiles_and_floor() -> None:
    data = planted_boolean(2000, 300, 5, in_tile=0.9, background=0.01, flips=0.05, seed=1)
    assert set(np.unique(data.X)) == {0.0, 1.0}
    truth = data.U @ data.V > 0
    inside = data.X[truth].mean()
    assert inside == pytest.approx(0.9 * 0.95 + 0.1 * 0.05, abs=0.01)
    assert data.X[~truth].mean() == pytest.approx(0.01 * 0.95 + 0.99 * 0.05, abs=0.01)
    assert data.floor == pytest.approx(np.sum(data.X != truth) / data.X.sum())
    share = np.r_[data.U.mean(axis=0), data.V.mean(axis=1)]
    assert share.min() >= 0.099
    assert share.max() <= 0.301


@pytest.mark.parametrize(
    ("make", "wrong"),
    [
        (planted_nmf, {"density": 0.0}),
        (planted_nmf, {"noise": -1.0}),
        (planted_nmf, {"per_client": 9}),
        (planted_boolean, {"flips": 0.6}),
        (planted_boolean, {"tile": (0.3, 0.1)}),
        (planted_boolean, {"in_tile": 1.5}),
        (planted_boolean, {"n_clients": 99}),
    ],
)
def test_impossible_settings(make, wrong) -> None:
    with pytest.raises(DataError):
        make(10, 10, 2, **wrong)
    with pytest.raises(DataError):
        make(10, 10, 0)
