"""DSANLS, Syn-SD, Syn-SSD, Asyn-SD and Asyn-SSD agree with an implementation written from the paper alone."""

from __future__ import annotations

import numpy as np
import pytest

import fedfactor
from fedfactor.algorithms import DSANLS, AsynSD, AsynSSD, SynSD, SynSSD
from fedfactor.core.algorithm import Round
from fedfactor.core.client_data import Federation
from fedfactor.core.grid import grid_federation
from fedfactor.nmf.distributed.asyn_sd import Own
from fedfactor.nmf.distributed.proximal_descent import inexact_step
from fedfactor.nmf.distributed.secure_steps import private_rows
from fedfactor.nmf.distributed.sketches import draw_sketch, sketch_stream, sketch_width
from tests.papers import dsanls_reference as paper

K, SEED = 3, 0


def matrix(n=40, m=50):
    rng = np.random.default_rng(5)
    return rng.random((n, K)) @ rng.random((K, m)) + 0.01 * rng.random((n, m))


def mu_of(method):
    return lambda t: method.schedule_start + method.growth * t


@pytest.mark.parametrize("kind", ["gaussian", "subsampling", "count"])
@pytest.mark.parametrize("solver", ["proximal", "gradient"])
def test_algorithm_2_with_pcd_and_pgd(kind, solver):
    M, steps = matrix(), 4
    method = DSANLS.published(K, sketch=kind, ratio=0.3)
    if solver == "gradient":
        eta = 1e-4
        method = DSANLS(
            K, kind, 0.3, "gradient", rule="absolute", schedule_start=eta, growth=0.5, init="unit", leak="ignore"
        )
        step = lambda W, A, B, t: paper.pgd(W, A, B, eta / (1 + 0.5 * t))  # noqa: E731
    else:
        step = lambda W, A, B, t: paper.pcd(W, A, B, float(t))  # noqa: E731
    federation = grid_federation(M, 2)
    meta = federation.prepare(method.domain)
    states = {c: method.init_client(federation.shard(c), meta, Round(SEED, 0, c)) for c in meta.clients}
    bounds = [federation.shard(c).bounds for c in meta.clients]
    sketches = [
        [
            draw_sketch(
                kind, size, sketch_width(size, 0.3, K), sketch_stream(SEED, name, 2 * t + odd)
            ).rows() for t in range(steps)
        ]
        for name, size, odd in (("columns", 50, 0), ("rows", 40, 1))
    ]  # fmt: skip
    U, V = paper.dsanls(
        M, [states[c].U for c in meta.clients], [states[c].V.T for c in meta.clients],
        [slice(b[0], b[1]) for b in bounds], [slice(b[2], b[3]) for b in bounds], *sketches, step,
    )  # fmt: skip
    with pytest.warns() if solver == "proximal" else pytest.MonkeyPatch.context():
        run = fedfactor.run(method, federation, rounds=2 * steps + 1, seed=SEED)
    assert np.abs(np.vstack([run.factors[c].U for c in meta.clients]) - U).max() < 1e-12
    assert np.abs(run.V.T - V).max() < 1e-12


def test_pcd_and_pgd_on_one_subproblem():
    rng = np.random.default_rng(1)
    W, A, B = rng.random((20, 4)), rng.random((20, 9)), rng.random((4, 9))
    found = inexact_step(W, B @ B.T, A @ B.T, solver="proximal", rule="absolute", amount=0.7)
    assert np.abs(found - paper.pcd(W, A, B, 0.7)).max() < 1e-13
    found = inexact_step(W, B @ B.T, A @ B.T, solver="gradient", rule="absolute", amount=1e-3)
    assert np.abs(found - paper.pgd(W, A, B, 1e-3)).max() < 1e-13


@pytest.fixture(scope="module")
def parties():
    M = matrix(30, 60)
    return {"a": M[:, :25].T, "b": M[:, 25:45].T, "c": M[:, 45:].T}


