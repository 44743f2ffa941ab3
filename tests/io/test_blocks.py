"""One file, read in blocks of rows: the blocks together are the file, and each reads its own rows."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

from fedfactor.core.errors import DataError
from fedfactor.data import open_blocks, read
from fedfactor.io.file_content import Reading

X = sparse.random_array((23, 7), density=0.4, format="csr", rng=np.random.default_rng(0))
NAMES = [f"g{j}" for j in range(7)]
IDS = [f"cell {i}" for i in range(23)]


def npy(path):
    np.save(path, X.toarray())


def npz(path):
    sparse.save_npz(path, X)


def npz_unpacked(path):
    sparse.save_npz(path, X, compressed=False)


def parquet(path):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns = {"cell_id": pa.array(IDS), **{name: pa.array(X.toarray()[:, j]) for j, name in enumerate(NAMES)}}
    pq.write_table(pa.table(columns), path, row_group_size=5)


def h5ad(path, matrix=None, **options):
    anndata, pd = pytest.importorskip("anndata"), pytest.importorskip("pandas")
    with pd.option_context("future.infer_string", False):
        made = anndata.AnnData(
            sparse.csr_matrix(X) if matrix is None else matrix,
            obs=pd.DataFrame(index=pd.Index(IDS, dtype=object)),
            var=pd.DataFrame(index=pd.Index(NAMES, dtype=object)),
        )
        made.write_h5ad(path, **options)


def h5ad_dense(path):
    h5ad(path, X.toarray())


def h5ad_packed(path):
    h5ad(path, X.toarray(), compression="gzip")


def h5ad_sparse_packed(path):
    h5ad(path, compression="gzip")


def h5(path, **options):
    h5py = pytest.importorskip("h5py")
    with h5py.File(path, "w") as file:
        file.create_dataset("counts", data=X.toarray(), **options)
        file["features"], file["rows"] = NAMES, IDS


def h5_packed(path):
    h5(path, chunks=(5, 7), compression="gzip")


KINDS = {
    "h5": h5, "packed.h5": h5_packed,
    "npy": npy, "npz": npz, "unpacked.npz": npz_unpacked, "parquet": parquet, "h5ad": h5ad, "dense.h5ad": h5ad_dense,
    "packed.h5ad": h5ad_packed, "sparse.packed.h5ad": h5ad_sparse_packed,
}  # fmt: skip
SLOW = {kind for kind in KINDS if "h5" in kind}  # each block is read in a process of its own


def dense(matrix):
    return matrix.toarray() if sparse.issparse(matrix) else np.asarray(matrix)


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.slow if kind in SLOW else ()) for kind in KINDS])
@pytest.mark.parametrize("parts", [1, 4])
def test_blocks_together_are_the_file(kind, parts, tmp_path):
    path = tmp_path / f"big.{kind}"
    KINDS[kind](path)
    blocks, whole = open_blocks(path, parts), read(path)
    shards = [blocks.shard(name) for name in blocks.names]
    assert [shard.n_rows for shard in shards] == ([23] if parts == 1 else [6, 6, 6, 5])
    assert {shard.features for shard in shards} == {whole.features}
    assert np.array_equal(np.vstack([dense(shard.X) for shard in shards]), dense(whole.X))
    ids = [each for shard in shards for each in shard.row_ids or ()]
    assert ids == list(whole.row_ids or ())


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.slow if kind in SLOW else ()) for kind in KINDS])
@pytest.mark.parametrize("grid", [(2, 3), (24, 1), (1, 8)])  # the last two have empty blocks
def test_blocks_of_a_grid_are_cut_out_of_the_file(kind, grid, tmp_path):
    if kind in SLOW and grid != (2, 3):
        pytest.skip("each piece is read in a process of its own")
    path = tmp_path / f"big.{kind}"
    KINDS[kind](path)
    blocks, whole = open_blocks(path, grid), read(path)
    shards = [blocks.shard(name) for name in blocks.names]
    assert [shard.place for shard in shards] == [(i, j) for i in range(grid[0]) for j in range(grid[1])]
    assert sum(dense(shard.X).size for shard in shards) == 23 * 7
    for shard in shards:
        first, last, left, right = shard.bounds
        assert np.array_equal(dense(shard.X), dense(whole.X)[first:last, left:right])
        assert shard.X.dtype == whole.X.dtype
        assert not isinstance(shard.X, np.memmap)
        assert (shard.features, shard.n_features) == (whole.features, 7)
        assert (shard.row_ids or ()) == (whole.row_ids or ())[first:last]


def test_blocks_of_a_grid_take_no_steps_and_no_gaps(tmp_path):
    npy(tmp_path / "a.npy")
    for words in ({"steps": ["log1p"]}, {"reading": Reading(missing_values=np.nan)}):
        with pytest.raises(DataError, match="Blocks of a grid have no whole rows"):
            open_blocks(tmp_path / "a.npy", (2, 2), **words)


def test_a_block_of_parquet_reads_its_own_row_groups(tmp_path, monkeypatch):
    pq = pytest.importorskip("pyarrow.parquet")
    parquet(tmp_path / "big.parquet")
    read_groups = []
    original = pq.ParquetFile.read_row_group
    monkeypatch.setattr(
        pq.ParquetFile, "read_row_group", lambda self, i, **k: read_groups.append(i) or original(self, i, **k)
    )
    open_blocks(tmp_path / "big.parquet", 2).shard("big-1")
    assert set(read_groups) == {2, 3, 4}  # rows 12 to 22 in groups of five


def test_a_sparse_block_holds_its_own_cells_alone(tmp_path):
    npz(tmp_path / "big.npz")
    shard = open_blocks(tmp_path / "big.npz", 4).shard("big-2")
    assert shard.X.data.base is None or shard.X.data.base.size <= 8 * X[12:18].nnz
    assert shard.X.nnz == X[12:18].nnz


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["npy", "npz"])
def test_a_block_of_a_grid_takes_little_more_memory_than_itself(kind, tmp_path):
    big = np.random.default_rng(0).random((4000, 5000))
    if kind == "npy":
        np.save(tmp_path / "big.npy", big)
    else:
        sparse.save_npz(tmp_path / "big.npz", sparse.csr_array(big), compressed=False)
    code = (
        "import resource, sys\n"
        "from fedfactor.data import open_blocks\n"
        "federation = open_blocks(sys.argv[1], (2, 4))\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "X = federation.shard('big-1-2').X\n"
        "held = X.nbytes if hasattr(X, 'nbytes') else X.data.nbytes + X.indices.nbytes + X.indptr.nbytes\n"
        "print(held, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path / f"big.{kind}"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    held, grown = map(int, done.stdout.split())
    assert held == pytest.approx(big.nbytes / 8 * (1 if kind == "npy" else 1.5), rel=0.01)
    assert grown < 4.5 * held  # the rows of this line of the grid are four times the block, the file eight times


@pytest.mark.parametrize("name", ["a.csv", "a.mtx"])
def test_formats_that_must_be_read_from_the_start_are_refused(name, tmp_path):
    (tmp_path / name).write_text("a,b\n1,2\n3,4\n")
    with pytest.raises(DataError, match=r"cannot be read in parts.*\.npy, a CSR"):
        open_blocks(tmp_path / name, 2)


def test_more_blocks_than_rows_are_refused(tmp_path):
    npy(tmp_path / "a.npy")
    with pytest.raises(DataError, match="has 23 rows, which cannot be cut into 24 parts"):
        open_blocks(tmp_path / "a.npy", 24)


@pytest.mark.slow
def test_a_matrix_stored_by_columns_is_refused(tmp_path):
    h5ad(tmp_path / "a.h5ad", sparse.csc_matrix(X))
    with pytest.raises(DataError, match="stored by columns"):
        open_blocks(tmp_path / "a.h5ad", 2)
