"""Killing one rank ends an MPI job within seconds, with a message, and the checkpoint resumes to the same bits."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path

from tests.mpi.launcher import mpiexec

JOB = Path(__file__).resolve().parent.parent / "tests" / "mpi" / "job_run.py"


def claim():
    figures, holds = {}, True
    whole = json.loads(mpiexec(2, JOB, "whole", "-").stdout)
    for trouble, words in (("kill", "signal 9"), ("raise", "failed in round 7, so the job ends")):
        with tempfile.TemporaryDirectory() as folder:
            began = time.perf_counter()
            done = mpiexec(2, JOB, trouble, folder)
            seconds = time.perf_counter() - began
            resumed = json.loads(mpiexec(2, JOB, "go on", folder).stdout)
        told = words in done.stdout + done.stderr
        figures[trouble] = {"seconds, start of Python included": round(seconds, 1), "told": told}
        figures[trouble]["resumed to the same bits"] = resumed == whole
        holds &= done.returncode != 0 and told and resumed == whole and seconds < 30
    return {**figures, "holds": bool(holds)}
