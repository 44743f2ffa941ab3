"""Real ranks give the reference engine's factors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedfactor import algorithms
from tests.mpi.launcher import mpiexec, needs_mpi

pytestmark = [pytest.mark.integration, needs_mpi()]

JOB = Path(__file__).parent / "job_equality.py"


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_give_the_factors_of_the_local_engine(ranks):
    done = mpiexec(ranks, JOB)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == 3 * 9 + 3
    for what, figures in found.items():
        assert figures["same_history"], what
        assert figures["every_owner_once"], what
        exact = not what.endswith("allreduce")
        # Single precision rounds to 1e-7 in each sum; the other allreduce cases add float64.
        limit = 0 if exact else 1e-3 if what.startswith("float32") else 1e-6
        assert figures["apart"] <= limit, (what, figures)


@pytest.fixture(scope="module")
def every_algorithm():
    done = mpiexec(2, Path(__file__).parent / "job_all.py")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", sorted(algorithms.__all__))
def test_every_algorithm_of_the_library_runs_on_ranks(every_algorithm, name):
    ordered, fast = every_algorithm["ordered"][name], every_algorithm["allreduce"][name]
    assert ordered == {"apart": 0, "same_history": True}
    assert fast["same_history"]
    assert fast["apart"] < 1e-6
