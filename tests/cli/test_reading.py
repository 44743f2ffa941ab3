"""Files of one's own on the command line: ids, scales, ratings, preprocessing, and what transform does with them."""

from __future__ import annotations

import json
import re

import numpy as np
import pandas as pd
import pytest

from fedfactor.cli import app
from fedfactor.core.column_scales import column_sums
from fedfactor.core.pytree import tree_sum
from fedfactor.io.preprocessing import Preprocess
from fedfactor.io.result_folder import read_components, read_private, read_row_ids
from tests.command_line import CliRunner


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def fit(out, *words):
    return call("fit", "-k", 2, "--seed", 1, "--rounds", 40, "-o", out, *words)


@pytest.fixture
def hospitals(tmp_path):
    """Three CSVs with integer ids and columns of very different units."""
    rng = np.random.default_rng(3)
    V = rng.random((2, 5)) * np.array([1.0, 1.0, 50.0, 4000.0, 1.0])
    frames = {}
    for j, name in enumerate(("east", "north", "west")):
        X = rng.random((30, 2)) @ V
        frame = pd.DataFrame(np.round(X, 4), columns=["na", "k", "hb", "plt", "crea"])
        frame.insert(0, "patient_id", rng.permutation(1000)[:30] + 1000 * j)
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        frames[name] = frame.set_index("patient_id")
    return tmp_path, frames


def files(folder):
    return [folder / f"{name}.csv" for name in ("east", "north", "west")]


@pytest.mark.slow
def test_ids_are_said_kept_with_u_and_not_factored(hospitals):
    folder, frames = hospitals
    done = fit(folder / "out", *files(folder))
    assert done.exit_code == 0, done.output
    assert "east.csv: 30 rows × 5 columns; cells apart by commas; row ids: patient_id." in done.stderr
    assert read_components(folder / "out")[1] == ("na", "k", "hb", "plt", "crea")
    assert read_row_ids(folder / "out", "north") == tuple(map(str, frames["north"].index))
    assert (folder / "out" / "private" / "north.rows.json").stat().st_mode & 0o777 == 0o600
    assert call("features", folder / "east.csv", "-o", folder / "f.json").exit_code == 0
    assert "patient_id" not in (folder / "f.json").read_text()


@pytest.mark.slow
def test_columns_are_chosen_on_the_command_line(hospitals):
    folder, _ = hospitals
    assert fit(folder / "a", *files(folder), "--drop", "plt,hb", "-q").exit_code == 0
    assert read_components(folder / "a")[1] == ("na", "k", "crea")
    assert fit(folder / "b", *files(folder), "--columns", "k", "--columns", "h*", "-q").exit_code == 0
    assert read_components(folder / "b")[1] == ("k", "hb")
    assert read_row_ids(folder / "b", "east") is not None
    assert fit(folder / "c", *files(folder), "--id", "none", "-q").exit_code == 0
    assert read_components(folder / "c")[1][0] == "patient_id"


@pytest.mark.slow
def test_scales_far_apart_are_named_with_the_remedy(hospitals):
    folder, _ = hospitals
    for words in (
        ("fit", "-k", 2, "--rounds", 2, "-o", folder / "x"),
        ("rank", "-k", "1-2", "--repeats", 1, "--rounds", 2),
    ):
        done = call(*words, *files(folder))
        assert done.exit_code == 0, done.output
        assert "Note: Columns differ in scale by a factor of" in done.stderr
        assert "'plt'" in done.stderr
        assert "--scale rms" in done.stderr
        assert ".py:" not in done.stderr
    assert "Note: columns were scaled for the search. Fit with --scale rms" in done.stderr
    assert "differ in scale" not in fit(folder / "y", *files(folder), "--scale", "rms").stderr


@pytest.mark.slow
def test_an_owner_with_other_units_is_named_before_anything_is_sent(hospitals):
    folder, frames = hospitals
    grams = frames["west"].assign(crea=frames["west"]["crea"] * 1000)
    grams.to_csv(folder / "west.csv")
    done = fit(folder / "x", *files(folder), "--scale", "rms")
    assert done.exit_code == 0, done.output
    assert re.search(r"'crea' is \d+ times larger at 'west' than at '(east|north)'", done.stderr)
    assert "different units" not in fit(folder / "y", *files(folder), "--drop", "crea").stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rms", "mean", "std", "max", "quantile 0.8"])
def test_scaling_in_a_simulation_is_that_of_the_pooled_rows(hospitals, kind):
    folder, frames = hospitals
    assert fit(folder / "out", *files(folder), "--scale", kind, "-q").exit_code == 0
    record = json.loads((folder / "out" / "shared" / "run.json").read_text())
    assert record["preprocess"]["steps"] == [f"scale {kind}"]
    pooled = np.vstack([frame.to_numpy() for frame in frames.values()])
    expected = {
        "rms": np.sqrt((pooled**2).mean(0)), "mean": pooled.mean(0), "std": pooled.std(0), "max": pooled.max(0),
        "quantile 0.8": np.quantile(pooled, 0.8, axis=0),
    }[kind]  # fmt: skip
    found = 1 / np.array(record["preprocess"]["weights"])
    if kind in ("max", "quantile 0.8"):  # known to a quarter power of two, and never below
        assert (found >= expected * 0.999).all()
        assert (found <= expected * 1.2).all()
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [["--scale", "max"], ["--log1p"], ["--library-size", "100", "--log1p", "--scale", "std"]]
)
def test_transform_does_to_new_rows_what_was_done_to_the_old(hospitals, words):
    folder, _ = hospitals
    assert fit(folder / "out", *files(folder), *words, "-q").exit_code == 0
    frame = pd.read_csv(folder / "east.csv")[["crea", "plt", "patient_id", "hb", "k", "na"]]
    frame["comment"] = "x"
    frame.to_csv(folder / "new.csv", index=False)
    done = call("transform", folder / "out", folder / "new.csv", "-o", folder / "u.csv")
    assert done.exit_code == 0, done.output
    assert "left out: comment" in done.stderr
    U = pd.read_csv(folder / "u.csv").set_index("patient_id")
    np.testing.assert_allclose(U.to_numpy(), read_private(folder / "out", "east")["U"], atol=0.02)


