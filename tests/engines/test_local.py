from __future__ import annotations

import io
import logging
import math
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from threadpoolctl import threadpool_info

import fedfactor
from fedfactor import Federation, LocalEngine, algorithms
from fedfactor.algorithms import FedAvgNMF, PooledNMF
from fedfactor.core.algorithm import Round
from fedfactor.core.errors import DataError, IncompatibleError, ProtocolError
from fedfactor.core.threads import limit_threads, thread_limit
from fedfactor.engines.callbacks import Log, watcher
from fedfactor.engines.client_sampling import participants
from fedfactor.engines.engine import Callback
from fedfactor.engines.round import Receiver
from fedfactor.testing import Flaky, Probe
from fedfactor.testing.checks_for_engines import Recorder
from fedfactor.testing.data import small_data, with_holes
from fedfactor.testing.probe_algorithm import Each, Total

NAMES = tuple(f"client {i:02d}" for i in range(10))


class TestParticipation:
    def test_everybody(self):
        assert participants(1.0, Round(0, 0), NAMES) == NAMES

    @pytest.mark.parametrize("share", [0.05, 0.1, 0.25, 0.31, 0.8])
    def test_a_share_is_drawn_anew_each_round_in_name_order(self, share):
        drawn = [participants(share, Round(0, index), NAMES) for index in range(30)]
        assert {len(chosen) for chosen in drawn} == {max(1, math.ceil(share * 10))}
        assert all(list(chosen) == sorted(chosen) for chosen in drawn)
        assert len(set(drawn)) > 5
        assert set().union(*drawn) == set(NAMES)
        assert drawn == [participants(share, Round(0, index), NAMES) for index in range(30)]

    def test_a_rule_is_asked_and_put_in_name_order(self):
        assert participants(lambda at, names: [names[3], names[1]], Round(0, 0), NAMES) == (NAMES[1], NAMES[3])
        assert participants(lambda at, names: (), Round(0, 0), NAMES) == ()

    @pytest.mark.parametrize("share", [0, -0.1, 1.01, math.nan])
    def test_shares_that_make_no_sense(self, share):
        with pytest.raises(ValueError, match="must lie in"):
            participants(share, Round(0, 0), NAMES)

    def test_strangers(self):
        with pytest.raises(ValueError, match="'stranger', which is not a client"):
            participants(lambda at, names: ["stranger"], Round(0, 0), NAMES)


class TestDropOuts:
    def test_the_server_sees_who_came(self):
        seen = []

        class Spy(Flaky):
            def server_step(self, state, up, at):
                seen.append((at.index, at.participants))
                return Flaky.server_step(self, state, up, at)

        absent = ((0, "east"), (1, "*"), (2, "west"))
        run = LocalEngine().run(Spy(FedAvgNMF(2), absent), Federation(small_data()), rounds=4, seed=0)
        expected = [(0, ("north", "west")), (2, ("east", "north")), (3, ("east", "north", "west"))]
        assert seen == expected
        assert [r.participants for r in run.history] == [expected[0][1], (), expected[1][1], expected[2][1]]

    def test_a_round_nobody_comes_to_changes_nothing(self):
        # The server draws no randomness after its start here, so an empty round must leave no trace but its record.
        whole = LocalEngine().run(Flaky(FedAvgNMF(2), ()), Federation(small_data()), rounds=3, seed=0)
        gap = LocalEngine().run(Flaky(FedAvgNMF(2), ((1, "*"),)), Federation(small_data()), rounds=4, seed=0)
        assert gap.V.tobytes() == whole.V.tobytes()
        assert gap.history[1].bytes_up == 0
        assert gap.history[1].bytes_down > 0

    def test_nobody_ever(self):
        run = LocalEngine().run(
            Flaky(PooledNMF(2), tuple((t, "*") for t in range(3))), Federation(small_data()), rounds=3
        )
        assert np.isfinite(run.V).all()
        assert run.bytes_up == 0


