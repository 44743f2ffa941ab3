"""CNMF against a dense re-implementation, and what its parts promise."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfactor.linalg.compiled import compile as compiled
from fedfactor.recommend import local_cnmf as cnmf_module
from fedfactor.recommend.holdout_cells import cells_aside, only_cells
from fedfactor.recommend.implicit_feedback import confidence, implicit_gradient, implicit_step, ridge_rows
from fedfactor.recommend.item_weights import _safe_cholesky
from fedfactor.recommend.local_cnmf import RatingPenalty, bilinear, cnmf, fold_bilinear, fold_users, starting_factors
from fedfactor.recommend.rating_model import bias_step, factor_step, item_counts, observed, predict_cells
from fedfactor.recommend.rating_statistics import hold_out, item_residuals, own_error, pooled_item_biases


def ratings(n=30, m=20, share=0.4, seed=0, dtype=float):
    rng = np.random.default_rng([9, seed])
    X = np.where(rng.random((n, m)) < share, rng.integers(1, 6, (n, m)), 0).astype(dtype)
    X[3], X[:, 4] = 0, 0  # a user and an item without ratings
    return scipy.sparse.csr_array(X)


def dense_cnmf(X, U, V, mu, p, iterations):
    """The same in full matrices, written as in the specification."""
    M = X > 0
    n_i, n_j = M.sum(1), M.sum(0)
    bu, bv = np.zeros(len(U)), np.zeros(V.shape[1])
    rate = lambda n, eta, g: (1 - (1 - eta * (1 + g)) ** n) / (1 + g)  # noqa: E731
    for _ in range(iterations):
        err = M * (X - mu - bu[:, None] - bv - U @ V)
        bu = bu + rate(n_i, p.eta_user, p.gamma) * (err.sum(1) / np.maximum(n_i, 1) - p.gamma * bu)
        err = M * (X - mu - bu[:, None] - bv - U @ V)
        bv = bv + rate(n_j, p.eta_item, p.delta) * (err.sum(0) / np.maximum(n_j, 1) - p.delta * bv)
        o = mu + bu[:, None] + bv
        plus, minus = M * np.maximum(o, 0), M * np.maximum(-o, 0)
        weight = n_i[:, None] if p.by_count else 1
        new = U * ((M * X + minus) @ V.T) / np.maximum((M * (U @ V) + plus) @ V.T + p.alpha * weight * U, 1e-300)
        U = np.where(n_i[:, None] > 0, np.maximum(new, 1e-9), U)
        weight = n_j if p.by_count else 1
        new = V * (U.T @ (M * X + minus)) / np.maximum(U.T @ (M * (U @ V) + plus) + p.beta * weight * V, 1e-300)
        V = np.where(n_j > 0, np.maximum(new, 1e-9), V)
    return U, V, bu, bv


@pytest.mark.parametrize("by_count", [True, False])
def test_cnmf_is_what_full_matrices_give(by_count):
    R, penalty = ratings(), RatingPenalty(0.05, 0.07, 0.03, 0.01, 0.1, 0.2, by_count)
    U, V = starting_factors(*R.shape, 3, np.random.default_rng(1))
    model = cnmf(R, U, V, 3.2, penalty=penalty, iterations=12)
    for ours, theirs in zip(model, dense_cnmf(R.toarray(), U, V, 3.2, penalty, 12), strict=False):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-12)


def test_without_numba_the_same(monkeypatch):
    R = ratings()
    U, V = starting_factors(*R.shape, 3, np.random.default_rng(1))
    fast, quick = cnmf(R, U, V, 3.0, iterations=5), implicit_step(confidence(R, 5.0), U, V, alpha=0.1)
    monkeypatch.setattr(compiled, "load_numba", lambda: None)
    slow, plain = cnmf(R, U, V, 3.0, iterations=5), implicit_step(confidence(R, 5.0), U, V, alpha=0.1)
    for a, b in zip((*fast, *quick), (*slow, *plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 5), st.floats(-4, 6))
def test_factor_steps_never_raise_the_error_whatever_the_biases(seed, k, mu):
    R = ratings(12, 9, 0.6, seed)
    rng = np.random.default_rng(seed)
    U, V = starting_factors(*R.shape, k, rng)
    user, item = rng.normal(0, 2, 12), rng.normal(0, 2, 9)
    before = np.inf
    for _ in range(6):
        U, N, D, sse = factor_step(R, U, V, user, item, mu, alpha=0.0)
        assert np.isfinite(sse)
        assert sse <= before * (1 + 1e-9)
        before = sse
        V = np.where(item_counts(R) > 0, V * N / np.maximum(D, 1e-300), V)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_rows_of_users_do_not_depend_on_each_other(seed):
    R = ratings(10, 8, 0.6, seed)
    U, V = starting_factors(*R.shape, 2, np.random.default_rng(seed))
    order = np.random.default_rng(seed + 1).permutation(10)
    zero = np.zeros(8)
    user, errors = bias_step(R, U, V, np.zeros(10), zero, 3.0, eta=0.1, decay=0.0)
    again, same = bias_step(R[order], U[order], V, np.zeros(10), zero, 3.0, eta=0.1, decay=0.0)
    np.testing.assert_array_equal(user[order], again)
    np.testing.assert_allclose(errors, same, atol=1e-12)


def test_many_ratings_do_not_make_biases_diverge():
    R = scipy.sparse.csr_array(np.full((3, 5000), 4.0))
    U, V = starting_factors(3, 5000, 1, np.random.default_rng(0), 0.1)
    model = cnmf(R, U, V, 1.0, iterations=100)
    assert np.abs(model.user).max() < 5


def test_single_precision_stays():
    R = ratings(dtype=np.float32)
    U, V = starting_factors(*R.shape, 2, np.random.default_rng(0), dtype=np.float32)
    model = cnmf(R, U, V, 3.0, iterations=3)
    assert {part.dtype for part in model[:4]} == {np.dtype(np.float32)}


def test_observed_cells():
    X = np.array([[0.0, 2.0], [3.0, 0.0]])
    assert observed(X).nnz == 2
    assert observed(X, np.array([[True, True], [False, False]])).toarray().tolist() == [[0, 2], [0, 0]]
    stored = scipy.sparse.csr_array((np.array([0.0, 2.0]), np.array([0, 1]), np.array([0, 2, 2])), shape=(2, 2))
    assert observed(stored, "stored").nnz == 2
    assert observed(stored).nnz == 1


def test_biases_and_factors_as_one_product():
    R = ratings()
    U, V = starting_factors(*R.shape, 2, np.random.default_rng(0))
    m = cnmf(R, U, V, 3.0, iterations=5)
    left, right = bilinear(m.U, m.V, m.user, m.item, 3.0)
    rows, columns = np.nonzero(R.toarray())
    np.testing.assert_allclose((left @ right)[rows, columns], predict_cells(*m[:4], 3.0, rows, columns))
    folded = fold_bilinear(R, right, iterations=7)
    U, user = fold_users(R, m.V, m.item, 3.0, iterations=7)
    np.testing.assert_allclose(folded[:, :-2], U)
    np.testing.assert_allclose(folded[:, -2], user)


def test_implicit_feedback_against_full_matrices():
    R = ratings(15, 10)
    C, P = 1 + 4 * R.toarray(), (R.toarray() > 0).astype(float)
    U, V = starting_factors(15, 10, 3, np.random.default_rng(0))
    new, N, D, loss = implicit_step(confidence(R, 4.0), U, V, alpha=0.2)
    wanted = U * ((C * P) @ V.T) / ((C * (U @ V)) @ V.T + 0.2 * U)
    np.testing.assert_allclose(new, np.maximum(wanted, 1e-9))
    np.testing.assert_allclose(N, new.T @ (C * P))
    np.testing.assert_allclose(new.T @ new @ V + D, new.T @ (C * (new @ V)))
    assert loss == pytest.approx((C * (P - new @ V) ** 2).sum())
    np.testing.assert_allclose(implicit_gradient(confidence(R, 4.0), U, V), U.T @ (C * (P - U @ V)), atol=1e-9)


def test_ridge_rows_solve_their_equations():
    R = ratings(8, 10)
    V = np.random.default_rng(0).normal(size=(3, 10))
    U = ridge_rows(R, R, V, lam=0.5)
    for i, row in enumerate(R.toarray()):
        A = (V * row) @ V.T + 0.5 * np.eye(3)
        np.testing.assert_allclose(A @ U[i], V @ row, atol=1e-9)


def test_holding_out_leaves_everybody_a_rating():
    R = ratings(40, 12, 0.2)
    kept, held = hold_out(R, 0.5, np.random.default_rng(0))
    assert kept.nnz + held.nnz == R.nnz
    assert (abs(kept + held - R)).sum() == 0
    assert ((np.diff(kept.indptr) > 0) == (np.diff(R.indptr) > 0)).all()
    assert ((item_counts(kept) > 0) == (item_counts(R) > 0)).all()


def test_pooled_item_biases_find_good_items():
    rng = np.random.default_rng(0)
    quality = rng.normal(0, 1, 30)
    X = 3 + quality + rng.normal(0, 0.3, (60, 30)) + rng.normal(0, 1, (60, 1))
    R = scipy.sparse.csr_array(np.where(rng.random(X.shape) < 0.5, X, 0))
    found = pooled_item_biases(item_residuals(R), item_counts(R))
    assert np.corrcoef(found, quality)[0, 1] > 0.98
    assert own_error(R, 3.0, np.zeros(30), 2, RatingPenalty(), 30, rng) < 1.2


@pytest.mark.parametrize("changes", [{}, {"by_count": False}, {"alpha": 0.0, "beta": 0.0}])
@pytest.mark.parametrize("item_steps", [True, False])
@pytest.mark.parametrize(("dtype", "k"), [(np.float64, 6), (np.float64, 2), (np.float32, 5)])
def test_few_ratings_give_the_same_bits_as_the_general_steps(changes, item_steps, dtype, k, monkeypatch):
    R = scipy.sparse.random_array((7, 30), density=0.15, format="csr", rng=np.random.default_rng(3), dtype=dtype)
    R.data[:] = np.rint(1 + 4 * R.data)
    U, V = cnmf_module.starting_factors(7, 30, k, np.random.default_rng(4), dtype=dtype)
    options = {"penalty": cnmf_module.RatingPenalty(**changes), "iterations": 9, "item_steps": item_steps}
    quick = cnmf_module.cnmf(R, U, V, 3.25, **options)
    monkeypatch.setattr(cnmf_module, "small_steps", lambda *args: None)
    slow = cnmf_module.cnmf(R, U, V, 3.25, **options)
    for one, other in zip(quick, slow, strict=True):
        np.testing.assert_array_equal(one, other)
    unrated = np.bincount(R.indices, minlength=30) == 0
    assert unrated.any()
    np.testing.assert_array_equal(quick.V[:, unrated], V[:, unrated])


def test_cells_set_aside_are_the_same_whoever_owns_the_rows_and_in_whatever_order():
    R, order = ratings(60, 40), np.random.default_rng(5).permutation(60)
    marked = only_cells(R, cells_aside(R, 0.3, 11)).toarray()
    assert 0.2 < np.count_nonzero(marked) / R.nnz < 0.4
    np.testing.assert_array_equal(marked[marked > 0], R.toarray()[marked > 0])
    turned = R[order]
    np.testing.assert_array_equal(only_cells(turned, cells_aside(turned, 0.3, 11)).toarray(), marked[order])
    assert not np.array_equal(cells_aside(R, 0.3, 11), cells_aside(R, 0.3, 12))
    assert (cells_aside(R, 0.3, 11) <= cells_aside(R, 0.6, 11)).all()
    assert cells_aside(R, 0.0, 11).shape == (R.nnz,)
    assert not cells_aside(R, 0.0, 11).any()
    assert cells_aside(ratings(5, 6, share=0.0), 0.3, 11).shape == (0,)


def test_a_matrix_that_is_not_positive_is_shifted_once_more_than_it_must():
    for A, first in ((np.diag([2.0, 1.0]), 0.3), (np.diag([-1.0, 1.0]), 2.4), (np.diag([-0.2, 1.0]), 0.3)):
        factor, shift = _safe_cholesky(A, 0.3)
        assert shift == pytest.approx(first)
        np.testing.assert_allclose(factor @ factor.T, A + shift * np.eye(2), rtol=1e-12)
