"""The command line on real ranks."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy import sparse

from tests.mpi.launcher import SRC, mpiexec, needs_mpi

pytestmark = [pytest.mark.integration, needs_mpi()]


@pytest.fixture
def parts(tmp_path):
    rng = np.random.default_rng(0)
    X = sparse.random(120, 40, 0.2, format="csr", random_state=rng, dtype=np.float64)
    sparse.save_npz(tmp_path / "big.npz", X)
    return tmp_path


def fedfactor(folder, *words):
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-m", "fedfactor", *map(str, words)]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=120)


def test_split_fit_and_look(parts):
    assert fedfactor(parts, "split", "big.npz", "parts", "--parts", 4, "--grid").returncode == 0
    words = ["fit", "--engine", "mpi", "--algorithm", "dsanls", "--rank", 5, parts / "parts", "--seed", 1]
    words += ["--set", "iterations=10", "--set", "leak=ignore"]
    done = mpiexec(4, "-m", "fedfactor", *words, "-o", parts / "out", "--reduction", "ordered")
    assert done.returncode == 0, done.stderr
    assert "rank 3" in done.stdout
    V = load_file(parts / "out" / "shared" / "components.safetensors")["components"]
    assert V.shape == (5, 40)
    owners = sorted(path.name for path in (parts / "out" / "private").iterdir())
    assert owners == [f"part-{i}.safetensors" for i in range(4)]
    record = json.loads((parts / "out" / "shared" / "run.json").read_text())
    assert record["clients"] == 4
    assert sum(each["rows"] for each in record["owners"].values()) == 120
    page = (parts / "out" / "report.html").read_text()
    assert "part-3" in page
    assert "to look at" in done.stdout
    assert not (parts / "out" / "checkpoint").exists()
    local = fedfactor(parts, *words[:1], *words[3:], "-o", parts / "local", "--workers", 2)
    assert local.returncode == 0, local.stderr
    assert np.array_equal(V, load_file(parts / "local" / "shared" / "components.safetensors")["components"])


def test_the_command_starts_its_own_ranks_and_goes_on_after_a_kill(parts):
    assert fedfactor(parts, "split", "big.npz", "parts", "--parts", 2).returncode == 0
    words = ["fit", "--engine", "mpi", "--ranks", 2, "parts", "-k", 4, "-o", "out", "--seed", 3, "--tol", 0]
    words += ["--rounds", 4000, "--checkpoint-every", 5]
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    command = [sys.executable, "-m", "fedfactor", *map(str, words)]
    job = subprocess.Popen(command, cwd=parts, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    folder = parts / "out" / "checkpoint"
    deadline = time.monotonic() + 60
    while len(list(folder.glob("round-*"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    victim = _child(job.pid)
    os.kill(victim, signal.SIGKILL)
    began = time.monotonic()
    _, said = job.communicate(timeout=60)
    assert time.monotonic() - began < 20
    assert job.returncode != 0
    assert "a rank ended, so the whole job was ended" in said
    assert "The same command goes on from round" in said
    short = [_saved(folder) + 5 if word == 4000 else word for word in words]
    done = fedfactor(parts, *short)
    assert done.returncode == 0, done.stderr
    assert "going on from round" in done.stderr


def _saved(folder):
    return max(int(path.name.split(".")[0][6:]) for path in folder.glob("round-*"))


def _child(pid):
    """Find one rank of a job: a Python below the launcher."""
    import psutil

    ranks = [each for each in psutil.Process(pid).children(recursive=True) if "-m" in each.cmdline()]
    ranks = [each for each in ranks if "mpiexec" not in each.cmdline()[0] and "hydra" not in each.cmdline()[0]]
    return ranks[-1].pid


def test_a_rank_that_cannot_write_ends_the_job_and_the_same_command_goes_on(parts):
    assert fedfactor(parts, "split", "big.npz", "parts", "--parts", 2).returncode == 0
    words = ["fit", "--engine", "mpi", "-k", 4, parts / "parts", "-o", parts / "out", "--rounds", 5, "--seed", 3]
    blocked = parts / "out" / "private" / "part-1.safetensors"
    (blocked / "in the way").mkdir(parents=True)
    done = mpiexec(2, "-m", "fedfactor", *words, timeout=60)
    assert done.returncode == 2
    assert "part-1.safetensors" in done.stderr
    assert "(rank 1)" in done.stderr
    (blocked / "in the way").rmdir()
    blocked.rmdir()
    done = mpiexec(2, "-m", "fedfactor", *words, timeout=60)
    assert done.returncode == 0, done.stderr
    assert load_file(blocked)["U"].shape == (60, 4)


def test_a_mistake_is_told_once(parts):
    files = [parts / "nothing.npy", parts / "big.npz"]
    done = mpiexec(2, "-m", "fedfactor", "fit", "--engine", "mpi", "-k", 3, *files, "-o", parts / "out")
    assert done.returncode == 2
    assert done.stderr.count("Error:") == 1
    assert "nothing.npy" in done.stderr
    words = ["fit", "--engine", "mpi", "-k", 3, parts / "big.npz", "--parts", 1, "-o", parts / "out"]
    done = mpiexec(2, "-m", "fedfactor", *words)
    assert done.returncode == 2
    assert done.stderr.count("Error:") == done.stderr.count("only 1 owners") == 1


@pytest.mark.parametrize("kind", ["npz", "npy", "parquet"])
def test_ranks_share_one_file_and_give_the_bits_of_a_local_run(parts, kind):
    X = sparse.load_npz(parts / "big.npz").toarray()
    if kind == "npy":
        np.save(parts / "big.npy", X)
    elif kind == "parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(
            pa.table({f"g{j}": X[:, j] for j in range(X.shape[1])}), parts / "big.parquet", row_group_size=32
        )
    words = ["fit", parts / f"big.{kind}", "-k", 3, "--rounds", 4, "--seed", 1]
    done = mpiexec(2, "-m", "fedfactor", *words, "--engine", "mpi", "--reduction", "ordered", "-o", parts / "ranks")
    assert done.returncode == 0, done.stderr
    assert "2, 2 owners" in done.stdout
    local = fedfactor(parts, *words, "--parts", 2, "-o", parts / "local", "--no-report")
    assert local.returncode == 0, local.stderr
    for part in ("shared/components", "private/big-0", "private/big-1"):
        ours, theirs = (load_file(parts / way / f"{part}.safetensors") for way in ("ranks", "local"))
        for key in theirs:
            assert np.array_equal(ours[key], theirs[key]), (part, key)


def test_a_launcher_without_the_engine_is_refused(parts):
    done = mpiexec(2, "-m", "fedfactor", "fit", parts / "big.npz", "-k", 3, "-o", parts / "out")
    assert done.returncode != 0
    assert "A launcher (mpiexec or srun) started 2 of these commands" in done.stderr
    assert "--engine mpi" in done.stderr
    assert not (parts / "out").exists()


def test_ranks_choose_the_number_of_components_as_one_process_does(parts):
    assert fedfactor(parts, "split", "big.npz", "parts", "--parts", 2).returncode == 0
    words = ["rank", parts / "parts", "-k", "1-3", "--repeats", 1, "--rounds", 4, "--seed", 1]
    done = mpiexec(2, "-m", "fedfactor", *words, "--engine", "mpi", "-o", parts / "ranks.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Recommended rank") == 1
    assert fedfactor(parts, *words, "-o", parts / "local.json").returncode == 0
    assert json.loads((parts / "ranks.json").read_text()) == json.loads((parts / "local.json").read_text())
