"""Parts are the matrix, and the matrix is never whole in memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from fedfactor.core.errors import DataError
from fedfactor.io.split_files import open_grid, split_file

SRC = Path(__file__).resolve().parents[2] / "src"


@pytest.fixture(params=["dense", "packed", "plain"])
def source(request, tmp_path):
    X = sparse.random(23, 11, 0.4, format="csr", random_state=0)
    if request.param == "dense":
        np.save(tmp_path / "big.npy", X.toarray())
        return tmp_path / "big.npy", X
    sparse.save_npz(tmp_path / "big.npz", X, compressed=request.param == "packed")
    return tmp_path / "big.npz", X


def test_rows_come_back(source, tmp_path, monkeypatch):
    from fedfactor.io import split_files as split

    monkeypatch.setattr(split, "CHUNK", 7)  # many pieces
    path, X = source
    files = split_file(path, tmp_path / "parts", 3)
    load = np.load if path.suffix == ".npy" else sparse.load_npz
    whole = [load(file) for file in files]
    whole = [part if path.suffix == ".npy" else part.toarray() for part in whole]
    np.testing.assert_array_equal(np.vstack(whole), X.toarray())


def test_grids_come_back(source, tmp_path, monkeypatch):
    from fedfactor.io import split_files as split

    monkeypatch.setattr(split, "CHUNK", 7)
    path, X = source
    split_file(path, tmp_path / "parts", 3, grid=True)
    federation = open_grid(tmp_path / "parts")
    federation.prepare()
    dense = [federation.shard(name) for name in federation.names]
    rows = [shard.X.toarray() if sparse.issparse(shard.X) else shard.X for shard in dense]
    columns = [shard.columns.toarray() if sparse.issparse(shard.columns) else shard.columns for shard in dense]
    np.testing.assert_array_equal(np.vstack(rows), X.toarray())
    np.testing.assert_array_equal(np.hstack(columns), X.toarray())


def test_mistakes_are_told(tmp_path):
    np.save(tmp_path / "a.npy", np.ones((3, 4)))
    (tmp_path / "a.csv").write_text("x\n1\n")
    sparse.save_npz(tmp_path / "c.npz", sparse.csc_array(np.eye(3)))
    np.savez(tmp_path / "d.npz", X=np.eye(3))
    for name, parts, match in (
        ("b.npy", 2, "not there"),
        ("a.npy", 9, "9 parts"),
        ("a.csv", 1, "without reading it whole"),
        ("c.npz", 2, "another layout"),
        ("d.npz", 2, "no sparse matrix"),
    ):
        with pytest.raises(DataError, match=match):
            split_file(tmp_path / name, tmp_path / "parts", parts)
    split_file(tmp_path / "a.npy", tmp_path / "parts", 2)
    with pytest.raises(DataError, match="already holds parts"):
        split_file(tmp_path / "a.npy", tmp_path / "parts", 2)
    (tmp_path / "parts" / "grid.json").write_text("{}")
    with pytest.raises(DataError, match=r"grid\.json"):
        open_grid(tmp_path / "parts")


def test_a_cut_file_is_noticed(tmp_path):
    X = sparse.random(50, 20, 0.5, format="csr", random_state=0)
    bad = {"data": X.data[:-9], "indices": X.indices, "indptr": X.indptr, "shape": X.shape, "format": b"csr"}
    np.savez(tmp_path / "big.npz", **bad)
    with pytest.raises(DataError, match="cut short"):
        split_file(tmp_path / "big.npz", tmp_path / "parts", 2)


@pytest.mark.integration
def test_splitting_takes_little_memory(tmp_path):
    big = np.lib.format.open_memmap(tmp_path / "big.npy", "w+", np.float64, (20_000, 2_000))  # 320 MB, mostly holes
    big[::1000] = 1.0
    big.flush()
    code = (
        "import sys, resource, json\nfrom fedfactor.io.split_files import split_file\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "resource.setrlimit(resource.RLIMIT_DATA, (before * 1024 + 250_000_000,) * 2)\n"
        "files = split_file(sys.argv[1], sys.argv[2], 4)\nprint(json.dumps([f.name for f in files]))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "big.npy"), str(tmp_path / "parts")]
    env = {**os.environ, "PYTHONPATH": str(SRC), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [f"part-{i}.npy" for i in range(4)]
