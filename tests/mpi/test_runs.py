"""What a job does when ranks fail, and what travels when they do not."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.mpi.launcher import SRC, mpiexec, needs_mpi

pytestmark = [pytest.mark.integration, needs_mpi()]

JOB = Path(__file__).parent / "job_run.py"


def lines(done):
    assert done.returncode == 0, done.stderr
    found, text, read = [], done.stdout.strip(), json.JSONDecoder()
    while text:  # two ranks may write on one line
        entry, end = read.raw_decode(text)
        found.append(entry)
        text = text[end:].lstrip()
    return found


@pytest.mark.parametrize("trouble", ["kill", "raise"])
def test_a_lost_rank_ends_the_job_and_the_checkpoint_goes_on(trouble, tmp_path):
    began = time.perf_counter()
    done = mpiexec(2, JOB, trouble, tmp_path)
    assert done.returncode != 0
    assert time.perf_counter() - began < 30
    if trouble == "kill":
        assert "signal 9" in done.stdout + done.stderr
    else:
        assert "rank 1 of 2 (owners 2, 3) failed in round 7" in done.stderr
        assert "the disk is gone" in done.stderr
        assert "goes on from round 7" in done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {f"round-7.rank-{r}.safetensors" for r in (0, 1)}
    (resumed,), (whole,) = lines(mpiexec(2, JOB, "go on", tmp_path)), lines(mpiexec(2, JOB, "whole", tmp_path))
    assert resumed["rounds"] == whole["rounds"] == 15
    assert np.array_equal(resumed["V"], whole["V"])


def test_a_checkpoint_of_other_ranks_is_refused(tmp_path):
    lines(mpiexec(2, JOB, "go on", tmp_path))
    done = mpiexec(4, JOB, "go on", tmp_path)
    assert done.returncode != 0
    assert "was written by a job of 2 ranks, but this one has 4" in done.stderr


def test_dsanls_sends_sketches_and_little_else():
    (found,) = lines(mpiexec(2, JOB, "bytes", "-"))
    sketches = 40 * found["per_iteration"] + 8 * 3 * 30  # and the first sketch of V
    assert sketches <= found["up"] / 2 <= sketches + 81 * 2 * 8
    assert sketches <= found["sent"] <= 1.03 * sketches + 2000


def test_an_asynchronous_job_needs_no_rounds():
    (found,) = lines(mpiexec(3, JOB, "asynchronous", "-"))
    assert found["status"] == "rounds"
    assert found["arrivals"] == sum(found["came"].values()) == 160
    assert min(found["came"].values()) > 0
    assert found["error"] < 0.1  # who comes how often is up to the machine; the mean row leaves 0.27


def test_bad_rows_are_told_on_every_rank_and_nobody_waits():
    found = lines(mpiexec(2, JOB, "bad rows", "-"))
    assert {entry["rank"] for entry in found} == {0, 1}
    for entry in found:
        assert "Negative values" in entry["error"]


def test_a_rank_opens_its_own_owners_only():
    found = lines(mpiexec(2, JOB, "apart", "-"))
    assert {entry["rank"]: entry["opened"] for entry in found} == {0: ["0", "1"], 1: ["2", "3"]}


def test_another_size_than_asked_for_is_refused():
    (found,) = lines(mpiexec(2, JOB, "size", "-"))
    assert "3 ranks were asked for, but the job has 2" in found["error"]


def test_more_ranks_than_owners_are_refused():
    (found,) = lines(mpiexec(2, JOB, "too many ranks", "-"))
    assert "only 1 owners" in found["error"]


def test_a_foreign_launcher_is_noticed():
    code = "import fedfactor; from fedfactor.algorithms import PooledNMF; import numpy as np\n"
    code += "fedfactor.run(PooledNMF(1), {'a': np.ones((3, 2))}, engine='mpi', rounds=1)"
    env = {**os.environ, "OMPI_COMM_WORLD_SIZE": "4", "PYTHONPATH": str(SRC)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert done.returncode != 0
    assert "The launcher started 4 processes, but MPI sees only this one" in done.stderr


def test_ranks_of_a_machine_take_a_card_each_before_owners_are_opened():
    found = lines(mpiexec(3, JOB, "cards", "-"))
    assert {entry["rank"]: entry["taken"] for entry in found} == {0: [0], 1: [1], 2: [0]}
