"""The words that engines share, callbacks, and the entry that chooses an engine."""

from __future__ import annotations

import logging
import math
from types import SimpleNamespace

import numpy as np
import pytest

import fedfactor
from fedfactor import Federation, LocalEngine
from fedfactor.algorithms import FNMF, FedAvgNMF, PooledNMF
from fedfactor.core.algorithm import Meta, Scatter
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.run import RoundRecord
from fedfactor.engines import callbacks
from fedfactor.engines.callbacks import Callbacks, Log, ProgressBar, figures, watcher
from fedfactor.engines.checkpoint import Checkpoint
from fedfactor.engines.engine import Callback, check_fit, downloads, judge_small, rounds_of
from fedfactor.engines.local.virtual_clock import VirtualEngine
from fedfactor.privacy.minimums import PrivacyWarning, RefusedError
from fedfactor.testing.data import small_data

META = Meta(4, ("a", "b"), n_rows=20)


def test_downloads_are_counted_for_each_client():
    assert downloads({"V": np.ones(3)}, ("a", "b")) == 48
    assert (
        downloads(Scatter({"a": {"V": np.ones(1)}, "b": {"V": np.ones(2)}, "c": {"V": np.ones(9)}}), ("a", "b")) == 24
    )


def test_what_does_not_fit_is_refused_before_round_0():
    with pytest.raises(IncompatibleError, match="FNMF needs complete rows"):
        check_fit(FNMF(2), Meta(4, ("a", "b"), masked=True))
    assert check_fit(PooledNMF(2), Meta(4, ("a", "b"), masked=True, n_rows=9))
    with pytest.raises(ValueError, match="n_components"):
        check_fit(PooledNMF(0), META)


@pytest.mark.parametrize(("asked", "found"), [(None, PooledNMF.default_rounds), (1, 1), (7, 7)])
def test_rounds(asked, found):
    assert rounds_of(PooledNMF(2), asked) == found
    with pytest.raises(ValueError, match="rounds=0 must be at least 1"):
        rounds_of(PooledNMF(2), 0)


def test_small_owners_are_judged():
    judge_small(PooledNMF(2), {"a": 3, "b": 9}, simulation=False)
    judge_small(PooledNMF(2), {"a": 1}, simulation=False)
    with pytest.raises(RefusedError):
        judge_small(PooledNMF(3), {"a": 3, "b": 9}, simulation=False)
    with pytest.warns(PrivacyWarning):
        judge_small(PooledNMF(3), {"a": 3, "b": 9}, simulation=True)


RECORD = RoundRecord(3, ("a", "b"), 1, 1, 0.1, {"relative_error": 0.123456, "x": 2.0})


class TestCallbacks:
    def test_all_are_told_and_any_may_stop(self):
        told = []

        class Mine(Callback):
            def on_start(self, algorithm, meta, rounds, first):
                told.append((rounds, first))

            def on_round(self, record):
                told.append(record.index)

            def on_end(self, run):
                told.append(run)

        many = Callbacks([Mine(), lambda record: 1, lambda record: told.append("plain")])
        many.start(None, None, 9, 2)
        assert many.round(RECORD) is False  # only True asks to stop
        many.end(None)
        assert told == [(9, 2), 3, "plain", None]
        assert Callbacks([lambda record: None, lambda record: True]).round(RECORD) is True

    def test_figures(self):
        assert figures(RECORD) == "relative error 0.12346, x 2"

    def test_lines_of_a_log(self, caplog):
        caplog.set_level(logging.INFO, logger="fedfactor")
        log = Log(every=5)
        log.on_start(PooledNMF(2), META, 7, 0)
        log.on_start(PooledNMF(2), META, 7, 3)
        for index in range(7):
            log.on_round(RoundRecord(index, ("a",), 0, 0, 0.0, {}))
        log.on_end(None)
        assert [record.message for record in caplog.records] == [
            "PooledNMF: 2 owners, 7 rounds", "PooledNMF: 2 owners, 7 rounds, resumed at round 3", "round 5/7: 1 owner",
            "round 7/7: 1 owner", "run broken off",
        ]  # fmt: skip
        assert Log().every == 1

    def test_a_bar(self):
        bar = ProgressBar()
        bar.on_end(None)
        bar.on_start(PooledNMF(2), META, 7, 2)
        task = bar._progress.tasks[0]
        assert (task.description, task.total, task.completed) == ("PooledNMF", 7, 2)
        bar.on_round(RECORD)
        assert bar._progress.tasks[0].completed == 4
        assert bar._progress.tasks[0].fields["figures"].startswith("relative error")
        assert bar._progress.live.transient
        bar.on_end(None)
        assert not bar._progress.live.is_started
        named = ProgressBar("mine")
        named.on_start(PooledNMF(2), META, 7, 0)
        assert named._progress.tasks[0].description == "mine"
        named.on_end(None)

    def test_what_verbose_means(self, monkeypatch):
        monkeypatch.setattr(callbacks.logger, "level", logging.NOTSET)
        monkeypatch.setattr(callbacks.sys, "stderr", SimpleNamespace(isatty=lambda: False, write=print))
        assert watcher(0) == ()
        (log,) = watcher(1)
        assert log.every == 10
        assert callbacks.logger.level == logging.INFO
        assert watcher(2)[0].every == 1
        for err, out in ((True, True), (True, False), (False, True)):
            monkeypatch.setattr(callbacks.sys, "stderr", SimpleNamespace(isatty=lambda err=err: err, write=print))
            monkeypatch.setattr(callbacks.sys, "stdout", SimpleNamespace(isatty=lambda out=out: out, write=print))
            assert isinstance(watcher(1, "x")[0], ProgressBar) is (err and out)


