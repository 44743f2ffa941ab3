"""Columns of all owners added up: dense, sparse and with missing cells, and the weights that follow from the sums."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from fedfactor.core import column_scales as module
from fedfactor.core.column_scales import BINS, column_sums, needs_bins, weighted
from fedfactor.core.pytree import tree_sum

X = np.array([[1.0, 0.0, -2.0, 8.0], [3.0, 0.0, 0.0, 0.25], [0.0, 0.0, 1.0, 8.0]])


@pytest.mark.parametrize("form", [np.asarray, sparse.csr_array, sparse.csc_array])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_sums_of_any_layout(form, dtype):
    sums = column_sums(form(X.astype(dtype)), bins=True)
    assert sums.support.tolist() == [2, 0, 2, 3]
    assert sums.sums.tolist() == [4, 0, -1, 16.25]
    assert sums.squares.tolist() == [10, 0, 5, 128.0625]
    assert sums.cells.tolist() == [3, 3, 3, 3]
    assert float(sums.n) == 3
    assert sums.bins.shape == (BINS, 4)
    assert sums.bins.sum(0).tolist() == [2, 0, 1, 3]  # positive cells only
    assert all(part.dtype == np.float64 for part in (sums.support, sums.sums, sums.cells, sums.bins))


def test_sizes_are_counted_by_quarter_powers_of_two():
    column = np.array([[2.0**-24], [1.0], [1.1], [1.2], [2.0], [1e-30], [1e30]])
    bins = column_sums(column, bins=True).bins[:, 0]
    assert np.flatnonzero(bins).tolist() == [0, 96, 97, 100, BINS - 1]
    assert bins[[0, 96, 97, 100, BINS - 1]].tolist() == [2, 2, 1, 1, 1]
    assert BINS == 256


def test_columns_are_counted_block_by_block(monkeypatch):
    monkeypatch.setattr(module, "_BLOCK", 8)
    rows = np.random.default_rng(0).random((7, 4)) * (np.arange(4) > 0)
    for form in (np.asarray, sparse.csr_array):
        found = column_sums(form(rows), bins=True).bins
        assert found.sum(0).tolist() == [0, 7, 7, 7]
        np.testing.assert_array_equal(found, sum(column_sums(form(rows[i : i + 1]), bins=True).bins for i in range(7)))


def test_nothing_is_counted_unless_asked_for():
    assert column_sums(X).bins.shape == (0, 4)
    assert column_sums(X, np.ones(X.shape, bool)).bins.shape == (0, 4)


def test_cells_are_those_observed():
    mask = X != 0
    assert column_sums(X, mask).cells.tolist() == [2, 0, 2, 3]
    stored = sparse.csr_array((np.array([0.0, 2.0]), np.array([0, 1]), np.array([0, 2, 2])), shape=(2, 3))
    found = column_sums(stored, "stored")
    assert found.cells.tolist() == [1, 1, 0]
    assert found.support.tolist() == [0, 1, 0]
    assert column_sums(stored).cells.tolist() == [2, 2, 2]


def test_owners_add_up_to_one():
    whole, parts = column_sums(X, bins=True), tree_sum([column_sums(X[:1], bins=True), column_sums(X[1:], bins=True)])
    for name in ("support", "squares", "sums", "cells", "bins", "n"):
        np.testing.assert_array_equal(getattr(whole, name), getattr(parts, name))


def test_weights_are_those_that_the_words_name():
    sums = column_sums(X, bins=True)
    mean, square = X.mean(0), (X * X).mean(0)
    known = {
        "tf-idf": np.log(4 / (1 + np.array([2, 0, 2, 3]))) + 1,
        "scale": 1 / np.sqrt(np.where(square > 0, square, 1)),
        "scale rms": 1 / np.sqrt(np.where(square > 0, square, 1)),
        "scale mean": 1 / np.where(mean != 0, abs(mean), 1),
        "scale std": 1 / np.where(X.std(0) > 0, X.std(0), 1),
        "select 2": [0, 0, 1, 1],
        "select 1": [0, 0, 1, 0],
    }
    for words, weights in known.items():
        np.testing.assert_allclose(sums.weights(words), weights, err_msg=words)
    both = sums.weights("tf-idf; scale mean")
    np.testing.assert_allclose(both, known["tf-idf"] * known["scale mean"])


def test_a_choice_among_equals_takes_the_first():
    same = column_sums(np.array([[1.0, 2.0, 1.0], [3.0, 2.0, 3.0]]))
    assert same.weights("select 1").tolist() == [1, 0, 0]
    assert same.weights("select 2").tolist() == [1, 0, 1]


def test_largest_values_and_quantiles_lie_within_a_quarter_power_above():
    rng = np.random.default_rng(0)
    cells = rng.lognormal(0, 2, (400, 3))
    cells[:, 1] = 0
    sums = column_sums(cells, bins=True)
    for words, true in (("scale max", cells.max(0)), ("scale quantile 0.5", np.median(cells, 0))):
        size = 1 / sums.weights(words)
        assert size[1] == 1  # a column without positive cells is left as it is
        ratio = (size / np.where(true > 0, true, 1))[[0, 2]]
        assert ((ratio > 0.98) & (ratio < 2**0.25 * 1.02)).all(), words
    low, high = (1 / sums.weights(f"scale quantile {share}")[0] for share in (0, 1))
    assert low < np.quantile(cells[:, 0], 0.02)
    assert high == 1 / sums.weights("scale max")[0]


def test_bins_are_needed_for_the_largest_and_for_quantiles_only():
    assert needs_bins("scale max")
    assert needs_bins("tf-idf; scale quantile 0.9")
    assert not needs_bins("scale rms")


def test_weighted_columns_keep_type_and_layout():
    weights = np.array([2.0, 1.0, 0.5, 3.0])
    for form in (np.asarray, sparse.csr_array):
        rows = form(X.astype("f4"))
        found = weighted(rows, weights)
        assert found.dtype == np.float32
        dense = found if form is np.asarray else found.toarray()
        np.testing.assert_array_equal(dense, (X * weights).astype("f4"))
        np.testing.assert_array_equal(rows if form is np.asarray else rows.toarray(), X)