@pytest.mark.slow
def test_order_of_columns_does_not_matter_for_scales(hospitals):
    folder, _ = hospitals
    pd.read_csv(folder / "west.csv").iloc[:, ::-1].to_csv(folder / "west.csv", index=False)
    assert fit(folder / "out", *files(folder), "--scale", "rms", "-q").exit_code == 0
    weights = np.array(json.loads((folder / "out" / "shared" / "run.json").read_text())["preprocess"]["weights"])
    parts = [pd.read_csv(path)[["na", "k", "hb", "plt", "crea"]].to_numpy() for path in files(folder)]
    np.testing.assert_allclose(weights, tree_sum([column_sums(part) for part in parts]).weights("scale"))


def test_steps_that_add_up_columns_are_refused_with_noise(hospitals):
    folder, _ = hospitals
    done = fit(folder / "out", *files(folder), "--scale", "rms", "--privacy", "dp")
    assert done.exit_code == 2
    assert "no --privacy covers" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "feather", "arrow", "npy", "csv.gz"])
def test_u_goes_to_every_format_that_can_be_written(hospitals, ending):
    folder, frames = hospitals
    assert fit(folder / "out", *files(folder), "-q").exit_code == 0
    target = folder / f"u.{ending}"
    done = call("transform", folder / "out", folder / "east.csv", "-o", target)
    assert done.exit_code == 0, done.output
    if ending != "npy":
        read = {"parquet": pd.read_parquet, "feather": pd.read_feather, "arrow": pd.read_feather}.get(
            ending, pd.read_csv
        )
        found = read(target, **({"sep": "\t"} if ending == "tsv" else {}))
        assert list(found) == ["patient_id", "component_0", "component_1"]
        assert list(found["patient_id"].astype(int)) == list(frames["east"].index)
    assert target.stat().st_mode & 0o777 == 0o600


@pytest.mark.slow
def test_formulas_in_ids_are_made_harmless(tmp_path):
    (tmp_path / "a.csv").write_text('id,x,y\n"=HYPERLINK(""http://x"",""y"")",1,2\n+cmd,2,1\n-5,3,3\n@z,1,1\n')
    assert fit(tmp_path / "out", tmp_path / "a.csv", "-q").exit_code == 0
    assert call("transform", tmp_path / "out", tmp_path / "a.csv", "-o", tmp_path / "u.csv").exit_code == 0
    ids = [line.lstrip('"')[:5] for line in (tmp_path / "u.csv").read_text().splitlines()[1:]]
    assert ids[0].startswith("'=HY")
    assert ids[1].startswith("'+cmd")
    assert ids[2].startswith("-5,")
    assert ids[3].startswith("'@z")


@pytest.mark.slow
def test_ratings_of_several_owners(tmp_path):
    rng = np.random.default_rng(0)
    for name, first in (("a", 0), ("b", 3)):
        lines = [
            f"{u},{i},{rng.integers(1, 6)},{u * i}"
            for u in range(1, 30)
            for i in range(first, first + 12)
            if (u * i) % 3
        ]
        (tmp_path / f"{name}.csv").write_text("\n".join(["userId,movieId,rating,timestamp", *lines]) + "\n")
    done = call(
        "fit", "-a", "pooled-cf", "-k", 2, "--rounds", 5, tmp_path / "a.csv", tmp_path / "b.csv", "-o", tmp_path / "out"
    )
    assert done.exit_code == 0, done.output
    assert "a long table: userId as rows, movieId as columns, rating as values" in done.stderr
    features = read_components(tmp_path / "out")[1]
    assert features == tuple(str(item) for item in range(15) if item % 3)
    record = json.loads((tmp_path / "out" / "shared" / "run.json").read_text())
    assert record["relative_error"] is None or record["relative_error"] < 2


@pytest.mark.slow
def test_subjects_are_told_apart_by_exact_ids(tmp_path):
    rng = np.random.default_rng(0)
    owners = [tmp_path / f"{name}.csv" for name in "abc"]
    for j, path in enumerate(owners):
        frame = pd.DataFrame(rng.random((120, 4)), columns=list("wxyz"))
        frame.insert(0, "patient_id", 2**60 + 1000 * j + np.repeat(np.arange(60), 2))
        frame.to_csv(path, index=False)
    words = ("--privacy", "dp", "--unit", "subject", "--subject", "patient_id", "--cap", 2, "--epsilon", 4)
    done = call("fit", "-k", 2, "--rounds", 3, *owners, "-o", tmp_path / "out", *words)
    assert done.exit_code == 0, done.output
    assert read_components(tmp_path / "out")[1] == ("w", "x", "y", "z")


@pytest.mark.slow
def test_one_vocabulary(hospitals):
    folder, _ = hospitals
    assert fit(folder / "out", *files(folder), "--log1p", "--select", 3, "--scale", "mean", "-q").exit_code == 0
    record = json.loads((folder / "out" / "shared" / "run.json").read_text())["preprocess"]
    assert record["steps"] == ["log1p", "select 3", "scale mean"]
    assert Preprocess.of({"steps": record["steps"], "missing_values": "none"}).words == record["steps"]
    assert sum(weight == 0 for weight in record["weights"]) == 2
