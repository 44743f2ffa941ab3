"""The command as a user starts it: a process that can be interrupted, killed, and started again."""

from __future__ import annotations

import json
import signal
import time

import numpy as np
import pytest
from scipy import io, sparse

import fedfactor
from fedfactor.algorithms import PooledNMF
from fedfactor.cli.run_folder import Place
from fedfactor.io.result_folder import read_components

pytestmark = pytest.mark.integration

LONG = ("-k", 3, "--tol", 0, "--rounds", 300, "--checkpoint-every", 1)
BARE = "--no-report"  # which takes longer to draw than the run itself


@pytest.mark.parametrize("backend", ["threads", "processes"])
def test_fit_gives_what_python_gives(shell, files, tmp_path, rows, backend):
    out = tmp_path / "out"
    done = shell(
        "fit", files, "-k", 3, "--seed", 2, "--rounds", 9, "-o", out, "--backend", backend, "--workers", 2, BARE
    )
    assert done.returncode == 0, done.stderr
    run = fedfactor.run(PooledNMF(3), rows, rounds=9, seed=2)
    np.testing.assert_allclose(read_components(out)[0], run.V, rtol=1e-10, atol=1e-12)


def test_fit_reads_matrix_market(shell, tmp_path, rows):
    for name, X in rows.items():
        io.mmwrite(tmp_path / f"{name}.mtx", sparse.coo_array(X), precision=17)
    done = shell("fit", tmp_path, "-k", 3, "--seed", 2, "--rounds", 9, "-o", tmp_path / "out", BARE)
    assert done.returncode == 0, done.stderr
    run = fedfactor.run(PooledNMF(3), rows, rounds=9, seed=2)
    np.testing.assert_allclose(read_components(tmp_path / "out")[0], run.V, rtol=1e-10, atol=1e-12)


def begin(shell, files, out):
    """Start a long run, and return once its first checkpoint is there."""
    # Python leaves an ignored Ctrl-C ignored, and a shell ignores it for what it starts in the background.
    usual = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.default_int_handler)}
    process = shell("fit", files, *LONG, "-o", out, wait=False, **usual)
    limit = time.monotonic() + 60
    while not (out / "checkpoint" / "run.safetensors").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit
        time.sleep(0.002)
    return process


def finish(shell, files, out, tmp_path):
    """Start the same command again; the result must have the bits of a run that nobody disturbed."""
    done = shell("fit", files, *LONG, "-o", out, BARE)
    assert done.returncode == 0, done.stderr
    assert "going on from round" in done.stderr
    assert not (out / "checkpoint").exists()
    seed = json.loads((out / "shared" / "run.json").read_text())["seed"]
    calm = shell("fit", files, *LONG, "-o", tmp_path / "calm", "--seed", seed, BARE)
    assert calm.returncode == 0, calm.stderr
    np.testing.assert_array_equal(read_components(out)[0], read_components(tmp_path / "calm")[0])


def test_a_killed_run_goes_on(shell, files, tmp_path):
    out = tmp_path / "out"
    process = begin(shell, files, out)
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (out / "shared" / "components.safetensors").exists()
    finish(shell, files, out, tmp_path)


def test_an_interrupted_run_says_how_to_go_on(shell, files, tmp_path):
    out = tmp_path / "out"
    process = begin(shell, files, out)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Give the same command again, without --overwrite, to go on from round" in said
    assert "Traceback" not in said
    about = shell("info", out)
    assert "Unfinished run" in about.stdout
    finish(shell, files, out, tmp_path)


def test_an_interrupted_run_leaves_the_result_so_far(shell, files, tmp_path):
    out = tmp_path / "out"
    process = begin(shell, files, out)
    limit = time.monotonic() + 60
    while Place(out).saved()[1] == 0:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "The result of the first" in said
    model = fedfactor.load(out)
    assert model.run_.status == "stopped"
    assert model.run_.rounds == Place(out).saved()[1] > 0
    assert (out / "report.html").exists()
    finish(shell, files, out, tmp_path)


def test_another_run_is_not_taken_up(shell, files, tmp_path):
    out = tmp_path / "out"
    process = begin(shell, files, out)
    process.kill()
    process.communicate()
    other = shell("fit", files, "-k", 2, "-o", out)
    assert other.returncode == 2
    assert "belongs to another run" in other.stderr
    assert "--overwrite" in other.stderr
    assert (out / "checkpoint").exists()
    anew = shell("fit", files, "-k", 2, "-o", out, "--overwrite", "-q", BARE)
    assert (anew.returncode, anew.stdout, anew.stderr) == (0, "", "")


def test_version_and_help(shell):
    assert shell("--version").stdout.startswith("fedfactor ")
    said = shell("--help").stdout
    assert all(command in said for command in ("fit", "demo", "transform", "info"))
