"""Every engine returns what the reference returns, and leaves out and names the same uploads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fedfactor import Federation, LocalEngine
from fedfactor.algorithms import PooledNMF
from fedfactor.engines.local.virtual_clock import VirtualEngine
from fedfactor.testing import algorithm_checks, engine_checks
from fedfactor.testing.checks_for_engines import check_engine_channel, check_engine_rejects
from fedfactor.testing.data import variants
from fedfactor.testing.plain_loop import differences
from fedfactor.testing.probe_algorithm import Probe
from tests.mpi.launcher import mpiexec, needs_mpi
from tests.network.in_process import InProcessEngine

ENGINES = {
    "one thread": lambda: LocalEngine(workers=1),
    "two threads": lambda: LocalEngine(workers=2),
    "more threads than clients": lambda: LocalEngine(workers=9),
    "two processes": lambda: LocalEngine("processes", workers=2),
}
PROCESSES = {"check_engine_drop_outs", "check_engine_rejects", "check_engine_channel", "check_engine_groups"}
"""Checks of what passes between processes; when rounds end, and who hears of them, is decided where threads are."""
BAD_UPLOADS = [check_engine_rejects, check_engine_channel]


def cases():
    for label, make in ENGINES.items():
        for check in engine_checks():
            if label != "two processes" or check.__name__ in PROCESSES:
                yield pytest.param(make, check, id=f"{label}-{check.__name__}")


@pytest.mark.slow
@pytest.mark.parametrize(("make", "check"), list(cases()))
def test_engine(make, check):
    check(make, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sparse", "masked float32"])
def test_processes_find_what_threads_find(kind):
    algorithm = PooledNMF(3)
    owners = variants(algorithm)[kind]
    missing = np.nan if kind.startswith("masked") else None
    here, there = (
        engine.run(algorithm, Federation(owners, missing_values=missing), rounds=3, seed=1)
        for engine in (LocalEngine(workers=1), LocalEngine("processes", workers=2))
    )
    for name, kept in here.factors.items():
        assert not differences(kept, there.factors[name])


@pytest.mark.parametrize("check", BAD_UPLOADS)
def test_a_virtual_clock(check):
    check(lambda: VirtualEngine(barrier=True), 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("check", BAD_UPLOADS)
def test_remote_parties(check, tmp_path):
    check(lambda: InProcessEngine(tmp_path), 0.0)


@pytest.mark.integration
@needs_mpi()
@pytest.mark.parametrize("ranks", [1, 2])
def test_mpi(ranks):
    done = mpiexec(ranks, Path(__file__).parents[1] / "mpi" / "job_checks.py")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == 8
    assert set(found.values()) == {""}, found


@pytest.mark.parametrize("check", list(algorithm_checks(Probe())), ids=str)
def test_the_probe_is_itself_a_sound_algorithm(check):
    check()
