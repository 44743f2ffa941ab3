"""Every engine returns what the reference returns, and leaves out and names the same uploads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedfactor import LocalEngine
from fedfactor.engines.local.virtual_clock import VirtualEngine
from fedfactor.testing import algorithm_checks, engine_checks
from fedfactor.testing.engines import check_engine_channel, check_engine_rejects
from fedfactor.testing.probe import Probe
from tests.engines.in_process import InProcessEngine
from tests.mpi.launcher import mpiexec, needs_mpi

ENGINES = {
    "one thread": lambda: LocalEngine(workers=1),
    "two threads": lambda: LocalEngine(workers=2),
    "more threads than clients": lambda: LocalEngine(workers=9),
    "two processes": lambda: LocalEngine("processes", workers=2),
}
SLOW = {"two processes"}
DAILY = {"check_engine_drop_outs", "check_engine_rejects"}
BAD_UPLOADS = [check_engine_rejects, check_engine_channel]


def cases():
    for label, make in ENGINES.items():
        for check in engine_checks():
            # Two checks with processes are quick enough for every day; each of the others starts a dozen interpreters.
            daily = label not in SLOW or check.__name__ in DAILY
            marks = () if daily else (pytest.mark.slow,)
            yield pytest.param(make, check, id=f"{label}-{check.__name__}", marks=marks)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "check"), list(cases()))
def test_engine(make, check):
    check(make, 0.0)


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
