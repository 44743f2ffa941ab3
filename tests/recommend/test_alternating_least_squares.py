from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from fedfactor.linalg.factors import rescale
from fedfactor.nmf.local_nmf import SOLVERS, alternate


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    X = rng.random((40, 3)) @ rng.random((3, 15)) + 0.01 * rng.random((40, 15))
    return X, rng.random((40, 3)), rng.random((3, 15))


@pytest.mark.parametrize("solver", SOLVERS)
def test_the_loss_never_rises(problem, solver):
    X, U, V = problem
    losses = []
    for _ in range(20):
        U, V, _ = alternate(X, U, V, steps=1, solver=solver)
        losses.append(np.sum((X - U @ V) ** 2))
    assert all(b <= a * (1 + 1e-12) for a, b in pairwise(losses))
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("solver", ["hals", "gradient"])
def test_a_strong_anchor_holds_v(problem, solver):
    X, U, V = problem
    _, free, _ = alternate(X, U, V, steps=50, solver=solver)
    _, held, _ = alternate(X, U, V, steps=50, solver=solver, mu=1e6, anchor=V)
    assert np.linalg.norm(held - V) < 1e-2 * np.linalg.norm(free - V)


def test_steps_can_be_cut_or_stopped_early(problem):
    X, U, V = problem
    whole = alternate(X, U, V, steps=6)
    half = alternate(X, *alternate(X, U, V, steps=3)[:2], steps=3)
    np.testing.assert_array_equal(whole[1], half[1])
    calls = []
    alternate(X, U, V, steps=500, sq_norm=float(np.sum(X**2)), tol=0.3, pull=lambda V, t, eta: calls.append(t) or V)
    assert 10 <= len(calls) < 500


def test_the_loss_of_the_given_v(problem):
    X, U, V = problem
    one_step, _, told = alternate(X, U, V, steps=5, sq_norm=float(np.sum(X**2)))
    U1, _, _ = alternate(X, U, V, steps=1)
    assert told == pytest.approx(np.sum((X - U1 @ V) ** 2))
    assert one_step.shape == U.shape


def test_inertia_still_converges(problem):
    X, U, V = problem
    U, V, _ = alternate(X, U, V, steps=400, inertia=0.3)
    assert np.linalg.norm(X - U @ V) < 0.03 * np.linalg.norm(X)


@pytest.mark.parametrize("scale", ["unit", "usage", "free"])
def test_rescaling_keeps_the_product(problem, scale):
    _, U, V = problem
    A, B = rescale(U, V, scale)
    np.testing.assert_allclose(A @ B, U @ V)
    if scale == "unit":
        np.testing.assert_allclose(np.linalg.norm(B, axis=1), 1)
    if scale == "usage":
        np.testing.assert_allclose(np.linalg.norm(A, axis=0), 1)


def test_bad_words(problem):
    with pytest.raises(ValueError, match="solver='magic' is not known"):
        alternate(*problem, steps=1, solver="magic")
    with pytest.raises(ValueError, match="scale='magic' is not known"):
        rescale(problem[1], problem[2], "magic")