class TestReceiver:
    EXPECTED = Probe().messages(Federation(small_data("real")).prepare("real"))

    def test_sums_and_gathers(self):
        receiver = Receiver(self.EXPECTED)
        for name in ("a", "b"):
            receiver.add(name, Total(np.ones(13), np.asarray(1.0)))
        assert receiver.combined.sums.tolist() == [2.0] * 13
        assert (receiver.present, receiver.bytes_up) == (["a", "b"], 2 * 14 * 8)

    def test_two_kinds_in_one_round_are_refused(self):
        receiver = Receiver(self.EXPECTED)
        receiver.add("a", Total(np.ones(13)))
        with pytest.raises(ProtocolError, match="'b' sent Each in a round of Total"):
            receiver.add("b", Each(np.ones((2, 13)), np.arange(0)))

    def test_an_upload_of_another_form_is_refused_with_the_clients_name(self):
        with pytest.raises(ProtocolError, match="'a'"):
            Receiver(self.EXPECTED).add("a", Total(np.ones(12)))

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_an_upload_that_is_not_finite_is_left_out_and_its_sender_named(self, value):
        receiver = Receiver(self.EXPECTED)
        receiver.add("a", Total(np.full(13, value)))
        with pytest.raises(ProtocolError, match="No upload could be used"):
            _ = receiver.combined
        receiver.add("b", Total(np.ones(13)))
        assert receiver.combined.sums.tolist() == [1.0] * 13
        assert (receiver.present, list(receiver.rejected)) == (["b"], ["a"])

    def test_an_upload_that_cannot_be_true_is_left_out(self):
        receiver = Receiver(self.EXPECTED, lambda up: "Negative." if (up.sums < 0).any() else "")
        receiver.add("a", Total(-np.ones(13)))
        receiver.add("b", Total(np.ones(13)))
        assert receiver.rejected == {"a": "Negative."}
        assert receiver.present == ["b"]

    def test_a_run_in_which_everybody_diverges_ends(self):
        class Sick(FedAvgNMF):
            __slots__ = ()

            def client_step(self, shard, state, down, at):
                state, up = FedAvgNMF.client_step(self, shard, state, down, at)
                return state, replace(up, V=up.V * np.nan) if at.index == 1 else up

        with pytest.raises(ProtocolError, match=r"round 1 was left out.*east, north, west"):
            LocalEngine().run(Sick(2), Federation(small_data()), rounds=3, seed=0)

    def test_the_run_says_who_was_left_out_and_goes_on_and_resumes(self, tmp_path, caplog):
        class Sick(FedAvgNMF):
            __slots__ = ()

            def client_step(self, shard, state, down, at):
                state, up = FedAvgNMF.client_step(self, shard, state, down, at)
                return state, replace(up, V=up.V * np.nan) if at.client == "east" and at.index in (1, 2) else up

        options = {"seed": 0, "checkpoint": tmp_path / "run"}
        run = LocalEngine().run(Sick(2), Federation(small_data()), rounds=3, **options)
        assert [r.rejected for r in run.history] == [(), ("east",), ("east",)]
        assert [len(r.participants) for r in run.history] == [3, 2, 2]
        assert caplog.text.count("'east' was left out") == 1
        assert run.rejected == ("east",)
        assert np.isfinite(run.V).all()
        again = LocalEngine().run(Sick(2), Federation(small_data()), rounds=4, **options)
        assert again.history[:3] == run.history


class TestCallbacks:
    def test_a_failed_run_is_told_to_the_callbacks(self):
        recorder = Recorder()

        def fail(record):
            raise RuntimeError("enough")

        with pytest.raises(RuntimeError, match="enough"):
            fedfactor.run(PooledNMF(2), small_data(), rounds=3, callbacks=(recorder, fail))
        assert recorder.ended == [None]

    def test_only_true_stops(self):
        run = fedfactor.run(PooledNMF(2, tol=0.0), small_data(), rounds=3, seed=0, callbacks=(lambda record: 1,))
        assert run.status == "rounds"

    def test_the_log_speaks_every_so_often(self, caplog):
        with caplog.at_level("INFO", logger="fedfactor"):
            fedfactor.run(PooledNMF(2, tol=0.0), small_data(), rounds=5, seed=0, callbacks=(Log(every=2),))
        *lines, last = caplog.messages
        assert [line.split(":")[0] for line in lines] == ["PooledNMF", "round 2/5", "round 4/5", "round 5/5"]
        assert lines[:2] == ["PooledNMF: 3 owners, 5 rounds", "round 2/5: 3 owners"]  # a start tells no error yet
        assert last.startswith("Run(PooledNMF, 3 owners, 5 rounds")

    def test_silence_is_the_default(self):
        assert watcher(0) == ()


