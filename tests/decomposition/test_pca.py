"""PooledPCA and PooledSVD give what scikit-learn gives on pooled rows, and protect rows when asked to."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.utils.estimator_checks import check_estimator

import fedfactor
from fedfactor import PooledPCA, PooledSVD, algorithms, dp
from fedfactor.core.algorithm import Meta, Round
from fedfactor.core.client_data import Shard
from fedfactor.core.errors import DataError, IncompatibleError
from fedfactor.decomposition.krylov import eigenvectors_within, next_directions, orthonormal_rows
from fedfactor.decomposition.second_moments import CONSTANT, clipped_moments, gram_half, symmetric, unclipped_moments

ATTRIBUTES = ("components_", "explained_variance_", "explained_variance_ratio_", "singular_values_")


def rows(n=90, m=12, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((n, m)) @ rng.standard_normal((m, m)) + 5).astype(dtype)


@pytest.mark.parametrize("n_components", [3, None, 0.9])
@pytest.mark.parametrize("whiten", [False, True])
def test_pca_equals_pooled_scikit_learn(n_components, whiten):
    X = rows()
    model = PooledPCA(n_components, whiten=whiten, n_clients=4, random_state=0).fit(X)
    pooled = PCA(n_components, whiten=whiten, svd_solver="full").fit(X)
    for name in (*ATTRIBUTES, "mean_", "noise_variance_"):
        np.testing.assert_allclose(getattr(model, name), getattr(pooled, name), atol=1e-10)
    np.testing.assert_allclose(model.transform(X), pooled.transform(X), atol=1e-9)
    np.testing.assert_allclose(
        model.inverse_transform(model.transform(X)), pooled.inverse_transform(pooled.transform(X)), atol=1e-9
    )
    assert model.n_samples_ == len(X)
    assert model.n_components_ == pooled.n_components_


def test_fewer_rows_than_columns_and_than_components():
    X = rows(n=7)
    model, pooled = PooledPCA(n_clients=3, random_state=0).fit(X), PCA().fit(X)
    np.testing.assert_allclose(model.explained_variance_, pooled.explained_variance_, atol=1e-10)
    assert model.components_.shape == (7, 12)


def test_svd_equals_pooled_scikit_learn_on_sparse_rows():
    X = sparse.random_array((200, 30), density=0.1, random_state=np.random.default_rng(0), format="csr")
    model = PooledSVD(4, n_clients=5, random_state=0).fit(X)
    pooled = TruncatedSVD(4, algorithm="arpack", random_state=0).fit(X)
    for name in ATTRIBUTES:
        np.testing.assert_allclose(np.abs(getattr(model, name)), np.abs(getattr(pooled, name)), atol=1e-9)
    assert (model.components_.max(axis=1) >= -model.components_.min(axis=1)).all()  # signs are those of the largest


@pytest.mark.parametrize("solver", ["gram", "subspace"])
def test_sparse_rows_are_centered_and_not_made_dense(solver, monkeypatch):
    X = sparse.random_array((300, 40), density=0.1, random_state=np.random.default_rng(0), format="csr")
    dense, made = X.toarray(), []
    toarray = sparse.csr_array.toarray

    def watched(self, *args, **named):
        made.append(self.shape)
        return toarray(self, *args, **named)

    monkeypatch.setattr(sparse.csr_array, "toarray", watched)
    monkeypatch.setattr(sparse.csc_array, "toarray", watched)
    model = PooledPCA(3, solver=solver, n_clients=5, rounds=8, random_state=0).fit(X)
    U = model.transform(X)
    assert set(made) <= {(40, 40)}  # XᵀX, never rows
    pooled = PCA(3, svd_solver="full").fit(dense)
    np.testing.assert_allclose(model.explained_variance_, pooled.explained_variance_, rtol=1e-8)
    np.testing.assert_allclose(np.abs(U), np.abs(pooled.transform(dense)), atol=1e-4)


def test_single_precision_stays_and_is_summed_in_double():
    X = rows(n=20_000, dtype=np.float32)
    model = PooledPCA(3, n_clients=4, random_state=0).fit(X)
    assert model.components_.dtype == model.transform(X).dtype == np.float32
    pooled = PCA(3).fit(X.astype(np.float64))
    np.testing.assert_allclose(model.explained_variance_, pooled.explained_variance_, rtol=1e-5)


def test_each_exchange_explains_more_and_converges_to_the_exact_components():
    X = np.random.default_rng(0).standard_normal((500, 60)) * 0.9 ** np.arange(60)
    exact = PCA(5).fit(X)
    owners = {str(i): part for i, part in enumerate(np.array_split(X, 10))}
    errors = []
    for exchanges in (1, 2, 3, 4):
        run = fedfactor.run(
            algorithms.PooledPCA(5, solver="subspace", oversampling=5), owners, rounds=exchanges, seed=0
        )
        errors.append(float(np.abs(np.array(run.algorithm.fitted[2]) - exact.explained_variance_).max()))
        assert run.bytes_up == 10 * exchanges * 8 * (10 * 60 + 60 + 2)
    assert errors[0] > 5 * errors[1] > 25 * errors[2] > 125 * errors[3]
    assert errors[3] < 1e-4 * exact.explained_variance_[0]
    explained = [record.metrics["explained"] for record in run.history]
    assert explained == sorted(explained)


def test_sums_of_other_clients_start_the_directions_anew():
    X = rows(n=300, m=30)
    owners = {str(i): part for i, part in enumerate(np.array_split(X, 3))}
    run = fedfactor.run(
        algorithms.PooledPCA(3, solver="subspace", oversampling=5),
        owners,
        rounds=6,
        seed=0,
        participation=lambda at, names: names if at.index < 2 else names[:2],
    )
    seen = PCA(3).fit(np.concatenate([owners["0"], owners["1"]]))
    np.testing.assert_allclose(run.algorithm.fitted[2], seen.explained_variance_, rtol=1e-6)


def test_directions_beyond_the_rows_end_the_run():
    X = np.outer(np.arange(1.0, 31), np.ones(20))
    run = fedfactor.run(algorithms.PooledPCA(3, solver="subspace"), {"a": X[:10], "b": X[10:]}, rounds=9, seed=0)
    assert run.status == "converged"
    np.testing.assert_allclose(run.algorithm.fitted[2], PCA(3).fit(X).explained_variance_, atol=1e-6)


def test_secure_aggregation_gives_the_same_components():
    X = rows()
    plain = PooledPCA(3, n_clients=4, random_state=0).fit(X)
    summed = PooledPCA(3, n_clients=4, random_state=0, privacy="secure-sum").fit(X)
    np.testing.assert_allclose(summed.components_, plain.components_, atol=1e-7)


def test_what_cannot_work_is_refused_with_the_remedy():
    X = rows()
    gap = X.copy()
    gap[0, 0] = np.nan
    with pytest.raises(IncompatibleError, match=r"Fill them, or take a method that handles missing"):
        PooledPCA(2, missing_values=np.nan).fit(gap)
    with pytest.raises(DataError, match="NaN"):
        PooledPCA(2).fit(gap)
    with pytest.raises(DataError, match="n_components=13"):
        PooledPCA(13).fit(X)
    for odd in (1.5, -1, True, "mle"):
        with pytest.raises(ValueError, match="n_components"):
            PooledPCA(odd).fit(X)
    with pytest.raises(ValueError, match="solver='gram'"):
        PooledPCA(solver="subspace").fit(X)
    with pytest.raises(ValueError, match="Noise that protects rows"):
        PooledPCA(2, solver="subspace", privacy=dp(1.0, 1e-3, row_bound=1.0, rows=90)).fit(X)


@pytest.mark.parametrize("estimator", [PooledPCA(2), PooledPCA(2, solver="subspace"), PooledSVD(2)])
def test_scikit_learn_accepts_the_estimators(estimator):
    failed = [r["check_name"] for r in check_estimator(estimator, on_fail=None) if r["status"] == "failed"]
    assert not failed


def test_saved_and_loaded_models_transform_alike(tmp_path):
    X = rows()
    for name, model in {"pca": PooledPCA(0.8, whiten=True), "svd": PooledSVD(3)}.items():
        model.set_params(random_state=0, n_clients=3).fit(X)
        again = fedfactor.load(fedfactor.save(model, tmp_path / name))
        np.testing.assert_array_equal(again.transform(X), model.transform(X))
        np.testing.assert_array_equal(again.explained_variance_, model.explained_variance_)


@pytest.mark.parametrize("pick", [np.asarray, sparse.csr_array])
def test_one_row_changes_the_protected_sums_by_the_stated_sensitivity_at_most(pick):
    X = np.concatenate([rows(n=50), 1e6 * np.eye(12)[:3], np.zeros((1, 12)), np.full((1, 12), 1e200)])
    bound = algorithms.PooledPCA(2, row_clip=3.0, row_count=55.0).sensitivity(Meta(12, ("a",)))[1]
    whole = np.concatenate(clipped_moments(pick(X), 3.0))
    largest = 0.0
    for i in range(len(X)):
        rest = np.concatenate(clipped_moments(pick(np.delete(X, i, axis=0)), 3.0))
        largest = max(largest, float(np.linalg.norm(whole - rest)))
    assert 0.999 * bound < largest <= bound
    assert bound == pytest.approx(np.sqrt(1 + 2 * CONSTANT**2))


def test_protected_sums_are_those_of_shortened_rows():
    X = rows(n=40)
    short = X * np.minimum(1, 4.0 / np.linalg.norm(X, axis=1))[:, None]
    half, total = unclipped_moments(*clipped_moments(X, 4.0), 4.0)
    np.testing.assert_allclose(symmetric(half), short.T @ short, rtol=1e-9)
    np.testing.assert_allclose(total, short.sum(axis=0), rtol=1e-9)


def test_noise_for_rows_pays_for_one_exchange_and_for_the_mean():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((4000, 6)) * [4, 3, 1, 1, 1, 1] + [2, 0, 0, 0, 0, 0]
    privacy = dp(2.0, 1e-5, row_bound=12.0, rows=4000, noise_seed=0)
    model = PooledPCA(2, n_clients=4, random_state=0, privacy=privacy).fit(X)
    assert model.n_iter_ == 1
    assert 1.99 < model.run_.privacy["epsilon"] <= 2.0
    exact = PCA(2).fit(X)
    assert np.linalg.norm(model.components_ @ exact.components_.T, 2) > 0.99
    np.testing.assert_allclose(model.mean_, exact.mean_, atol=0.2)
    assert not np.array_equal(model.mean_, exact.mean_)
    assert model.n_samples_ == 4000


def test_directions_that_no_honest_server_sends_are_refused():
    method, meta = algorithms.PooledPCA(2, solver="subspace"), Meta(5, ("a",))
    _, asked = method.init_server(meta, Round(0, 0))
    assert method.accepts(asked, meta) == ""
    for odd in (2 * asked.Q, np.ones_like(asked.Q) / np.sqrt(5), np.full_like(asked.Q, np.nan)):
        assert method.accepts(type(asked)(odd), meta)


def test_gram_of_many_rows_is_that_of_blocks():
    X = np.random.default_rng(0).integers(0, 9, (20_000, 5)).astype(np.float64)
    np.testing.assert_array_equal(symmetric(gram_half(X)), X.T @ X)
    np.testing.assert_array_equal(gram_half(sparse.csr_array(X)), gram_half(X))


def test_krylov_space_holds_all_that_matters():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((40, 20))
    C = A.T @ A
    Q = orthonormal_rows(rng.standard_normal((6, 20)))
    Y = Q @ C
    while len(more := next_directions(Q, Y, 6)):
        Q, Y = np.concatenate([Q, more]), np.concatenate([Y, more @ C])
        np.testing.assert_allclose(Q @ Q.T, np.eye(len(Q)), atol=1e-12)
    values, vectors = eigenvectors_within(Q, Y, 20, 1e-16)
    np.testing.assert_allclose(values, np.linalg.eigvalsh(C)[::-1], rtol=1e-8)
    np.testing.assert_allclose(vectors @ C @ vectors.T, np.diag(values), atol=1e-6)


def test_errors_of_held_out_cells_are_those_of_the_fitted_rows():
    X = rows()
    run = fedfactor.run(algorithms.PooledPCA(2), {"a": X}, seed=0)
    hidden = np.random.default_rng(0).random(X.shape) < 0.1
    score = run.algorithm.score(Shard(X, holdout=hidden), run.factors["a"], run.down)
    fitted = run.factors["a"].U @ run.V + run.algorithm.fitted[0]
    assert float(score.sse) == pytest.approx(float(((X - fitted)[hidden] ** 2).sum()))
    whole = run.algorithm.score(Shard(X), run.factors["a"], run.down)
    assert float(whole.sse) == pytest.approx(float(((X - fitted) ** 2).sum()))


@pytest.mark.parametrize("solver", ["gram", "subspace"])
def test_parties_across_a_network_find_the_same_components(solver, tmp_path):
    pytest.importorskip("cryptography")
    from tests.network.in_process import Office

    X = rows()
    owners = {name: X[30 * i : 30 * i + 30] for i, name in enumerate(("east", "north", "west"))}
    method = algorithms.PooledPCA(3, solver=solver)
    office = Office(tmp_path, method, owners, rounds=4)
    office.server().run()
    alone = fedfactor.run(method, owners, rounds=4, seed=5)
    for name in owners:
        np.testing.assert_array_equal(office.factors(name).V, alone.V)
        np.testing.assert_array_equal(office.factors(name).U, alone.factors[name].U)
