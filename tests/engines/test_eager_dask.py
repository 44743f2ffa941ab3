"""The Dask engine with tasks that are done at once: who is asked what, and what comes of it."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from fedfactor import Federation, LocalEngine
from fedfactor.algorithms import FNMF, PooledNMF
from fedfactor.core.algorithm import Score
from fedfactor.core.errors import CheckpointError, IncompatibleError, WorkerError
from fedfactor.engines.dask import worker
from fedfactor.engines.dask.engine import DaskEngine
from fedfactor.testing import engine_checks
from fedfactor.testing.data import small_data
from fedfactor.testing.probe_algorithm import Probe
from tests.engines import eager_dask
from tests.engines.eager_dask import Client

X = np.random.default_rng(0).random((40, 3)) @ np.random.default_rng(1).random((3, 8))
OWNERS = {name: X[8 * i : 8 * (i + 1)] for i, name in enumerate("abcde")}
SLOW = {"check_engine_equals_local"}


@pytest.fixture(autouse=True)
def tasks_done_at_once(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", eager_dask.distributed)


def cases():
    for reduction, tolerance in (("ordered", 0.0), ("tree", 1e-9)):
        for check in engine_checks():
            marks = (pytest.mark.slow,) if check.__name__ in SLOW else ()
            yield pytest.param(reduction, tolerance, check, id=f"{reduction}-{check.__name__}", marks=marks)


@pytest.mark.parametrize(("reduction", "tolerance", "check"), list(cases()))
def test_the_contract_of_an_engine(reduction, tolerance, check):
    check(lambda: DaskEngine(Client(2), reduction), tolerance)


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 7])
@pytest.mark.parametrize("reduction", ["ordered", "tree"])
def test_any_number_of_workers_finds_what_one_process_finds(workers, reduction):
    method = PooledNMF(2, tol=0.0)
    run = DaskEngine(Client(workers), reduction).run(method, Federation(OWNERS), rounds=3, seed=1)
    reference = LocalEngine(workers=1).run(method, Federation(OWNERS), rounds=3, seed=1)
    np.testing.assert_allclose(run.V, reference.V, rtol=0.0 if reduction == "ordered" else 1e-9)
    assert run.environment["dask_workers"] == min(workers, 5)
    assert run.bytes_up == reference.bytes_up
    assert [record.participants for record in run.history] == [("a", "b", "c", "d", "e")] * 3
    assert list(run.factors) == list(OWNERS)
    for name, kept in run.factors.items():
        np.testing.assert_allclose(kept.U, reference.factors[name].U, rtol=1e-7, atol=1e-12)
        assert float(run.scores[name].sse) == pytest.approx(float(reference.scores[name].sse), rel=1e-6)


def test_who_is_asked_what():
    client = Client(3)
    DaskEngine(client, "tree").run(PooledNMF(2, tol=0.0), Federation(OWNERS), rounds=1, seed=1)
    one_each = ["open_owners", "adopt", "begin", "step", "add", "scatter", "end", "close"]
    for where in client.threads:
        mine = [word for place, word in client.asked if place == where]
        assert [mine.count(word) for word in one_each] == [1, 1, 1, 1, 1, 2, 1, 1]
    # Three sums need two additions, both where the first of the two lies.
    assert [place for place, word in client.asked if word == "merge"] == ["worker 0", "worker 0"]
    assert worker._held == {}


def test_only_workers_whose_owners_take_part_are_asked():
    client = Client(2)
    run = DaskEngine(client).run(
        PooledNMF(2, tol=0.0), Federation(OWNERS), rounds=2, seed=1, participation=lambda at, names: ("a", "b")
    )
    assert {place for place, word in client.asked if word == "step"} == {"worker 0"}
    assert {record.participants for record in run.history} == {("a", "b")}


def test_single_uploads_and_answers_for_each():
    for method, owners in ((FNMF(2), OWNERS), (Probe(), small_data("real"))):
        run = DaskEngine(Client(2)).run(method, Federation(owners), rounds=3, seed=1)
        reference = LocalEngine(workers=1).run(method, Federation(owners), rounds=3, seed=1)
        for name, kept in run.factors.items():
            np.testing.assert_array_equal(kept.V, reference.factors[name].V)


def test_an_interrupted_run_goes_on(tmp_path):
    method, federation = PooledNMF(2, tol=0.0), Federation(OWNERS)
    whole = DaskEngine(Client(2)).run(method, federation, rounds=4, seed=3)

    def kill(record):
        if record.index == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        DaskEngine(Client(2)).run(method, federation, rounds=4, seed=3, checkpoint=tmp_path, callbacks=(kill,))
    with pytest.raises(CheckpointError, match="sums along a tree"):
        DaskEngine(Client(3)).run(method, federation, rounds=4, seed=3, checkpoint=tmp_path)
    heard = []
    again = DaskEngine(Client(2)).run(
        method, federation, rounds=4, seed=3, checkpoint=tmp_path, callbacks=(heard.append,)
    )
    assert heard
    assert heard[0].index > 0
    np.testing.assert_array_equal(again.V, whole.V)


def test_no_worker_no_scheduler_and_words_that_are_not_known():
    with pytest.raises(WorkerError, match="has 0 workers, but 1 are needed"):
        DaskEngine(Client(0)).run(PooledNMF(2), Federation(OWNERS), rounds=1, seed=0)
    with pytest.raises(WorkerError, match="has 2 workers, but 3 are needed"):
        DaskEngine(Client(2), workers=3).run(PooledNMF(2), Federation(OWNERS), rounds=1, seed=0)
    with pytest.raises(ValueError, match="reduction='quick' is not known"):
        DaskEngine(Client(2), "quick").run(PooledNMF(2), Federation(OWNERS), rounds=1, seed=0)


def test_a_worker_that_is_lost_is_named(monkeypatch):
    client = Client(2)

    def lose(futures, timeout):
        client.threads.pop("worker 1", None)
        raise TimeoutError

    monkeypatch.setattr(eager_dask.distributed, "wait", lose)
    with pytest.raises(WorkerError, match=r"The Dask worker worker 1 is gone.*'d' among them"):
        DaskEngine(client).run(PooledNMF(2), Federation(OWNERS), rounds=2, seed=0)


def test_a_worker_of_another_version_is_refused(monkeypatch):
    versions = iter(("0.0.1", "9.9", "9.9"))  # of two workers, then of this process
    monkeypatch.setattr(worker.metadata, "version", lambda name: next(versions))
    with pytest.raises(IncompatibleError, match=r"worker 0 has fedfactor 0.0.1, this process 9.9"):
        DaskEngine(Client(2)).run(PooledNMF(2), Federation(OWNERS), rounds=1, seed=0)


def test_a_worker_that_was_started_anew_has_no_states():
    with pytest.raises(WorkerError, match="started again in the middle of a run"):
        worker.states("of no run")


def test_arrays_that_begin_at_any_byte_are_brought_to_where_products_expect_them():
    odd = np.frombuffer(b"x" + np.arange(3.0).tobytes(), np.uint8)[1:].view(np.float64)
    assert not odd.flags.aligned
    found = worker.landed(Score(odd, np.float64(1), np.float64(2)))
    assert found.sse.flags.aligned
    assert found.sse.tolist() == [0.0, 1.0, 2.0]
    assert float(found.n) == 1.0


def test_sums_of_nobody_are_nothing():
    one = worker.Part(Score.of(1, 2, 3), {"a": 24}, {"z": "NaN"})
    both = worker.merge(one, worker.Part(None, {}, {"b": "late"}))
    assert both.present == {"a": 24}
    assert both.rejected == {"z": "NaN", "b": "late"}
    assert float(both.total.sse) == 1.0
    assert worker.merge(worker.Part(), worker.Part()).total is None
    assert float(worker.merge(one, worker.Part(Score.of(4, 0, 0), {"c": 24})).total.sse) == 5.0
