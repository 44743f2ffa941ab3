from __future__ import annotations

import numpy as np
import pytest

from fedfactor import FNMF
from fedfactor.datasets.dense_blocks import shared_and_private


@pytest.fixture(scope="module")
def fitted():
    X, _, own = shared_and_private(4, 80, 80)
    model = FNMF(6, alignment="lap_rho", local_solver="hals", rounds=15, tol=0, random_state=0).fit(X)
    return X, own, model


@pytest.mark.slow
def test_private_components_are_outputs(fitted):
    X, _, model = fitted
    assert set(model.components_private_) == set(X)
    assert {V.shape for V in model.components_private_.values()} == {(2, 80)}
    assert model.components_.shape == (4, 80)
    assert model.n_components_ == 4
    assert model.client_factors_["00"].shape == (80, 4)


def test_transform_uses_the_private_components_of_a_client(fitted):
    X, _, model = fitted
    shared, both = model.transform(X["00"]), model.transform(X["00"], client="00")
    assert shared.shape == (80, 4)
    assert both.shape == (80, 6)
    everything = np.vstack([model.components_, model.components_private_["00"]])
    error, plain = np.linalg.norm(X["00"] - both @ everything), np.linalg.norm(X["00"] - shared @ model.components_)
    assert error < 0.2 * plain
    other = np.linalg.norm(
        X["00"]
        - model.transform(X["00"], client="01") @ np.vstack([model.components_, model.components_private_["01"]])
    )
    assert error < 0.5 * other
    with pytest.raises(ValueError, match="No owner is called 'nobody'"):
        model.transform(X["00"], client="nobody")


@pytest.mark.slow
def test_rows_keep_their_order_and_shared_columns(fitted):
    X, _, _ = fitted
    labels = np.repeat(sorted(X), 80)
    rows = np.vstack([X[name] for name in sorted(X)])
    shuffled = np.random.default_rng(0).permutation(len(rows))
    model = FNMF(6, alignment="lap_rho", local_solver="hals", rounds=10, tol=0, random_state=0)
    U = model.fit_transform(rows[shuffled], groups=labels[shuffled])
    assert U.shape == (320, model.n_components_)
    assert model.inverse_transform(U).shape == rows.shape


def test_without_private_components_there_are_none():
    X = np.random.default_rng(0).random((30, 6))
    model = FNMF(2, rounds=3, tol=0, random_state=0, n_clients=3).fit(X)
    assert model.components_private_ == {}
    np.testing.assert_array_equal(model.transform(X, client="1"), model.transform(X))