class TestEntry:
    def test_what_is_no_algorithm_is_named_with_the_remedy(self):
        instance = r"Pass an instance with its parameters: PooledNMF\("
        wrong = (
            (fedfactor.PooledNMF, instance),
            (PooledNMF, instance),
            (3, "int is neither an estimator"),
        )
        for given, remedy in wrong:
            with pytest.raises(IncompatibleError, match=remedy):
                fedfactor.run(given, small_data())

    @pytest.mark.parametrize("given", [{"rounds": 2.0}, {"rounds": True}, {"seed": 1.5}, {"seed": False}])
    def test_numbers_are_whole(self, given):
        with pytest.raises(ValueError, match="must be a whole number, or None"):
            fedfactor.run(FedAvgNMF(2), small_data(), **given)

    def test_numpy_numbers_are_taken(self):
        run = fedfactor.run(FedAvgNMF(2), small_data(), rounds=np.int64(1), seed=np.int64(3))
        assert (run.rounds, run.seed, type(run.seed)) == (1, 3, int)

    def test_small_owners_are_warned_of(self):
        few = {"a": np.ones((2, 4)), "b": np.ones((9, 4))}
        with pytest.warns(PrivacyWarning, match="no more rows than components"):
            fedfactor.run(FedAvgNMF(2), few, rounds=1, seed=0)

    def test_engines_without_a_channel_say_so(self):
        class Bare:
            def run(self, *args, **kwargs):
                pytest.fail("ran")

        with pytest.raises(IncompatibleError, match="Bare carries uploads in the clear"):
            fedfactor.run(FedAvgNMF(2), small_data(), engine=Bare(), privacy="secure-sum")

    def test_engines_of_other_processes_are_not_judged_here(self):
        seen = {}

        class Apart:
            apart = channels = True

            def run(self, algorithm, federation, **settings):
                seen.update(settings, algorithm=algorithm)
                return "ran"

        few = {"a": np.ones((2, 4)), "b": np.ones((9, 4))}
        assert fedfactor.run(FedAvgNMF(2), few, engine=Apart(), seed=3, rounds=2) == "ran"
        assert (seen["seed"], seen["rounds"], "channel" in seen) == (3, 2, False)
        assert fedfactor.run(FedAvgNMF(2), few, engine=Apart(), privacy=fedfactor.privacy.Clip(1.0)) == "ran"
        assert callable(seen["channel"])
        assert seen["seed"] < 2**63


class TestCheckpoints:
    def test_where_a_run_is_kept(self, tmp_path):
        kept = Checkpoint.of(tmp_path)
        assert (kept.folder, kept.every, kept.file) == (tmp_path, 1, tmp_path / "run.safetensors")
        assert Checkpoint.of(kept) is kept
        assert Checkpoint.of(None) is None
        Checkpoint(tmp_path, 1)
        with pytest.raises(ValueError, match="every=0 must be at least 1"):
            Checkpoint(tmp_path, 0)


@pytest.mark.parametrize(
    ("engine", "says"),
    [
        (LocalEngine(workers=0), "workers=0 must be a whole number of at least 1, or None"),
        (LocalEngine(workers="2"), "workers='2' must be"),
        (LocalEngine(workers=2.5), "workers=2.5 must be"),
        (LocalEngine("forks"), "backend='forks' is not known. Use one of threads, processes"),
        (VirtualEngine(barrier=True, latency=-1), "latency=-1 must be at least 0"),
        (VirtualEngine(barrier=True, latency=math.nan), "latency=nan must be"),
        (VirtualEngine(barrier=True, evaluate="1"), "evaluate='1' must be"),
        (VirtualEngine(barrier="no"), "barrier='no' must be True or False"),
        (VirtualEngine(barrier=True, durations="slow"), "durations='slow' is not known. Use one of rows, equal"),
        (VirtualEngine(barrier=True, durations=3), "durations=3 must be"),
        (VirtualEngine(barrier=True, durations={"east": 1, "north": math.inf}), "no positive time for client 'north'"),
        (VirtualEngine(barrier=True, durations={"east": "1"}), "no positive time for client 'east'"),
    ],
)
def test_an_engine_refuses_settings_by_name(engine, says):
    with pytest.raises(ValueError, match=says):
        engine.run(PooledNMF(2), Federation(small_data()), rounds=1)


@pytest.mark.parametrize("found", [None, 3, "east"])
def test_a_rule_of_participation_returns_names(found):
    with pytest.raises(ValueError, match="participation must return a list of clients' names"):
        LocalEngine().run(PooledNMF(2), Federation(small_data()), rounds=1, participation=lambda at, names: found)