class TestThreads:
    @pytest.mark.parametrize("workers", [1, 2])
    def test_the_cap_is_set_in_the_run_and_restored(self, workers):
        before, blas = thread_limit(), [pool["num_threads"] for pool in threadpool_info()]
        inside = []
        engine = LocalEngine(workers=workers)
        engine.run(
            PooledNMF(2), Federation(small_data()), rounds=2, callbacks=(lambda r: inside.append(thread_limit()),)
        )
        assert set(inside) == {engine._share_out(3)[1]}
        assert thread_limit() == before
        assert [pool["num_threads"] for pool in threadpool_info()] == blas

    def test_it_is_restored_after_a_failure(self):
        before = thread_limit()
        with pytest.raises(ZeroDivisionError):
            fedfactor.run(PooledNMF(2), small_data(), rounds=2, callbacks=(lambda record: 1 / 0,))
        assert thread_limit() == before

    def test_no_client_thread_is_left(self):
        LocalEngine(workers=2).run(PooledNMF(2), Federation(small_data()), rounds=2)
        assert not [t.name for t in threading.enumerate() if t.name.startswith("fedfactor-client")]

    def test_an_exception_in_a_client_names_the_client(self):
        class Fails(Flaky):
            def client_step(self, shard, state, down, at):
                if at.client == "north":
                    raise ZeroDivisionError("mine")
                return Flaky.client_step(self, shard, state, down, at)

        for workers in (1, 2):
            with pytest.raises(ZeroDivisionError) as caught:
                LocalEngine(workers=workers).run(Fails(PooledNMF(2), ()), Federation(small_data()), rounds=2)
            assert any("north" in note for note in getattr(caught.value, "__notes__", []))

    @pytest.mark.parametrize("sparse", [False, True])
    def test_owners_that_are_served_together_are_those_that_are_served_alone(self, sparse, monkeypatch):
        rng = np.random.default_rng(0)
        rows = {f"owner {i:02}": rng.random((3 + i, 7)) * (rng.random((3 + i, 7)) < 0.6) for i in range(11)}
        if sparse:
            rows = {name: scipy.sparse.csr_array(part) for name, part in rows.items()}
        # A batch of all, and several of two.
        for most in (1 << 26, 1):
            monkeypatch.setattr("fedfactor.engines.local.thread_pool.MOST_HELD", most)
            one, two = (
                LocalEngine(workers=workers).run(PooledNMF(2), Federation(rows), rounds=4, seed=1) for workers in (1, 2)
            )
            assert np.array_equal(one.V, two.V)
            assert all(np.array_equal(one.factors[name].U, two.factors[name].U) for name in rows)
            assert [replace(record, seconds=0.0) for record in one.history] == [
                replace(record, seconds=0.0) for record in two.history
            ]

    @pytest.mark.parametrize("workers", [1, 2])
    def test_an_error_at_one_of_many_owners_says_whose_it_was(self, workers, monkeypatch):
        whole = PooledNMF._step

        def fails(self, shard, state, down, at, done=None):
            if (at.client, at.index) == ("owner 4", 1):
                raise ZeroDivisionError
            return whole(self, shard, state, down, at, done)

        monkeypatch.setattr(PooledNMF, "_step", fails)
        rows = {f"owner {i}": np.ones((3, 4)) for i in range(7)}
        before = thread_limit()
        with pytest.raises(ZeroDivisionError) as caught:
            LocalEngine(workers=workers).run(PooledNMF(2, start="random"), Federation(rows), rounds=3)
        assert caught.value.__notes__ == ["This happened at client 'owner 4' in round 1."]
        assert thread_limit() == before

    def test_runs_at_the_same_time_do_not_raise_each_others_cap(self):
        most = []

        class Watches(PooledNMF):
            def server_step(self, state, up, at):
                ahead.wait(10)  # each run takes a round while the other one is in its own
                return PooledNMF.server_step(self, state, up, at)

            def client_steps(self, shards, states, down, ats):
                found = PooledNMF.client_steps(self, shards, states, down, ats)
                return None if found is None else (most.append(thread_limit()) or each for each in found)

        ahead = threading.Barrier(2)
        rows = {f"owner {i}": np.random.default_rng(i).random((3, 4)) for i in range(4)}
        before = thread_limit()

        def run():
            LocalEngine(workers=2).run(Watches(2, start="random", tol=0), Federation(rows), rounds=30, seed=0)

        runs = [threading.Thread(target=run) for _ in range(2)]
        for each in runs:
            each.start()
        for each in runs:
            each.join()
        assert most
        assert max(most) <= max(2, before)
        assert thread_limit() == before

    def test_the_server_works_on_all_threads_that_are_allowed(self):
        class Watches(PooledNMF):
            def server_step(self, state, up, at):
                seen.append(thread_limit())
                return PooledNMF.server_step(self, state, up, at)

        seen: list[int] = []
        with limit_threads(2):
            LocalEngine().run(Watches(2, start="random"), Federation(small_data()), rounds=2)
            LocalEngine(workers=1).run(Watches(2, start="random"), Federation(small_data()), rounds=2)
        assert set(seen[:2]) == {2}
        assert set(seen[2:]) == {1}

    def test_a_changed_step_of_a_client_is_not_passed_over(self):
        class Counts(PooledNMF):
            def client_step(self, shard, state, down, at):
                asked.append(at.client)
                return PooledNMF.client_step(self, shard, state, down, at)

        asked: list[str] = []
        LocalEngine(workers=2).run(Counts(2), Federation(small_data()), rounds=2)
        assert sorted(asked) == sorted([*small_data()] * 2)


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "error", "words"),
        [
            ({"rounds": 0}, ValueError, "rounds=0"),
            ({"engine": "warp"}, ValueError, "engine='warp' is not known"),
            ({"engine": LocalEngine("fibres")}, ValueError, "backend='fibres' is not known"),
            ({"engine": LocalEngine(workers=-1)}, ValueError, "workers=-1"),
            ({"engine": LocalEngine(workers=0)}, ValueError, "workers=0"),
            ({"privacy": "hope"}, ValueError, "'hope' is not known"),
        ],
    )
    def test_options(self, options, error, words):
        with pytest.raises(error, match=words):
            fedfactor.run(PooledNMF(2), small_data(), **{"rounds": 1, **options})

    def test_missing_cells_where_none_may_be(self):
        owners = Federation(with_holes(small_data()), missing_values=np.nan)
        with pytest.raises(IncompatibleError, match="FedAvgNMF needs complete rows"):
            fedfactor.run(FedAvgNMF(2), owners, rounds=1)

    def test_data_are_checked_before_anything_runs(self):
        with pytest.raises(DataError, match="Negative"):
            fedfactor.run(PooledNMF(2), {"a": -np.ones((3, 4))}, rounds=1)


