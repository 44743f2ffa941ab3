"""Items that just enough users touched are kept, those that one user fewer touched are not, in every method alike."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import fedfactor
from fedfactor.algorithms import PooledCF, PooledEASE, PooledRidge, Popularity
from fedfactor.core.algorithm import Meta, Round
from fedfactor.core.client_data import Shard
from fedfactor.recommend.baselines import PopularityServer, Touched
from fedfactor.recommend.pooled_cf import Levels

COUNTS = np.array([6, 5, 4, 3, 7, 6, 2, 5])
LEAST = pytest.mark.parametrize("least", [3, 5, 6])


@pytest.fixture(scope="module")
def X():
    """Nine users; item j was touched by ``COUNTS[j]`` of them."""
    X = np.zeros((9, len(COUNTS)))
    for item, count in enumerate(COUNTS):
        X[np.random.default_rng(item).choice(9, count, replace=False), item] = 1.0
    return sparse.csr_array(X)


@LEAST
def test_just_enough_users_are_enough(X, least):
    owners, enough = {"a": X[:5], "b": X[5:]}, least <= COUNTS
    shares = fedfactor.run(Popularity(min_users=least), owners, seed=0).V[0]
    np.testing.assert_allclose(shares, np.where(enough, COUNTS, 0) / 9)
    np.testing.assert_array_equal(fedfactor.run(PooledEASE(min_users=least), owners, seed=0).V.any(axis=0), enough)
    published = PooledRidge(2, min_users=least)._publish(Shard(X), X, X[:, :2].toarray())
    np.testing.assert_array_equal(published.users > 0, enough)


@LEAST
def test_just_enough_ratings_are_enough(least):
    algorithm, meta = PooledCF(2, min_ratings=least), Meta(len(COUNTS), ("a", "b"))
    state = algorithm.init_server(meta, Round(0, 0))[0]
    up = Levels(np.float64(40), np.float64(50), COUNTS.astype(float), COUNTS * 1.5)
    kept = algorithm._levelled(state, up)
    np.testing.assert_array_equal(kept.columns, np.flatnonzero(least <= COUNTS))
    np.testing.assert_array_equal(kept.counts, COUNTS[least <= COUNTS])


def test_one_rating_in_all_has_a_mean_and_none_has_not():
    algorithm, meta = PooledCF(2), Meta(2, ("a",))
    state = algorithm.init_server(meta, Round(0, 0))[0]
    counts = np.array([1.0, 0.0])
    one = algorithm._levelled(state, Levels(np.float64(3), np.float64(9), counts, 3 * counts))
    assert (float(one.mu), float(one.scale)) == (3.0, 1.0)
    none = algorithm._levelled(state, Levels(np.float64(0), np.float64(0), 0 * counts, 0 * counts))
    assert (float(none.mu), none.columns.size) == (float(state.mu), 0)


def test_noise_leaves_out_what_it_moved_to_zero_and_nothing_else():
    users, at = np.array([-0.5, 0.0, 0.4, 1.0, 3.0]), Round(0, 0)
    _, noisy = Popularity(row_clip=1.0, row_count=2.0).server_step(PopularityServer(np.int64(0)), Touched(users), at)
    np.testing.assert_allclose(noisy.share, [0, 0, 0.2, 0.5, 1.5])
