from __future__ import annotations

import csv

import numpy as np
import pytest

from fedfactor.cli import app
from fedfactor.cli.export import for_spreadsheets
from fedfactor.io.result_folder import read_components, read_private
from tests.command_line import CliRunner


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def out(tmp_path, files):
    assert call("fit", files, "-k", 3, "--seed", 1, "--rounds", 60, "-o", tmp_path / "out", "-q").exit_code == 0
    return tmp_path / "out"


@pytest.mark.slow
def test_info_says_what_is_there(out):
    done = call("info", out)
    assert done.exit_code == 0, done.output
    assert "3 components × 6 features" in done.stdout
    assert "east, north, west" in done.stdout


def test_info_of_something_else(tmp_path):
    done = call("info", tmp_path)
    assert done.exit_code == 2
    assert "components.safetensors" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "npy"])
def test_transform_finds_the_rows_again(out, files, tmp_path, rows, ending):
    target = tmp_path / f"u.{ending}"
    done = call("transform", out, files / "east.npz", "-o", target)
    assert done.exit_code == 0, done.output
    U = np.load(target) if ending == "npy" else np.loadtxt(target, delimiter=",", skiprows=1)
    np.testing.assert_allclose(U @ read_components(out)[0], rows["east"], atol=0.02)
    np.testing.assert_allclose(U, read_private(out, "east")["U"], atol=0.02)
    assert target.stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_transform_matches_columns_by_name(tmp_path, rows):
    X = rows["west"]
    for name, order in (("one", [0, 1, 2, 3, 4, 5]), ("two", [5, 3, 1, 0, 2, 4])):
        with open(tmp_path / f"{name}.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", *(f"f{j}" for j in order)])
            writer.writerows([f"r{i}", *row[order].tolist()] for i, row in enumerate(X))
    assert call("fit", tmp_path / "one.csv", "-k", 2, "--seed", 0, "-o", tmp_path / "out", "-q").exit_code == 0
    for name in ("one", "two"):
        assert (
            call("transform", tmp_path / "out", tmp_path / f"{name}.csv", "-o", tmp_path / f"u-{name}.csv").exit_code
            == 0
        )
    assert (tmp_path / "u-one.csv").read_text() == (tmp_path / "u-two.csv").read_text()
    assert (tmp_path / "u-one.csv").read_text().splitlines()[1].startswith("r0,")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("X", "says"), [(np.ones((2, 5)), "5 columns"), (-np.ones((2, 6)), "Negative"), (np.full((2, 6), np.nan), "NaN")]
)
def test_transform_refuses_rows_that_do_not_fit(out, tmp_path, X, says):
    np.save(tmp_path / "new.npy", X)
    done = call("transform", out, tmp_path / "new.npy", "-o", tmp_path / "u.csv")
    assert done.exit_code == 2
    assert says in done.stderr
    assert not (tmp_path / "u.csv").exists()


@pytest.mark.slow
def test_transform_of_rows_with_missing_cells(out, tmp_path, rows):
    X = rows["east"].copy()
    X[:, 0] = -1
    np.save(tmp_path / "new.npy", X)
    done = call("transform", out, tmp_path / "new.npy", "-o", tmp_path / "u.npy", "--missing-values", "-1")
    assert done.exit_code == 0, done.output
    fitted = np.load(tmp_path / "u.npy") @ read_components(out)[0]
    np.testing.assert_allclose(fitted[:, 1:], rows["east"][:, 1:], atol=0.05)  # rows with missing cells pay a ridge


@pytest.mark.slow
def test_transform_remembers_what_marks_a_missing_cell(tmp_path, rows):
    X = rows["east"].copy()
    X[1, 2] = -1
    np.save(tmp_path / "new.npy", X)
    fitted = call("fit", tmp_path / "new.npy", "-k", 2, "-o", tmp_path / "out", "-q", "--missing-values", "-1")
    assert fitted.exit_code == 0, fitted.output
    for words in ((), ("--missing-values", "-1")):
        done = call("transform", tmp_path / "out", tmp_path / "new.npy", "-o", tmp_path / f"u{len(words)}.csv", *words)
        assert done.exit_code == 0, done.output
    assert (tmp_path / "u0.csv").read_text() == (tmp_path / "u2.csv").read_text()
    refused = call(
        "transform", tmp_path / "out", tmp_path / "new.npy", "-o", tmp_path / "u.csv", "--missing-values", "none"
    )
    assert refused.exit_code == 2


@pytest.mark.parametrize("command", ["fit", "rank", "transform"])
def test_help_says_what_the_files_are(command):
    words = " ".join(call(command, "--help").stdout.split())
    assert "holds the rows of one owner" in words or "ROWS is a file of new rows" in words


@pytest.mark.slow
@pytest.mark.parametrize("text", ["{}", "[]", '"run"', "{"])
def test_a_record_that_is_none(out, files, tmp_path, text):
    (out / "shared" / "run.json").write_text(text)
    for words in (("info", out), ("transform", out, files / "east.npz", "-o", tmp_path / "u.csv")):
        done = call(*words)
        assert done.exit_code == 2
        assert "run.json" in done.stderr


@pytest.mark.parametrize(
    ("name", "comma", "wanted"),
    [
        ("hb", False, "feature,component_0\nhb,1.5\n"),
        ("Größe", False, "\ufefffeature,component_0\nGröße,1.5\n"),
        ("v1.2", True, "feature;component_0\nv1.2;1,5\n"),
        ("a;b", True, 'feature;component_0\n"a;b";1,5\n'),
    ],
)
def test_tables_suit_spreadsheets_of_other_countries(tmp_path, name, comma, wanted):
    table = tmp_path / "v.csv"
    table.write_text(f"feature,component_0\n{name},1.5\n", encoding="utf-8")
    for_spreadsheets(table, comma)
    assert table.read_text(encoding="utf-8") == wanted
