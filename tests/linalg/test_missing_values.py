"""Missing entries: against loops over the observed cells."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfactor.core.threads import limit_threads
from fedfactor.linalg import missing_values as masked
from fedfactor.linalg import nnls as nmf
from fedfactor.linalg.compiled import compile as compiled
from fedfactor.linalg.missing_values_pass import masked_pass
from tests.linalg.problems import frozen, problem


def holes(n, m, k, seed, dtype=np.float64):
    X, U, V = problem(n, m, k, seed, dtype, density=0.8)
    M = np.random.default_rng([8, seed]).random((n, m)) < 0.6
    return frozen(np.where(M, X, np.nan).astype(dtype), M, U.copy(), V.copy())


def as_stored(X, M):
    rows, cols = np.nonzero(M)
    indptr = np.concatenate(([0], np.cumsum(M.sum(axis=1)))).astype(np.int32)
    out = sp.csr_array((X[rows, cols], cols.astype(np.int32), indptr), shape=X.shape)
    frozen(out.data, out.indices, out.indptr)
    return out


def naive_solve(U, X, M, V, sweeps):
    U = U.astype(np.float64).copy()
    for i in range(U.shape[0]):
        seen = M[i]
        for _ in range(sweeps):
            for t in range(U.shape[1]):
                v = V[t, seen]
                if v @ v > 0:
                    U[i, t] = max(U[i, t] + v @ (X[i, seen] - U[i] @ V[:, seen]) / (v @ v), 0.0)
    return U


@pytest.mark.parametrize("numba_there", [True, False])
@settings(deadline=None, max_examples=30)
@given(n=st.integers(0, 12), m=st.integers(1, 12), k=st.integers(1, 6), seed=st.integers(0, 10_000))
def test_against_loops(numba_there, n, m, k, seed):
    X, M, U, V = holes(n, m, k, seed)
    with pytest.MonkeyPatch.context() as patch:
        if not numba_there:
            patch.setattr(compiled, "load_numba", lambda: None)
        for data, mask in ((X, M), (as_stored(X, M), "stored")):
            want = naive_solve(U, X, M, V, 3)
            np.testing.assert_allclose(masked.solve_rows_masked(U, data, mask, V, sweeps=3), want, atol=1e-10)
            N, D, error = masked.masked_sums(U, data, mask, V)
            full = np.where(M, X, 0.0)
            np.testing.assert_allclose(N, U.T @ full, atol=1e-12)
            np.testing.assert_allclose(D, U.T @ (M * (U @ V)), atol=1e-12)
            assert error == pytest.approx(((full - M * (U @ V)) ** 2).sum())
            assert masked.observed_squared_norm(data, mask) == pytest.approx((full**2).sum())
            assert masked.observed_count(data, mask) == M.sum()


def test_nothing_missing_is_the_plain_solve(path):
    X, U, V = problem(30, 20, 4, 2)
    plain = nmf.solve_rows(U, V @ V.T, X @ V.T, sweeps=5)
    np.testing.assert_allclose(masked.solve_rows_masked(U, X, np.ones(X.shape, bool), V, sweeps=5), plain, atol=1e-10)


def test_blocks_of_dense_rows_fit_together(path, monkeypatch):
    X, M, U, V = holes(40, 10, 3, 3)
    whole = masked.solve_rows_masked(U, X, M, V, sweeps=4), masked.masked_sums(U, X, M, V)
    monkeypatch.setattr(masked, "_CELLS", 70)
    np.testing.assert_allclose(masked.solve_rows_masked(U, X, M, V, sweeps=4), whole[0], atol=1e-12)
    np.testing.assert_allclose(masked.masked_sums(U, X, M, V)[1], whole[1][1], atol=1e-12)


def test_explicit_zeros_count():
    X, M, *_ = holes(30, 20, 2, 4)
    data = as_stored(X, M)
    assert masked.observed_count(data, "stored") == M.sum() > np.count_nonzero(data.data)


def test_neither_threads_nor_row_order_change_bits():
    if compiled.load_numba() is None:
        pytest.skip("only the compiled loops promise this: BLAS changes its sums with its threads")
    X, M, U, V = holes(3000, 60, 12, 4)
    data = as_stored(X, M)
    seen = []
    for threads in (1, 2):
        with limit_threads(threads):
            seen.append(
                (masked.solve_rows_masked(U, data, "stored", V, sweeps=3), *masked.masked_sums(U, data, "stored", V))
            )
    for one, two in zip(*seen, strict=True):
        np.testing.assert_array_equal(one, two)
    order = np.random.default_rng(0).permutation(3000)
    mixed = masked.solve_rows_masked(U[order], as_stored(X[order], M[order]), "stored", V, sweeps=3)
    np.testing.assert_array_equal(mixed, seen[0][0][order])


@pytest.mark.slow
def test_types_tol_and_empty_rows(path):
    X, M, U, V = holes(20, 15, 3, 5, np.float32)
    M = M.copy()
    M[4] = False
    for data, mask in ((X, M), (as_stored(X, M), "stored")):
        out = masked.solve_rows_masked(U, data, mask, V, sweeps=300, tol=1e-6)
        assert out.dtype == np.float32
        np.testing.assert_array_equal(out[4], U[4])
        np.testing.assert_allclose(out, naive_solve(U, X, M, V, 300), atol=1e-3)
        N, D, _ = masked.masked_sums(U, data, mask, V)
        assert N.dtype == D.dtype == np.float32


def test_torch_agrees():
    torch = pytest.importorskip("torch")
    X, M, U, V = holes(20, 15, 3, 6)
    tensors = [torch.tensor(a) for a in (U, X, M, V)]
    want = masked.solve_rows_masked(U, X, M, V, sweeps=4)
    np.testing.assert_allclose(masked.solve_rows_masked(*tensors, sweeps=4).numpy(), want, atol=1e-10)
    for mine, theirs in zip(masked.masked_sums(*tensors), masked.masked_sums(U, X, M, V), strict=True):
        np.testing.assert_allclose(np.asarray(mine), theirs, atol=1e-10)
    assert masked.observed_count(tensors[1], tensors[2]) == M.sum()
    assert masked.observed_squared_norm(tensors[1], tensors[2]) == pytest.approx(masked.observed_squared_norm(X, M))


def test_wrong_masks_are_refused():
    X = np.ones((2, 2))
    for data, mask in (
        (X, "stored"),
        (sp.csr_array(X), np.ones((2, 2), bool)),
        (X, np.ones((2, 2))),
        (X, np.ones(2, bool)),
    ):
        with pytest.raises(ValueError, match="mask"):
            masked.observed_count(data, mask)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_component_that_a_row_does_not_see_stays(dtype):
    """Though its Gram matrix comes from taking the missing cells off those of all, which leaves rounding."""
    rng = np.random.default_rng(0)
    V, X, M = rng.random((4, 90)).astype(dtype), rng.random((30, 90)).astype(dtype), np.ones((30, 90), bool)
    V[2, 7:] = 0
    M[::2, :7] = False
    U = rng.random((30, 4)).astype(dtype)
    found = masked.solve_rows_masked(U, X, M, V, sweeps=4)
    np.testing.assert_array_equal(found[::2, 2], U[::2, 2])
    np.testing.assert_allclose(found, naive_solve(U, X, M, V, 4), rtol=2e-4 if dtype == np.float32 else 1e-9, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 3, 5, 61])
def test_rows_that_are_summed_together_may_see_anything(rows):
    """Rows that see nearly all, half, nearly nothing and nothing at all, in groups that are not full."""
    X, U, V = problem(rows, 37, 5, 3)
    shares = np.array([0.95, 0.5, 0.1, 0.0, 1.0])[np.arange(rows) % 5]
    M = np.random.default_rng(1).random(X.shape) < shares[:, None]
    found = masked.solve_rows_masked(U, X, M, V, sweeps=3)
    np.testing.assert_allclose(found, naive_solve(U, X, M, V, 3), atol=1e-9)
    done = masked_pass(X, M, V, U, sweeps=3)
    away = np.where(M, X - found @ V, 0)
    assert done.sse == pytest.approx((away**2).sum())
    np.testing.assert_allclose(done.D, found.T @ np.where(M, found @ V, 0), atol=1e-9)


def test_many_components_take_another_way_to_the_same_end():
    X, M, U, V = holes(20, 120, 70, 0)
    np.testing.assert_allclose(masked.solve_rows_masked(U, X, M, V, sweeps=2), naive_solve(U, X, M, V, 2), atol=1e-8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_pass_is_solving_then_summing(dtype):
    X, M, U, V = holes(200, 50, 6, 1, dtype)
    pay = masked.Penalty(0.01, 0.02, 0.03, 0.1, 0.2)
    done = masked_pass(X, M, V, U, sweeps=3, pay=pay)
    near = {"rtol": 1e-4 if dtype == np.float32 else 1e-12}
    np.testing.assert_array_equal(done.U, masked.solve_rows_masked(U, X, M, V, sweeps=3, penalty=pay))
    for mine, other in zip(done[2:5], masked.masked_sums(done.U, X, M, V), strict=True):
        np.testing.assert_allclose(mine, other, **near)
    np.testing.assert_allclose(done.G, done.U.T @ done.U, **near)
    assert done.ridge == pytest.approx(masked.ridge_cost(done.U, X, M, V, pay), rel=near["rtol"])


def test_masked_bits_depend_neither_on_threads_nor_on_place():
    X, M, U, V = holes(500, 70, 6, 2, np.float32)
    wide, marks = np.empty((500, 73), np.float32), np.empty((500, 73), bool)
    wide[:, 3:], marks[:, 3:] = X, M
    with limit_threads(1):
        one = masked_pass(X, M, V, U, sweeps=3)
    with limit_threads(2):
        two = masked_pass(wide[:, 3:], marks[:, 3:], V, U, sweeps=3)
    for mine, other in zip(one, two, strict=True):
        np.testing.assert_array_equal(mine, other)
