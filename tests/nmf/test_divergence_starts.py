"""Divergences: wide tables do not collapse to one component, and a stuck V does not count as converged."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

import fedfactor
from fedfactor.algorithms import PooledNMF
from fedfactor.core.client_data import Federation, Shard
from fedfactor.nmf.pooled.initialization import column_levels, turned_sums
from fedfactor.nmf.pooled.losses import find_loss
from fedfactor.nmf.pooled.restarts import is_stuck


def rows(seed=0, n=40, m=60, k=3):
    rng = np.random.default_rng(seed)
    return (rng.gamma(0.4, size=(n, k)) @ rng.gamma(0.4, size=(k, m)) + 0.01) * rng.gamma(4, 0.25, (n, m))


def in_two(X):
    return {"a": X[::2], "b": X[1::2]}


@pytest.mark.parametrize("loss", [0, 0.5, 1.5])
def test_tables_with_many_columns_do_not_collapse(loss):
    X = rows(n=40, m=2500, k=4)
    run = fedfactor.run(PooledNMF(4, loss=loss), in_two(X), rounds=60, seed=0)
    one = fedfactor.run(PooledNMF(1, loss=loss), in_two(X), rounds=10, seed=0)
    assert float(run.score.sse) < 0.5 * float(one.score.sse)


@pytest.mark.parametrize("loss", [0, 0.5, 1.5])
@pytest.mark.parametrize("kind", ["flat", "nearly flat", "dead", "locked"])
def test_a_stuck_start_is_left(loss, kind):
    X = rows()
    m, rng = X.shape[1], np.random.default_rng(1)
    V = {
        "flat": np.ones((3, m)),
        "nearly flat": 1 + 1e-9 * rng.random((3, m)),
        "dead": np.vstack([rng.random((2, m)), np.zeros((1, m))]),
        "locked": np.eye(m)[:3],
    }[kind]
    usual = fedfactor.run(PooledNMF(3, loss=loss), in_two(X), rounds=150, seed=0)
    run = fedfactor.run(PooledNMF(3, loss=loss).starting_at(V), in_two(X), rounds=150, seed=0)
    assert float(run.score.sse) < 1.05 * float(usual.score.sse)


def test_a_stuck_v_is_recognised():
    slope = np.ones((3, 5))
    V = np.random.default_rng(0).dirichlet(np.ones(5), 3)
    assert not is_stuck(V, slope, slope, 1.0)
    assert is_stuck(np.vstack([V[:2], V[1:2]]), slope, slope, 1.0)
    assert is_stuck(V * [[1], [1], [0]], slope, slope, 1.0)
    empty = V * [1, 1, 1, 1, 0]
    assert not is_stuck(empty, slope, slope, 1.0)
    assert is_stuck(empty, slope * [1, 1, 1, 1, 50], slope, 1.0)


@pytest.mark.parametrize("loss", [0, 0.25, 0.5, 1.5])
def test_sums_of_the_first_rounds_do_not_depend_on_owners_or_layout(loss):
    X, kind, V = rows(), find_loss(loss), np.random.default_rng(2).random((9, 60))
    whole = turned_sums(X, None, V, np.float64(1), kind)
    parts = [turned_sums(part, None, V, np.float64(1), kind) for part in (X[:7], X[7:])]
    np.testing.assert_allclose(parts[0].A + parts[1].A, whole.A, rtol=1e-10)
    np.testing.assert_allclose(turned_sums(scipy.sparse.csr_array(X), None, V, np.float64(1), kind).A, whole.A)
    seen = np.ones(X.shape, bool)
    np.testing.assert_allclose(turned_sums(X, seen, V, np.float64(1), kind).A, whole.A)


def test_levels_of_columns_do_not_depend_on_lengths_of_components():
    V, scale = np.random.default_rng(0).random((9, 6)), 10.0 ** np.arange(-3, 6)[:, None]
    one, two = (column_levels(part, find_loss(0)) for part in (V, scale * V))
    np.testing.assert_allclose(two / two.mean(), one / one.mean(), rtol=1e-6)
    assert column_levels(V, find_loss(1.5)) is None


@pytest.mark.parametrize("loss", ["kullback-leibler", 0, 1.5])
def test_missing_cells_begin_wide_too(loss):
    X = rows(m=400)
    mask = np.random.default_rng(3).random(X.shape) < 0.8
    run = fedfactor.run(
        PooledNMF(3, loss=loss),
        Federation({"a": Shard(X, mask)}),
        rounds=80,
        seed=0,
    )
    one = fedfactor.run(
        PooledNMF(1, loss=loss),
        Federation({"a": Shard(X, mask)}),
        rounds=10,
        seed=0,
    )
    assert float(run.score.sse) < 0.5 * float(one.score.sse)
