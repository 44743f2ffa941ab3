from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from fedfactor.linalg.alignment.assignment import METHODS, align_rows, permutation, plan, unaligned_groups
from fedfactor.linalg.alignment.drift import agreement, mean_similarity
from fedfactor.linalg.alignment.sinkhorn import transport


def factor(k, m, seed=0, density=0.4):
    rng = np.random.default_rng([k, m, seed])
    V = rng.random((k, m)) * (rng.random((k, m)) < density)
    V[np.arange(k), rng.integers(m, size=k)] = 1.0
    return V


def naive_lap(V, reference):
    """Try all orders."""
    best = min(permutations(range(len(V))), key=lambda order: np.sum((reference - V[list(order)]) ** 2))
    return np.eye(len(V))[list(best)]


def log_sinkhorn(cost, rows, columns, epsilon, iterations):
    K, f, g = -cost / epsilon, np.zeros(len(rows)), np.zeros(len(columns))
    for _ in range(iterations):
        f = np.log(rows) - logsumexp(K + g[None], 1)
        g = np.log(columns) - logsumexp(K + f[:, None], 0)
    f = np.log(rows) - logsumexp(K + g[None], 1)
    return np.exp(K + f[:, None] + g[None])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("k", [1, 2, 7, 30])
def test_permuted_rows_find_back(method, k):
    V = factor(k, 80)
    order = np.random.default_rng(k).permutation(k)
    np.testing.assert_allclose(plan(V[order], V, method) @ V[order], V, atol=2e-3)


