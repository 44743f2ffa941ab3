"""Reading tables: every format, and everything that can be wrong with a file."""

from __future__ import annotations

import gzip
import os
import pickle
import struct
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import io as scipy_io
from scipy import sparse

from fedfactor.core.errors import DataError, MissingExtraError
from fedfactor.io.read import load_shard, load_table, open_files, owner_name, owner_names

X = np.array([[1.5, 0.0, 3.0], [0.0, 2.0, 0.0]])


def test_npy_stays_a_read_only_map(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X)
    table = load_table(tmp_path / "a.npy")
    assert isinstance(table.X, np.memmap)
    assert not table.X.flags.writeable
    assert (table.features, table.row_ids) == (None, None)
    np.testing.assert_array_equal(table.X, X)


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ("u1", "f4"),
        ("i2", "f4"),
        ("?", "f4"),
        ("f2", "f4"),
        ("f4", "f4"),
        ("i4", "f8"),
        ("u8", "f8"),
        ("f8", "f8"),
        (">f4", "f4"),
    ],
)
def test_dtype_is_fixed_once(tmp_path: Path, stored: str, expected: str) -> None:
    np.save(tmp_path / "a.npy", np.array([[0, 1], [1, 0]], stored))
    out = load_table(tmp_path / "a.npy").X
    assert out.dtype == np.dtype(expected)
    assert isinstance(out, np.memmap) == (stored in ("f4", "f8"))
    assert out.dtype.isnative
    np.testing.assert_array_equal(out, [[0, 1], [1, 0]])


def test_npz_three_ways(tmp_path: Path) -> None:
    sparse.save_npz(tmp_path / "csr.npz", sparse.csr_matrix(X))
    sparse.save_npz(tmp_path / "coo.npz", sparse.coo_matrix(X))
    np.savez_compressed(tmp_path / "named.npz", X=X, y=[1, 2], features=["a", "b", "c"], rows=["r", "s"])
    np.savez(tmp_path / "only.npz", whatever=X)
    for name in ("csr", "coo"):
        out = load_table(tmp_path / f"{name}.npz").X
        assert isinstance(out, sparse.csr_array)
        np.testing.assert_array_equal(out.toarray(), X)
    named = load_table(tmp_path / "named.npz")
    assert (named.features, named.row_ids) == (("a", "b", "c"), ("r", "s"))
    np.testing.assert_array_equal(named.X, X)
    np.testing.assert_array_equal(load_table(tmp_path / "only.npz").X, X)


@pytest.mark.parametrize("ending", [".mtx", ".mtx.gz"])
def test_matrix_market(tmp_path: Path, ending: str) -> None:
    plain = tmp_path / "plain.mtx"
    scipy_io.mmwrite(plain, sparse.coo_matrix(X))
    path = tmp_path / f"a{ending}"
    path.write_bytes(gzip.compress(plain.read_bytes()) if ending.endswith("gz") else plain.read_bytes())
    out = load_table(path).X
    assert isinstance(out, sparse.csr_array)
    np.testing.assert_array_equal(out.toarray(), X)


