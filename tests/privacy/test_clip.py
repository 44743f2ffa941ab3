"""No input makes an upload, or one row's part of it, longer than its bound."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedfactor.core.algorithm import Round
from fedfactor.core.flattened_upload import Parcel
from fedfactor.core.transforms import Site
from fedfactor.linalg.row_clipping import ROW_CLIP, clipped_gradient, doubles, row_squares, summation_error
from fedfactor.privacy.noise import Clip, Gaussian, clip_to

ANY = st.floats(allow_nan=True, allow_infinity=True, allow_subnormal=True)
SITE = Site("a", Round(0, 0), 3, None)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(arrays(np.float64, st.integers(1, 40), elements=ANY), st.floats(1e-6, 1e6))
def test_no_upload_is_longer_than_the_clip(values, norm):
    clipped = clip_to(values, norm)
    assert np.isfinite(clipped).all()
    assert np.linalg.norm(clipped) <= norm * (1 + 1e-12)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(arrays(np.float64, 12, elements=ANY), st.floats(1e-3, 1e3))
def test_no_clipped_upload_is_longer_on_the_grid(values, norm):
    noise = Gaussian(5.0, norm, whole=True, honest=3)
    bounded = Clip(norm).encode(Parcel(values, ()), SITE).values
    steps = np.trunc(bounded / noise.grid(12)).astype(object)
    assert sum(int(s) ** 2 for s in steps) <= (norm / noise.grid(12)) ** 2


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    arrays(np.float64, (4, 6), elements=ANY),
    arrays(np.float64, (2, 6), elements=st.floats(0.01, 1)),
    st.floats(1e-3, 1e3),
    st.integers(0, 3),
)
def test_one_row_moves_the_sum_by_at_most_the_clip(X, V, bound, row):
    V = V / np.linalg.norm(V, axis=1, keepdims=True)
    X = doubles(X)
    less = np.delete(X, row, axis=0)
    _, D = clipped_gradient(np.zeros((4, 2)), X, V, bound=bound, sweeps=5)
    _, E = clipped_gradient(np.zeros((3, 2)), less, V, bound=bound, sweeps=5)
    assert np.isfinite(D).all()
    assert np.linalg.norm(D - E) <= ROW_CLIP + summation_error(4, 2, 6)


def test_the_sum_is_that_of_rows_clipped_one_by_one():
    rng = np.random.default_rng(0)
    X, V = rng.random((30, 8)) * 3, rng.random((3, 8))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    U, D = clipped_gradient(np.zeros((30, 3)), X, V, bound=2.0, sweeps=4)
    scaled = X / np.maximum(2.0, np.linalg.norm(X, axis=1, keepdims=True))
    expected = np.zeros((3, 8))
    for u, x in zip(U, scaled, strict=True):
        g = np.outer(u, u @ V - x)
        expected += g * min(1.0, ROW_CLIP / np.linalg.norm(g))
    np.testing.assert_allclose(D, expected, atol=1e-9)
    Us, Ds = clipped_gradient(np.zeros((30, 3)), doubles(scipy.sparse.csr_array(X)), V, bound=2.0, sweeps=4)
    np.testing.assert_allclose(Ds, D, atol=1e-12)
    np.testing.assert_allclose(Us, U, atol=1e-12)


def test_rounding_to_the_grid_is_paid_for_when_the_unit_is_a_part_of_an_upload():
    whole, part = (Gaussian(20.0, 1.0, whole=flag, honest=7, bits=16) for flag in (True, False))
    size = 5000
    # One row moves every entry by its own part and, through rounding, by at most one step more.
    reach = 1.0 + np.sqrt(size) * part.grid(size)
    spread = part.grid(size) * 2**16 * np.sqrt(7)
    assert spread / reach == pytest.approx(20.0)
    assert part.grid(size) > whole.grid(size)


def test_row_squares_of_dense_and_sparse_rows():
    X = np.array([[0.0, 3.0, 4.0], [0.0, 0.0, 0.0], [1e200, 0, 0]])
    assert row_squares(X).tolist() == row_squares(scipy.sparse.csr_array(X)).tolist() == [25.0, 0.0, np.inf]