@given(seed=st.integers(0, 10_000), k=st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_assignment_is_the_best_of_all_orders(seed, k):
    rng = np.random.default_rng(seed)
    V, W = rng.random((k, 6)), rng.random((k, 6))
    best = naive_lap(V, W)
    P = plan(V, W)
    assert np.sum((W - P @ V) ** 2) <= np.sum((W - best @ V) ** 2) + 1e-12


@pytest.mark.slow
@given(seed=st.integers(0, 10_000), epsilon=st.sampled_from([1.0, 0.2]))
@settings(max_examples=8, deadline=None)
def test_transport_is_that_of_the_log_domain(seed, epsilon):
    rng = np.random.default_rng(seed)
    cost, rows = rng.random((5, 7)), rng.uniform(0.5, 2, 5)
    columns = rng.uniform(0.5, 2, 7)
    columns *= rows.sum() / columns.sum()
    ours = transport(cost, rows, columns, epsilon, 300, tol=0)
    np.testing.assert_allclose(ours, log_sinkhorn(cost, rows, columns, epsilon, 300), atol=1e-9)
    np.testing.assert_allclose(ours.sum(1), rows, rtol=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_wild_scales_stay_finite(method):
    rng = np.random.default_rng(0)
    for _ in range(20):
        V, W = (np.exp(rng.normal(0, 20, (6, 1))) * rng.random((6, 30)) for _ in range(2))
        P = plan(V, W, method)
        assert np.isfinite(P).all()
        assert (P.sum(1) < 1 + 1e-9).all()


def test_soft_plans_harden_as_epsilon_falls():
    V, W = factor(6, 40), factor(6, 40, seed=1)
    gaps = [np.abs(plan(V, W, "sinkhorn", epsilon=e, iterations=5000) - plan(V, W)).max() for e in (1.0, 0.1, 1e-3)]
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 0.05


@pytest.mark.parametrize("method", ["lap_rho", "sinkhorn_rho"])
def test_rows_without_a_partner_stay_alone(method):
    V = factor(5, 100)
    other = np.vstack([V[[3, 1]], factor(3, 100, seed=9, density=0.1)])
    P = plan(other, V, method)
    np.testing.assert_allclose(P.sum(1), [0, 1, 0, 1, 0], atol=1e-6)
    assert permutation(P)[[3, 1]].tolist() == [0, 1]
    np.testing.assert_allclose((P @ other)[[1, 3]], V[[1, 3]], atol=1e-6)


def test_a_lower_level_leaves_more_alone():
    rng = np.random.default_rng(0)
    V = factor(6, 60)
    W = V + rng.uniform(0, 2, (6, 1)) * rng.random(V.shape)
    matched = [plan(W, V, "lap_rho", alpha=alpha).sum() for alpha in (0.05, 1e-9, 1e-30)]
    assert matched[0] > matched[-1]
    assert matched == sorted(matched, reverse=True)


def test_neighbours_may_be_shared_and_several():
    V = np.array([[0.0, 0, 0, 0], [1, 0, 0, 0], [9, 9, 9, 9]])
    reference = np.array([[0.1, 0, 0, 0], [0.2, 0, 0, 0], [0.3, 0, 0, 0]])
    np.testing.assert_array_equal(plan(V, reference, "knn"), [[1, 0, 0]] * 3)
    np.testing.assert_array_equal(plan(V, reference, "knn", neighbours=2), [[0.5, 0.5, 0]] * 3)


@pytest.mark.parametrize("method", METHODS)
def test_float32_and_torch_agree_with_float64(method):
    V, W = factor(5, 50), factor(5, 50) + 0.05 * factor(5, 50, seed=3)
    P = plan(V, W, method)
    small = plan(V.astype(np.float32), W.astype(np.float32), method)
    assert small.dtype == np.float32
    np.testing.assert_allclose(small, P, atol=1e-3)
    torch = pytest.importorskip("torch")
    there = plan(torch.from_numpy(V), torch.from_numpy(W), method)
    np.testing.assert_allclose(there.numpy(), P, atol=1e-9)


def test_align_rows_moves_whole_rows():
    V = factor(4, 30)
    moved, order = align_rows(V[[2, 0, 3, 1]], V, "sinkhorn")
    np.testing.assert_array_equal(moved, V)
    assert order.tolist() == [1, 3, 0, 2]


def test_rows_that_several_leave_alone_are_found():
    common, rng = factor(1, 100, seed=4), np.random.default_rng(0)
    Vs = [np.vstack([factor(1, 100, seed=20 + c, density=0.1), common + 0.01 * rng.random((1, 100))]) for c in range(3)]
    assert unaligned_groups(Vs, [np.zeros((2, 2))] * 3) == [(0, 1)]
    assert unaligned_groups(Vs, [np.eye(2)] * 3) == []
    assert unaligned_groups(Vs[:1], [np.zeros((2, 2))]) == []


def test_agreement_sees_order_and_scale():
    V = factor(5, 40)
    drift, plain, alike = agreement(V[::-1], V)
    assert drift < 1e-7 < plain
    assert alike == pytest.approx(1)
    assert agreement(2 * V, V)[0] == pytest.approx(1)
    assert agreement(np.zeros_like(V), V) == pytest.approx((1, 1, 0))
    assert mean_similarity([V] * 20, np.random.default_rng(0), most=5) == pytest.approx(1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "magic"}, "method='magic' is not known"),
        ({"method": "knn", "neighbours": 4}, "neighbours=4 must lie between 1 and the 3"),
        ({"method": "lap_rho", "alpha": 0.0}, "alpha=0.0 must lie strictly between"),
        ({"method": "sinkhorn", "epsilon": 0.0}, "epsilon=0.0 must be positive"),
    ],
)
def test_bad_settings(arguments, message):
    with pytest.raises(ValueError, match=message):
        plan(factor(3, 10), factor(3, 10, seed=1), **arguments)


def test_bad_shapes():
    with pytest.raises(ValueError, match="rows over the same columns"):
        plan(np.ones((2, 3)), np.ones((2, 4)))
    with pytest.raises(ValueError, match="at least 4 are needed"):
        plan(np.eye(3), np.eye(3), "lap_rho")
    with pytest.raises(ValueError, match="Only a square plan"):
        permutation(np.ones((2, 3)))
