from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from fedfactor.recommend.feddmf.negative_sampling import ones_of, training_cells, zeros_of


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 12), st.integers(1, 9), st.floats(0, 1), st.integers(0, 5), st.integers(0, 99))
def test_zeros_are_zeros_and_as_many_as_asked_for(n, m, density, ratio, seed):
    rng = np.random.default_rng(seed)
    X = (rng.random((n, m)) < density) * 1.0
    taken = ones_of(X, np.arange(m))
    drawn = zeros_of(taken, n * m, ratio * 7, rng)
    assert (X.ravel()[drawn] == 0).all()
    assert len(drawn) == (ratio * 7 if (X == 0).any() else 0)
    np.testing.assert_array_equal(zeros_of(taken, n * m, None, rng), np.flatnonzero(X.ravel() == 0))


def test_zeros_are_drawn_evenly():
    taken = np.arange(0, 20, 2)
    drawn = zeros_of(taken, 40, 60_000, np.random.default_rng(0))
    count = np.bincount(drawn, minlength=40)
    assert (count[taken] == 0).all()
    free = np.delete(count, taken)
    assert free.min() > 0.9 * 60_000 / 30
    assert free.max() < 1.1 * 60_000 / 30


def test_sparse_equals_dense_and_columns_are_renumbered():
    rng = np.random.default_rng(0)
    X = (rng.random((7, 9)) < 0.4) * 1.0
    columns = np.array([1, 4, 8])
    expected = np.flatnonzero(X[:, columns].ravel())
    np.testing.assert_array_equal(ones_of(X, columns), expected)
    stored = sparse.csr_array(X)
    stored.data[0] = 0  # a stored zero is a zero
    X[tuple(np.argwhere(X)[0])] = 0
    np.testing.assert_array_equal(ones_of(stored, columns), np.flatnonzero(X[:, columns].ravel()))


def test_hidden_cells_are_neither_ones_nor_zeros_of_training():
    ones, hidden = np.array([1, 4, 7]), np.array([3, 4])
    cells, y = training_cells(ones, 12, None, np.random.default_rng(0), hidden)
    assert sorted(cells[y == 1].tolist()) == [1, 7]
    assert sorted(cells[y == 0].tolist()) == [0, 2, 5, 6, 8, 9, 10, 11]


def test_ones_and_zeros_are_mixed():
    _, y = training_cells(np.arange(0, 4000, 4), 4000, 2, np.random.default_rng(0))
    assert abs(y[:1500].mean() - 1 / 3) < 0.06
