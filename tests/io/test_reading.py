"""What a table is taken for: separators, ids, yes/no, text, long tables; files and memory alike."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

import fedfactor
from fedfactor import DataError, Federation, Shard
from fedfactor.cli import app
from fedfactor.data import read
from tests.command_line import CliRunner

NAN = float("nan")


def write(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x;y\n1.5;2\n3;4\n", "semicolons"),
        ("x;y\n1,5;2,0\n3,0;4,0\n", "semicolons; decimal comma"),
        ("x\ty\n1,5\t2\n3\t4\n", "tabs; decimal comma"),
        ("x|y\n1.5|2\n3|4\n", "bars"),
        ("x,y\n1.5,2\n3,4\n", "commas"),
    ],
)
def test_separator_and_decimal_sign_are_found_and_said(tmp_path, text, said):
    table = read(write(tmp_path / "a.csv", text))
    np.testing.assert_array_equal(table.X, [[1.5, 2], [3, 4]])
    assert table.features == ("x", "y")
    assert said in table.said


def test_unstored_cells_of_a_sparse_frame_are_what_it_fills_them_with():
    zero = pd.arrays.SparseArray([0.0, 2.0], fill_value=0)
    assert sparse.issparse(read(pd.DataFrame({"x": zero, "y": zero})).X)
    unknown = pd.DataFrame({"x": pd.arrays.SparseArray([NAN, 2.0]), "y": zero})
    np.testing.assert_array_equal(read(unknown, missing_values=NAN).X, [[NAN, 0], [2, 2]])
    with pytest.raises(DataError, match="NaN"):
        read(unknown)


def test_they_can_be_told(tmp_path):
    path = write(tmp_path / "a.csv", "x#y\n1,5#2\n3#4\n")
    np.testing.assert_array_equal(read(path, sep="#", decimal=",").X, [[1.5, 2], [3, 4]])
    with pytest.raises(DataError, match="one character"):
        read(path, sep=";;")
    with pytest.raises(DataError, match=r"must be '.' or ','"):
        read(path, decimal="'")


@pytest.mark.parametrize(
    "words", [("yes", "no"), ("True", "False"), ("TRUE", "FALSE"), ("Yes", "No"), ("Y", "n"), ("Ja", "Nein")]
)
def test_yes_and_no_are_one_and_zero(tmp_path, words):
    yes, no = words
    table = read(write(tmp_path / "a.csv", f"x,y\n{yes},1\n{no},0\n{yes},1\n"))
    np.testing.assert_array_equal(table.X, [[1, 1], [0, 0], [1, 1]])
    frame = pd.DataFrame({"x": [yes, no, yes], "y": [1, 0, 1]})
    np.testing.assert_array_equal(read(frame).X, table.X)


def test_excel_unicode_text(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_bytes("größe\ty\n1\t2\n3\t4\n".encode("utf-16"))
    assert read(path).features == ("größe", "y")


IDS = ["id", "patient_id", "PatientID", "userId", "Sample No", "row", "index", "MRN"]


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("kind", ["csv", "parquet", "feather", "frame"])
def test_ids_are_not_factored(tmp_path, name, place, kind):
    frame = pd.DataFrame({"x": [1.0, 3.0, 5.0], "y": [2.0, 4.0, 6.0]})
    frame.insert(place, name, [1001, 1007, 1002])
    source = frame
    if kind != "frame":
        source = tmp_path / f"a.{kind}"
        put = {"csv": frame.to_csv, "parquet": frame.to_parquet, "feather": lambda path, index: frame.to_feather(path)}
        put[kind](source, index=False)
    table = read(source)
    assert table.features == ("x", "y")
    assert (table.row_ids, table.id_name) == (("1001", "1007", "1002"), name)
    assert f"row ids: {name}" in table.said
    told = read(source, id="none")
    assert told.features == tuple(frame.columns)
    assert read(source, columns=["x", name]).features == tuple(c for c in frame.columns if c != "y")
    assert read(source, drop=[name]).row_ids is None


@pytest.mark.parametrize("name", ["age", "grid", "nose", "valid", "mass"])
def test_measurements_are(tmp_path, name):
    assert read(write(tmp_path / "a.csv", f"{name},x\n1,1\n2,1\n3,1\n")).features == (name, "x")


def test_a_count_of_the_rows_and_long_numbers_are_ids_without_a_name_that_says_so(tmp_path):
    values = np.random.default_rng(0).random(30)
    for ids in (range(1, 31), range(0, 30), range(700101, 700101 + 60, 2)):
        frame = pd.DataFrame({"a": list(ids), "b": values})
        frame.to_csv(tmp_path / "a.csv", index=False)
        table = read(tmp_path / "a.csv")
        assert (table.features, table.id_name) == (("b",), "a")
    pd.DataFrame({"a": np.arange(30) * 7 + 3, "b": values}).to_csv(tmp_path / "a.csv", index=False)
    assert read(tmp_path / "a.csv").features == ("a", "b")


def test_a_second_column_of_ids_is_left_out_and_said(tmp_path):
    table = read(write(tmp_path / "a.csv", "patient_id,visit_id,x\n1,11,5\n2,12,6\n3,13,7\n"))
    assert (table.features, table.id_name) == (("x",), "patient_id")
    assert "left out: visit_id" in table.said


@pytest.mark.parametrize("text", ["id,x\na,1\nb,2\na,3\n", "patient_id,x\n7,1\n8,2\n7,3\n", ",x\n1,1\n2,2\n1,3\n"])
def test_ids_that_repeat_are_refused_with_their_places(tmp_path, text):
    path = write(tmp_path / "a.csv", text)
    with pytest.raises(DataError, match=r"not unique: '.' stands in line 2 and in line 4.*--id"):
        read(path)
    assert len(read(path, repeated_ids=True, id=text.partition(",")[0] or None).row_ids) == 3


def test_no_digit_of_an_id_is_lost(tmp_path):
    ids = [2**60 + 1, 2**60 + 2, 2**60 + 3]
    frame = pd.DataFrame({"patient_id": ids, "x": [1.0, 2.0, 3.0]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_parquet(tmp_path / "a.parquet", index=False)
    for source in (tmp_path / "a.csv", tmp_path / "a.parquet", frame):
        assert read(source).row_ids == tuple(map(str, ids))
    path = write(tmp_path / "b.csv", "id,x\n007,1\n07,2\n7,3\n")
    assert read(path, id="id").row_ids == ("007", "07", "7")


def test_text_is_refused_with_its_place(tmp_path):
    path = write(tmp_path / "a.csv", "name,x,sex\na,1,f\nb,2,m\nc,3,f\n")
    with pytest.raises(DataError, match=r"line 2, column 'sex': 'f' is not a number.*--drop sex"):
        read(path)
    assert read(path, drop=["sex"]).row_ids == ("a", "b", "c")
    late = write(tmp_path / "b.csv", "x,y\n" + "1,2\n" * 500 + "1,oops\n")
    with pytest.raises(DataError, match="line 502, column 'y': 'oops'"):
        read(late)


@pytest.mark.parametrize("ending", ["csv", "parquet", "frame"])
def test_all_columns_that_are_not_numbers_are_named_at_once(tmp_path, ending):
    days = ["2024-07-16", "2024-07-17", "2024-07-17"]
    frame = pd.DataFrame({"crp": [1.5, 2, 3], "seen on": days, "ward": ["a", "b", "b"]})
    source = frame if ending == "frame" else tmp_path / f"a.{ending}"
    if ending == "csv":
        frame.to_csv(source, index=False)
    else:
        frame["seen on"] = pd.to_datetime(frame["seen on"])
    if ending == "parquet":
        frame.to_parquet(source)
    with pytest.raises(DataError, match=r"'seen on'.*is a date.*holds for 'ward'.*--drop 'seen on,ward'"):
        read(source)
    assert read(source, drop=["seen on", "ward"]).features == ("crp",)


def test_columns_are_chosen_by_name_or_pattern(tmp_path):
    path = write(tmp_path / "a.csv", "lab_a,lab_b,note,age\n1,2,x,30\n3,4,x,40\n")
    assert read(path, columns=["lab_*"]).features == ("lab_a", "lab_b")
    assert read(path, drop=["note", "a*"]).features == ("lab_a", "lab_b")
    with pytest.raises(DataError, match=r"no column 'lab_c'\. Did you mean 'lab_"):
        read(path, columns=["lab_c"])
    with pytest.raises(DataError, match="no column 'zzz'"):
        read(path, id="zzz")
    np.save(tmp_path / "a.npy", np.eye(3))
    with pytest.raises(DataError, match="does not name its columns"):
        read(tmp_path / "a.npy", drop=["x"])


RATINGS = "userId,movieId,rating,timestamp\n7,100,4.5,1\n7,31,5,2\n10,100,1,3\n"


def test_ratings_become_a_sparse_matrix(tmp_path):
    table = read(write(tmp_path / "a.csv", RATINGS))
    np.testing.assert_array_equal(table.X.toarray(), [[5, 4.5], [0, 1]])
    assert (table.features, table.row_ids, table.missing_values) == (("31", "100"), ("7", "10"), "unstored")
    assert "a long table: userId as rows, movieId as columns, rating as values; left out: timestamp" in table.said
    frame = pd.read_csv(tmp_path / "a.csv")
    frame.to_parquet(tmp_path / "a.parquet")
    for source in (frame, tmp_path / "a.parquet"):
        again = read(source)
        np.testing.assert_array_equal(again.X.toarray(), table.X.toarray())
        assert (again.features, again.row_ids) == (table.features, table.row_ids)
    assert Shard.of(table).mask == "stored"


@pytest.mark.parametrize(
    "times", [("300", "100", "200"), ("2024-03-01", "2024-01-01", "2024-02-01"), ("3e2", "1e2", "2e2")]
)
def test_of_ratings_given_twice_the_latest_counts_and_it_is_said(tmp_path, times):
    lines = [f"7,20,{stars},{when}" for stars, when in zip((5, 1, 2), times, strict=True)]
    head = "userId,movieId,rating,timestamp"
    path = write(tmp_path / "r.csv", "\n".join([head, *lines, f"8,20,3,{times[0]}"]) + "\n")
    frame = pd.read_csv(path)
    if "-" in times[0]:
        frame["timestamp"] = pd.to_datetime(frame["timestamp"])
    frame.to_parquet(tmp_path / "r.parquet")
    for source in (path, frame, tmp_path / "r.parquet"):
        table = read(source)
        assert table.X.toarray().tolist() == [[5], [3]]
        assert "the latest by timestamp: 2 older lines left out" in table.said


@pytest.mark.parametrize("times", [("100", "100"), ("1.3.2024", "2.3.2024")])
def test_ratings_given_twice_at_times_without_an_order_are_refused(tmp_path, times):
    path = write(tmp_path / "r.csv", f"user,item,rating,date\n7,20,5,{times[0]}\n7,20,1,{times[1]}\n")
    with pytest.raises(DataError, match="'7' has item '20' more than once, and 'date' does not say"):
        read(path)


def test_counts_in_a_long_table_are_zero_where_nothing_is_listed(tmp_path):
    table = read(write(tmp_path / "a.csv", "doc,word,count\na,x,1\na,y,2\nb,x,3\n"))
    assert table.missing_values is None
    np.testing.assert_array_equal(table.X.toarray(), [[1, 2], [3, 0]])


def test_a_long_table_can_be_told(tmp_path):
    path = write(tmp_path / "a.csv", RATINGS)
    assert sparse.issparse(read(path, long=True).X)
    assert "rating" in read(path, long=False, id="none").features
    with pytest.raises(DataError, match="A long table has"):
        read(write(tmp_path / "b.csv", "a,b,c\n1,2,3\n"), long=True)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("user,item,rating\n1,2,3\n1,2,4\n", "'1' has item '2' more than once"),
        ("user,item,rating\n1,2,\n1,3,4\n", "'rating' lacks a value in row 0"),
        ("user,item,rating\n1,2,good\n1,3,4\n", "line 2, column 'rating': 'good' is not a number"),
        ("user,item,rating\n1,,3\n1,3,4\n", "'item' is empty in row 0"),
    ],
)
def test_long_tables_that_are_wrong(tmp_path, text, says):
    with pytest.raises(DataError, match=says):
        read(write(tmp_path / "a.csv", text))


def test_tables_in_memory(tmp_path):
    X = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    frame = pd.DataFrame(X, columns=["a", "b"], index=pd.Index(["r", "s", "t"], name="who"))
    assert (read(frame).row_ids, read(frame).id_name) == (("r", "s", "t"), "who")
    pa = pytest.importorskip("pyarrow")
    arrow = pa.table({"id": ["r", "s", "t"], "a": X[:, 0], "b": X[:, 1]})
    assert read(arrow).row_ids == ("r", "s", "t")
    np.testing.assert_array_equal(read(arrow).X, X)
    polars = pytest.importorskip("polars")
    table = read(
        polars.DataFrame({"id": ["r", "s", "t"], "a": X[:, 0], "b": X[:, 1], "c": [True, False, None]}),
        missing_values=NAN,
    )
    assert (table.features, table.row_ids) == (("a", "b", "c"), ("r", "s", "t"))
    np.testing.assert_array_equal(table.X[:, 2], [1, 0, np.nan])
    np.testing.assert_array_equal(read(sparse.csr_array(X)).X.toarray(), X)
    np.testing.assert_array_equal(read(X.tolist()).X, X)
    for wrong in (object(), 3, ["a", "b"], [[1, 2], [3]]):
        with pytest.raises((DataError, ValueError)):
            read(wrong)


def test_a_table_is_rows_for_everybody(tmp_path):
    path = write(tmp_path / "a.csv", "id,x,y\n1,1,2\n2,3,4\n3,5,7\n")
    federation = Federation({"a": read(path)})
    assert federation.shard("a").row_ids == ("1", "2", "3")
    model = fedfactor.PooledNMF(1, random_state=0).fit(read(path))
    assert list(model.feature_names_in_) == ["x", "y"]
    assert model.transform(read(path)).shape == (3, 1)
    assert fedfactor.read is read


@pytest.mark.parametrize("kind", ["u1", "i2", "?", "f2", "f4", "i4", "u8", "f8", ">f4"])
def test_a_dtype_becomes_the_same_from_a_file_and_from_memory(tmp_path, kind):
    X = np.array([[0, 1], [1, 0], [1, 1]], kind)
    np.save(tmp_path / "a.npy", X)
    expected = read(tmp_path / "a.npy").X.dtype
    assert Shard.of(X).X.dtype == expected
    assert read(X).X.dtype == expected
    assert fedfactor.PooledNMF(1, random_state=0).fit(X.astype(X.dtype.newbyteorder("="))).components_.dtype == expected
    if kind not in ("f2", ">f4"):
        frame = pd.DataFrame(X, columns=["a", "b"])
        frame.to_parquet(tmp_path / "a.parquet")
        assert read(tmp_path / "a.parquet").X.dtype == expected
        assert Shard.of(frame).X.dtype == expected


def test_frames_given_to_an_estimator_say_where_text_and_ids_are():
    frame = pd.DataFrame({"x": [1.0, 2.0, 3.0], "sex": ["f", "m", "f"]})
    with pytest.raises(DataError, match=r"column 'sex' holds 'f'.*in row 0"):
        fedfactor.PooledNMF(1).fit(frame)
    frame = pd.DataFrame({"patient_id": [5, 9, 7], "x": [1.0, 2.0, 3.0]})
    with pytest.raises(DataError, match=r"'patient_id' looks like identifiers.*set_index"):
        fedfactor.PooledNMF(1).fit(frame)
    model = fedfactor.PooledNMF(1, random_state=0).fit(frame.set_index("patient_id"))
    assert list(model.feature_names_in_) == ["x"]


def test_negative_and_lacking_cells_have_a_row_and_a_column(tmp_path):
    path = write(tmp_path / "a.csv", "id,x,y\na,1,2\nb,3,-4\n")
    with pytest.raises(DataError, match=r"-4 in row 1 \(id 'b'\), column 'y'"):
        Federation({"n": read(path)}).prepare()
    with pytest.raises(DataError, match="clash: 'z' is known only to 'a'; 'q', 'y' are known only to 'b'"):
        Federation(
            {"a": pd.DataFrame({"x": [1.0], "z": [1.0]}), "b": pd.DataFrame({"x": [1.0], "q": [1.0], "y": [2.0]})}
        ).prepare()


@pytest.mark.parametrize("owned", [False, True])
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_dates_in_a_frame_are_not_factored(library, owned):
    frame = pd.DataFrame({"crp": [1.5, 2, 3], "seen on": pd.to_datetime(["2024-07-16"] * 3)})
    if library == "polars":
        frame = pytest.importorskip("polars").from_pandas(frame)
    with pytest.raises(DataError, match=r"'seen on' holds dates or times.*drop=\['seen on'\]"):
        fedfactor.PooledNMF(1).fit({"a": frame} if owned else frame)


def test_a_sparse_h5ad_file_is_inspected(tmp_path):
    """Written by hand: AnnData takes longer to load than the test."""
    h5py = pytest.importorskip("h5py")
    X = sparse.random_array((30, 8), density=0.4, format="csr", rng=np.random.default_rng(0))
    with h5py.File(tmp_path / "a.h5ad", "w") as file:
        cells = file.create_group("X")
        cells.attrs["encoding-type"], cells.attrs["shape"] = "csr_matrix", X.shape
        cells["data"], cells["indices"], cells["indptr"] = X.data, X.indices, X.indptr
        for axis, word, count in (("obs", "cell", 30), ("var", "gene", 8)):
            names = file.create_group(axis)
            names.attrs["_index"] = "_index"
            names["_index"] = [f"{word}{i}" for i in range(count)]
    table = read(tmp_path / "a.h5ad")
    np.testing.assert_array_equal(table.X.toarray(), X.toarray())
    assert (table.features[-1], table.row_ids[-1]) == ("gene7", "cell29")
    done = CliRunner().invoke(app, ["inspect", str(tmp_path / "a.h5ad")])
    assert done.exit_code == 0, done.output
    assert "30 rows × 8 columns" in done.stdout
    assert done.output.count("row ids:") == 1
