"""Killing one rank ends an MPI job within seconds, with a message, and the checkpoint resumes to the same bits."""

from __future__ import annotations

import json
import re
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
            died = float(re.search(r"dies at ([\d.]+)", done.stderr).group(1))
            after = time.time() - died
            resumed = json.loads(mpiexec(2, JOB, "go on", folder).stdout)
        told = words in done.stdout + done.stderr
        message = next((line for line in (done.stdout + done.stderr).splitlines() if words in line), "")
        figures[trouble] = {"seconds from the death of the rank to the end of the job": round(after, 2)}
        figures[trouble] |= {"seconds, start of Python included": round(seconds, 1), "message": message.strip()}
        figures[trouble]["resumed to the same bits"] = resumed == whole
        holds &= done.returncode != 0 and told and resumed == whole and after < 10
    return {**figures, "holds": bool(holds)}