@pytest.mark.parametrize("ending", [".csv", ".csv.gz", ".tsv", ".tsv.gz"])
def test_text(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"a{ending}"
    content = '\ufeffname,"age, years",height\r\n007,1.5,NA\r\nbob,,1e3\r\n\r\n'
    if ending.startswith(".tsv"):
        content = content.replace('"age, years"', "age; years").replace(",", "\t").replace(";", ",")
    path.write_bytes(gzip.compress(content.encode()) if ending.endswith("gz") else content.encode())
    table = load_table(path, missing_values=float("nan"))
    assert table.features == ("age, years", "height")
    assert table.row_ids == ("007", "bob")
    np.testing.assert_array_equal(table.X, [[1.5, np.nan], [np.nan, 1000.0]])


def test_text_keeps_every_bit_and_knows_row_names_of_pandas_and_r(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal((50, 4)) * 10.0 ** np.arange(-150, 50, 50)
    path = tmp_path / "a.csv"
    pd.DataFrame(values, columns=list("abcd")).to_csv(path)
    table = load_table(path)
    assert table.row_ids == tuple(map(str, range(50)))
    np.testing.assert_array_equal(table.X, values)
    path.write_text("a,b\n1,2,3\n4,5,6\n")
    table = load_table(path)
    assert (table.features, table.row_ids, table.X.shape) == (("a", "b"), ("1", "4"), (2, 2))
    path.write_text("0,1,2\n5,6,7\n")
    assert load_table(path).features == ("0", "1", "2")


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame({"id": ["r", "s"], "a": [1, 2], "b": [0.5, None], "c": [True, False]})
    frame.to_parquet(tmp_path / "a.parquet", index=False)
    table = load_table(tmp_path / "a.parquet", missing_values=float("nan"))
    assert (table.features, table.row_ids) == (("a", "b", "c"), ("r", "s"))
    np.testing.assert_array_equal(table.X, [[1, 0.5, 1], [2, np.nan, 0]])
    frame.set_index("id").rename_axis(None)[["a", "c"]].to_parquet(tmp_path / "i.parquet")
    assert load_table(tmp_path / "i.parquet").row_ids == ("r", "s")
    pd.DataFrame({"a": np.array([1, 2], "u1")}).to_parquet(tmp_path / "s.parquet")
    assert load_table(tmp_path / "s.parquet").X.dtype == np.float32
    pd.DataFrame({"a": pd.array([1, None], "Int16")}).to_parquet(tmp_path / "n.parquet")
    np.testing.assert_array_equal(load_table(tmp_path / "n.parquet", missing_values=float("nan")).X, [[1], [np.nan]])
    pd.DataFrame({"a": [1.0], "when": pd.to_datetime(["2020-01-01"])}).to_parquet(tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"column 'when': '2020-01-01 00:00:00' is a date"):
        load_table(tmp_path / "t.parquet")
    wide = np.random.default_rng(0).random((700, 30))
    pd.DataFrame(wide, columns=[f"f.{i}" if i else "f" for i in range(30)]).to_parquet(
        tmp_path / "w.parquet", row_group_size=300
    )
    np.testing.assert_array_equal(load_table(tmp_path / "w.parquet").X, wide)
    monkeypatch.setattr("fedfactor.io.formats.arrow._CELLS", 1000)
    np.testing.assert_array_equal(load_table(tmp_path / "w.parquet").X, wide)
    with pytest.raises(DataError, match="over the limit of 100"):
        load_table(tmp_path / "w.parquet", max_bytes=100)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 not really PAR1")
    with pytest.raises(DataError, match="not a readable Parquet"):
        load_table(tmp_path / "bad.parquet")


def test_parquet_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.parquet").write_bytes(b"x")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        MissingExtraError,
        match=r"pip install pyarrow \(or, where the source of fedfactor lies: pip install '\.\[data\]'\)",
    ):
        load_table(tmp_path / "a.parquet")


def _pickled(path: Path) -> None:
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)


def _forged_member(path: Path) -> None:
    """Write a member whose header claims 2**40 rows."""
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776, 8), }".ljust(117) + b"\n"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("X.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + b"\0" * 64)


def _bad_indices(path: Path) -> None:
    good = sparse.csr_matrix(X)
    np.savez(path, format=b"csr", shape=(2, 3), data=good.data, indices=good.indices + 1000, indptr=good.indptr)


