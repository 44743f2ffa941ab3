from __future__ import annotations

import json

import numpy as np
import pytest

from fedfactor.algorithms import PooledNMF
from fedfactor.cli import app
from fedfactor.cli.run_summary import uploads
from fedfactor.core.algorithm import Meta
from tests.command_line import CliRunner


def call(*words, code=0):
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, done.output
    return done


def test_inspect_lists_all_problems(tmp_path):
    lines = [f"P{i:02d},{5 + i % 3},{1 + i},,nothing" for i in range(30)]
    lines[3] = "P02,-1,4,,odd"
    lines[7] = "P07,999999,8,,fine"
    (tmp_path / "north.csv").write_text("\n".join(["patient_id,crp,ldl,ferritin,notes", *lines]) + "\n")
    said = call("inspect", tmp_path / "north.csv").stdout
    assert "Row ids repeat: 'P02' in 'patient_id'" in said
    assert "Negative cells in 'crp' (1, the least -1)" in said
    assert "'ferritin' is empty" in said
    assert "Not numbers: notes" in said
    assert "'crp' at 'this file' has 1e+06" in said


def test_visits_of_one_patient_may_share_an_id(tmp_path):
    rng = np.random.default_rng(0)
    lines = [f"{i // 2},{a:.3f},{b:.3f}" for i, (a, b) in enumerate(rng.random((20, 2)))]
    (tmp_path / "a.csv").write_text("\n".join(["mrn,crp,ldl", *lines]) + "\n")
    call("fit", tmp_path / "a.csv", "-k", 1, "-o", tmp_path / "o", "-q", code=2)
    call("fit", tmp_path / "a.csv", "-k", 1, "-o", tmp_path / "o", "-q", "--repeated-ids", "--no-report")


@pytest.fixture
def cells(tmp_path):
    h5py = pytest.importorskip("h5py")
    rng = np.random.default_rng(0)
    counts = rng.poisson(rng.gamma(0.5, size=(40, 2)) @ rng.gamma(0.5, size=(2, 12)) * 4).astype(np.float32)
    with h5py.File(tmp_path / "basel.h5ad", "w") as file:
        file["X"] = np.log1p(counts)
        file["layers/counts"] = counts
        for name, kind, n in (("obs", "cell", 40), ("var", "gene", 12)):
            group = file.create_group(name)
            group.attrs["_index"] = "_index"
            group["_index"] = [f"{kind}{i}".encode() for i in range(n)]
    return tmp_path / "basel.h5ad"


def test_suggested_commands_repeat_the_layer_and_the_loss(cells):
    said = call("inspect", cells, "--layer", "counts").stdout
    commands = [line for line in said.splitlines() if line.strip().startswith("fedfactor ")]
    assert commands
    assert all("--layer counts" in line for line in commands)
    assert all("loss=kullback-leibler" in line for line in commands if " rank " in line)
    shared = said.partition("What would be sent")[2]
    meta = Meta(12, ("you", "another"), "float32", False)
    for line in uploads(PooledNMF(5, loss="kullback-leibler"), meta):
        assert line.replace("Each owner sent", "You would send") in shared


def test_transform_uses_the_layer_of_the_fit(cells, tmp_path):
    path = cells
    words = ("--layer", "counts", "--set", "loss=kullback-leibler", "-k", 2, "--seed", 0, "-q", "--no-report")
    call("fit", path, *words, "-o", tmp_path / "o")
    record = json.loads((tmp_path / "o" / "shared" / "run.json").read_text())
    assert record["asked"]["layer"] == "counts"
    call("transform", tmp_path / "o", path, "-o", tmp_path / "u.npy")
    call("transform", tmp_path / "o", path, "--layer", "counts", "-o", tmp_path / "named.npy")
    assert np.array_equal(np.load(tmp_path / "u.npy"), np.load(tmp_path / "named.npy"))
