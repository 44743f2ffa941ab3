"""Rows in files: fetched ahead of use, the same bits as in memory, and no copy of them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading

import numpy as np
import pytest
from scipy import sparse

import fedfactor
from fedfactor.algorithms import PooledNMF
from fedfactor.core import memory_mapped as mapped
from fedfactor.io import scratch_files as scratch
from fedfactor.linalg.single_pass import one_pass


@pytest.fixture
def small_is_worth_it(monkeypatch):
    """Let the fetching thread run for small files, and say when it did."""
    monkeypatch.setattr(mapped, "WORTH", 0)
    seen = []
    touch = mapped._Ahead._touch
    monkeypatch.setattr(mapped._Ahead, "_touch", lambda ahead, array: seen.append(array.nbytes) or touch(ahead, array))
    return seen


def saved(folder, X, name="x.npy"):
    np.save(folder / name, X)
    return np.load(folder / name, mmap_mode="r")


def test_views_of_a_file_are_known(tmp_path):
    X = saved(tmp_path, np.ones((4, 3)))
    assert mapped.is_mapped(X)
    assert mapped.is_mapped(np.asarray(X)[1:].T)
    assert not mapped.is_mapped(np.array(X))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_mapped_matrix_gives_the_bits_of_memory(tmp_path, small_is_worth_it, dtype):
    X = np.random.default_rng(0).random((700, 300)).astype(dtype)
    V, U = np.random.default_rng(1).random((5, 300)).astype(dtype), np.zeros((700, 5), dtype)
    here, there = one_pass(X, V, U, sweeps=3), one_pass(saved(tmp_path, X), V, U, sweeps=3)
    for a, b in zip(here, there, strict=True):
        assert np.array_equal(a, b)
    assert sum(small_is_worth_it) == X.nbytes


def test_every_second_pass_goes_backwards(tmp_path):
    X = saved(tmp_path, np.ones((4, 3)))
    assert {tuple(mapped.in_turn(3, [X])) for _ in range(2)} == {(0, 1, 2), (2, 1, 0)}


def test_mapped_stored_cells_give_the_bits_of_memory(tmp_path, small_is_worth_it):
    X = sparse.random_array((900, 40), density=0.4, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
    parts = [saved(tmp_path, part, f"{i}.npy") for i, part in enumerate((X.data, X.indices, X.indptr))]
    M = sparse.csr_array(tuple(parts), shape=X.shape)
    V, U = np.random.default_rng(1).random((5, 40)).astype("f4"), np.zeros((900, 5), "f4")
    for a, b in zip(one_pass(X, V, U, sweeps=3), one_pass(M, V, U, sweeps=3), strict=True):
        assert np.array_equal(a, b)
    assert sum(small_is_worth_it) == X.data.nbytes + X.indices.nbytes


def test_a_run_reads_ahead_and_leaves_no_thread(tmp_path, small_is_worth_it):
    X = np.random.default_rng(0).random((600, 80)).astype("f4")
    here = fedfactor.run(PooledNMF(3), {"a": X}, rounds=3, seed=0)
    there = fedfactor.run(PooledNMF(3), {"a": saved(tmp_path, X)}, rounds=3, seed=0)
    assert np.array_equal(here.V, there.V)
    assert sum(small_is_worth_it) >= 5 * X.nbytes  # the look at the values, the norm, three rounds
    assert not [each for each in threading.enumerate() if "read-ahead" in each.name]


def test_who_works_on_a_part_may_fail(tmp_path, small_is_worth_it):
    X = saved(tmp_path, np.ones((8, 3)))

    def work():
        with mapped.read_ahead(8, lambda i: [X[i]]) as arrive:
            arrive(0)
            raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        work()
    assert not [each for each in threading.enumerate() if "read-ahead" in each.name]


def test_a_wrong_value_in_a_file_is_found(tmp_path, small_is_worth_it):
    X = np.ones((50, 3))
    X[41, 2] = np.nan
    with pytest.raises(fedfactor.DataError, match=r"NaN.*row 41, column 2"):
        fedfactor.run(PooledNMF(1), {"a": saved(tmp_path, X)}, rounds=1, seed=0)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_large_dense_archive_is_kept_on_disk(tmp_path, monkeypatch, save):
    monkeypatch.setattr(scratch, "_SHARE", 1 << 60)
    X = np.random.default_rng(0).random((30, 4))
    save(tmp_path / "x.npz", X=X)
    found = fedfactor.read(tmp_path / "x.npz").X
    assert mapped.is_mapped(found)
    assert np.array_equal(found, X)
    save(tmp_path / "f.npz", X=np.asfortranarray(X))
    assert np.array_equal(fedfactor.read(tmp_path / "f.npz").X, X)


@pytest.mark.parametrize("compressed", [False, True])
def test_a_large_sparse_archive_is_kept_on_disk(tmp_path, monkeypatch, compressed):
    monkeypatch.setattr(scratch, "_SHARE", 1 << 60)
    X = sparse.random_array((60, 9), density=0.3, format="csr", rng=np.random.default_rng(0))
    sparse.save_npz(tmp_path / "x.npz", X, compressed=compressed)
    found = fedfactor.read(tmp_path / "x.npz").X
    assert mapped.is_mapped(found.data)
    assert mapped.is_mapped(found.indices)
    assert (found != X).nnz == 0


def test_cells_stored_twice_in_a_large_archive_are_added_up(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch, "_SHARE", 1 << 60)
    X = sparse.csr_array((np.array([1.0, 2.0]), np.array([1, 1]), np.array([0, 2])), shape=(1, 3))
    sparse.save_npz(tmp_path / "x.npz", X, compressed=False)
    assert fedfactor.read(tmp_path / "x.npz").X.toarray().tolist() == [[0, 3, 0]]


def test_a_large_parquet_file_is_kept_on_disk(tmp_path, monkeypatch):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    X = np.random.default_rng(0).random((50, 3))
    table = pa.table({name: X[:, j] for j, name in enumerate("abc")})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=8)
    monkeypatch.setattr(scratch, "_SHARE", 1 << 60)
    found = fedfactor.read(tmp_path / "x.parquet")
    assert mapped.is_mapped(found.X)
    assert found.features == ("a", "b", "c")
    assert np.array_equal(found.X, X)


@pytest.mark.slow
def test_rows_in_a_file_take_no_memory_of_their_own(tmp_path):
    """Scaled down from 40 GB: what is held in memory is far less than the file."""
    command = [sys.executable, "-m", "benchmarks.out_of_core", "--gigabytes", "0.5", "--folder", str(tmp_path)]
    done = subprocess.run([*command, "--columns", "2000", "--rounds", "4"], capture_output=True, text=True, check=True)
    told = json.loads(done.stdout[done.stdout.index("{") :])
    assert told["peak_anonymous"] < 0.3e9 + told["before"]
    assert told["relative_error"] < 0.2
    assert not list(tmp_path.iterdir())
