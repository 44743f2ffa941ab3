"""PooledCNMF is central CNMF; the iterative rivals learn."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

import fedfactor
from fedfactor.algorithms import FCF, FedMF, PooledCNMF
from fedfactor.core.algorithm import Round
from fedfactor.core.errors import ProtocolError
from fedfactor.metrics import ranking_scores
from fedfactor.recommend.implicit_feedback import confidence, implicit_step
from fedfactor.recommend.local_cnmf import cnmf
from fedfactor.recommend.ratings import split_ratings_by_time
from fedfactor.recommend.user_table import UserTable
from tests.recommend.test_fedsplit import errors, federation, planted


@pytest.fixture(scope="module")
def data():
    return planted()


@pytest.mark.slow
def test_many_owners_give_the_iterates_of_central_cnmf(data):
    R, _, owners = data
    run = fedfactor.run(PooledCNMF(3), federation(R, owners), rounds=1 + 2 * 25, seed=4)
    V0 = Round(4, 0).shared_rng("V").random((3, R.shape[1]))
    central = cnmf(R, np.full((R.shape[0], 3), 0.5), V0, R.data.mean(), iterations=25)
    np.testing.assert_allclose(run.V[:3], central.V, rtol=1e-8)
    np.testing.assert_allclose(run.V[-1], central.item + R.data.mean(), rtol=1e-8)


def test_implicit_is_central_too(data):
    R, _, owners = data
    run = fedfactor.run(PooledCNMF(3, feedback="implicit", weight=4.0), federation(R, owners), rounds=11, seed=4)
    V, U = Round(4, 0).shared_rng("V").random((3, R.shape[1])), np.full((R.shape[0], 3), 0.5)
    losses = []
    for _ in range(10):
        U, N, D, loss = implicit_step(confidence(R, 4.0), U, V, alpha=0.06)
        V = V * N / (U.T @ U @ V + D + 0.06 * V)
        losses.append(loss)
    np.testing.assert_allclose(run.V, V, rtol=1e-8)
    assert (np.diff(losses) < 0).all()


@pytest.mark.slow
def test_convergence_is_noticed(data):
    R, _, owners = data
    run = fedfactor.run(PooledCNMF(2, tol=1e-3), federation(R, owners), rounds=500, seed=0)
    assert run.status == "converged"
    rmse = [record.metrics["rmse"] for record in run.history if "rmse" in record.metrics]
    assert rmse[-1] < rmse[0]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", [PooledCNMF(3), FCF(3, lam=2.0), FedMF(3)], ids=["PooledCNMF", "FCF", "FedMF"])
def test_iterations_beat_the_mean(algorithm, data):
    R, test, owners = data
    run = fedfactor.run(algorithm, federation(R, owners), seed=0)
    mean = np.sqrt(np.mean((test.data - R.data.mean()) ** 2))
    assert np.mean(list(errors(run, test, owners).values())) < 0.85 * mean


@pytest.mark.slow
@pytest.mark.parametrize(
    "algorithm", [PooledCNMF(3, feedback="implicit"), FCF(3, feedback="implicit")], ids=["PooledCNMF", "FCF"]
)
def test_implicit_feedback_ranks_better_than_popularity(algorithm):
    rng = np.random.default_rng(2)
    taste, kind = rng.integers(0, 3, 200), np.arange(60) % 3
    clicks = (rng.random((200, 60)) < np.where(taste[:, None] == kind, 0.5, 0.03)).astype(float)
    R = sparse.csr_array(clicks)
    when = sparse.csr_array((rng.random(R.nnz), R.indices, R.indptr), shape=R.shape)
    train, later = split_ratings_by_time(R, when, 0.3)
    owners = {f"{g}": np.arange(g, 200, 5) for g in range(5)}
    run = fedfactor.run(algorithm, federation(train, owners), rounds=60, seed=0)
    hits = []
    for name, rows in owners.items():
        kept = run.factors[name]
        table = UserTable(kept.U, kept.V, train[rows], rows, np.arange(60), None)
        hits.append(ranking_scores(table.best(np.arange(len(rows)), 5)[0], later[rows]).ndcg)
    popular = np.tile(np.argsort(-np.asarray(train.sum(axis=0)).ravel())[:5], (200, 1))
    assert np.mean(hits) > 1.5 * ranking_scores(popular, later).ndcg


@pytest.mark.parametrize(
    "bad", [PooledCNMF(2, feedback="clicks"), PooledCNMF(2, delta=-1.0), FCF(2, lam=0.0), FedMF(2, momentum=1.0)]
)
def test_bad_settings_are_refused(bad, data):
    R, _, owners = data
    with pytest.raises(ValueError, match=r"feedback|delta=-1.0|lam|momentum"):
        fedfactor.run(bad, federation(R, owners), seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("spoil", [lambda up: up.N * np.nan, lambda up: -up.N], ids=["not finite", "negative"])
def test_a_client_that_sends_nonsense_is_left_out_and_named(spoil, data):
    R, test, owners = data
    who = next(iter(owners))

    class Sick(PooledCNMF):
        __slots__ = ()

        def client_step(self, shard, state, down, at):
            state, up = PooledCNMF.client_step(self, shard, state, down, at)
            return state, replace(up, N=spoil(up)) if at.client == who and hasattr(up, "N") else up

    clean = errors(fedfactor.run(PooledCNMF(2), federation(R, owners), rounds=41, seed=0), test, owners)
    run = fedfactor.run(Sick(2), federation(R, owners), rounds=41, seed=0)
    assert run.rejected == (who,)
    found = errors(run, test, owners)
    others = [name for name in owners if name != who]
    assert abs(np.mean([found[n] for n in others]) / np.mean([clean[n] for n in others]) - 1) < 0.05


@pytest.mark.slow
def test_a_secure_sum_ends_when_an_upload_is_not_finite(data):
    R, _, owners = data

    class Sick(PooledCNMF):
        __slots__ = ()

        def client_step(self, shard, state, down, at):
            state, up = PooledCNMF.client_step(self, shard, state, down, at)
            return state, replace(up, N=up.N * np.nan) if at.client == next(iter(owners)) and hasattr(up, "N") else up

    with pytest.raises(ProtocolError, match="NaN"):
        fedfactor.run(Sick(2), federation(R, owners), rounds=4, seed=0, privacy="secure-sum")
