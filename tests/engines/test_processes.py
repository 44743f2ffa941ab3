"""Workers that print, fail, or die: the run ends soon, says why, and leaves nobody behind."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

import fedfactor
from fedfactor import Federation, LocalEngine
from fedfactor.algorithms import PooledNMF
from fedfactor.core.errors import IncompatibleError, WorkerError
from fedfactor.core.threads import thread_limit, usable_cores
from fedfactor.engines.local.process_pool import ProcessPool
from fedfactor.testing import Probe
from fedfactor.testing.data import small_data
from fedfactor.testing.plain_loop import differences

HERE = str(Path(__file__).parent.parent / "network")


@pytest.fixture
def naughty(monkeypatch):
    monkeypatch.syspath_prepend(HERE)
    yield importlib.import_module("naughty_clients")
    sys.modules.pop("naughty_clients", None)


@pytest.fixture(autouse=True)
def nobody_is_left_behind():
    before = {child.pid for child in psutil.Process().children(recursive=True)}
    yield
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        left = [c for c in psutil.Process().children(recursive=True) if c.pid not in before]
        if not left:
            return
        time.sleep(0.05)
    raise AssertionError(f"worker processes outlived their run: {left}")


def fit(algorithm, rounds=4, workers=2, owners=None, **options):
    federation = Federation(owners or small_data("real"))
    return LocalEngine("processes", workers).run(algorithm, federation, rounds=rounds, seed=6, **options)


def workers_now():
    return [c for c in psutil.Process().children() if "fedfactor.engines.local.worker_process" in " ".join(c.cmdline())]


class TestFailures:
    @pytest.mark.slow
    def test_an_exception_surfaces_with_the_clients_name(self, naughty):
        with pytest.raises(
            WorkerError, match=r"(?s)Client 'north' failed.*ZeroDivisionError: the client's own mistake"
        ):
            fit(naughty.Raises())

    @pytest.mark.slow
    def test_so_does_one_before_the_first_round(self, naughty):
        with pytest.raises(WorkerError, match=r"Client 'east' failed.*cannot begin"):
            fit(naughty.RaisesAtFirst())

    @pytest.mark.slow
    @pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSEGV])
    def test_a_worker_that_dies_ends_the_run_at_once(self, naughty, how):
        begin = time.monotonic()
        with pytest.raises(WorkerError, match=f"ended with code {-how}"):
            fit(naughty.Dies(how=int(how)))
        assert time.monotonic() - begin < 10

    @pytest.mark.slow
    @pytest.mark.parametrize("workers", [1, 2])
    def test_a_worker_killed_between_rounds_is_noticed(self, workers):
        killed = []

        def kill(record):
            if record.index == 1:
                victim = workers_now()[0]
                os.kill(victim.pid, signal.SIGKILL)
                while victim.status() != psutil.STATUS_ZOMBIE:  # its code is for the engine to collect
                    time.sleep(0.01)
                killed.append(victim.pid)

        begin = time.monotonic()
        with pytest.raises(WorkerError, match=r"code -9 .* resume from a checkpoint"):
            fit(Probe(), callbacks=(kill,), workers=workers)
        assert killed
        assert time.monotonic() - begin < 10

    @pytest.mark.slow
    def test_a_worker_killed_while_the_other_is_busy_is_noticed(self, naughty):
        def kill_soon(record):
            if record.index == 0:
                victims = workers_now()
                threading.Timer(0.3, lambda: [v.kill() for v in victims]).start()

        begin = time.monotonic()
        with pytest.raises(WorkerError):
            fit(naughty.Sleeps(), callbacks=(kill_soon,))
        assert time.monotonic() - begin < 20

    def test_large_rows_to_a_worker_that_cannot_start(self, monkeypatch):
        monkeypatch.setattr(sys, "executable", "/bin/false")
        with pytest.raises(WorkerError):
            fit(PooledNMF(2), owners={"a": np.ones((3000, 300)), "b": np.ones((3000, 300))})

    @pytest.mark.slow
    def test_a_callback_that_raises_leaves_nobody(self):
        def fail(record):
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            fit(Probe(), callbacks=(fail,))

    @pytest.mark.slow
    def test_the_thread_cap_is_taken_back(self, naughty):
        before = thread_limit()
        with pytest.raises(WorkerError):
            fit(naughty.Raises())
        assert thread_limit() == before

    @pytest.mark.slow
    def test_workers_keep_their_thread_cap(self, naughty):
        fit(naughty.Counts(cap=max(1, usable_cores() // 2)), workers=2)

    @pytest.mark.slow
    def test_ctrl_c_is_for_the_parent_to_answer(self, naughty, capfd):
        fit(naughty.Interrupted())
        assert "Traceback" not in capfd.readouterr().err


class TestTravel:
    @pytest.mark.slow
    def test_what_client_code_prints_goes_elsewhere(self, naughty, capfd):
        printing, silent = fit(naughty.Prints()), fit(Probe())
        assert all(not differences(printing.factors[name], silent.factors[name]) for name in silent.factors)
        out, err = capfd.readouterr()
        assert "hello" not in out
        assert err.count("client code says hello") == 4 * 3

    def test_an_algorithm_of_the_main_script_is_refused(self):
        class Mine(Probe):
            pass

        Mine.__module__ = "__main__"
        with pytest.raises(IncompatibleError, match="main script"):
            fit(Mine())

    @pytest.mark.slow
    def test_settings_arrive_as_they_left(self):
        algorithm = Probe(n_components=np.int64(2), shape=(4, 1), tol=np.float64(0.0))
        one = fit(algorithm)
        two = LocalEngine().run(algorithm, Federation(small_data("real")), rounds=4, seed=6)
        assert all(not differences(one.factors[name], two.factors[name]) for name in two.factors)

    @pytest.mark.slow
    def test_so_do_settings_with_numbers_inside(self):
        owners = {"a": np.eye(6) + 1, "b": np.ones((6, 6))}
        algorithm = PooledNMF(2, weights={"a": np.int64(1), "b": np.float32(2)})
        one, two = fit(algorithm, owners=owners), LocalEngine().run(algorithm, Federation(owners), rounds=4, seed=6)
        assert all(not differences(one.factors[name], two.factors[name]) for name in two.factors)

    @pytest.mark.slow
    def test_rows_larger_than_a_pipe(self):
        owners = {str(i): np.random.default_rng(i).random((2000, 40)) for i in range(5)}
        run = fit(PooledNMF(3), rounds=2, owners=owners)
        assert run.factors["4"].U.shape == (2000, 3)

    @pytest.mark.slow
    def test_tensors_are_refused(self):
        torch = pytest.importorskip("torch")
        with pytest.raises(IncompatibleError, match="backend='threads'"):
            fit(PooledNMF(2), owners={"a": torch.ones((3, 4)), "b": torch.ones((3, 4))})

    @pytest.mark.slow
    def test_more_workers_than_clients_start_no_idle_ones(self):
        seen = []
        fit(Probe(), workers=8, callbacks=(lambda record: seen.append(len(workers_now())),))
        assert seen == [3, 3, 3, 3]


ORPHAN = """
import sys, time
import fedfactor, psutil
from fedfactor.testing import Probe
from fedfactor.testing.data import small_data
def stay(record):
    print(*(c.pid for c in psutil.Process().children()), flush=True)
    time.sleep(60)
owners = fedfactor.Federation(small_data("real"))
fedfactor.LocalEngine("processes", 2).run(Probe(), owners, rounds=3, callbacks=(stay,))
"""


@pytest.mark.integration
def test_workers_end_when_their_parent_is_killed():
    environment = {**os.environ, "PYTHONPATH": str(Path(fedfactor.__file__).parents[1])}
    parent = subprocess.Popen([sys.executable, "-c", ORPHAN], stdout=subprocess.PIPE, text=True, env=environment)
    pids = [int(pid) for pid in parent.stdout.readline().split()]
    assert len(pids) == 2
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 10
    while any(_lives(pid) for pid in pids):
        assert time.monotonic() < deadline, "workers outlived the parent"
        time.sleep(0.05)


def _lives(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@pytest.mark.slow
def test_a_crew_can_be_closed_twice():
    federation = Federation(small_data("real"))
    crew = ProcessPool(Probe(), federation, federation.prepare("real"), 1, 1)
    crew.close()
    crew.close()
