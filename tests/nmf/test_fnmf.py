"""What the paper claims of FNMF, small; full counts are in claims/."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fedfactor
from fedfactor import LocalEngine
from fedfactor.algorithms import FNMF, FedProxNMF, OneShotNMF
from fedfactor.core.algorithm import Meta, Round
from fedfactor.datasets.dense_blocks import deal_rows, dense_blocks, shared_and_private
from fedfactor.metrics import cosine_similarity

GRADIENT = {"local_solver": "gradient", "tol": 0.0}


def sum_rmsd(run):
    return sum(float(np.sqrt(score.sse / score.n)) for score in run.scores.values())


def fit(method, owners, rounds, seed=0):
    return fedfactor.run(method, owners, rounds=rounds, seed=seed, engine=LocalEngine(workers=1))


@pytest.fixture(scope="module")
def blocks():
    return deal_rows(dense_blocks(600, 80, 6, noise=0.05, seed=0)[0], 10)


@pytest.fixture(scope="module")
def personal():
    return shared_and_private(6, 100, 100)


@pytest.mark.slow
@pytest.mark.parametrize("form", ["fixed_point", "progressive", "hierarchical", "client"])
def test_alignment_keeps_the_central_error_over_many_local_steps(blocks, form):
    run = fit(FNMF(6, barycenter=form, local_steps=100, **GRADIENT), blocks, 6)
    assert sum_rmsd(run) == pytest.approx(0.293, rel=0.05)


@pytest.mark.slow
def test_averaging_without_alignment_does_not(blocks):
    plain = {"local_steps": 100, "start": "own", "weights": "equal", **GRADIENT}
    assert sum_rmsd(fit(FedProxNMF(6, mu=0.0, **plain), blocks, 6)) > 1.5
    assert sum_rmsd(fit(FedProxNMF(6, mu=10.0, **plain), blocks, 6)) > 0.5


@pytest.mark.slow
def test_client_aligned_ends_where_the_server_barycenter_does(blocks):
    server, client = (
        fit(FNMF(6, barycenter=form, local_solver="hals"), blocks, 30) for form in ("fixed_point", "client")
    )
    assert client.relative_error == pytest.approx(server.relative_error, rel=1e-3)


@pytest.mark.slow
def test_one_exchange_is_better_aligned_than_averaged(blocks):
    steps = {"local_steps": 300, "local_solver": "gradient"}
    aligned, mean = (fit(OneShotNMF(6, combine=how, **steps), blocks, 1) for how in ("fixed_point", "mean"))
    assert sum_rmsd(aligned) < 0.5 * sum_rmsd(mean)
    again = fit(OneShotNMF(6, **steps), blocks, 5)
    assert again.rounds == 1
    np.testing.assert_array_equal(again.V, aligned.V)


@pytest.mark.parametrize("method", [FNMF(6, gamma=1.0, **GRADIENT), FedProxNMF(6, mu=10.0, start="own", **GRADIENT)])
def test_a_pull_in_the_first_round_draws_to_noise(blocks, method):
    late, early = (fit(replace(method, pull_from=first, local_steps=50), blocks, 1) for first in (1, 0))
    assert sum_rmsd(early) > 1.2 * sum_rmsd(late)


@pytest.mark.slow
def test_a_relative_pull_means_the_same_at_every_scale(blocks):
    large = {name: 1000 * X for name, X in blocks.items()}
    for relative in (True, False):
        method = FedProxNMF(6, mu=1.0, relative=relative, **GRADIENT)
        one, other = (fit(method, owners, 5).V for owners in (blocks, large))
        assert np.allclose(one, other, rtol=1e-6) == relative


def cosines(planted, found):
    return cosine_similarity(planted, found).max(axis=1)


@pytest.mark.parametrize(
    "options",
    [
        {"alignment": "lap_rho"},
        {"alignment": "sinkhorn_rho"},
        {"alignment": "lap_rho", "barycenter": "progressive"},
        {"alignment": "lap_rho", "barycenter": "client"},
        {"alignment": "sinkhorn_rho", "barycenter": "client", "weights": "rows"},
    ],
)
def test_private_components_are_found_and_stay_private(personal, options):
    X, V, own = personal
    run = fit(FNMF(6, local_solver="hals", **options), X, 15)
    assert run.V.shape == (4, 100)
    assert cosines(V, run.V).min() > 0.95
    for name, kept in run.factors.items():
        assert kept.V_private.shape == (2, 100)
        assert kept.U_private.shape == (100, 2)
        assert cosines(own[name], kept.V_private).min() > 0.9
        assert cosines(own[name], run.V).max() < 0.9  # nothing of it is in what all have
    assert run.relative_error < 0.1


def test_plain_assignment_loses_private_components(personal):
    X, V, own = personal
    run = fit(FNMF(6, local_solver="hals"), X, 15)
    assert cosines(V, run.V).min() > 0.95
    assert np.mean([cosines(own[name], run.V) > 0.9 for name in X]) < 0.2
    assert run.relative_error > 0.3


def test_a_synchronisation_keeps_private_rows(personal):
    X, _, _ = personal
    method = FNMF(6, alignment="lap_rho", local_solver="hals")
    meta = Meta(100, tuple(sorted(X)))
    shards = {name: fedfactor.Shard.of(rows) for name, rows in X.items()}
    at = Round(0, 0, participants=meta.clients)
    server, down = method.init_server(meta, at)
    states = {n: method.init_client(s, meta, Round(0, 0, n)) for n, s in shards.items()}
    for index in range(4):
        done = {n: method.client_step(s, states[n], down, Round(0, index, n)) for n, s in shards.items()}
        states = {n: state for n, (state, _) in done.items()}
        server, down = method.server_step(
            server, {n: up for n, (_, up) in done.items()}, Round(0, index, participants=meta.clients)
        )
    for name, state in states.items():
        U, V, private = method._synchronise(shards[name].X, state, down.V, down, first=False)
        assert private.sum() == 2
        assert all(any(np.array_equal(row, old) for old in state.V) for row in V[private])
        np.testing.assert_array_equal(V[~private], down.V[~private])
        # U follows V: right after the exchange the rows are still explained.
        before, after = (np.linalg.norm(X[name] - A @ B) for A, B in ((state.U, state.V), (U, V)))
        assert after < 1.5 * before


@pytest.mark.slow
def test_drift_is_reported_with_and_without_alignment(blocks):
    run = fit(FNMF(6, local_steps=50, diagnostics=True, **GRADIENT), blocks, 4)
    last = run.history[-1].metrics
    assert {"drift", "plain_drift", "server_similarity", "client_similarity"} <= set(last)
    assert last["drift"] <= last["plain_drift"] * (1 + 1e-6)
    assert last["client_similarity"] > 0.9
    averaged = fit(FedProxNMF(6, mu=0.0, local_steps=50, start="own", diagnostics=True, **GRADIENT), blocks, 4)
    assert averaged.history[-1].metrics["drift"] > 5 * last["drift"]
    assert "drift" not in fit(FNMF(6), blocks, 1).history[-1].metrics


@pytest.mark.slow
def test_it_settles_also_when_clients_stay_away(blocks):
    full = fit(FNMF(6, gamma=0.1, local_solver="hals"), blocks, 40)
    assert full.status == "converged"
    away = fedfactor.run(FNMF(6, gamma=0.1, local_solver="hals", tol=0.0), blocks, rounds=25, seed=0, participation=0.5)
    assert away.relative_error == pytest.approx(full.relative_error, rel=0.05)


def test_one_client_alone_shares_everything():
    X, _, _ = dense_blocks(60, 30, 3, seed=1)
    run = fit(FNMF(3, alignment="lap_rho", local_solver="hals"), {"only": X}, 5)
    assert run.V.shape == (3, 30)
    assert run.factors["only"].V_private is None


def test_patience_says_how_long_the_middle_must_stand_still():
    X = np.random.default_rng(0).random((30, 6))
    runs = [fit(FNMF(2, tol=0.5, patience=patience), {"a": X[:10], "b": X[10:]}, 40) for patience in (1, 3, 8)]
    assert [run.status for run in runs] == ["converged"] * 3
    assert runs[0].rounds + 2 == runs[1].rounds
    assert runs[1].rounds + 5 == runs[2].rounds


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (FNMF(2, alignment="magic"), "alignment='magic' is not known"),
        (FNMF(2, barycenter="mean"), "barycenter='mean' is not known"),
        (FNMF(2, gamma=-1.0), "gamma=-1.0 must be at least 0"),
        (FNMF(2, inertia=0.5), r"inertia=0.5 must lie in \[0, 0.5\)"),
        (FNMF(2, alignment="knn", neighbours=3), "neighbours=3 must not exceed n_components=2"),
        (FNMF(2, alignment="lap_rho"), "at least 4 features, but there are 3"),
        (FNMF(2, pull_from=-1), "pull_from=-1 must be a whole number of at least 0"),
        (FedProxNMF(2, mu=-1.0), "mu=-1.0 must be at least 0"),
        (FedProxNMF(2, pull_from=-1), "pull_from=-1 must be a whole number of at least 0: rounds are"),
        (FedProxNMF(2, start="mine"), "start='mine' is not known"),
        (OneShotNMF(2, alignment="lap_rho"), "one exchange has only common ones"),
        (OneShotNMF(2, local_steps=0), "local_steps=0 must be a whole number of at least 1"),
    ],
)
def test_settings_that_cannot_work(method, message):
    with pytest.raises(ValueError, match=message):
        fit(method, {"a": np.ones((5, 3))}, 1)


def test_a_secure_sum_is_enough_also_for_private_components():
    X, _, _ = shared_and_private(4, 100, 60)
    method = FNMF(6, alignment="lap_rho", barycenter="client", local_solver="hals", tol=0.0)
    plain, hidden = (fedfactor.run(method, X, rounds=4, seed=0, privacy=privacy) for privacy in (None, "secure-sum"))
    np.testing.assert_allclose(hidden.V, plain.V, atol=1e-6)
    with pytest.raises(fedfactor.IncompatibleError, match="must see each upload"):
        fedfactor.run(FNMF(6), X, rounds=1, seed=0, privacy="secure-sum")


@pytest.mark.slow
def test_the_letter_of_the_paper_diverges_and_steps_of_the_own_block_do_not(blocks):
    with np.errstate(all="ignore"), pytest.raises(fedfactor.FedfactorError):
        fit(FNMF.paper(6), blocks, 8)
    assert fit(FNMF.paper(6, local_solver="gradient", local_steps=50), blocks, 5).relative_error < 0.5


@pytest.mark.parametrize("scaled", [False, True])
def test_a_run_that_diverges_says_so(scaled):
    """With a pull by the length of steps, too, which asks for an eigenvalue of what is no number any more."""
    X = np.random.default_rng(0).random((40, 8)) * 100
    method = FNMF(3, local_solver="printed", scale_gamma=scaled, pull_from=0, local_steps=50)
    with (
        np.errstate(all="ignore"),
        pytest.raises(fedfactor.FedfactorError, match="the settings let the method diverge"),
    ):
        fit(method, {"a": X[:20], "b": X[20:]}, 5)
