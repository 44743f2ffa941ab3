"""Files made to do harm, or damaged until they do: refused, in bounded memory, with their name."""

from __future__ import annotations

import gzip
import resource

import numpy as np
import pytest

from claims.readers_survive import SOUND, survive
from fedfactor import DataError
from fedfactor.core.atomic_files import read_json
from fedfactor.data import read
from fedfactor.federation.terms import Terms, TermsError

HEAD = b"%%MatrixMarket matrix coordinate real general\n"


def grown(work):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    work()
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024


@pytest.mark.parametrize(
    "body",
    [b"1 1 1\n1 1\n1E", b"1 1 1\n1 1 1E", b"1 1 1\n1 1 \n", b"2 2 1\n1 1 0x1\n", b"1 1 1\n1.5 1 1\n", b"-1 1 1\n"],
)
def test_a_damaged_matrix_market_file_ends_nothing_but_the_reading(tmp_path, body):
    (tmp_path / "a.mtx").write_bytes(HEAD + body)
    with pytest.raises(DataError, match=r"a\.mtx"):
        read(tmp_path / "a.mtx")


@pytest.mark.parametrize("kind", ["general", "symmetric", "skew-symmetric"])
@pytest.mark.parametrize("layout", ["coordinate", "array"])
@pytest.mark.parametrize("field", ["real", "integer", "pattern"])
def test_matrix_market_is_read_as_scipy_reads_it(tmp_path, kind, layout, field):
    from scipy import io, sparse

    if field == "pattern" and (layout == "array" or kind == "skew-symmetric"):
        pytest.skip("there is no such thing")
    X = np.random.default_rng(0).integers(1, 9, (5, 5)).astype(float) * (np.random.default_rng(1).random((5, 5)) < 0.6)
    X = {"general": X, "symmetric": X + X.T, "skew-symmetric": X - X.T}[kind]
    given = X if layout == "array" else sparse.coo_array(X)
    io.mmwrite(tmp_path / "a.mtx", given, field=field, symmetry=kind, comment="made\nhere")
    found = read(tmp_path / "a.mtx").X
    found = found.toarray() if sparse.issparse(found) else found
    np.testing.assert_array_equal(found, X != 0 if field == "pattern" else X)


@pytest.mark.slow
def test_a_comment_without_end_does_not_fill_the_memory(tmp_path):
    path = tmp_path / "a.mtx.gz"
    with gzip.open(path, "wb", 1) as file:
        file.write(HEAD + b"%")
        for _ in range(300):
            file.write(b"x" * (1 << 20))
        file.write(b"\n2 2 1\n1 1 5\n")
    found = []
    assert grown(lambda: found.append(read(path).X[0, 0])) < 100 << 20
    assert found == [5]
    with pytest.raises(DataError, match="unfolds to"):
        read(path, max_bytes=1 << 20)


def test_row_ids_of_a_parquet_file_are_counted_before_they_are_made(tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    word, n = "x" * 20_000, 100_000
    ids = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([word]))
    pq.write_table(pa.table({"id": ids, "a": np.zeros(n)}), tmp_path / "a.parquet")
    assert (tmp_path / "a.parquet").stat().st_size < 200_000

    def work():
        with pytest.raises(DataError, match="unfolds to 2,0"):
            read(tmp_path / "a.parquet")

    assert grown(work) < 200 << 20


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 50_000, "\xff\xfe", "nul", ""])
def test_json_that_is_none(tmp_path, text):
    (tmp_path / "a.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=r"a\.json"):
        read_json(tmp_path / "a.json")


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 20_000,
        "[run]\nrounds = [1]",
        "[run]\nseed = 1979-05-27",
        "[algorithm]\nname = {a = 1}",
        "[features]\nnames = 3",
        "[features]\nnames = [[1]]",
        "[server]\naddress = 3",
        "[preprocess]\nsteps = 3",
        "[preprocess]\nsteps = [[1]]",
        "[parties]\nnorth = 3",
        "[federation]\nformat = nan",
        "[run]\nseed = 99999999999999999999999999",
    ],
)
def test_terms_of_the_wrong_kind(tmp_path, text):
    (tmp_path / "f.toml").write_text(text)
    with pytest.raises(TermsError, match=r"f\.toml"):
        Terms.read(tmp_path / "f.toml").agreement()


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SOUND if name != "a.h5ad"])
def test_readers_survive_mutants(name):
    found = survive(name, 150, seed=7)
    assert found["odd"] == 0, found["first_odd"]
    assert found["grown_mb"] < 64


@pytest.mark.slow
def test_hdf5_survives_mutants():
    pytest.importorskip("h5py")
    assert survive("a.h5ad", 12, seed=7)["odd"] == 0


@pytest.mark.slow
def test_a_piece_of_an_h5ad_file_that_unpacks_to_gigabytes_is_refused(tmp_path):
    """HDF5 unpacks whole chunks, however small the table: the process that reads may take little more than the file."""
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        X = file.create_dataset("X", (3, 2), maxshape=(None, 2), chunks=(1 << 25, 2), dtype="f8", compression="gzip")
        X[:] = 1.0
        for part, count in (("obs", 3), ("var", 2)):
            group = file.create_group(part)
            group.attrs["_index"] = "_index"
            group.create_dataset("_index", data=[f"{part}{i}" for i in range(count)], dtype=h5py.string_dtype())
    assert (tmp_path / "a.h5ad").stat().st_size < 1 << 20
    with pytest.raises(DataError, match=r"a\.h5ad is not a readable"):
        read(tmp_path / "a.h5ad")
