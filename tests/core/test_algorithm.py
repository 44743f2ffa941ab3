from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

import fedfactor
from fedfactor.algorithms import FedAvgNMF, PooledNMF
from fedfactor.core.algorithm import (
    Algorithm,
    LocalFactors,
    Meta,
    Round,
    Scatter,
    Score,
    download_for,
    settings_of,
)
from fedfactor.core.pytree import record
from fedfactor.testing.data import small_data


def first(at, name="init"):
    return at.rng(name).random(4).tobytes()


class TestStreams:
    def test_differ_by_seed_client_round_and_name(self):
        keys = list(product((0, 1, 2**63), ("north", "south", None), (0, 1, 2), ("init", "step")))
        drawn = {Round(seed, index, client).rng(name).random(4).tobytes() for seed, client, index, name in keys}
        assert len(drawn) == len(keys)

    def test_do_not_depend_on_order_or_company(self):
        alone = first(Round(7, 3, "north"))
        first(Round(7, 3, "south"))
        assert first(Round(7, 3, "north", participants=("a", "b"))) == alone

    def test_the_shared_stream_is_equal_at_all_and_unlike_the_private(self):
        shared = {Round(7, 3, name).shared_rng("init").random(4).tobytes() for name in ("north", "south", None)}
        assert len(shared) == 1
        assert shared.isdisjoint({first(Round(7, 3, name)) for name in ("north", None)})

    def test_a_client_cannot_pose_as_another_party_by_its_name(self):
        names = ("server", "shared", "client north", "north", "", "north', 0, 'init")
        assert len({first(Round(0, 0, name)) for name in (*names, None)}) == len(names) + 1

    def test_bits_are_fixed_for_all_time(self):
        # A run of this seed must mean the same in every version; change this and old checkpoints and papers go stale.
        assert Round(1, 2, "north").rng("init").integers(2**32, size=3).tolist() == [4072389049, 1133599178, 4111750362]
        assert int(Round(1, 2).shared_rng("V").integers(2**32)) == 3023618854

    def test_numpy_seeds_are_the_same_seeds(self):
        assert first(Round(np.int64(7), np.int64(0), "a")) == first(Round(7, 0, "a"))


def test_downloads_are_picked_by_name():
    assert download_for(Scatter({"a": 1, "b": 2}), "b") == 2
    assert download_for(5, "b") == 5


def test_score_of_nothing():
    assert Score.of(0, 0, 0).relative_error == 0
    assert Score.of(1, 2, 4).relative_error == 0.5
    assert Score.of(1e-6, 2, 4e-6).relative_error == 0.5  # whatever the units


@pytest.fixture(scope="module")
def run():
    return fedfactor.run(PooledNMF(np.int64(2), start="random"), small_data(), rounds=4, seed=0)


class TestRun:
    def test_the_summary_is_plain_json(self, run):
        summary = json.loads(json.dumps(run.summary(), allow_nan=False))
        assert summary["rounds"] == len(summary["history"]) == 4
        assert summary["clients"] == 3
        assert summary["settings"]["n_components"] == 2
        assert summary["bytes_up"] == run.bytes_up > 0

    def test_the_summary_names_the_worst_client(self, run):
        worst = max(run.scores, key=lambda name: run.scores[name].relative_error)
        assert run.summary()["worst_client"]["name"] == worst
        assert run.worst_client[1] >= run.relative_error

    def test_the_summary_holds_no_rows(self, run):
        longest = max(len(value) for value in run.summary().values() if isinstance(value, (list, tuple, dict)))
        assert longest < min(len(X) for X in small_data().values())

    def test_bytes_are_those_of_the_leaves(self, run):
        k, m, clients = 2, 13, 3
        assert run.history[0].bytes_up == clients * (8 * (k * k + k * m) + 8)
        assert run.history[0].bytes_down == clients * 8 * k * m

    def test_the_error_is_that_of_the_factors(self, run):
        X = np.vstack([small_data()[name] for name in run.factors])
        UV = np.vstack([kept.U @ kept.V for kept in run.factors.values()])
        assert run.relative_error == pytest.approx(np.linalg.norm(X - UV) / np.linalg.norm(X), rel=1e-9)

    def test_its_text_is_one_line(self, run):
        assert repr(run).startswith("Run(PooledNMF, 3 owners, 4 rounds, rounds, relative error 0.")

    def test_a_drawn_seed_is_kept(self):
        run = fedfactor.run(FedAvgNMF(2), small_data(), rounds=1)
        again = fedfactor.run(FedAvgNMF(2), small_data(), rounds=1, seed=run.seed)
        assert run.V.tobytes() == again.V.tobytes()


@record
class Bare(Algorithm):
    """Says nothing of its own."""

    def messages(self, meta): ...
    def init_server(self, meta, at): ...
    def init_client(self, shard, meta, at): ...
    def client_step(self, shard, state, down, at): ...
    def server_step(self, state, up, at): ...
    def finish(self, shard, state, down): ...
    def fold_in(self, X, factors, mask=None): ...
    def score(self, shard, state, down): ...


def test_what_an_algorithm_promises_unless_it_says_more():
    bare, meta = Bare(), Meta(3, ("a", "b"))
    assert (bare.domain, bare.default_rounds) == ("nonnegative", 100)
    assert [bare.handles_missing, bare.handles_tensors, bare.converged(None)] == [False] * 3
    assert bare.doubt(None) == bare.accepts(None, meta) == ""
    assert bare.sensitivity(meta) is None
    assert bare.settle(None, 3) == 3
    assert (meta.dtype, meta.masked, meta.n_rows, meta.n_clients) == ("float64", False, None, 2)


def test_settings_are_plain_data():
    @dataclass
    class Holder:
        a: object = 1

    def plain(value):
        return settings_of(Holder(value))["a"]

    assert type(plain(np.float64(2))) is float
    assert plain({"x": np.int64(1), "y": [np.int64(2), (np.int64(3), "t")]}) == {"x": 1, "y": [2, (3, "t")]}
    assert plain(np.ones(2)).startswith("sha256:")
    assert plain(np.ones(2)) != plain(np.zeros(2))
    assert plain(None) is None


@pytest.mark.parametrize(
    ("rows", "columns", "writes_V", "writes_U"),
    [
        (None, None, True, True),
        (None, [2], True, True),
        ([0], [0], True, True),
        ([0, 1], [3], True, False),
        ([1], [0, 1], False, True),
        ([], [0], False, True),
        ([0], None, True, True),
    ],
)
def test_one_node_of_each_line_of_a_grid_writes_its_factor(rows, columns, writes_V, writes_U):
    given = {
        name: None if part is None else np.array(part, int) for name, part in (("rows", rows), ("columns", columns))
    }
    kept = LocalFactors(np.ones((1, 1)), np.ones((1, 1)), **given)
    assert (kept.first_of(0), kept.first_of(1)) == (writes_V, writes_U)
