"""Handwritten digits, one class per owner: the hardest split must cost nothing."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from fedfactor import FedAvgNMF, PooledNMF

POOLED_OPTIMUM = 0.2215  # best relative error of scikit-learn on all rows, rank 20


@pytest.fixture(scope="module")
def digits():
    return load_digits(return_X_y=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_split_by_class_is_as_good_as_pooled(digits, seed):
    X, owner = digits
    model = PooledNMF(n_components=20, random_state=seed).fit(X, groups=owner)
    assert model.relative_error_ <= 0.2265
    assert model.run_.status == "converged"
    U = np.vstack([model.client_factors_[str(digit)] for digit in range(10)])
    rows = np.vstack([X[owner == digit] for digit in range(10)])
    residual = np.linalg.norm(rows - U @ model.components_)
    np.testing.assert_allclose(model.reconstruction_err_, residual, rtol=1e-6)
    np.testing.assert_allclose(model.relative_error_, residual / np.linalg.norm(X), rtol=1e-6)


@pytest.mark.slow
def test_averaging_suffers_from_the_split(digits):
    X, owner = digits
    model = FedAvgNMF(n_components=20, rounds=12, tol=0, random_state=0)
    apart = model.fit(X, groups=owner).relative_error_
    assert apart > 1.1 * model.set_params(n_clients=10).fit(X).relative_error_


@pytest.mark.slow
def test_five_seeds(digits):
    X, owner = digits
    models = [PooledNMF(n_components=20, random_state=seed).fit(X, groups=owner) for seed in range(5)]
    assert np.median([model.relative_error_ for model in models]) <= 0.2237
    by_round_25 = [model.run_.history[:25][-1].metrics["relative_error"] for model in models]  # some need fewer
    assert np.median(by_round_25) <= 1.05 * POOLED_OPTIMUM
