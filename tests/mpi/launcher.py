"""Start real MPI jobs of this Python environment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parents[2] / "src"
MPIEXEC = Path(sys.executable).parent / "mpiexec"


def needs_mpi() -> pytest.MarkDecorator:
    absent = not MPIEXEC.exists()
    if not absent:
        absent = subprocess.run([sys.executable, "-c", "import mpi4py"], capture_output=True).returncode != 0
    return pytest.mark.skipif(absent, reason="needs the extra 'mpi'")


def mpiexec(
    ranks: int, *arguments: object, timeout: float = 120, variables: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments on so many ranks, with more environment variables if need be."""
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    path = os.pathsep.join([str(SRC), os.environ.get("PYTHONPATH", "")])
    env = {**os.environ, **threads, "PYTHONPATH": path, **(variables or {})}
    command = [str(MPIEXEC), "-n", str(ranks), sys.executable, *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=env, start_new_session=True, **pipes) as job:
        try:
            out, err = job.communicate(timeout=timeout)
        except BaseException:
            os.killpg(job.pid, signal.SIGKILL)  # ranks outlive their launcher, and would hold the pipes open
            raise
    return subprocess.CompletedProcess(command, job.returncode, out, err)
