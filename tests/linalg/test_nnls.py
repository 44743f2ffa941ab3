"""Non-negative least squares: against naive loops, scipy's solver, and itself in another order."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfactor.core.threads import limit_threads
from fedfactor.linalg import nnls as nmf
from fedfactor.linalg.compiled import compile as compiled
from tests.linalg.problems import frozen, problem

sizes = st.tuples(st.integers(0, 70), st.integers(1, 9), st.integers(1, 9), st.integers(0, 10_000))


def naive(W, G, B, sweeps, l1=0.0, l2=0.0):
    """Coordinate descent as in the book: one row, one coordinate, one full gradient at a time."""
    W = W.astype(np.float64).copy()
    for i in range(W.shape[0]):
        for _ in range(sweeps):
            for t in range(W.shape[1]):
                h = G[t, t] + l2
                if h > 0:
                    g = sum(G[t, r] * W[i, r] for r in range(W.shape[1])) + l2 * W[i, t] - B[i, t] + l1
                    W[i, t] = max(W[i, t] - g / h, 0.0)
    return W


def system(size, dtype=np.float64):
    n, m, k, seed = size
    X, U, V = problem(n, m, k, seed, dtype)
    return frozen(U.copy(), V @ V.T, X @ V.T)


@pytest.mark.parametrize("numba_there", [True, False])
@settings(deadline=None, max_examples=40)
@given(size=sizes, sweeps=st.integers(0, 4), l1=st.sampled_from([0.0, 0.3]), l2=st.sampled_from([0.0, 0.7]))
def test_solve_rows_is_the_naive_loop(numba_there, size, sweeps, l1, l2):
    W, G, B = system(size)
    with pytest.MonkeyPatch.context() as patch:
        if not numba_there:
            patch.setattr(compiled, "load_numba", lambda: None)
        got = nmf.solve_rows(W, G, B, sweeps=sweeps, l1=l1, l2=l2)
    np.testing.assert_allclose(got, naive(W, G, B, sweeps, l1, l2), atol=1e-10)


@settings(deadline=None, max_examples=40)
@given(size=sizes, l1=st.sampled_from([0.0, 0.3]), l2=st.sampled_from([0.0, 0.7]))
def test_objective_never_rises(size, l1, l2):
    W, G, B = system(size)
    before = nmf.objective(W, G, B, l1=l1, l2=l2)
    for _ in range(4):
        W = nmf.solve_rows(W, G, B, l1=l1, l2=l2)
        after = nmf.objective(W, G, B, l1=l1, l2=l2)
        assert after <= before + 1e-10 * (1 + abs(before))
        before = after


def test_long_solve_is_nnls(path):
    X, U, V = problem(12, 30, 5, 1)
    W = nmf.solve_rows(U, V @ V.T, X @ V.T, sweeps=3000)
    exact = np.array([scipy.optimize.nnls(V.T, x)[0] for x in X])
    np.testing.assert_allclose(W, exact, atol=1e-8)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("tol", [0.0, 0.2])
def test_rows_are_separate_to_the_bit(dtype, tol):
    if compiled.load_numba() is None:
        pytest.skip("numba is not installed")
    W, G, B = system((331, 40, 7, 3), dtype)
    whole = nmf.solve_rows(W, G, B, sweeps=6, tol=tol)
    order = np.random.default_rng(0).permutation(331)
    np.testing.assert_array_equal(nmf.solve_rows(W[order], G, B[order], sweeps=6, tol=tol), whole[order])
    parts = [nmf.solve_rows(W[a:b], G, B[a:b], sweeps=6, tol=tol) for a, b in ((0, 1), (1, 100), (100, 331))]
    np.testing.assert_array_equal(np.concatenate(parts), whole)


def test_threads_do_not_change_bits():
    if compiled.load_numba() is None:
        pytest.skip("only the compiled loops promise this")
    W, G, B = system((20_000, 30, 9, 4))
    with limit_threads(1):
        one = nmf.solve_rows(W, G, B, sweeps=5)
    with limit_threads(2):
        two = nmf.solve_rows(W, G, B, sweeps=5)
    np.testing.assert_array_equal(one, two)


def test_tol_stops_each_row_by_itself(path):
    W, G, B = system((50, 20, 4, 5))
    stopped = nmf.solve_rows(W, G, B, sweeps=200, tol=0.1)
    for i in range(50):
        row, first = W[i : i + 1], None
        for _ in range(200):
            new = naive(row, G, B[i : i + 1], 1)
            moved, row = ((new - row) ** 2).sum(), new
            first = moved if first is None else first
            if moved <= 0.01 * first:
                break
        np.testing.assert_allclose(stopped[i], row[0], atol=1e-10)


def test_dead_coordinates_stay(path):
    G = np.diag([1.0, 0.0, 2.0])
    W = frozen(np.full((3, 3), 5.0))
    out = nmf.solve_rows(W, G, frozen(np.ones((3, 3))), sweeps=2)
    np.testing.assert_allclose(out, [[1.0, 5.0, 0.5]] * 3)
    np.testing.assert_array_equal(nmf.solve_rows(W, np.zeros((3, 3)), np.ones((3, 3))), W)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_and_memory_order_are_kept(path, dtype):
    X, U, V = problem(40, 30, 5, 6, dtype)
    solved = nmf.solve_rows(V.T, U.T @ U, (U.T @ X).T)
    assert solved.dtype == dtype
    assert solved.T.flags.c_contiguous
    assert nmf.solve_rows(U, V @ V.T, X @ V.T).flags.c_contiguous
    W, G, B = U, V @ V.T, X @ V.T
    for out in (
        nmf.gradient_step(W, G, B),
        nmf.multiplicative_step(W, G, B, eps=1e-9),
    ):
        assert out.dtype == dtype


def test_torch_agrees_with_numpy():
    torch = pytest.importorskip("torch")
    W, G, B = system((60, 30, 6, 7))
    tensors = [torch.tensor(a) for a in (W, G, B)]
    for kwargs in ({"sweeps": 3}, {"sweeps": 50, "tol": 0.05, "l1": 0.1, "l2": 0.2}):
        got = nmf.solve_rows(*tensors, **kwargs)
        np.testing.assert_allclose(got.numpy(), nmf.solve_rows(W, G, B, **kwargs), atol=1e-9)
    np.testing.assert_array_equal(tensors[0].numpy(), W)
    flat = nmf.solve_rows(tensors[0].T.contiguous().T, *tensors[1:])
    assert flat.T.is_contiguous()
    for step in (nmf.gradient_step, nmf.multiplicative_step):
        np.testing.assert_allclose(step(*tensors).numpy(), step(W, G, B), atol=1e-10)
    assert nmf.lipschitz(tensors[1]) == pytest.approx(nmf.lipschitz(G))
    assert nmf.objective(*tensors) == pytest.approx(nmf.objective(W, G, B))


@settings(deadline=None, max_examples=30)
@given(size=sizes)
def test_gradient_and_multiplicative_steps_descend(size):
    W, G, B = system(size)
    start = nmf.objective(W, G, B)
    slack = 1e-9 * (1 + abs(start))
    assert nmf.objective(nmf.gradient_step(W, G, B), G, B) <= start + slack
    assert nmf.objective(nmf.multiplicative_step(W, G, B, eps=1e-12), G, B) <= start + slack
    assert nmf.lipschitz(G) == pytest.approx(np.linalg.norm(G, 2), abs=1e-9)


@settings(deadline=None, max_examples=30)
@given(size=sizes)
def test_squared_error_is_the_residual(size):
    X, U, V = problem(*size)
    got = nmf.squared_error((X**2).sum(), U.T @ X, U.T @ U, V)
    assert got == pytest.approx(((X - U @ V) ** 2).sum(), abs=1e-9)
    assert nmf.squared_error(0.0, U.T @ (U @ V) + 1, U.T @ U, V) >= 0


@pytest.mark.parametrize("real", [np.float32, np.float64])
@pytest.mark.parametrize("step", [nmf.solve_rows, nmf.gradient_step, nmf.multiplicative_step])
def test_the_unit_of_the_data_does_not_matter(step, real):
    rng = np.random.default_rng(5)
    U, V = rng.random((9, 3)).astype(real), rng.random((3, 6)).astype(real)
    X = U @ V + rng.random((9, 6)).astype(real)
    plain = step(V.T, U.T @ U, X.T @ U)
    for unit in real(2.0**-50), real(2.0**50):  # data and U in other units: the same V
        small = step(V.T, (unit * U).T @ (unit * U), (unit * X).T @ (unit * U))
        np.testing.assert_allclose(small, plain, rtol=1e-5)


def test_a_multiplicative_step_without_anything_to_divide_by_stays_at_zero():
    assert not nmf.multiplicative_step(np.array([[0.0, 1.0]]), np.diag([1.0, 0.0]), np.array([[2.0, 0.0]])).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_account_comes_with_the_sweeps(dtype):
    X, U, V = problem(40, 5000, 7, 0, dtype)
    G, A, whole = U.T @ U, U.T @ X, float((X.astype(np.float64) ** 2).sum())
    found = []
    for threads in (1, 2):
        with limit_threads(threads):
            found.append(nmf.solve_and_account(V.T, G, A.T, whole, sweeps=3))
    new, told = found[0]
    np.testing.assert_array_equal(new, nmf.solve_rows(V.T, G, A.T, sweeps=3))
    assert told == pytest.approx(nmf.account(whole, A, G, new.T), abs=1e-7 * whole)
    assert told == found[1][1]
