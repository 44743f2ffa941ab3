"""FNMF.paper, its plans and its rivals agree with an implementation written from the paper alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import nnls

import fedfactor
from fedfactor.algorithms import FNMF, FedProxNMF, OneShotNMF
from fedfactor.core.algorithm import Round
from fedfactor.core.client_data import Federation
from fedfactor.datasets.dense_blocks import deal_rows, dense_blocks
from fedfactor.linalg.alignment.assignment import plan
from fedfactor.linalg.alignment.barycenter import mean_start_barycenter
from fedfactor.nmf.local_nmf import alternate
from tests.papers import fnmf_reference as paper

K = 4


@pytest.fixture(scope="module")
def owners():
    X, _, _ = dense_blocks(120, 30, K, noise=0.05, seed=0)
    return deal_rows(X, 3, 0)


def starts(algorithm, owners, seed=0):
    """Return data, U and V of every client as the library draws them: the paper says only "uniform"."""
    federation = Federation(owners)
    meta = federation.prepare(algorithm.domain)
    made = [algorithm.init_client(federation.shard(c), meta, Round(seed, 0, c)) for c in meta.clients]
    return [federation.shard(c).X for c in meta.clients], [one.U for one in made], [one.V for one in made]


def plans(alignment):
    if alignment == "lap":
        return paper.lap
    if alignment == "lap_rho":
        return lambda X, Y: paper.lap_rho(X, Y, 0.05)
    return lambda X, Y: plan(Y, X, alignment)


@pytest.mark.parametrize("alignment", ["lap", "lap_rho", "simplex", "sinkhorn"])
@pytest.mark.parametrize("scaled", [False, True])
def test_algorithms_1_and_2(owners, alignment, scaled):
    literal = FNMF.paper(
        K, alignment=alignment, local_solver="gradient", scale_gamma=scaled, gamma=0.1, local_steps=7, tol=0.0
    )
    Xs, Us, Vs = starts(literal, owners)
    assert all(U.min() >= 0 and U.max() > 0.9 for U in Us)  # uniform on [0, 1], as printed
    middle = paper.fnmf(Xs, Us, Vs, 3, 7, 0.1, plans(alignment), scaled=scaled)
    run = fedfactor.run(literal, owners, rounds=4, seed=0)
    assert np.abs(run.V - middle).max() < 1e-12


def test_the_variant_is_another_algorithm(owners):
    literal = FNMF.paper(K, local_solver="gradient", gamma=0.1, local_steps=7, tol=0.0)
    Xs, Us, Vs = starts(literal, owners)
    middle = paper.fnmf(Xs, Us, Vs, 3, 7, 0.1, paper.lap)
    variant = FNMF(K, gamma=0.1, local_steps=7, tol=0.0)
    found = fedfactor.run(variant, owners, rounds=4, seed=0).V
    order = plan(found, middle).argmax(1)
    assert np.abs(found[order] - middle).max() > 1e-2


def test_printed_step_lengths(owners):
    literal = FNMF.paper(K, local_steps=2, tol=0.0)
    Xs, Us, Vs = starts(literal, owners)
    U, V = paper.client(Xs[0], Us[0], Vs[0], sum(Vs) / 3, 2, 0.0, paper.lap, lengths="printed")
    found = alternate(Xs[0], Us[0], Vs[0], steps=2, solver="printed")
    assert np.abs(found[0] - U).max() < 1e-12 * U.max()
    assert np.abs(found[1] - V).max() < 1e-12 * V.max()


@pytest.mark.parametrize(("rows", "diverges"), [(600, True), (60, False)])
def test_printed_step_lengths_diverge_where_rows_and_columns_differ(rows, diverges):
    X, _, _ = dense_blocks(rows, 80, 6, noise=0.05, seed=0)
    rng = np.random.default_rng(0)
    U, V = rng.random((rows, 6)), rng.random((6, 80))
    with np.errstate(all="ignore"):
        found = paper.client(X, U, V, V, 2, 0.0, paper.lap, lengths="printed")
    assert any(not part.max() < 1e6 for part in found) is diverges


def test_algorithm_1():
    rng = np.random.default_rng(2)
    truth = rng.random((5, 40)) * (rng.random((5, 40)) < 0.3)
    Vs = [np.maximum(truth[rng.permutation(5)] + 0.1 * rng.normal(size=truth.shape), 0) for _ in range(6)]
    for alignment in ("lap", "lap_rho"):
        found, _ = mean_start_barycenter(Vs, alignment, alpha=0.05, correction="none")
        assert np.abs(found - paper.fixed_point(Vs, plans(alignment))).max() < 1e-12


def test_plans():
    rng = np.random.default_rng(3)
    X, Y = rng.random((6, 50)), rng.random((6, 50))
    Y[:4] = X[[2, 0, 3, 1]] + 0.05 * rng.random((4, 50))
    assert (plan(Y, X) == paper.lap(X, Y)).all()
    for correction, pairs in (("none", 1), ("bonferroni", 36)):
        found = plan(Y, X, "lap_rho", alpha=0.05, correction=correction)
        assert (found == paper.lap_rho(X, Y, 0.05, pairs)).all()
    softer = plan(Y, X, "sinkhorn", epsilon=0.5, iterations=2_000)
    assert np.abs(softer - paper.sinkhorn(X, Y, 0.5, 2_000)).max() < 1e-9  # the library stops when columns fit to 1e-9


def test_a_simplex_plan_is_the_minimizer_under_d3():
    rng = np.random.default_rng(4)
    X, Y = rng.random((5, 12)), rng.random((5, 12))
    P = plan(Y, X, "simplex")
    assert np.abs(P.sum(1) - 1).max() < 1e-12
    assert P.min() >= 0
    weight = 1e4  # a heavy row that asks for sum 1 turns non-negative least squares into the same problem
    for x, p in zip(X, P, strict=True):
        exact, _ = nnls(np.vstack([Y.T, weight * np.ones(5)]), np.append(x, weight))
        assert np.abs(p - exact).max() < 1e-6
    others = [paper.sinkhorn(X, Y, epsilon, 500) for epsilon in (0.05, 0.5)]
    assert all(np.linalg.norm(X - P @ Y) < np.linalg.norm(X - other @ Y) for other in others)


@pytest.mark.parametrize("beta", [0.0, 0.1])
def test_ipalm(owners, beta):
    Xs, Us, Vs = starts(FNMF.paper(K), owners)
    U, V = paper.ipalm(Xs[0], Us[0], Vs[0], 30, beta)
    found = alternate(Xs[0], Us[0], Vs[0], steps=30, solver="gradient", inertia=beta)
    assert np.abs(found[0] - U).max() < 1e-12
    assert np.abs(found[1] - V).max() < 1e-12


def test_multiplicative_updates(owners):
    Xs, Us, Vs = starts(FNMF.paper(K), owners)
    U, V = paper.mur(Xs[0], Us[0], Vs[0], 30)
    found = alternate(Xs[0], Us[0], Vs[0], steps=30, solver="multiplicative")
    assert np.abs(found[0] - U).max() < 1e-10
    assert np.abs(found[1] - V).max() < 1e-10


@pytest.mark.parametrize("mu", [0.0, 10.0])
def test_fedavg_and_fedprox(owners, mu):
    method = FedProxNMF(
        K, mu=mu, relative=False, start="own", weights="equal", local_solver="gradient", local_steps=5, tol=0.0
    )
    Xs, Us, Vs = starts(method, owners)
    middle = paper.fedavg(Xs, Us, Vs, 4, 5, mu)
    run = fedfactor.run(method, owners, rounds=4, seed=0)
    assert np.abs(run.V - middle).max() < 1e-12


def test_averaging_once(owners):
    method = OneShotNMF(K, combine="mean", local_solver="gradient", local_steps=40)
    federation = Federation(owners)
    meta = federation.prepare(method.domain)
    ups = []
    for name in meta.clients:
        at = Round(0, 0, name)
        shard = federation.shard(name)
        _, down = method.init_server(meta, Round(0, 0))
        ups.append(method.client_step(shard, method.init_client(shard, meta, at), down, at)[1].V)
    assert np.abs(fedfactor.run(method, owners, seed=0).V - sum(ups) / 3).max() < 1e-12
