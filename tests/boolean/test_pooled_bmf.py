"""PooledBMF: tiles that only some clients hold, and what happens when some stay away."""

from __future__ import annotations

import numpy as np
import pytest

import fedfactor
from fedfactor.algorithms import FELB, BooleanVotes, PooledBMF
from fedfactor.boolean.pooled.messages import Factor, Votes
from fedfactor.boolean.solvers.asso import asso
from fedfactor.core.algorithm import Meta, Round
from fedfactor.core.client_data import Federation
from fedfactor.core.pytree import leaves, tree_sum
from fedfactor.datasets.boolean_tiles import uneven_tiles
from fedfactor.metrics import boolean_metrics
from fedfactor.privacy import Minimums, SecureSum


def loss_of(run, owners):
    return boolean_metrics(owners, {name: kept.U for name, kept in run.factors.items()}, run.V).loss


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_tiles_that_only_some_clients_hold(seed):
    data = uneven_tiles(1000, 200, 5, 10, seed=seed)
    for method, rounds in ((PooledBMF(5), None), (PooledBMF(5, solver="proximal", rate=1.02), 50)):
        run = fedfactor.run(method, data.owners, rounds=rounds, seed=seed)
        assert loss_of(run, data.owners) == 0


@pytest.mark.slow
def test_felb_misses_them_from_a_random_start_and_finds_them_from_its_own():
    losses = {"random": [], "auto": []}
    for seed in range(3):
        data = uneven_tiles(1000, 200, 5, 10, seed=seed)
        for start, found in losses.items():
            found.append(loss_of(fedfactor.run(FELB(5, start=start), data.owners, seed=seed), data.owners))
    assert max(losses["random"]) > 0.02
    assert max(losses["auto"]) == 0


@pytest.mark.slow
def test_reported_error_is_that_of_the_relaxed_factors_and_falls():
    data = uneven_tiles(200, 60, 4, 4, seed=1)
    history = fedfactor.run(PooledBMF(4, solver="proximal"), data.owners, seed=1).history
    errors = [one.metrics["relative_error"] for one in history]
    assert errors[-1] < 0.5 * errors[0]


@pytest.mark.slow
def test_clients_may_be_absent():
    data = uneven_tiles(400, 60, 3, 4, seed=2)

    def early(at, names):
        return names if at.index % 2 == 0 else names[:2]

    for method in (PooledBMF(3), PooledBMF(3, solver="proximal")):
        run = fedfactor.run(method, data.owners, seed=2, participation=early)
        assert loss_of(run, data.owners) < 0.05


def test_adaptive_rate_and_settings():
    X = np.kron(np.eye(2), np.ones((10, 4)))
    assert float(fedfactor.run(PooledBMF(2, solver="proximal", gamma=10.0), {"a": X}, seed=0).score.sse) == 0
    for settings, message in (
        ({"gamma": -1.0}, "gamma=-1.0"),
        ({"server_steps": 0}, "server_steps=0"),
        ({"solver": "exact"}, "solver='exact'"),
        ({"thresholds": (0.5, 1.5)}, "thresholds="),
        ({"penalties": (0,)}, "penalties="),
        ({"trials": 0}, "trials=0"),
    ):
        with pytest.raises(ValueError, match=message):
            fedfactor.run(PooledBMF(2, **settings), {"a": X}, rounds=1, seed=0)


def overlapping(n=300, m=40, k=4, noise=0.03, seed=0):
    rng = np.random.default_rng(seed)
    clean = (rng.random((n, k)) < 0.35).astype(int) @ (rng.random((k, m)) < 0.35).astype(int) > 0
    return (clean ^ (rng.random((n, m)) < noise)).astype(float)


def dealt(X, owners, seed):
    return np.array_split(X[np.random.default_rng(seed).permutation(len(X))], owners)


@pytest.mark.parametrize("threshold", [0.4, 0.7, 1.0])
def test_the_greedy_choice_is_that_of_asso_on_pooled_rows(threshold):
    X = overlapping()
    asso_alone = PooledBMF(4, thresholds=(threshold,), penalties=(1,), pairs=False)
    # Totals, counts of columns, and one exchange for each component: then V is what was chosen.
    run = fedfactor.run(asso_alone, dealt(X, 5, 1), rounds=2 + 3, seed=0)
    np.testing.assert_array_equal(run.V[:3], asso(X, 3, tau=threshold).V)


@pytest.mark.slow
def test_any_split_gives_the_same_bits():
    X = overlapping(noise=0.08)
    one = fedfactor.run(PooledBMF(5), [X], seed=0)
    for owners, seed in ((2, 1), (7, 2), (100, 3)):
        other = fedfactor.run(PooledBMF(5), dealt(X, owners, seed), seed=seed)
        np.testing.assert_array_equal(one.V, other.V)
        assert float(one.score.sse) == float(other.score.sse)


@pytest.mark.slow
def test_a_sample_of_the_rows_does_not_depend_on_who_owns_them():
    X = overlapping(n=900, noise=0.05)
    method = PooledBMF(4, sample=200)
    one, other = (fedfactor.run(method, dealt(X, owners, 1), seed=0) for owners in (1, 9))
    np.testing.assert_array_equal(one.V, other.V)
    assert one.relative_error <= fedfactor.run(PooledBMF(4), [X], seed=0).relative_error + 0.02


def repeated(n=1500, kinds=150, seed=0):
    """Draw rows by a power law from a few kinds of them."""
    weight = np.arange(1, kinds + 1) ** -1.5
    which = np.random.default_rng(seed).choice(kinds, n, p=weight / weight.sum())
    return overlapping(n=kinds, noise=0.1, seed=seed)[which]