def test_lines_that_were_asked_for_pass_a_root_that_only_warns(monkeypatch):
    log, root, kept = logging.getLogger("fedfactor"), logging.getLogger(), []
    handler = logging.Handler()
    handler.emit = kept.append
    monkeypatch.setattr(root, "handlers", [handler])
    monkeypatch.setattr(sys, "stdout", io.StringIO())  # no terminal
    levels = log.level, root.level
    try:
        log.setLevel(logging.NOTSET)
        root.setLevel(logging.WARNING)
        fedfactor.run(PooledNMF(2, tol=0.0), small_data(), rounds=3, seed=0, callbacks=watcher(2))
    finally:
        log.setLevel(levels[0])
        root.setLevel(levels[1])
    assert sum("round" in record.getMessage() for record in kept) >= 3


class TestWords:
    """What fedfactor.run is told, looked at before any work."""

    @pytest.mark.parametrize(
        ("algorithm", "words"),
        [
            (fedfactor.PooledNMF, "Pass an instance with its parameters"),
            (algorithms.PooledNMF, "Pass an instance with its parameters"),
            ("pooled-nmf", "str is neither an estimator"),
        ],
    )
    def test_what_is_no_algorithm(self, algorithm, words):
        with pytest.raises(IncompatibleError, match=words):
            fedfactor.run(algorithm, small_data())

    @pytest.mark.parametrize("odd", [{"rounds": 2.5}, {"rounds": "3"}, {"seed": 1.5}, {"seed": True}])
    def test_numbers_that_are_not_whole(self, odd):
        with pytest.raises(ValueError, match=f"{next(iter(odd))}=.* must be a whole number"):
            fedfactor.run(algorithms.PooledNMF(2), small_data(), **odd)

    @pytest.mark.parametrize("share", [0, 1.5, "half"])
    def test_a_share_that_cannot_be_is_refused_before_anything_starts(self, share):
        class Watch(Callback):
            def on_start(self, *_):
                raise AssertionError("started")

        with pytest.raises(ValueError, match=f"participation={share!r} must lie in"):
            fedfactor.run(algorithms.PooledNMF(2), small_data(), participation=share, callbacks=[Watch()])
