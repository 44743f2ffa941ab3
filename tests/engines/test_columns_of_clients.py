"""Clients that hold columns of the same rows find the factors of one client with all columns."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import PCA, TruncatedSVD

import fedfactor
from fedfactor.algorithms import FNMF, PooledNMF, PooledPCA, PooledSVD
from fedfactor.core.client_data import Shard
from fedfactor.core.errors import DataError, IncompatibleError
from fedfactor.io.row_matching import common_hashes, hashes_of_ids, positions_of

KEY = b"a secret of at least sixteen bytes"


def columned(algorithm, tables, **options):
    return fedfactor.run(algorithm, tables, split="columns", **{"seed": 0, **options})


def cut(X, clients):
    return {f"{i:02d}": part for i, part in enumerate(np.array_split(X, clients, axis=1))}


@pytest.mark.parametrize("clients", [2, 3, 10])
def test_nmf_of_columns_is_that_of_one_client_with_all_columns(clients):
    rng = np.random.default_rng(0)
    X = rng.random((50, 4)) @ rng.random((4, 60)) + 0.05 * rng.random((50, 60))
    many = columned(PooledNMF(4, tol=0), cut(X, clients), rounds=60)
    pooled = fedfactor.run(PooledNMF(4, tol=0), {"all": X.T}, rounds=60, seed=0)
    V = np.concatenate([many.V[name] for name in sorted(many.V)], axis=1)
    np.testing.assert_allclose(many.U, pooled.V.T, atol=1e-9)
    np.testing.assert_allclose(V, pooled.factors["all"].U.T, atol=1e-9)
    assert np.linalg.norm(X - many.U @ V) / np.linalg.norm(X) < 0.05


@pytest.mark.parametrize("clients", [2, 3, 10])
@pytest.mark.parametrize("solver", ["gram", "subspace"])
def test_pca_of_columns_is_that_of_pooled_scikit_learn(clients, solver):
    X = np.random.default_rng(0).standard_normal((40, 30)) * 0.7 ** np.arange(30) + 5
    found = columned(PooledPCA(3, solver=solver), cut(X, clients), rounds=6)
    V = np.concatenate([found.V[name] for name in sorted(found.V)], axis=1)
    pooled = PCA(3, svd_solver="full").fit(X)
    np.testing.assert_allclose(np.abs(V), np.abs(pooled.components_), atol=1e-9)
    np.testing.assert_allclose(np.abs(found.U), np.abs(pooled.transform(X)), atol=1e-9)
    np.testing.assert_allclose(found.U @ V, (X - X.mean(axis=0)) @ pooled.components_.T @ pooled.components_, atol=1e-9)
    whitened = columned(PooledPCA(3, whiten=True), cut(X, clients))
    np.testing.assert_allclose(whitened.U.std(axis=0, ddof=1), 1)


def test_svd_of_sparse_columns_under_secure_aggregation():
    X = sparse.random_array((30, 40), density=0.3, random_state=np.random.default_rng(0), format="csr")
    tables = {"a": X[:, :12], "b": X[:, 12:25], "c": X[:, 25:]}
    with pytest.warns(UserWarning, match="fewer than"):
        found = columned(PooledSVD(2), tables, privacy="secure-sum")
    pooled = TruncatedSVD(2, algorithm="arpack", random_state=0).fit(X)
    np.testing.assert_allclose(np.abs(np.concatenate([found.V[n] for n in "abc"], axis=1)), np.abs(pooled.components_),
                               atol=1e-6)  # fmt: skip
    with pytest.raises(IncompatibleError, match="PooledSVD"):
        columned(PooledPCA(2), tables)


def test_rows_are_matched_by_ids_in_any_order():
    rng = np.random.default_rng(0)
    X, ids = rng.random((60, 12)), [f"patient {i}" for i in range(60)]
    here, there = rng.permutation(60)[:50], rng.permutation(60)[:45]
    tables = {
        "clinic": Shard(X[here, :5], row_ids=tuple(ids[i] for i in here)),
        "lab": Shard(X[there, 5:], row_ids=tuple(f" {ids[i]} " for i in there)),
    }
    found = columned(PooledPCA(2), tables)
    common = here[found.rows["clinic"]]
    np.testing.assert_array_equal(common, there[found.rows["lab"]])
    assert sorted(common) == sorted(set(here) & set(there))
    pooled = PCA(2).fit(X[common])
    np.testing.assert_allclose(np.abs(found.U), np.abs(pooled.transform(X[common])), atol=1e-9)


def test_a_hundred_thousand_ids_are_matched():
    rng = np.random.default_rng(0)
    lists = {name: rng.permutation(130_000)[:100_000] for name in ("a", "b")}
    hashed = {name: hashes_of_ids(ids.tolist(), KEY) for name, ids in lists.items()}
    common = common_hashes(hashed)
    a, b = (lists[name][positions_of(common, hashed[name])] for name in ("a", "b"))
    np.testing.assert_array_equal(a, b)
    assert set(a.tolist()) == set(lists["a"].tolist()) & set(lists["b"].tolist())


def test_a_coordinator_that_enumerates_all_ids_finds_none_without_the_key():
    ids = [f"{i:05d}" for i in range(2000)]
    seen = {each.tobytes() for each in hashes_of_ids(ids, KEY)}
    for guess in (b"\0" * 16, b"another secret of enough bytes", KEY + b"x", KEY[:-1]):
        assert not seen & {each.tobytes() for each in hashes_of_ids(ids, guess)}
    assert seen == {each.tobytes() for each in hashes_of_ids(ids, KEY)}  # with a client's key it finds them all


def test_what_cannot_be_matched_is_refused_with_the_remedy():
    X = np.ones((4, 3))
    named = Shard(X, row_ids=("a", "b", "c", "d"))
    with pytest.raises(DataError, match="Give row ids to match by"):
        columned(PooledPCA(1), {"a": X, "b": X[:3]})
    with pytest.raises(DataError, match="'b' has none"):
        columned(PooledPCA(1), {"a": named, "b": X})
    with pytest.raises(ValueError, match="found by trying all"):
        hashes_of_ids(["a"], b"short")
    with pytest.raises(DataError, match="no row in common"):
        columned(PooledPCA(1), {"a": named, "b": Shard(X, row_ids=("e", "f", "g", "h"))})
    with pytest.raises(DataError, match="more than one row"):
        hashes_of_ids(["a", "b", "a"], KEY)
    with pytest.raises(IncompatibleError, match="would protect columns, not the rows"):
        columned(PooledPCA(1), {"a": X, "b": X}, privacy=fedfactor.dp(1.0, 1e-3, row_bound=1.0, rows=6))
    with pytest.raises(IncompatibleError, match="does not take columns"):
        columned(FNMF(1), {"a": X})