def _bomb(path: Path) -> None:
    """Write an archive that says it unfolds to 1.1 GB."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", bytes(1 << 20))
        archive.infolist()[0].file_size = 1100 << 20


BROKEN: list[tuple[str, Any, str]] = [
    ("empty.npy", b"", "is empty"),
    ("noise.npy", b"no numpy here", "not a readable .npy"),
    ("pickled.npy", _pickled, "Python objects, which are never loaded"),
    ("one.npy", lambda p: np.save(p, np.ones(3)), r"shape \(3,\)"),
    ("norows.npy", lambda p: np.save(p, np.ones((0, 3))), "is empty"),
    ("text.npy", lambda p: np.save(p, np.array([["a"]])), "values are not real numbers"),
    ("complex.npy", lambda p: np.save(p, np.ones((2, 2), complex)), "not real numbers but complex"),
    ("noise.npz", b"no zip here", "not a readable .npz"),
    ("pickled.npz", lambda p: np.savez(p, X=np.array([[{}]], dtype=object)), "Python objects, which are never loaded"),
    ("many.npz", lambda p: np.savez(p, a=X, b=X), "none is named 'X': a, b"),
    ("none.npz", lambda p: np.savez(p), "none is named 'X': nothing at all"),
    ("forged.npz", _forged_member, "damaged or forged"),
    ("indices.npz", _bad_indices, "not a sound sparse matrix"),
    ("bomb.npz", _bomb, "unfolds to 1,153,43"),
    ("names.npz", lambda p: np.savez(p, X=X, features=["a"]), "3 columns but 1 column names"),
    ("nan.npz", lambda p: np.savez(p, X=np.array([[1.0], [np.nan]])), "lacks a value in row 1, column 0"),
    ("empty.csv", b"", "is empty"),
    ("header.csv", b"a,b\n", "no rows"),
    ("ragged.csv", b"a,b\n1,2\n3\n", "line 3: 1 cells where the header names 2"),
    ("short.csv", b"a,b,c\n1,2\n", "line 2: 2 cells where the header names 3"),
    ("trailing.csv", b"a,b\n1,2,\n", "line 2: 3 cells where the header names 2"),
    ("word.csv", b"a,b\n1,2\n3,red\n", "line 3, column 'b': 'red' is not a number"),
    ("score.csv", b"a,b\n1,1_000\n", "'1_000' is not a number"),
    ("twice.csv", b"a,b,a\n1,2,3\n", "'a' more than once"),
    ("bare.csv", b"0.5,0.25\n1,2\n", "no header"),
    ("bare2.csv", b"5,1,2\n1,2,3\n", "no header"),
    ("hole.csv", b"id,a\nx,1\ny,\n", "lacks a value in line 3, column 'a'"),
    ("inf.csv", b"a,b\n1,inf\n", "infinite value in line 2, column 'b'"),
    ("latin.csv", "a,b\n1,é\n".encode("latin-1"), "é. is not a number"),
    ("ids.csv", b"id\nx\ny\n", "no column of numbers left"),
    ("cut.csv.gz", gzip.compress(b"a,b\n" + b"1,2\n" * 5000)[:-20], "not readable as text"),
    ("fake.csv.gz", b"a,b\n1,2\n", "not readable as text"),
    ("noise.mtx", b"hello", "not a readable Matrix Market"),
    ("huge.mtx", b"%%MatrixMarket matrix coordinate real general\n3 3 99999999999\n1 1 1\n", "unfolds to"),
    ("cut.mtx", b"%%MatrixMarket matrix coordinate real general\n3 3 4\n1 1 1\n", "not a readable Matrix Market"),
    ("out.mtx", b"%%MatrixMarket matrix coordinate real general\n3 3 1\n9 9 1\n", "not a readable Matrix Market"),
    ("data.docx", b"", "no ending that names a known format"),
    (".npy", b"", "no ending that names a known format"),
]


@pytest.mark.parametrize(("name", "make", "message"), BROKEN, ids=[name for name, *_ in BROKEN])
def test_broken_files_are_refused_clearly(tmp_path: Path, name: str, make: Any, message: str) -> None:
    path = tmp_path / name
    path.write_bytes(make) if isinstance(make, bytes) else make(path)
    with pytest.raises(DataError, match=message):
        load_table(path)


def test_truncated_archives_never_escape_as_other_errors(tmp_path: Path) -> None:
    whole = tmp_path / "whole.npz"
    sparse.save_npz(whole, sparse.random_array((40, 30), density=0.2, rng=0, format="csr"))
    content = bytearray(whole.read_bytes())
    rng = np.random.default_rng(0)
    for _ in range(60):
        broken = bytearray(content)
        for place in rng.integers(0, len(content), 3):
            broken[place] ^= int(rng.integers(1, 256))
        path = tmp_path / "broken.npz"
        path.write_bytes(broken[: int(rng.integers(1, len(content) + 1))] if rng.random() < 0.3 else broken)
        try:
            assert load_table(path).X.ndim == 2
        except DataError:
            pass


def test_absent_folders_and_forbidden_files(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not there"):
        load_table(tmp_path / "no.csv")
    (tmp_path / "d.csv").mkdir()
    with pytest.raises(DataError, match="a folder"):
        load_table(tmp_path / "d.csv")
    (tmp_path / "a.csv").write_text("a\n1\n")
    (tmp_path / "a.csv").chmod(0)
    if os.access(tmp_path / "a.csv", os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(DataError, match="may not be read"):
        load_table(tmp_path / "a.csv")


@pytest.mark.slow
def test_max_bytes_is_the_callers_word(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", X=np.zeros((1000, 100)))
    with pytest.raises(DataError, match="over the limit of 1,000"):
        load_table(tmp_path / "a.npz", max_bytes=1000)
    assert load_table(tmp_path / "a.npz").X.shape == (1000, 100)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"a,b\n" + b"0,0\n" * 200_000))
    with pytest.raises(DataError, match="unfolds to"):
        load_table(tmp_path / "a.csv.gz", max_bytes=2 << 20)
    (tmp_path / "line.csv.gz").write_bytes(gzip.compress(b"a" * (1 << 27), 1))
    with pytest.raises(DataError, match="no table"):
        load_table(tmp_path / "line.csv.gz")


def test_owners_are_named_after_files() -> None:
    assert owner_name("/x/north.CSV.gz") == "north"
    assert owner_name("st.mary.mtx.gz") == "st.mary"
    with pytest.raises(DataError, match="both belong to an owner called 'a'"):
        owner_names(["one/a.csv", "two/a.npy"])


def test_a_federation_of_files(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("x,y\n1,\n3,4\n")
    np.savez(tmp_path / "a.npz", X=np.array([[5.0, 6.0]]), features=["y", "x"])
    federation = open_files([tmp_path / "b.csv", tmp_path / "a.npz"], missing_values=float("nan"))
    meta = federation.prepare()
    assert (meta.masked, federation.names, federation.feature_names) == (True, ("a", "b"), ("y", "x"))
    np.testing.assert_array_equal(federation.shard("b").X, [[0, 1], [4, 3]])
    np.testing.assert_array_equal(federation.shard("b").mask, [[False, True], [True, True]])
    pickle.loads(pickle.dumps(federation.opener("a")))()
    sparse.save_npz(tmp_path / "s.npz", sparse.csr_array(X))
    assert load_shard(tmp_path / "s.npz", missing_values="unstored").mask == "stored"
