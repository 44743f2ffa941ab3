"""Tables as laboratories and shops export them: encodings, thousands, censored values, preambles, own column names."""

from __future__ import annotations

import numpy as np
import pytest

import fedfactor
from fedfactor.core.errors import DataError
from fedfactor.io.file_content import Reading
from fedfactor.io.read import load, open_files


def write(path, text, encoding="utf-8"):
    path.write_bytes(text.encode(encoding))
    return path


def test_windows_1252_is_read_with_a_remark(tmp_path):
    path = write(tmp_path / "a.csv", "Größe;Hämoglobin\n1,80;14,1\n1,65;13,0\n", "cp1252")
    table = load(path)
    assert table.features == ("Größe", "Hämoglobin")
    assert "read as cp1252" in table.said
    assert load(path, Reading(encoding="latin-1")).features == table.features
    with pytest.raises(DataError, match="--encoding nonsense is not known"):
        load(path, Reading(encoding="nonsense"))


def test_thousands_separators(tmp_path):
    path = write(tmp_path / "a.csv", 'cells,age\n"7,200.5",3\n"1,234,567",4\n12,5\n')
    assert load(path).X[:, 0].tolist() == [7200.5, 1234567.0, 12.0]
    path = write(tmp_path / "b.csv", "cells;age\n7.200,5;3\n12,5;4\n")
    assert load(path).X[:, 0].tolist() == [7200.5, 12.5]
    path = write(tmp_path / "c.csv", 'age,cells\n3,"7,200"\n5,12\n')
    with pytest.raises(DataError, match="'7,200' is not a number"):
        load(path)  # seven point two, or seven thousand two hundred
    assert load(path, Reading(thousands=",")).X[0, 1] == 7200


@pytest.mark.parametrize(("how", "expected"), [("limit", [0.5, 300]), ("half", [0.25, 300]), ("missing", [np.nan] * 2)])
def test_censored_values(tmp_path, how, expected):
    path = write(tmp_path / "a.csv", "age;crp\n3;<0,5\n4;> 300\n5;12,5\n")
    with pytest.raises(DataError, match="--censored limit"):
        load(path)
    table = load(path, Reading(censored=how, missing_values=np.nan))
    np.testing.assert_array_equal(table.X[:2, 1], expected)
    assert "2 censored values" in table.said


def test_lines_above_the_header(tmp_path):
    path = write(tmp_path / "a.csv", "Laboratory North\nexported 2024-07-16\ncrp;age\n1,5;3\n2,5;x\n")
    with pytest.raises(DataError, match="line 5, column 'age'"):
        load(path, Reading(skip=2))
    assert load(path, Reading(skip=2, drop=("age",))).X.tolist() == [[1.5], [2.5]]


def test_a_long_table_with_names_of_its_own(tmp_path):
    path = write(tmp_path / "a.csv", "kunde,artikel,sterne,filiale\n1,10,5,3\n2,10,4,3\n2,11,1,3\n")
    with pytest.raises(DataError, match="--user, --item and --value"):
        load(path, Reading(long=True))
    table = load(path, Reading(user="kunde", item="artikel", value="sterne"))
    assert table.X.shape == (2, 2)
    assert table.missing_values == "unstored"
    assert table.row_ids == ("1", "2")
    with pytest.raises(DataError, match="no column 'kund'"):
        load(path, Reading(user="kund", item="artikel", value="sterne"))


def test_ids_come_before_dates(tmp_path):
    path = write(tmp_path / "a.csv", "date,crp,patient_id\n2024-07-16,1.5,P1\n2024-07-17,2.5,P2\n2024-07-18,3,P3\n")
    table = load(path, Reading(drop=("date",)))
    assert table.id_name == "patient_id"
    with pytest.raises(DataError, match=r"column 'date'.*is a date"):
        load(path)


def test_files_with_other_columns(tmp_path):
    north = write(tmp_path / "north.csv", "crp,ldl,ferritin\n1,2,3\n4,5,6\n")
    south = write(tmp_path / "south.csv", "ldl,crp,tsh\n7,8,9\n")
    with pytest.raises(DataError, match=r"'ferritin' is known only to 'north'.*--how intersection"):
        open_files([north, south]).prepare("nonnegative")
    both = open_files([north, south], reading=Reading(how="intersection"))
    assert both.shard("south").features == ("crp", "ldl")
    assert both.shard("south").X.tolist() == [[8, 7]]
    union = open_files([north, south], reading=Reading(how="union", missing_values=np.nan))
    assert union.shard("north").features == union.shard("south").features == ("crp", "ldl", "ferritin", "tsh")
    assert union.shard("south").mask.tolist() == [[True, True, False, True]]
    model = fedfactor.PooledNMF(1, random_state=0).fit(union)
    assert np.isfinite(model.components_).all()


def test_a_workbook_is_read_as_its_csv_file(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    rows = [["patient", "crp", "alt"], ["p1", 0.1, 12], [], ["p2", None, 7], ["p3", "<0.5", 1e-9]]
    book = openpyxl.Workbook()
    book.active.title = "labs"
    for row in rows:
        book.active.append(row)
    book.save(tmp_path / "labs.xlsx")
    text = "patient,crp,alt\np1,0.1,12\np2,,7\np3,<0.5,1e-9\n"
    reading = Reading(censored="half", missing_values=np.nan)
    table, plain = load(tmp_path / "labs.xlsx", reading), load(write(tmp_path / "labs.csv", text), reading)
    assert table.features == plain.features == ("crp", "alt")
    assert list(table.row_ids) == list(plain.row_ids) == ["p1", "p2", "p3"]
    np.testing.assert_array_equal(table.X, plain.X)
    assert table.said.startswith(str(tmp_path / "labs.xlsx"))
    assert "sheet 'labs'" in table.said


def test_a_workbook_names_the_row_of_a_wrong_cell(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in [["a", "b"], [1, 2], [], [3, "red"]]:
        book.active.append(row)
    book.save(tmp_path / "colours.xlsx")
    with pytest.raises(DataError, match=r"colours\.xlsx, line 4, column 'b': 'red' is not a number"):
        load(tmp_path / "colours.xlsx")


def test_a_workbook_that_unfolds_to_more_than_allowed_is_refused(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for _ in range(200):
        book.active.append([1.5] * 50)
    book.save(tmp_path / "wide.xlsx")
    with pytest.raises(DataError, match="unfolds to"):
        load(tmp_path / "wide.xlsx", Reading(max_bytes=10_000))
