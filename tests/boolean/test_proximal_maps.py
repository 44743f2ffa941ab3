from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfactor.boolean.proximal_maps import (
    Pull,
    adaptive_rate,
    elastic_prox,
    integrality_gap,
    prox_step,
    step_size,
    tent_prox,
)
from fedfactor.linalg.compiled.compile import load_numba
from tests.linalg.problems import frozen

CELLS = np.linspace(0, 1, 200_001)


def penalty(w, kappa, lam):
    zero, one = kappa * abs(w) + lam / 2 * w**2, kappa * abs(w - 1) + lam / 2 * (w - 1) ** 2
    return np.minimum(zero, one)


@settings(max_examples=40, deadline=None)
@given(st.floats(-2, 3), st.floats(0, 1), st.floats(0, 50))
def test_prox_is_the_minimiser(z, kappa, lam):
    found = float(elastic_prox(np.array([z]), kappa, lam)[0])
    objective = 0.5 * (CELLS - z) ** 2 + penalty(CELLS, kappa, lam)
    best = objective.min()
    assert 0.5 * (found - z) ** 2 + penalty(found, kappa, lam) <= best + 1e-9
    if abs(z - 0.5) > 1e-3:  # at one half both branches are minimisers
        assert abs(found - CELLS[objective.argmin()]) < 1e-4


def test_printed_form_differs_only_beside_zero_and_one():
    z, kappa = np.linspace(-1, 2, 3001), 0.05
    exact, printed = elastic_prox(z, kappa, 0.2), elastic_prox(z, kappa, 0.2, printed=True)
    wrong = np.abs(exact - printed) > 1e-12
    beside = ((z > -kappa) & (z < 0)) | ((z > 1) & (z < 1 + kappa))
    assert wrong.any()
    assert not (wrong & ~beside).any()
    assert np.abs(exact - printed).max() <= kappa / 1.2 + 1e-12


def test_prox_of_a_heavy_weight_is_rounding():
    z = np.linspace(-0.2, 1.2, 57)
    np.testing.assert_allclose(elastic_prox(z, 0.5, 1e12), (z > 0.5) * 1.0, atol=1e-9)


def test_adaptive_rate_falls_from_the_ends_to_the_middle_and_never_below_lam():
    rate = adaptive_rate(np.linspace(-1, 0.5, 100), 2.0)
    assert (np.diff(rate) <= 0).all()
    assert rate.min() >= 2.0
    assert rate.max() == pytest.approx(2.0 / (1 - np.exp(-0.1)))
    np.testing.assert_allclose(adaptive_rate(np.array([0.3]), 1.0), adaptive_rate(np.array([0.7]), 1.0))


def test_tent_prox_is_the_minimiser():
    for z in (-0.3, 0.1, 0.45, 0.55, 0.8, 1.4):
        objective = 0.5 * (CELLS - z) ** 2 + 0.15 * (1 - np.abs(1 - 2 * CELLS))
        assert abs(float(tent_prox(np.array([z]), 0.15)[0]) - CELLS[objective.argmin()]) < 1e-4


@pytest.mark.parametrize("pull", [Pull(), Pull(gamma=10.0), Pull(printed=True, scale=False), Pull(norm="spectral")])
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_step_equals_its_definition(path, pull, dtype):
    rng = np.random.default_rng(0)
    X = (rng.random((30, 12)) < 0.4).astype(dtype)
    V, W, W_prev = (rng.random(shape).astype(dtype) for shape in ((4, 12), (30, 4), (30, 4)))
    frozen(X, V, W, W_prev)
    G, B, eta = V @ V.T, X @ V.T, step_size(V @ V.T, pull)
    Y = W + pull.beta * (W - W_prev)
    weight = eta if pull.scale else 1.0
    Z = Y - eta * (Y @ G - B)
    expected = elastic_prox(Z, weight * pull.kappa, weight * pull.lam, gamma=pull.gamma, printed=pull.printed)
    found = prox_step(W, W_prev, G, B, pull)
    assert found.dtype == np.dtype(dtype)
    np.testing.assert_allclose(found, expected, atol=1e-5 if dtype == "float32" else 1e-12)


@pytest.mark.skipif(load_numba() is None, reason="only the compiled loop promises it")
def test_transposed_factor_comes_back_in_its_own_order():
    V = np.random.default_rng(0).random((3, 20))
    out = prox_step(V.T, V.T, np.eye(3), np.zeros((20, 3)), Pull()).T
    assert out.flags.c_contiguous


def test_safe_step_descends():
    rng = np.random.default_rng(1)
    X, V = (rng.random((40, 15)) < 0.3) * 1.0, rng.random((3, 15))
    U = U_prev = rng.random((40, 3))
    pull = Pull(kappa=0.2, lam=0.5, beta=0.0)
    before = np.inf
    for _ in range(50):
        now = 0.5 * ((X - U @ V) ** 2).sum() + penalty(U, 0.2, 0.5).sum()
        assert now <= before + 1e-9
        before, (U, U_prev) = now, (prox_step(U, U_prev, V @ V.T, X @ V.T, pull), U)


def test_torch_agrees():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    W, G, B = rng.random((6, 3)), np.eye(3), rng.random((6, 3))
    found = prox_step(*(torch.as_tensor(part) for part in (W, W, G, B)), Pull(gamma=10.0))
    np.testing.assert_allclose(found.numpy(), prox_step(W, W, G, B, Pull(gamma=10.0)), atol=1e-12)


def test_gap():
    assert integrality_gap(np.array([[0.0, 1.0]])) == 0
    assert integrality_gap(np.full((2, 2), 0.5)) == 0.5
    assert integrality_gap(np.zeros((0, 3))) == 0
