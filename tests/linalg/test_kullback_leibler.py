"""Steps for counts: against the formula, over all layouts, and never uphill."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from fedfactor.linalg.compiled import compile as compiled
from fedfactor.linalg.factors import balance
from fedfactor.linalg.missing_values import Penalty, solve_rows_masked
from fedfactor.nmf.pooled.losses import kullback_leibler_kernels as counts


def data(seed=0):
    rng = np.random.default_rng(seed)
    X = rng.poisson(1.0, (9, 7)).astype(float)
    X[3] = 0
    return X, rng.random((9, 3)) + 0.1, rng.random((3, 7)) + 0.1, rng.random((9, 7)) < 0.7


def divergence(X, U, V, mask):
    fitted = U @ V
    cells = np.where(X > 0, X * np.log(np.where(X > 0, X, 1) / fitted), 0) - X + fitted
    return cells[mask].sum()


def layouts(X, mask):
    stored = scipy.sparse.csr_array(np.where(mask, X + 1, 0))
    stored.data -= 1
    return {
        "dense": (X, None),
        "csr": (scipy.sparse.csr_array(X), None),
        "masked": (np.where(mask, X, 77.0), mask),
        "stored": (stored, "stored"),
    }


@pytest.mark.parametrize("numba", ["1", "0"])
@pytest.mark.parametrize("kind", ["dense", "csr", "masked", "stored"])
def test_one_step_is_the_formula(kind, numba, monkeypatch):
    if numba == "0":
        monkeypatch.setattr(compiled, "load_numba", lambda: None)
    X, U, V, mask = data()
    M = mask if kind in ("masked", "stored") else np.ones(X.shape, bool)
    matrix, how = layouts(X, mask)[kind]
    ratio = np.where(M, X / (U @ V), 0)
    found = counts.count_rows(U, matrix, V, how, sweeps=1, l1=0.2, l2=0.3)
    np.testing.assert_allclose(found, U * (ratio @ V.T) / (M @ V.T + 0.2 + 0.3 * U), atol=1e-12)
    N, D, loss = counts.count_sums(U, matrix, V, how)
    np.testing.assert_allclose(N, U.T @ ratio)
    np.testing.assert_allclose(D + 0 * N, U.T @ M)
    np.testing.assert_allclose(loss, divergence(X, U, V, M))
    V_new, gain = counts.count_step(V, N, D)
    assert 0 < gain <= loss - divergence(X, U, V_new, M) + 1e-12
    sse, cells, base = counts.count_error(matrix, U, V, how)
    assert (cells, bool(base > 0)) == (M.sum(), True)
    np.testing.assert_allclose(sse, 2 * loss)


def test_penalties_on_V_are_part_of_step_and_gain():
    X, U, V, mask = data(3)
    N, D, loss = counts.count_sums(U, X, V)
    for l1, l2 in ((0.4, 0.0), (0.0, 0.7), (0.4, 0.7)):
        new, gain = counts.count_step(V, N, D, l1=l1, l2=l2)
        np.testing.assert_allclose(new, V * N / (D + l1 + l2 * V))
        paid = [l1 * F.sum() + 0.5 * l2 * (F**2).sum() for F in (V, new)]
        whole = np.ones_like(mask)
        assert gain <= loss + paid[0] - divergence(X, U, new, whole) - paid[1] + 1e-12
        told = np.sum(V * N * np.log(new / V) - D * (new - V)) + paid[0] - paid[1]
        np.testing.assert_allclose(gain, told, rtol=1e-12)


def test_empty_rows_begin_anew_and_the_loss_never_rises():
    X, _, V, _ = data(1)
    U = np.zeros((9, 3))
    losses = []
    for _ in range(10):
        U = counts.count_rows(U, X, V, sweeps=1)
        losses.append(counts.count_sums(U, X, V)[2])
    assert np.all(np.diff(losses) <= 1e-12)
    assert not U[3].any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_do_not_begin_anew_where_nothing_is_left_of_V(dtype):
    """A share of it would be infinite, or its square."""
    X, U = np.full((2, 3), 1e4, dtype), np.zeros((2, 1), dtype)
    least = np.finfo(dtype).smallest_normal
    for left in (0, least, least**0.5):
        assert counts.count_rows(U, X, np.full((1, 3), left, dtype), sweeps=1).tolist() == [[0], [0]]
    found = counts.count_rows(U, X, np.full((1, 3), 1e-6, dtype), sweeps=1)
    np.testing.assert_allclose(found, [[1e10], [1e10]], rtol=1e-5)


@pytest.mark.parametrize("numba", ["1", "0"])
@pytest.mark.parametrize("kind", ["dense", "csr", "masked", "stored"])
def test_bold_steps_go_further_and_never_uphill(kind, numba, monkeypatch):
    if numba == "0":
        monkeypatch.setattr(compiled, "load_numba", lambda: None)
    X, _, _, mask = data(4)
    X[:, 2] *= 40  # ratios of all sizes
    matrix, how = layouts(X, mask)[kind]
    rng = np.random.default_rng(5)
    U, V = rng.random((9, 3)) ** 4, rng.random((3, 7)) ** 4
    plain = counts.count_rows(U, matrix, V, how, sweeps=1, l1=0.1)
    bold = counts.count_rows(U, matrix, V, how, sweeps=1, l1=0.1, bold=True)
    np.testing.assert_allclose(bold, U * counts.boldly(plain / U), rtol=1e-12)
    paid = lambda U, V: counts.count_sums(U, matrix, V, how)[2] + 0.1 * (U.sum() + V.sum())  # noqa: E731
    for _ in range(20):
        new = counts.count_rows(U, matrix, V, how, sweeps=1, l1=0.1, bold=True)
        assert paid(new, V) <= paid(U, V) + 1e-9
        N, D, _ = counts.count_sums(new, matrix, V, how)
        V_new, gain = counts.count_step(V, N, D, l1=0.1, bold=True)
        assert 0 <= gain <= paid(new, V) - paid(new, V_new) + 1e-9
        U, V = new, V_new


def test_the_powers_of_bold_steps_lower_the_bound_wherever_they_are_taken():
    r = np.concatenate([np.geomspace(1e-9, 40, 20_000), [2.72, 21.7]])
    factor = counts.boldly(r)
    assert np.all(r * np.log(factor) - factor + 1 >= 0)
    assert np.all(np.abs(np.log(factor)) >= np.abs(np.log(r)) - 1e-12)


@pytest.mark.parametrize("numba", ["1", "0"])
def test_penalties_of_masked_rows(numba, monkeypatch):
    if numba == "0":
        monkeypatch.setattr(compiled, "load_numba", lambda: None)
    X, U, V, mask = data(2)
    l2 = np.array([0.1, 0.2, 0.3])
    found = solve_rows_masked(U, X, mask, V, sweeps=400, penalty=Penalty(0.05, l2, 0.1))
    for i in range(9):
        seen = V[:, mask[i]]
        H = seen @ seen.T + np.diag(l2 + 0.1 * np.mean(np.sum(seen**2, axis=1)))
        slope = H @ found[i] - seen @ X[i, mask[i]] + 0.05
        assert np.all(slope > -1e-6)
        np.testing.assert_allclose(slope * found[i], 0, atol=1e-6)


def test_balance_costs_least():
    rng = np.random.default_rng(0)
    V, U = rng.random((3, 5)), rng.random((8, 3))
    pay_U, pay_V = (0.3, 0.7), (0.2, 0.9)

    def cost(d):
        left, right = U * d, V / d[:, None]
        return sum(a * F.sum() + 0.5 * b * (F**2).sum() for F, (a, b) in ((left, pay_U), (right, pay_V)))

    d = balance(V, np.sum(U**2, axis=0), U.sum(axis=0), pay_U, pay_V)[:, 0]
    assert all(cost(d) <= cost(d * factor) for factor in (0.99, 1.01))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_penalties_left_nothing_of_has_any_length(dtype):
    V = np.array([[0.0, 0.0], [0.0, 1e-30], [4.0, 0.0]], dtype)
    squares = np.array([1e-44, 1e-30, 1.0], dtype)
    found = balance(V, squares, None, (0.0, 0.13), (0.0, 0.13))
    assert found.dtype == dtype
    np.testing.assert_allclose(found[[0, 2], 0], [1, 2], rtol=1e-6)
    assert 0 < found[1, 0] < np.inf


def test_rows_stored_by_columns_give_what_rows_give():
    rng = np.random.default_rng(0)
    U, V = rng.random((12, 3)), rng.random((3, 7))
    S = scipy.sparse.csr_array(rng.poisson(1.0, (12, 7)) * 1.0)
    wanted = counts.count_rows(U, S, V, sweeps=2)
    np.testing.assert_allclose(counts.count_rows(U, scipy.sparse.csc_array(S), V, sweeps=2), wanted)
