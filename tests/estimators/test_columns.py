"""Owners of columns, and nodes of a grid."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from fedfactor import DSANLS, AsynSD, GridNMF, SynSD, SynSSD
from fedfactor.core.errors import DataError

rng = np.random.default_rng(0)
X = rng.random((40, 3)) @ rng.random((3, 30))
PARTY = np.array(["left"] * 12 + ["right"] * 18)


@pytest.mark.parametrize("face", [SynSD, AsynSD, SynSSD])
@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_parties_may_hold_columns(face, layout):
    model = face(3, split="columns", random_state=0, rounds=40)
    U = model.fit_transform(layout(X), groups=PARTY)
    assert U.shape == (40, 3)
    assert model.components_.shape == (3, 30)
    assert model.client_factors_["left"].shape == (12, 3)
    error = np.linalg.norm(X - U @ model.components_) / np.linalg.norm(X)
    assert error == pytest.approx(model.relative_error_, rel=1e-6, abs=1e-6)
    assert error < 0.1
    assert model.transform(layout(X[:5])).shape == (5, 3)


def test_labels_must_fit_the_columns():
    with pytest.raises(DataError, match="labels"):
        SynSD(2, split="columns").fit(X, groups=["a"] * 40)
    with pytest.raises(DataError, match="comes with its owners"):
        SynSD(2, split="columns").fit({"a": X})
    with pytest.raises(ValueError, match="split="):
        SynSD(2, split="diagonal").fit(X)


@pytest.mark.slow
@pytest.mark.parametrize("collect", [True, False])
def test_a_grid_is_cut_and_put_together(collect):
    model = DSANLS(3, ratio=0.5, n_clients=3, leak="ignore", collect=collect, random_state=0).fit(X)
    assert model.components_.shape == (3, 30)
    assert [U.shape[0] for U in model.client_factors_.values()] == [14, 13, 13]
    assert -model.score(X) < 0.1


@pytest.mark.parametrize("layout", [np.asarray, sparse.csr_array])
def test_blocks_are_cut_and_put_together(layout):
    model = GridNMF(3, n_clients=6, random_state=0).fit(layout(X))
    assert model.components_.shape == (3, 30)
    rows = {name: len(U) for name, U in model.client_factors_.items()}
    assert rows == {"0-0": 14, "0-1": 14, "1-0": 13, "1-1": 13, "2-0": 13, "2-1": 13}
    U = model.transform(layout(X))
    assert np.linalg.norm(X - U @ model.components_) / np.linalg.norm(X) < 0.02
    assert U[:14] == pytest.approx(model.client_factors_["0-1"], abs=1e-3)


def test_a_grid_has_no_owners():
    with pytest.raises(DataError, match="leave groups out"):
        DSANLS(2).fit(X, groups=["a"] * 40)
    with pytest.raises(DataError, match="Stack the rows"):
        DSANLS(2).fit({"a": X, "b": X})
