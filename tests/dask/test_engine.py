"""The Dask engine on real clusters: workers in processes of their own, and a scheduler that was started by hand."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass

import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy import sparse

import fedfactor
from fedfactor import LocalEngine, algorithms
from fedfactor.algorithms import GridNMF, PooledNMF
from fedfactor.core.errors import WorkerError
from fedfactor.data import open_blocks
from fedfactor.engines.dask.engine import DaskEngine
from fedfactor.testing.checks_for_engines import engine_checks
from fedfactor.testing.probe_algorithm import Probe
from tests.engines.every_algorithm import apart_from_local
from tests.mpi.launcher import SRC

distributed = pytest.importorskip("distributed", reason="needs the extra 'dask'")
pytestmark = pytest.mark.integration

X = np.random.default_rng(0).random((80, 4)) @ np.random.default_rng(1).random((4, 20))
OWNERS = {name: X[16 * i : 16 * (i + 1)] for i, name in enumerate("abcde")}


@dataclass(frozen=True)
class Broken(Probe):
    """Fails at one client."""

    def client_step(self, shard, state, down, at):
        if at.index == 1 and at.client == "d":
            raise OSError("the disk is gone")
        return Probe.client_step(self, shard, state, down, at)


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes of this machine."""
    with (
        distributed.LocalCluster(2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.mark.parametrize("check", list(engine_checks()), ids=lambda check: check.__name__)
@pytest.mark.parametrize(("reduction", "tolerance"), [("ordered", 0.0), ("tree", 1e-9)])
def test_the_contract_of_an_engine(cluster, check, reduction, tolerance):
    check(lambda: DaskEngine(cluster, reduction), tolerance)


@pytest.mark.parametrize("name", sorted(algorithms.__all__))
def test_every_algorithm_of_the_library_runs_on_workers(cluster, name):
    assert apart_from_local(name, DaskEngine(cluster, "ordered")) == (0, True)
    apart, same = apart_from_local(name, DaskEngine(cluster))
    assert apart < 1e-6
    assert same


@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_blocks_of_one_file_lie_on_a_grid_of_workers(cluster, tmp_path, kind):
    np.save(tmp_path / "big.npy", X)
    sparse.save_npz(tmp_path / "big.npz", sparse.csr_array(X))
    opened = open_blocks(tmp_path / f"big.{kind}", (3, 2))
    local = fedfactor.run(GridNMF(3), open_blocks(tmp_path / f"big.{kind}", (3, 2)), rounds=9, seed=1)
    run = fedfactor.run(GridNMF(3), opened, engine=DaskEngine(cluster, "ordered"), rounds=9, seed=1)
    assert not opened._open  # no block was read in this process
    for name, kept in local.factors.items():
        assert np.array_equal(kept.U, run.factors[name].U)
        assert np.array_equal(kept.V, run.factors[name].V)
    assert [r.bytes_up for r in run.history] == [r.bytes_up for r in local.history]
    tree = fedfactor.run(GridNMF(3), opened, engine=DaskEngine(cluster), rounds=9, seed=1)
    assert np.abs(tree.V - local.V).max() < 1e-9


def test_workers_open_their_own_owners_and_this_process_none(cluster, tmp_path):
    for name, rows in OWNERS.items():
        np.save(tmp_path / f"{name}.npy", rows)

    def opener(name):
        def opened():
            (tmp_path / f"{name}.opened").write_text(str(os.getpid()))
            return np.load(tmp_path / f"{name}.npy")

        return opened

    run = fedfactor.run(PooledNMF(3), {name: opener(name) for name in OWNERS}, engine=DaskEngine(cluster), rounds=3)
    where = {name: int((tmp_path / f"{name}.opened").read_text()) for name in OWNERS}
    assert os.getpid() not in where.values()
    assert where["a"] == where["b"] == where["c"] != where["d"] == where["e"]
    assert run.environment["dask_workers"] == 2


def test_an_error_of_a_client_comes_through(cluster):
    rows = {**OWNERS, "e": OWNERS["e"] - 5}
    with pytest.raises(ValueError, match="Negative values"):
        fedfactor.run(PooledNMF(3), rows, engine=DaskEngine(cluster), rounds=3)


def test_nothing_of_a_run_stays_with_the_workers(cluster):
    fedfactor.run(PooledNMF(3), OWNERS, engine=DaskEngine(cluster), rounds=2)

    def kept():
        from fedfactor.engines.dask import worker

        return len(worker._held)

    assert set(cluster.run(kept).values()) == {0}


def test_no_scheduler_is_told_with_the_remedy():
    with pytest.raises(WorkerError, match=r"No Dask scheduler answers at tcp://127.0.0.1:9.*dask scheduler"):
        fedfactor.run(PooledNMF(3), OWNERS, engine=DaskEngine("tcp://127.0.0.1:9", patience=1), rounds=2)


class Hand:
    """A scheduler and two workers, each a process of its own, as an operator starts them."""

    def __init__(self, folder):
        self.env = {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"}
        self.folder, self.jobs = folder, []
        scheduler = self.start("scheduler", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0",
                               "--no-dashboard")  # fmt: skip
        self.address = self.find(scheduler, r"(tcp://127\.0\.0\.1:\d+)")
        self.workers = [self.worker(i) for i in range(2)]

    def start(self, name, module, *words):
        log = self.folder / f"{name}.log"
        with log.open("wb") as file:
            command = [sys.executable, "-m", module, *words]
            job = subprocess.Popen(command, env=self.env, cwd=self.folder, stdout=file, stderr=file)
        self.jobs.append(job)
        return log

    def worker(self, i):
        words = (self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard", "--name", str(i))
        return self.find(
            self.start(f"worker-{i}", "distributed.cli.dask_worker", *words), r"Start worker at: +(tcp\S+)"
        )

    def find(self, log, pattern):
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = re.search(pattern, log.read_text())
            if found:
                return found[1]
            time.sleep(0.1)
        raise AssertionError(log.read_text())

    def end(self):
        for job in reversed(self.jobs):
            job.kill()
            job.wait()


@pytest.fixture
def by_hand(tmp_path):
    hand = Hand(tmp_path)
    yield hand
    hand.end()


def test_the_command_line_gives_the_bits_of_a_local_run(by_hand, tmp_path):
    for name, rows in OWNERS.items():
        np.save(tmp_path / f"{name}.npy", rows)
    files = [f"{name}.npy" for name in OWNERS]
    ways = {"dask": ["--engine", "dask", "--scheduler", by_hand.address, "--reduction", "ordered"], "local": []}
    for out, way in ways.items():
        words = ["fit", *files, "-k", "3", "--rounds", "6", "--seed", "1", "-o", out, "--no-report", *way]
        command = [sys.executable, "-m", "fedfactor", *words]
        done = subprocess.run(command, cwd=tmp_path, env=by_hand.env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    for part in ("shared/components", *(f"private/{name}" for name in OWNERS)):
        ours, theirs = (load_file(tmp_path / way / f"{part}.safetensors") for way in ways)
        assert ours.keys() == theirs.keys()
        for key in ours:
            assert np.array_equal(ours[key], theirs[key]), (part, key)


def test_a_lost_worker_ends_the_run_and_the_checkpoint_goes_on(by_hand, tmp_path):
    whole = fedfactor.run(PooledNMF(3, tol=0), OWNERS, engine=LocalEngine(), rounds=12, seed=1)
    engine = DaskEngine(by_hand.address, "ordered", workers=2)

    def lose_one(record):
        if record.index == 4:
            os.kill(by_hand.jobs[-1].pid, signal.SIGKILL)

    words = {"engine": engine, "rounds": 12, "seed": 1, "checkpoint": tmp_path / "kept"}
    with pytest.raises(WorkerError, match="is gone"):
        fedfactor.run(PooledNMF(3, tol=0), OWNERS, callbacks=(lose_one,), **words)
    by_hand.worker(2)
    first = []
    run = fedfactor.run(PooledNMF(3, tol=0), OWNERS, callbacks=(lambda record: first.append(record.index),), **words)
    assert first[0] > 2
    assert np.array_equal(run.V, whole.V)


def test_a_client_that_fails_in_a_round_is_named(cluster):
    with pytest.raises(OSError, match="the disk is gone") as caught:
        fedfactor.run(Broken(3), OWNERS, engine=DaskEngine(cluster), rounds=2)
    assert "client 'd' in round 1" in "".join(getattr(caught.value, "__notes__", []))
