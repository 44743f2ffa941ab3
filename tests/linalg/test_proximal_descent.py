"""Proximal steps, schedules, and exact non-negative least squares."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import nnls

from fedfactor.linalg.block_pivoting import pivot_rows
from fedfactor.linalg.factors import match_common
from fedfactor.nmf.distributed.proximal_descent import inexact_step, proximal_step, schedule


def problem(n=30, k=6, m=20, seed=0):
    rng = np.random.default_rng(seed)
    V = rng.random((k, m)) * (rng.random((k, m)) < 0.6)
    X = rng.random((n, m))
    return rng.random((n, k)), V, X


def naive(W, G, B, mu):
    """One sweep, written as in the paper."""
    W, start = W.copy(), W
    for j in range(W.shape[1]):
        rest = sum(W[:, other] * G[other, j] for other in range(W.shape[1]) if other != j)
        W[:, j] = np.maximum((B[:, j] + mu * start[:, j] - rest) / (G[j, j] + mu), 0)
    return W


@pytest.mark.parametrize("mu", [0.1, 3.0])
def test_a_step_is_the_papers_sweep(mu):
    W, V, X = problem()
    np.testing.assert_allclose(proximal_step(W, V @ V.T, X @ V.T, mu), naive(W, V @ V.T, X @ V.T, mu), atol=1e-12)


@pytest.mark.parametrize("solver", ["proximal", "gradient"])
def test_relative_steps_do_not_feel_the_scale(solver):
    W, V, X = problem()
    one = inexact_step(W, V @ V.T, X @ V.T, solver=solver, rule="relative", amount=0.3)
    two = inexact_step(W / 100, 1e4 * V @ V.T, 100 * X @ V.T, solver=solver, rule="relative", amount=0.3)
    np.testing.assert_allclose(one, 100 * two, atol=1e-12)


def test_schedules():
    assert schedule("proximal", 0.0, 1.0, 7) == 7
    assert schedule("gradient", None, None, 0) == 1


@pytest.mark.parametrize("seed", range(5))
def test_pivoting_solves_exactly(seed):
    W, V, X = problem(seed=seed)
    exact = np.stack([nnls(V.T, row)[0] for row in X])
    np.testing.assert_allclose(pivot_rows(V @ V.T, X @ V.T), exact, atol=1e-9)
    np.testing.assert_allclose(pivot_rows(V @ V.T, X @ V.T, start=W), exact, atol=1e-9)


def test_pivoting_survives_a_singular_matrix():
    V = np.ones((3, 5))
    found = pivot_rows(V @ V.T, np.ones((2, 5)) @ V.T)
    np.testing.assert_allclose(found @ V, 1, atol=1e-6)
    assert (found >= 0).all()


def test_matching_keeps_the_product_and_finds_the_order():
    rng = np.random.default_rng(0)
    common = rng.random((4, 9))
    order, scale = rng.permutation(4), rng.random(4) + 0.5
    U, V = rng.random((5, 4)), scale[:, None] * common[order]
    U2, V2 = match_common(U, V, common, 2.0)
    np.testing.assert_allclose(U2 @ V2, U @ V)
    np.testing.assert_allclose(V2, 2 * common / np.linalg.norm(common, axis=1, keepdims=True))
    U[:, 1], V[2] = 0, 0
    U2, V2 = match_common(U, V, common, 2.0)
    np.testing.assert_allclose(U2 @ V2, U @ V)
    assert np.isfinite(U2).all()
