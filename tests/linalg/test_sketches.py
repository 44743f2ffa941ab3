"""Sketches keep products in expectation, and are drawn alike everywhere."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from fedfactor.nmf.distributed.sketch_exposure import Exposure, effective_support, recover
from fedfactor.nmf.distributed.sketches import (
    KINDS,
    draw_sketch,
    sketch_block,
    sketch_columns,
    sketch_stream,
    sketch_width,
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_expected_product_is_the_identity(kind):
    total = np.zeros((12, 12))
    for t in range(4000):
        S = draw_sketch(kind, 12, 5, sketch_stream(1, "test", t)).rows()
        total += S @ S.T
    assert np.abs(total / 4000 - np.eye(12)).max() < 0.12


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("layout", ["dense", "fortran", "csr", "csc"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_products_agree_with_the_matrix_written_out(kind, layout, dtype):
    rng = np.random.default_rng(0)
    X = rng.random((9, 21)).astype(dtype) * (rng.random((9, 21)) < 0.4)
    given = {"dense": X, "fortran": np.asfortranarray(X), "csr": sparse.csr_array(X), "csc": sparse.csc_array(X)}[
        layout
    ]
    S = draw_sketch(kind, 21, 8, sketch_stream(3, "test", 0))
    found = sketch_columns(given, S)
    assert found.dtype == dtype
    assert sparse.issparse(found) == (sparse.issparse(given) and kind == "subsampling")
    found = found.toarray() if sparse.issparse(found) else found
    np.testing.assert_allclose(found, X @ S.rows(), atol=1e-5 if dtype is np.float32 else 1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_blocks_add_up(kind):
    V = np.random.default_rng(0).random((3, 21))
    S = draw_sketch(kind, 21, 8, sketch_stream(3, "test", 0))
    shares = [sketch_block(V[:, a:b], S, a) for a, b in ((0, 5), (5, 5), (5, 21))]
    np.testing.assert_allclose(sum(shares), V @ S.rows(), atol=1e-12)


def test_streams_differ_by_name_count_and_seed():
    drawn = {sketch_stream(s, n, t).integers(2**60) for s in (1, 2) for n in ("rows", "columns") for t in (0, 1)}
    assert len(drawn) == 8


def test_subsampling_reads_only_the_columns_it_draws():
    class Watched(np.ndarray):
        pass

    S = draw_sketch("subsampling", 1000, 10, sketch_stream(0, "test", 0))
    X = sparse.csc_array(sparse.random(50, 1000, 0.1, random_state=0))
    assert sketch_columns(X, S).nnz == X[:, S.index].nnz < X.nnz / 20


def test_odd_requests_are_refused():
    rng = np.random.default_rng(0)
    with pytest.raises(ValueError, match="not known"):
        draw_sketch("fft", 4, 2, rng)
    with pytest.raises(ValueError, match="width 5"):
        draw_sketch("subsampling", 4, 5, rng)
    with pytest.raises(ValueError, match="3 columns"):
        sketch_columns(np.ones((2, 3)), draw_sketch("count", 4, 2, rng))


def test_width_has_a_floor_and_a_ceiling():
    assert sketch_width(1000, 0.1, 8) == 100
    assert sketch_width(100, 0.1, 8) == 24
    assert sketch_width(20, 0.1, 8) == 20


class TestExposure:
    def test_gaussian_sketches_fall_exactly_where_the_accounting_says(self):
        rng = np.random.default_rng(0)
        X = rng.random((50, 20))
        S = np.hstack([draw_sketch("gaussian", 50, 10, sketch_stream(0, "x", t)).rows() for t in range(5)])
        errors = [
            np.linalg.norm(recover(S[:, : 10 * T].T @ X, S[:, : 10 * T]) - X) / np.linalg.norm(X) for T in range(1, 6)
        ]
        solvable = [Exposure(50, 10, T).solvable for T in range(1, 6)]
        assert solvable == [False, False, False, False, True]
        assert errors[-1] < 1e-8
        assert min(errors[:-1]) > 0.2

    @pytest.mark.slow
    def test_sparse_columns_fall_earlier_and_the_accounting_earlier_still(self):
        rng = np.random.default_rng(1)
        n, s, m = 200, 10, 20
        X = np.zeros((n, m))
        for j in range(m):
            X[rng.choice(n, s, replace=False), j] = rng.random(s) + 0.5
        S = rng.standard_normal((n, 200))
        first = None
        for width in range(10, 110, 10):
            guess = recover(S[:, :width].T @ X, S[:, :width], nonnegative=True)
            exact = (np.abs(guess - X).max(axis=0) < 1e-6).sum()
            if exact and first is None:
                first = width
            if width < Exposure(n, 10, 1, support=s).threshold:
                assert exact == 0, width
        assert first is not None
        assert first < n / 2
        assert Exposure(n, 10, 1, support=s).threshold <= first

    def test_full_columns_need_all_equations_and_dead_ones_are_left_out(self):
        assert Exposure(60, 1, 1, support=60).threshold == Exposure(60, 1, 1).threshold == 60
        assert [Exposure(200, 1, 1, support=s).threshold for s in (10, 50, 100, 150)] == sorted(
            Exposure(200, 1, 1, support=s).threshold for s in (10, 50, 100, 150)
        )
        assert effective_support(np.array([[1.0, 0.0], [1.0, 0.0]])) == 2
        assert effective_support(np.zeros((3, 2))) == 3

    def test_it_says_how_many_rounds_are_left(self):
        assert Exposure(100, 30, 1).rounds_left == 3
        assert "30 equations" in Exposure(100, 30, 1).told("X")