@pytest.mark.parametrize("seed", [0, 2, 3])
def test_a_sample_of_a_table_with_repeated_rows_is_as_good_as_all_of_them(seed):
    X = repeated(seed=seed)
    every = fedfactor.run(PooledBMF(4), dealt(X, 3, 1), seed=0)
    one, other = (fedfactor.run(PooledBMF(4, sample=300), dealt(X, owners, 1), seed=0) for owners in (1, 5))
    np.testing.assert_array_equal(one.V, other.V)
    assert float(one.score.sse) <= 1.02 * float(every.score.sse)  # a sample of all copies or none: 1.22 to 1.50


class Watched:
    """The uploads of a run, summed, in their order."""

    def __init__(self, method, parts):
        meta = (federation := Federation(parts)).prepare(method.domain)
        self.asked, self.sums = [], []
        server, down = method.init_server(meta, Round(0, 0))
        states = {name: method.init_client(federation.shard(name), meta, Round(0, 0, name)) for name in meta.clients}
        for index in range(100):
            ups = []
            for name in meta.clients:
                at = Round(0, index, name, meta.clients)
                states[name], up = method.client_step(federation.shard(name), states[name], down, at)
                ups.append(up)
            self.asked.append(down)
            self.sums.append(tree_sum(ups))
            server, down = method.server_step(server, self.sums[-1], Round(0, index, participants=meta.clients))
            if method.converged(server):
                break


@pytest.mark.slow
def test_the_descent_never_rises_and_all_that_is_sent_is_whole():
    watched = Watched(PooledBMF(6, penalties=(1, 3)), dealt(overlapping(k=8, noise=0.1), 3, 0))
    assert all(leaf.dtype.kind == "i" for up in watched.sums for _, leaf in leaves(up) if np.ndim(leaf))
    known, falls = {}, 0
    for asked, counted in zip(watched.asked, watched.sums, strict=True):
        if not isinstance(counted, Votes):
            continue
        for place, tag in enumerate(asked.tag):
            before = known.get((int(asked.parent[place]), int(asked.penalty[place])))
            same = before is not None and asked.parent[place] not in asked.tag
            trial = len(set(asked.parent.tolist())) == 1 and len(asked.parent) > 1  # a component was exchanged
            if same and not trial:
                assert counted.wrong[place, 1] <= before
                falls += counted.wrong[place, 1] < before
            known[int(tag), int(asked.penalty[place])] = counted.wrong[place, 1]
    assert falls > 20


@pytest.mark.slow
def test_a_secure_sum_rounds_nothing():
    pytest.importorskip("cryptography")
    parts = {str(place): part for place, part in enumerate(dealt(overlapping(), 4, 0))}
    allowed = Minimums(allow=("small-client", "few-clients", "rare-columns"))
    plain = fedfactor.run(PooledBMF(4), parts, seed=0)
    secure = fedfactor.run(PooledBMF(4), parts, seed=0, privacy=(SecureSum(), allowed))
    np.testing.assert_array_equal(plain.V, secure.V)
    assert plain.rounds == secure.rounds


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_four_overlapping_patterns(seed):
    X = overlapping(n=400, m=60, seed=seed)
    found = fedfactor.run(PooledBMF(4), dealt(X, 8, seed), seed=seed)
    others = (FELB(4), BooleanVotes(4), BooleanVotes(4, solver="grecond"))
    best = min(float(fedfactor.run(other, dealt(X, 8, seed), seed=seed).score.sse) for other in others)
    assert float(found.score.sse) <= best


def test_more_columns_than_are_counted_together():
    X = np.kron(np.eye(3), np.ones((20, 30)))
    assert float(fedfactor.run(PooledBMF(3, candidates=12), [X[::2], X[1::2]], seed=0).score.sse) == 0


@pytest.mark.slow
def test_many_components_are_chosen_several_at_a_time():
    X = np.kron(np.eye(60), np.ones((4, 2)))
    run = fedfactor.run(PooledBMF(60), [X[::2], X[1::2]], seed=0)
    assert float(run.score.sse) == 0
    assert run.rounds < 60


@pytest.mark.slow
def test_an_empty_v_is_told(caplog):
    X = (np.random.default_rng(0).random((300, 150)) < 0.9) * 1.0
    fedfactor.run(FELB(8, init="independent", start="uniform", row_max="free"), np.array_split(X, 20), seed=0)
    assert "FELB ends with an empty V" in caplog.text


def test_rows_that_changed_between_two_runs_are_packed_anew():
    X = np.kron(np.eye(2), np.ones((10, 4)))
    federation = Federation({"a": X})
    first = fedfactor.run(PooledBMF(2), federation, seed=0)
    shard = federation.shard("a").X
    shard[:] = shard[:, ::-1] * np.tile([0.0, 1.0], 4)
    second = fedfactor.run(PooledBMF(2), federation, seed=0)
    assert first.score.sse == second.score.sse == 0
    assert not (np.asarray(first.V) == np.asarray(second.V)).all()


def test_a_party_takes_cells_between_0_and_1():
    method, meta = PooledBMF(2, solver="proximal"), Meta(3, ("a", "b"))
    V = np.array([[0.0, 0.5, 1.0], [1.0, 0.0, 0.0]])
    assert method.accepts(Factor(V), meta) == ""
    for odd in (1.5, -0.5, np.nan):
        assert method.accepts(Factor(np.where(V == 0.5, odd, V)), meta) != ""