def begin(method, parties):
    federation = Federation(parties)
    meta = federation.prepare(method.domain)
    states = {c: method.init_client(federation.shard(c), meta, Round(SEED, 0, c)) for c in meta.clients}
    common = method.init_server(meta, Round(SEED, 0))[1].V.T
    return federation, meta, [parties[c].T for c in meta.clients], common, [states[c].U for c in meta.clients], states


def test_syn_sd(parties):
    method = SynSD.published(K)
    *_, Ms, U, Vs, _ = begin(method, parties)
    expected, _ = paper.syn_sd(Ms, U, Vs, 3, method.local_steps, mu_of(method))
    assert np.abs(fedfactor.run(method, parties, rounds=3, seed=SEED).V.T - expected).max() < 1e-12


@pytest.mark.parametrize("sketch", ["u", "v", "uv"])
def test_syn_ssd(parties, sketch):
    method, steps = SynSSD.published(K, sketch, ratio=0.5), 20
    _, meta, Ms, U, Vs, _ = begin(method, parties)
    shared = private = None
    if sketch != "v":
        width = sketch_width(30, 0.5, K)
        streams = [sketch_stream(SEED, "common", t) for t in range(steps)]
        shared = [draw_sketch("subsampling", 30, width, stream).rows() for stream in streams]
    if "v" in sketch:
        sizes = dict(zip(meta.clients, (M.shape[1] for M in Ms), strict=True))
        private = [
            [private_rows("subsampling", n, 0.5, K, Round(SEED, t, c), "rows").rows() for c, n in sizes.items()]
            for t in range(steps)
        ]
    expected, _ = paper.syn_ssd(Ms, U, Vs, steps, method.local_steps, mu_of(method), shared, private)
    assert np.abs(fedfactor.run(method, parties, rounds=steps, seed=SEED).V.T - expected).max() < 1e-12


@pytest.mark.parametrize("method", [AsynSD.published(K), AsynSSD.published(K, ratio=0.5)])
def test_asynchronous_clients(parties, method):
    federation, meta, Ms, U, Vs, states = begin(method, parties)
    state, down = states["b"], method.init_server(meta, Round(SEED, 0))[1]
    V = Vs[1]
    for index in range(2):  # the counter of the schedule goes on from one exchange to the next
        at = Round(SEED, index, "b")
        first, sketches = index * method.local_steps, None
        if isinstance(method, AsynSSD):
            times = range(first, first + method.local_steps)
            sketches = [method.rows_seen(federation.shard("b"), at, t).rows() for t in times]
        expected, V = paper.local_nmf(Ms[1], U, V, method.local_steps, first, mu_of(method), sketches)
        state, up = method.client_step(federation.shard("b"), state, down, at)
        assert np.abs(up.V.T - expected).max() < 1e-12
        assert np.abs(state.U - V).max() < 1e-12


@pytest.mark.parametrize("rho", [1.0, 3.0])
def test_asynchronous_server(parties, rho):
    method = AsynSD(K, server="harmonic", omega=rho, align=False)
    _, meta, _, U, _, _ = begin(method, parties)
    rng = np.random.default_rng(2)
    arrivals = [rng.random((30, K)) for _ in range(7)]
    server, _ = method.init_server(meta, Round(SEED, 0))
    for index, one in enumerate(arrivals):
        at = Round(SEED, index, participants=(meta.clients[index % 3],))
        server, _ = method.server_step(server, Own(one.T, np.float64(1)), at)
    assert np.abs(server.V.T - paper.asynchronous_server(U, arrivals, rho)).max() < 1e-12


def test_a_server_with_history_is_the_mean_of_what_was_sent_last(parties):
    method = AsynSD(K, align=False)
    federation, meta, _, common, _, states = begin(method, parties)
    server, down = method.init_server(meta, Round(SEED, 0))
    last = dict.fromkeys(meta.clients, common)
    for index, name in enumerate(["a", "c", "a", "b", "c"]):
        states[name], up = method.client_step(federation.shard(name), states[name], down, Round(SEED, index, name))
        last[name] = down.V.T + up.V.T if index == 0 else last[name] + up.V.T
        server, down = method.server_step(server, up, Round(SEED, index, participants=(name,)))
        assert np.abs(server.V.T - sum(last.values()) / 3).max() < 1e-12
