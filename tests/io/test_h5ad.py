"""AnnData in and out."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import fedfactor
from fedfactor import DataError
from fedfactor.cli import app
from fedfactor.data import read
from fedfactor.io.result_folder import read_components
from tests.command_line import CliRunner

anndata = pytest.importorskip("anndata")
h5py = pytest.importorskip("h5py")
import pandas as pd  # noqa: E402

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def plain_strings():
    with pd.option_context("future.infer_string", False):  # anndata 0.12 cannot write the strings of pandas 3
        yield


def cells(kind=np.asarray, n=30, m=8):
    rng = np.random.default_rng(0)
    X = rng.poisson(1.0, (n, 2)) @ rng.random((2, m)) + rng.random((n, m)) * (rng.random((n, m)) < 0.3)
    names = {"obs": [f"cell{i}" for i in range(n)], "var": [f"gene{j}" for j in range(m)]}
    made = anndata.AnnData(
        kind(X.astype(np.float32)),
        obs=pd.DataFrame({"batch": ["a"] * n}, index=names["obs"]),
        var=pd.DataFrame(index=names["var"]),
    )
    made.layers["counts"] = kind(np.round(X).astype(np.float32))
    return made


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix, sparse.csc_matrix], ids=["dense", "csr", "csc"])
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_it_is_read_as_anndata_reads_it(tmp_path, kind, compression):
    made = cells(kind)
    made.write_h5ad(tmp_path / "a.h5ad", compression=compression)
    for layer, expected in ((None, made.X), ("counts", made.layers["counts"])):
        for source in (tmp_path / "a.h5ad", made):
            table = read(source, layer=layer)
            got = table.X.toarray() if sparse.issparse(table.X) else table.X
            np.testing.assert_array_equal(got, expected.toarray() if sparse.issparse(expected) else expected)
            assert table.features == tuple(made.var_names)
            assert table.row_ids == tuple(made.obs_names)
    if kind is np.asarray and compression is None:
        assert isinstance(read(tmp_path / "a.h5ad").X, np.memmap)  # not read until it is used
    assert read(tmp_path / "a.h5ad", columns=["gene1", "gene3"]).features == ("gene1", "gene3")


def test_an_estimator_takes_it_as_it_is():
    made = cells(sparse.csr_matrix)
    model = fedfactor.PooledNMF(2, random_state=0).fit(made)
    assert list(model.feature_names_in_) == list(made.var_names)
    turned = made[:, ::-1]
    np.testing.assert_allclose(model.transform(turned), model.transform(made), atol=1e-5)
    federation = fedfactor.Federation({"a": made, "b": turned})
    assert federation.shard("a").row_ids == tuple(made.obs_names)
    federation.prepare()


def test_factors_go_back_where_scanpy_looks(tmp_path):
    made = cells(sparse.csr_matrix)
    for name, rows in (("a", slice(0, 15)), ("b", slice(15, 30))):
        made[rows].write_h5ad(tmp_path / f"{name}.h5ad")
    call = CliRunner().invoke
    words = ["fit", *(str(tmp_path / f"{name}.h5ad") for name in "ab"), "-k", "2", "--rounds", "30", "--seed", "0"]
    done = call(app, [*words, "--library-size", "100", "--log1p", "-o", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    assert "15 rows × 8 columns" in done.stderr
    done = call(app, ["transform", str(tmp_path / "out"), str(tmp_path / "a.h5ad"), "-o", str(tmp_path / "u.h5ad")])
    assert done.exit_code == 0, done.output
    found = anndata.read_h5ad(tmp_path / "u.h5ad")
    assert found.obsm["X_fedfactor"].shape == (15, 2)
    np.testing.assert_array_equal(found.varm["fedfactor"].T, read_components(tmp_path / "out")[0])
    assert found.uns["fedfactor"]["algorithm"] == "PooledNMF"
    assert list(found.obs["batch"]) == ["a"] * 15  # what was there stays
    assert (tmp_path / "u.h5ad").stat().st_mode & 0o777 == 0o600
    pd.DataFrame(made.X.toarray(), made.obs_names, made.var_names).to_csv(tmp_path / "t.csv", index_label="cell")
    done = call(app, ["transform", str(tmp_path / "out"), str(tmp_path / "t.csv"), "-o", str(tmp_path / "n.h5ad")])
    assert done.exit_code == 0, done.output
    fresh = anndata.read_h5ad(tmp_path / "n.h5ad")
    np.testing.assert_allclose(fresh.obsm["X_fedfactor"][:15], found.obsm["X_fedfactor"], atol=1e-5)
    assert list(fresh.obs_names) == list(made.obs_names)


def test_wrong_files(tmp_path):
    path = tmp_path / "a.h5ad"
    path.write_bytes(b"no hdf5 here")
    with pytest.raises(DataError, match=r"not a readable \.h5ad"):
        read(path)
    cells().write_h5ad(path)
    with pytest.raises(DataError, match=r"has no 'layers/raw'.*--layer"):
        read(path, layer="raw")
    with h5py.File(path, "r+") as file:
        del file["X"]
        file["X"] = h5py.ExternalLink("/etc/hostname", "/x")
    with pytest.raises(DataError, match="a link to somewhere else"):
        read(path)
    with h5py.File(path, "r+") as file:
        del file["X"]
        file.create_dataset("X", (10**6, 10**6), "f8", chunks=(1000, 1000), compression="gzip")
    with pytest.raises(DataError, match="unfolds to"):
        read(path)
    with h5py.File(path, "r+") as file:
        del file["X"]
        group = file.create_group("X")
        group.attrs["encoding-type"], group.attrs["shape"] = "csr_matrix", (30, 8)
        group["data"], group["indices"], group["indptr"] = np.ones(2), np.array([0, 99]), np.r_[0, np.full(30, 2)]
    with pytest.raises(DataError, match=r"not a (readable|sound)"):
        read(path)


def test_names_that_were_never_written_are_counted_before_they_are_read(tmp_path):
    """A file of 10 kB that names 30 million cells asked for gigabytes, name by name."""
    n = 30_000_000
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        X = file.create_group("X")
        X.attrs["encoding-type"], X.attrs["shape"] = "csr_matrix", (n, 2)
        X["data"], X["indices"] = np.zeros(0), np.zeros(0, np.int32)
        X.create_dataset("indptr", (n + 1,), "i8", chunks=(1 << 16,), compression="gzip")
        for part, count in (("obs", n), ("var", 2)):
            table = file.create_group(part)
            table.attrs["_index"] = "_index"
            table.create_dataset("_index", (count,), h5py.string_dtype(), chunks=(min(count, 1 << 16),))
    assert (tmp_path / "a.h5ad").stat().st_size < 20_000
    with pytest.raises(DataError, match=f"unfolds to {64 * n:,}"):
        read(tmp_path / "a.h5ad")
