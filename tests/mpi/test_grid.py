"""Blocks on a grid of real ranks: the factors of one process, and each rank with its own block, lines and bytes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file
from scipy import sparse

from tests.mpi.launcher import mpiexec, needs_mpi

pytestmark = [pytest.mark.integration, needs_mpi()]


@pytest.mark.parametrize("ranks", [4, 6])
def test_a_grid_of_ranks_gives_the_factors_of_the_local_engine(ranks):
    done = mpiexec(ranks, Path(__file__).parent / "job_grid.py", timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == 5 * len([p for p in range(1, ranks + 1) if ranks % p == 0]) + 1
    for what, each in found.items():
        assert each["same"], what
        assert each["apart"] <= (1e-9 if "allreduce" in what else 0), what
        assert each["error"] <= 1e-12, what
        for blocks in each["held"]:
            assert len(blocks) == (2 if what == "shared" else 1), what  # each rank has its own, and no other
        if "allreduce" in what:  # to the byte, but for what ranks tell each other before and after the rounds
            beyond = {sent - wire for sent, wire in zip(each["sent"], each["wire"], strict=True)}
            assert max(beyond) - min(beyond) < 200, what
            assert max(beyond) < 600, what


@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_each_rank_reads_its_block_of_one_file(kind, tmp_path):
    X = sparse.random_array((60, 40), density=0.3, format="csr", rng=np.random.default_rng(0))
    np.save(tmp_path / "big.npy", X.toarray())
    sparse.save_npz(tmp_path / "big.npz", X)
    words = ["fit", tmp_path / f"big.{kind}", "-a", "grid-nmf", "-k", 3, "--rounds", 7, "--seed", 1]
    done = mpiexec(
        6, "-m", "fedfactor", *words, "--engine", "mpi", "--reduction", "ordered", "-o", tmp_path / "ranks", timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "6, 6 owners" in done.stdout
    local = mpiexec(1, "-m", "fedfactor", *words, "--parts", "3x2", "-o", tmp_path / "local", timeout=300)
    assert local.returncode == 0, local.stderr
    kept = sorted(path.name for path in (tmp_path / "ranks" / "private").glob("*.safetensors"))
    assert kept == ["big-0-0.safetensors", "big-1-0.safetensors", "big-2-0.safetensors"]  # each row once
    for part in ("shared/components.safetensors", *(f"private/{name}" for name in kept)):
        ours, theirs = (load_file(tmp_path / way / part) for way in ("ranks", "local"))
        for key in theirs:
            assert np.array_equal(ours[key], theirs[key]), (part, key)
    for way in ("ranks", "local"):
        record = json.loads((tmp_path / way / "shared" / "run.json").read_text())
        assert sum(each["rows"] for each in record["owners"].values()) == 60
        assert "big-2-0" in (tmp_path / way / "report.html").read_text()


def test_a_killed_grid_goes_on_with_the_same_bits(tmp_path):
    job = Path(__file__).parent / "job_grid_resume.py"
    whole = mpiexec(4, job, tmp_path / "whole", 12, 12)
    assert whole.returncode == 0, whole.stderr
    broken = mpiexec(4, job, tmp_path / "kept", 12, 7)
    assert broken.returncode != 0
    again = mpiexec(4, job, tmp_path / "kept", 12, 12)
    assert again.returncode == 0, again.stderr
    assert again.stdout == whole.stdout


def test_who_may_stay_away_or_distrusts_is_refused(tmp_path):
    code = (
        "import numpy as np, fedfactor\n"
        "from fedfactor.algorithms import GridNMF\n"
        "from fedfactor.core.grid import block_federation\n"
        "from fedfactor.engines.mpi.engine import MPIEngine\n"
        "for way in ({'drop_outs': True}, {'trusted': False}):\n"
        "    try:\n"
        "        fedfactor.run(GridNMF(2), block_federation(np.ones((6, 6)), (1, 2)), engine=MPIEngine(**way))\n"
        "    except fedfactor.core.errors.IncompatibleError as error:\n"
        "        assert 'every client must come to every round' in str(error), error\n"
        "    else:\n"
        "        raise AssertionError(way)\n"
    )
    done = mpiexec(1, "-c", code)
    assert done.returncode == 0, done.stderr
