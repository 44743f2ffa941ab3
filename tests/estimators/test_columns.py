"""Owners of columns, and nodes of a grid."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import PCA

from fedfactor import DSANLS, AsynSD, GridNMF, PooledNMF, PooledPCA, SynSD, SynSSD, dp
from fedfactor.core.client_data import Shard
from fedfactor.core.errors import DataError, IncompatibleError

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
    with pytest.raises(DataError, match="names its clients"):
        SynSD(2, split="columns").fit({"a": X}, groups=PARTY)
    with pytest.raises(ValueError, match="split="):
        SynSD(2, split="diagonal").fit(X)


def test_clients_bring_columns_whose_rows_are_matched_by_their_ids():
    ids = np.array([f"p{i}" for i in range(40)])
    here = rng.permutation(40)[:35]
    there = rng.permutation(40)
    tables = {
        "lab": Shard(X[here, :12], features=tuple(f"l{j}" for j in range(12)), row_ids=tuple(ids[here])),
        "clinic": Shard(X[there, 12:], features=tuple(f"c{j}" for j in range(18)), row_ids=tuple(ids[there])),
    }
    for model in (PooledNMF(3, split="columns", random_state=0), SynSD(3, split="columns", random_state=0, rounds=40)):
        U = model.fit_transform(tables)
        assert U.shape == (35, 3)
        assert list(model.feature_names_in_[[0, 12]]) == ["l0", "c0"]
        rows = X[here]
        assert np.linalg.norm(rows - U @ model.components_) / np.linalg.norm(rows) < 0.1
        assert np.linalg.norm(rows - model.inverse_transform(model.transform(rows))) / np.linalg.norm(rows) < 0.1
        assert model.client_factors_["lab"].shape == (12, 3)


@pytest.mark.parametrize("whiten", [False, True])
def test_pca_of_columns_is_that_of_scikit_learn(whiten):
    cells = rng.standard_normal((40, 30)) * 0.8 ** np.arange(30) + 3
    model = PooledPCA(3, split="columns", whiten=whiten, random_state=0)
    U = model.fit_transform(cells, groups=PARTY)
    pooled = PCA(3, svd_solver="full", whiten=whiten).fit(cells)
    signs = np.sign(np.sum(model.components_ * pooled.components_, axis=1))
    for name in ("explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_", "noise_variance_"):
        np.testing.assert_allclose(getattr(model, name), getattr(pooled, name), rtol=1e-9, err_msg=name)
    np.testing.assert_allclose(model.components_ * signs[:, None], pooled.components_, atol=1e-9)
    np.testing.assert_allclose(U * signs, pooled.transform(cells), atol=1e-9)
    further = rng.standard_normal((5, 30))
    np.testing.assert_allclose(model.transform(further) * signs, pooled.transform(further), atol=1e-9)
    np.testing.assert_allclose(
        model.inverse_transform(model.transform(cells)), pooled.inverse_transform(pooled.transform(cells)), atol=1e-9
    )
    left = np.linalg.norm(cells - pooled.inverse_transform(pooled.transform(cells)))
    assert model.reconstruction_err_ == pytest.approx(left)
    assert model.n_samples_ == 40


def test_what_columns_do_not_allow_is_refused_with_the_remedy():
    with pytest.raises(IncompatibleError, match="would protect columns"):
        PooledNMF(2, split="columns", privacy=dp(1.0, 1e-3, row_bound=1.0, rows=40)).fit(X)
    with pytest.raises(IncompatibleError, match="n_private=0"):
        PooledNMF(2, split="columns", n_private=1).fit(X, groups=PARTY)
    with pytest.raises(IncompatibleError, match="warm_start=False"):
        PooledNMF(2, split="columns", warm_start=True).fit(X, groups=PARTY)
    assert not hasattr(PooledNMF(2, split="columns"), "partial_fit")
    assert not hasattr(PooledPCA(2, split="columns"), "partial_fit")
    with pytest.raises(IncompatibleError, match="not sparse"):
        PooledPCA(2, split="columns").fit(sparse.csr_array(X), groups=PARTY)


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
