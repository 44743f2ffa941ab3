"""The baselines are what pooled ratings give, whoever owns them, and their noise is paid for."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import fedfactor
from fedfactor.algorithms import Biases, Popularity
from fedfactor.core.algorithm import Meta
from fedfactor.recommend.baselines import BiasServer, Shares
from tests.recommend.test_fedsplit import federation, planted


@pytest.fixture(scope="module")
def data():
    return planted()


def test_popularity_counts_the_users_of_each_item(data):
    R, _, owners = data
    run = fedfactor.run(Popularity(), federation(R, owners), seed=0)
    assert run.rounds == 1
    np.testing.assert_allclose(run.V[0], np.bincount(R.indices, minlength=R.shape[1]) / R.shape[0], rtol=1e-12)


def test_items_of_few_users_are_left_out(data):
    R, _, owners = data
    counts = np.bincount(R.indices, minlength=R.shape[1])
    least = int(np.median(counts))
    run = fedfactor.run(Popularity(min_users=least), federation(R, owners), seed=0)
    np.testing.assert_array_equal(run.V[0] > 0, counts >= least)


@pytest.mark.slow
def test_biases_solve_their_least_squares(data):
    R, _, owners = data
    run = fedfactor.run(Biases(user_ridge=2.0, item_ridge=3.0, tol=1e-12), federation(R, owners), rounds=500, seed=0)
    n, m = R.shape
    C = R.tocoo()
    mu = R.data.mean()
    cells = np.arange(R.nnz)
    A = sparse.csr_array(
        (np.ones(2 * R.nnz), (np.r_[cells, cells], np.r_[C.row, n + C.col])), shape=(R.nnz, n + m)
    ).toarray()
    both = np.linalg.solve(A.T @ A + np.diag(np.r_[np.full(n, 2.0), np.full(m, 3.0)]), A.T @ (C.data - mu))
    np.testing.assert_allclose(run.V[-1], mu + both[n:], atol=1e-6)
    np.testing.assert_allclose(np.sort(np.concatenate([f.U[:, 0] for f in run.factors.values()])), np.sort(both[:n]),
                               atol=1e-6)  # fmt: skip


@pytest.mark.slow
def test_biases_end_by_themselves_and_under_a_secure_sum(data):
    R, _, owners = data
    plain = fedfactor.run(Biases(), federation(R, owners), seed=0)
    assert plain.rounds < 20
    with pytest.warns(fedfactor.privacy.PrivacyWarning):
        hidden = fedfactor.run(Biases(), federation(R, owners), seed=0, privacy="secure-sum")
    known = np.bincount(R.indices, minlength=R.shape[1]) >= 10
    assert np.abs(hidden.V[-1] - plain.V[-1])[known].max() < 0.2


@pytest.mark.filterwarnings("ignore::fedfactor.privacy.PrivacyWarning")
def test_noise_on_popularity_says_its_epsilon_and_keeps_the_order_of_clear_cases():
    rng = np.random.default_rng(0)
    X = (rng.random((900, 12)) < np.linspace(0.9, 0.05, 12)).astype(float)
    owners = {str(i): X[i::3] for i in range(3)}
    asked = fedfactor.dp(2.0, row_bound=2.0, rows=900)
    run = fedfactor.run(Popularity(), owners, seed=0, privacy=asked)
    assert run.privacy["epsilon"] <= 2.0 + 1e-9
    assert set(np.argsort(-run.V[0])[:4]) <= set(range(6))
    with pytest.raises(ValueError, match="min_users"):
        fedfactor.run(Popularity(min_users=3), owners, seed=0, privacy=asked)


def test_a_party_takes_shares_and_no_other_numbers():
    meta = Meta(3, ("a", "b"))
    assert Popularity().accepts(Shares(np.array([0.0, 0.5, 1.0])), meta) == ""
    assert Popularity().accepts(Shares(np.array([0.0, 0.5, 1.1])), meta) != ""
    assert Popularity().accepts(Shares(np.array([-0.1, 0.5, 1.0])), meta) != ""
    assert (
        Popularity(row_clip=1.0).accepts(Shares(np.array([-0.1, 0.5, 1.1])), meta) == ""
    )  # there may be noise on them
    assert Popularity(row_clip=1.0).accepts(Shares(np.array([np.nan, 0.5, 1.1])), meta) != ""


@pytest.mark.parametrize(("moved", "spread", "still"), [(0.5, 10.0, True), (1.0, 10.0, True), (1.1, 10.0, False)])
def test_biases_stand_still_when_items_move_little_against_their_spread(moved, spread, still):
    state = BiasServer(*map(np.float64, (0, 0, moved, spread, 2, 1)))
    assert Biases(tol=0.1).converged(state) is still
    assert not Biases(tol=0.0).converged(state)
