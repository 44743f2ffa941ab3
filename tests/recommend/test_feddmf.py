"""What the FedDMF paper claims, and what ours adds: item vectors alone travel, and they carry over to others' items."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import fedfactor
from fedfactor import LocalEngine
from fedfactor.algorithms import FedDMF
from fedfactor.core.algorithm import Round
from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.client_items import ItemShard, held_columns
from fedfactor.core.errors import MissingExtraError
from fedfactor.core.pytree import leaves, tree_sum
from fedfactor.core.wire import check_message
from fedfactor.recommend.feddmf import messages as said
from fedfactor.recommend.feddmf import network as dmf
from fedfactor.recommend.feddmf.steps import common_part, server_step, set_aside

torch = pytest.importorskip("torch")

SMALL = FedDMF(6, hidden=16, epochs=4, batch_size=256, swap=0.5, refine=1)
HELD = {"a": np.r_[0:12, 12:18], "b": np.r_[0:12, 18:24]}


def taste(seed=0, n=60, m=24):
    """Users of two kinds who like items of their own kind."""
    rng = np.random.default_rng([9, seed])
    user, item = rng.integers(0, 2, n), np.arange(m) % 2
    return (rng.random((n, m)) < np.where(user[:, None] == item, 0.75, 0.08)).astype(np.float32)


def owners(withheld=None, seed=0, cut=30):
    X = taste(seed)
    found = {}
    for name, rows in (("a", slice(0, cut)), ("b", slice(cut, None))):
        Y = np.zeros_like(X[rows])
        Y[:, HELD[name]] = X[rows][:, HELD[name]]
        found[name] = ItemShard(Y, held=HELD[name], withheld=withheld if name == "a" else None)
    return found, X


def walk(algorithm, shards, seed=3):
    """Run step by step until the end; return all uploads as (round, client, message), the states, and the last down."""
    meta = Federation(shards).prepare("binary")
    server, down = algorithm.init_server(meta, Round(seed, 0))
    states = {name: algorithm.init_client(shards[name], meta, Round(seed, 0, name)) for name in meta.clients}
    log, index = [], 0
    while not algorithm.converged(server):
        ups = {}
        for name in meta.clients:
            at = Round(seed, index, name, meta.clients)
            states[name], ups[name] = algorithm.client_step(shards[name], states[name], down, at)
            log.append((index, name, ups[name]))
        server, down = algorithm.server_step(server, tree_sum(ups.values()), Round(seed, index, None, meta.clients))
        check_message(down, algorithm.messages(meta))
        index += 1
    return log, states, down


def test_nothing_but_vectors_of_agreed_items_crosses():
    shards, _ = owners(withheld=np.array([3, 14]))
    log, states, _ = walk(SMALL, shards)
    allowed = {"count", "Q", "n"}
    agreed = np.setdiff1d(np.arange(12), [3])
    own = {"a": np.setdiff1d(HELD["a"], [3, 14]), "b": HELD["b"]}
    for _, name, up in log:
        assert {path for path, _ in leaves(up)} <= allowed
        match up:
            case said.Holdings():
                np.testing.assert_array_equal(np.flatnonzero(up.count), own[name])
            case said.Vectors():
                assert up.Q.shape == (len(agreed), 6)  # the 11 common items, nothing of the others
            case said.Published():
                np.testing.assert_array_equal(np.flatnonzero(up.Q.any(axis=1)), own[name])
                np.testing.assert_array_equal(
                    up.Q[own[name]], states[name].weights["Q"][np.isin(HELD[name], own[name])]
                )
            case _:
                assert isinstance(up, said.Done)
    private = {name: {v.tobytes() for v in state.weights["P"]} for name, state in states.items()}
    for _, name, up in log:
        for _, leaf in leaves(up):
            rows = np.atleast_2d(np.asarray(leaf))
            assert not private[name] & {row.tobytes() for row in rows}, "a user vector was sent"


@pytest.mark.slow
def test_layers_travel_only_when_asked_for():
    shards, _ = owners()
    for share, expected in (("items", set()), ("tower", {"item_weight", "join_bias"}), ("network", set(dmf.LAYERS))):
        log, _, _ = walk(replace(SMALL, share=share, epochs=2), shards)
        sent = {path.removeprefix("net.") for _, _, up in log for path, _ in leaves(up) if path.startswith("net.")}
        assert expected <= sent
        assert bool(sent) == bool(expected)
        assert not {"P", "Q"} & sent


def test_with_two_clients_what_is_left_of_the_sum_is_the_others_vector():
    shards, _ = owners()
    algorithm = replace(SMALL, epochs=2, average=False, start="own")
    meta = Federation(shards).prepare("binary")
    states = {name: algorithm.init_client(shards[name], meta, Round(0, 0, name)) for name in "ab"}
    states = {name: replace(state, sent_in=np.int64(4)) for name, state in states.items()}
    common = np.arange(12)
    total = states["a"].weights["Q"][:12] + states["b"].weights["Q"][:12]
    down = said.Anchor(common, total, np.full(12, 2, np.float32), np.int64(4), np.bool_(False))
    place, z, mean = common_part(shards["a"], states["a"], down)
    np.testing.assert_array_equal(place, common)
    np.testing.assert_allclose(z, states["b"].weights["Q"][:12], rtol=0, atol=1e-6)
    np.testing.assert_allclose(mean, total / 2)
    absent = replace(states["a"], sent_in=np.int64(3))  # was away in round 4: nothing of its own is in the sum
    np.testing.assert_allclose(common_part(shards["a"], absent, down)[1], total / 2)


@pytest.mark.slow
def test_the_alignment_loss_draws_common_vectors_together():
    def cosine(beta):
        shards, _ = owners()
        plain = replace(SMALL, start="own", average=False, swap=0.0, refine=0, epochs=8, batch_size=64)
        _, states, _ = walk(replace(plain, beta=beta), shards)
        a, b = (states[name].weights["Q"][:12] for name in "ab")
        return float(((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).mean())

    assert cosine(0.0) < 0.5
    assert cosine(10.0) > 0.75  # the margin leaves pairs closer than 0.2 alone


def foreign_f1(algorithm, seed):
    shards, X = owners(seed=seed)
    result = fedfactor.run(algorithm, Federation(shards), seed=seed)
    scores = []
    for name, rows, columns in (("a", slice(0, 30), HELD["b"][12:]), ("b", slice(30, None), HELD["a"][12:])):
        kept = result.factors[name]
        guess = dmf.probabilities(kept.network, kept.U, kept.V[:, columns].T) > 0.5
        truth = X[rows][:, columns]
        scores.append(2 * (truth * guess).sum() / max(1, truth.sum() + guess.sum()))
    return float(np.mean(scores))


@pytest.mark.slow
def test_items_that_only_others_hold_are_foretold_better_than_without_alignment():
    # Half of these cells are ones, so four zeros for each would put every probability below one half.
    ours = replace(SMALL, epochs=20, refine=5, batch_size=128, learning_rate=0.03, negatives=1)
    control = replace(ours, start="own", average=False, swap=0.0, refine=0, epochs=25)
    assert foreign_f1(ours, 0) > foreign_f1(control, 0) + 0.1


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_same_seed_same_bits_on_any_number_of_workers(workers):
    shards, _ = owners()
    one, two = (LocalEngine(workers=w).run(SMALL, Federation(shards), rounds=99, seed=5).factors for w in (1, workers))
    for name in one:
        for (path, x), (_, y) in zip(leaves(one[name]), leaves(two[name]), strict=True):
            assert x.tobytes() == y.tobytes(), path


def test_early_stopping_returns_everybody_to_the_best_epoch():
    shards, _ = owners()
    algorithm = replace(SMALL, epochs=60, patience=2, refine=0, learning_rate=0.1, batch_size=256)
    result = fedfactor.run(algorithm, Federation(shards), seed=1)
    losses = [r.metrics["validation_loss"] for r in result.history if "validation_loss" in r.metrics]
    losses = losses[: result.rounds - 2]
    assert result.rounds < 62
    assert losses.index(min(losses)) == len(losses) - 3  # two worse epochs, then the end
    shorter = fedfactor.run(replace(algorithm, epochs=len(losses) - 2), Federation(shards), seed=1)
    for name, kept in result.factors.items():
        np.testing.assert_array_equal(kept.V, shorter.factors[name].V)


@pytest.mark.slow
def test_what_is_published_is_the_running_mean_of_the_weights():
    shards, _ = owners()
    algorithm = replace(SMALL, epochs=3, refine=0, smooth=0.6)
    bare, (states, down) = replace(algorithm, smooth=0.0), walk(algorithm, shards)[1:]
    passed = [walk(replace(bare, epochs=epochs), shards)[1] for epochs in (1, 2, 3)]
    meta = Federation(shards).prepare("binary")
    for name in "ab":
        mean = algorithm.init_client(shards[name], meta, Round(3, 0, name)).weights
        for index, after in enumerate(passed, 1):
            old = min(0.6, index / (index + 9))
            mean = {key: old * value + (1 - old) * after[name].weights[key] for key, value in mean.items()}
        for key, value in mean.items():
            np.testing.assert_allclose(states[name].weights[key], value, atol=1e-6)
        own = HELD[name][12:]
        np.testing.assert_array_equal(down.total[own], states[name].weights["Q"][12:])
        assert not np.array_equal(states[name].weights["P"], passed[-1][name].weights["P"])


def test_cells_kept_aside_are_never_trained_on():
    X = taste()
    everything = ItemShard(X, holdout=np.ones(X.shape, bool))
    _, states, _ = walk(replace(SMALL, refine=0), {"a": everything})
    first = SMALL.init_client(everything, Federation({"a": everything}).prepare("binary"), Round(3, 0, "a"))
    np.testing.assert_array_equal(states["a"].weights["P"], first.weights["P"])


def test_more_clients_and_a_client_without_common_items():
    X = taste(n=80)
    shards = {}
    for i, name in enumerate("abcd"):
        held = np.arange(18, 24) if name == "d" else np.unique(np.r_[0:8, 8 + 3 * i : 11 + 3 * i])
        Y = np.zeros_like(X[20 * i : 20 * i + 20])
        Y[:, held] = X[20 * i : 20 * i + 20][:, held]
        shards[name] = ItemShard(Y, held=held)
    result = fedfactor.run(SMALL, Federation(shards), seed=0)
    known = np.unique(np.concatenate([held_columns(s) for s in shards.values()]))
    for kept in result.factors.values():
        np.testing.assert_array_equal(np.flatnonzero(kept.known), known)
        assert np.isfinite(kept.V).all()


def test_an_orthogonal_map_undoes_a_rotation_of_the_others_space():
    from fedfactor.recommend.feddmf.steps import finish

    shards, _ = owners()
    algorithm = replace(SMALL, rotate=True)
    state = algorithm.init_client(shards["a"], Federation(shards).prepare("binary"), Round(0, 0, "a"))
    Q, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(6, 6)))
    true = np.random.default_rng(1).normal(size=(24, 6)).astype(np.float32)
    state = replace(state, weights={**state.weights, "Q": true[HELD["a"]]})
    count = np.zeros(24, np.float32)
    count[HELD["b"]] = 1
    down = said.Catalogue((true @ Q).astype(np.float32) * count[:, None], count)
    kept = finish(algorithm, shards["a"], state, down)
    np.testing.assert_allclose(kept.V.T[HELD["b"]], true[HELD["b"]], atol=1e-5)


@pytest.mark.slow
def test_a_new_user_gets_the_taste_of_a_like_minded_member():
    X = taste(n=80)
    algorithm = replace(SMALL, epochs=15, batch_size=256, learning_rate=0.03)
    result = fedfactor.run(algorithm, {"a": X[:30], "b": X[30:70]}, seed=0)
    kept = result.factors["a"]
    U = algorithm.fold_in(X[70:], kept)
    guess = dmf.probabilities(kept.network, U, kept.V.T)
    assert np.corrcoef(guess.ravel(), X[70:].ravel())[0, 1] > 0.5


def test_missing_torch_is_told_before_any_work(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match="pip install torch"):
        fedfactor.run(SMALL, {"a": taste()}, seed=0)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"epochs": 0}, "epochs=0"), ({"swap": 1.5}, "swap=1.5"), ({"negatives": 0}, "negatives=0"),
     ({"negatives": 2.5}, "negatives=2.5"), ({"share": "all"}, "share='all'"),
     ({"device": "abacus"}, "device='abacus'"), ({"learning_rate": 0.0}, "learning_rate"),
     ({"dropout": 1.0}, "dropout"), ({"smooth": 1.0}, "smooth=1.0")],
)  # fmt: skip
def test_settings_that_cannot_work_are_refused(change, words):
    with pytest.raises(ValueError, match=words):
        fedfactor.run(replace(SMALL, **change), {"a": taste()}, seed=0)


def test_the_papers_settings():
    paper = FedDMF.paper()
    printed = {
        "n_components": 32, "hidden": 64, "epochs": 30, "batch_size": 32, "learning_rate": 0.001, "beta": 100.0,
        "margin": 0.2, "swap": 0.0, "average": False, "share": "items", "smooth": 0.0, "weight_decay": 0.0,
    }  # fmt: skip
    assert {name: getattr(paper, name) for name in printed} == printed


@pytest.mark.integration
def test_naming_the_algorithm_does_not_wake_torch():
    code = "import sys; from fedfactor.algorithms import FedDMF; FedDMF(); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], timeout=120).returncode == 0


class TestServer:
    """What the server makes of an epoch, from sums written by hand."""

    method = FedDMF(1, epochs=5, patience=2)

    def after(self, state, sse=None, n=None, count=(2.0, 1.0), index=7, method=None):
        Q = np.array([[4.0], [6.0]])
        up = said.Vectors(Q, np.array(count), sse=None if sse is None else np.float64(sse),
                          n=None if n is None else np.float64(n))  # fmt: skip
        return server_step(method or self.method, state, up, Round(0, index, participants=("a", "b")))

    def state(self, **changes):
        none = np.int64(0)
        plain = said.Server(
            items=np.arange(2), total=np.full((2, 1), 9.0), count=np.full(2, 3.0), epoch=none, best=np.float64(np.inf),
            waited=none, loss=np.float64(np.nan),
        )  # fmt: skip
        return replace(plain, **changes)

    def test_items_that_two_hold_are_common(self):
        up = said.Holdings(np.array([0.0, 1.0, 2.0, 3.0]))
        state, down = server_step(self.method, self.state(), up, Round(0, 0))
        assert state.items.tolist() == down.items.tolist() == [2, 3]
        assert down.total.shape == (2, 1)
        assert not down.total.any()
        assert not down.count.any()
        assert (int(down.seen_in), bool(down.keep)) == (-1, False)

    def test_vectors_of_items_whose_holders_are_away_still_stand(self):
        state, down = self.after(self.state(), count=(2.0, 0.0))
        assert state.total.ravel().tolist() == [4.0, 9.0]
        assert state.count.tolist() == [2.0, 3.0]
        assert int(down.seen_in) == 7

    def test_without_a_loss_the_last_epoch_is_the_best(self):
        for sse, n in ((None, None), (0.0, 0.0)):
            state, down = self.after(self.state(), sse, n)
            assert np.isnan(state.loss)
            assert np.isinf(state.best)
            assert (int(state.epoch), int(state.waited), bool(down.keep)) == (1, 0, True)

    def test_epochs_that_are_no_better_use_up_the_patience(self):
        state, down = self.after(self.state(), 6.0, 3.0)
        assert (float(state.loss), float(state.best), bool(down.keep)) == (2.0, 2.0, True)
        state, down = self.after(state, 6.0, 3.0)
        assert (int(state.waited), float(state.best), bool(down.keep)) == (1, 2.0, False)
        assert isinstance(down, said.Anchor)
        better, _ = self.after(state, 5.0, 3.0)
        assert (int(better.waited), float(better.best)) == (0, 5 / 3)
        state, down = self.after(state, 9.0, 3.0)
        assert isinstance(down, said.Publish)
        assert not down.keep
        assert isinstance(self.after(state, 9.0, 3.0, method=replace(self.method, patience=0))[1], said.Anchor)

    def test_after_the_last_epoch_all_publish(self):
        assert isinstance(self.after(self.state(epoch=np.int64(3)))[1], said.Anchor)
        state, down = self.after(self.state(epoch=np.int64(4)))
        assert isinstance(down, said.Publish)
        assert bool(down.keep)
        up = said.Published(np.ones((3, 1)), np.ones(3))
        assert bool(server_step(self.method, state, up, Round(0, 8))[0].over)
        refined = server_step(replace(self.method, refine=2), state, up, Round(0, 8))[0]
        assert not refined.over
        assert bool(server_step(self.method, refined, said.Done(np.int64(2)), Round(0, 9))[0].over)


@pytest.mark.parametrize(("patience", "validation", "ones"), [(0, 0.5, 8), (2, 0.1, 8), (2, 0.5, 8)])
def test_epochs_are_compared_on_a_share_of_the_ones_and_on_zeros_or_on_nothing(patience, validation, ones):
    X = np.zeros((10, 12))
    X[range(ones), range(ones)] = 1.0
    cells, values = set_aside(
        FedDMF(patience=patience, validation=validation, negatives=2), Shard(X), np.random.default_rng(0)
    )
    some = int(validation * ones) if patience else 0
    assert values.sum() == some
    assert X.ravel()[cells].tolist() == values.tolist()
    assert some <= len(cells) <= 3 * some
    assert (np.diff(cells) > 0).all()
