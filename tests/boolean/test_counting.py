"""Counts of rows merged with a multiplicity are those of the rows they stand for."""

from __future__ import annotations

import numpy as np
import pytest

from fedfactor.boolean import bit_matrix as bits
from fedfactor.boolean import counting
from fedfactor.boolean.pooled import client_counts
from fedfactor.core.client_data import Shard


def cases():
    """Return repeated rows with missing cells, and packed components."""
    rng = np.random.default_rng(5)
    which = rng.integers(12, size=90)
    X = (rng.random((12, 70)) < 0.4)[which].astype(float)
    X[which == 3] = 0.0
    seen = (rng.random((12, 70)) < 0.9)[which]
    V, pool = (bits.pack(rng.random((size, 70)) < 0.4) for size in (5, 9))
    return X, seen, V, pool


@pytest.fixture(params=["complete", "missing"])
def both(request):
    X, seen, V, pool = cases()
    rows = counting.observed(X, seen if request.param == "missing" else None)
    few, place = counting.merged(rows)
    assert len(few.ones) == 12
    assert few.multiplicity.sum() == 90
    return rows, few, place, V, pool


def test_every_count_is_the_same(path, both):
    rows, few, place, V, pool = both
    for penalty in (1, 3):
        for thorough in (False, True):
            U, cost = counting.choose(rows, V, penalty=penalty, thorough=thorough)
            U_few, cost_few = counting.choose(few, V, penalty=penalty, thorough=thorough)
            np.testing.assert_array_equal(U, U_few[place])
            assert cost == cost_few
        votes = [counting.column_votes(r, u, V, penalty=penalty) for r, u in ((rows, U), (few, U_few))]
        np.testing.assert_array_equal(votes[0], votes[1])
        covers = (bits.product(u, V) for u in (U, U_few))
        gains = [counting.cover_gains(r, c, pool, penalty=penalty) for r, c in zip((rows, few), covers, strict=True)]
        np.testing.assert_array_equal(gains[0], gains[1])
    np.testing.assert_array_equal(counting.swap_gains(rows, U, V, pool), counting.swap_gains(few, U_few, V, pool))
    hinted = [counting.choose(r, V[::-1].copy(), u) for r, u in ((rows, U), (few, U_few))]
    np.testing.assert_array_equal(hinted[0][0], hinted[1][0][place])
    assert hinted[0][1] == hinted[1][1]


def test_rows_with_columns_are_the_same(both):
    rows, few, *_ = both
    columns = np.array([[0, 0], [1, 5], [-1, -1], [7, 2]])
    for found, merged in zip(counting.rows_with(rows, columns), counting.rows_with(few, columns), strict=True):
        np.testing.assert_array_equal(found, merged)
    often = few._replace(times=few.times * (1 << 22) + 1)
    together, count = counting.rows_with(often, columns)
    np.testing.assert_array_equal(together, counting.rows_with(rows, columns)[0] * (1 << 22) + once(few, columns)[0])
    np.testing.assert_array_equal(count, counting.rows_with(rows, columns)[1] * (1 << 22) + once(few, columns)[1])


def once(few, columns):
    return counting.rows_with(few._replace(times=None), columns)


def test_a_sample_keeps_the_multiplicity(both):
    rows, few, *_ = both
    kept, kept_few = (counting.sampled(r, 0.5, 3) for r in (rows, few))
    assert 0 < len(kept_few.ones) < 12
    assert len(kept.ones) == kept_few.multiplicity.sum()
    np.testing.assert_array_equal(counting.signed_counts(rows, 70, 3), counting.signed_counts(few, 70, 3))


def test_signs_tell_how_often_rows_repeat():
    rng = np.random.default_rng(1)
    times = rng.integers(1, 30, size=500)
    X = np.repeat((rng.random((500, 40)) < 0.3).astype(float), times, axis=0)
    estimate = (counting.signed_counts(counting.observed(X), 256, 9) ** 2.0).mean()
    assert estimate == pytest.approx((times**2).sum(), rel=5 * (2 / 256) ** 0.5)


def test_rows_that_differ_are_left_alone():
    rows = counting.observed(np.eye(5))
    assert counting.merged(rows)[0] is rows
    assert client_counts._rows(Shard(np.eye(5)), 1.0).times is None
