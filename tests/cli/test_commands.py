from __future__ import annotations

import json
import re
import shlex

import numpy as np
import pytest

from fedfactor.cli import app
from tests.command_line import CliRunner, command


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def table(path, X, names=None, ids=False):
    names = names or [f"f{j}" for j in range(X.shape[1])]
    lines = [",".join([*([f"p{i}"] if ids else []), *(f"{x:g}" for x in row)]) for i, row in enumerate(X)]
    path.write_text(",".join([*(["patient_id"] if ids else []), *names]) + "\n" + "\n".join(lines) + "\n")
    return path


class TestInspect:
    @pytest.mark.parametrize(
        ("X", "says"),
        [
            (np.eye(6) + np.eye(6)[::-1], "pooled-bmf"),
            (np.random.default_rng(0).poisson(0.5, (30, 8)) + 3 * np.eye(30, 8), "kullback-leibler"),
            (np.random.default_rng(0).random((9, 4)), "fedfactor rank"),
            (np.random.default_rng(0).normal(size=(9, 4)), "no method as it is"),
        ],
    )
    def test_advises_by_what_the_cells_are(self, tmp_path, X, says):
        done = call("inspect", table(tmp_path / "a.csv", X, ids=True))
        assert done.exit_code == 0, done.output
        assert says in done.stdout
        assert "patient_id" in done.stdout

    def test_a_table_of_ratings(self, tmp_path):
        lines = [f"{u},{i},{1 + u % 5},0" for u in range(6) for i in range(u, u + 3)]
        (tmp_path / "r.csv").write_text("userId,movieId,rating,timestamp\n" + "\n".join(lines) + "\n")
        said = call("inspect", tmp_path / "r.csv").stdout
        assert "pooled-cf" in said
        assert "6 rows × 8 columns" in said

    def test_gaps_and_scales_are_pointed_out(self, tmp_path):
        X = np.random.default_rng(0).random((20, 3)) * [1, 1, 5000]
        X[3, 1] = np.nan
        said = call("inspect", table(tmp_path / "a.csv", X, ["crp", "ldl", "cells"])).stdout
        assert "--missing nan" in said
        assert "--scale rms" in said
        assert "'cells'" in said

    def test_dates_and_text_are_named_with_what_to_drop(self, tmp_path):
        path = tmp_path / "a.csv"
        path.write_text("seen on,crp,hb,ward\n2024-07-16,1.5,2.5,a\n2024-07-17,3.5,4.5,b\n2024-07-17,3.5,4.5,b\n")
        done = call("inspect", path)
        assert done.exit_code == 0
        assert "seen on (dates, such as '2024-07-16'), ward (text, such as 'a')" in done.output
        assert "fedfactor fit a.csv --drop 'seen on,ward' -k 1 -o out" in done.output
        assert "3 rows × 2 columns" in done.output

    @pytest.mark.slow
    def test_what_it_advises_runs_as_it_stands(self, tmp_path, monkeypatch):
        """A table as people have it: ids, dates, gaps, units far apart."""
        monkeypatch.chdir(tmp_path)
        rng = np.random.default_rng(0)
        X = rng.gamma(0.7, 1, (40, 2)) @ rng.gamma(0.5, 1, (2, 5)) * [1, 1000, 1, 1, 1]
        rows = [f"p{i},2024-07-{1 + i % 9:02d}," + ",".join(f"{cell:.3f}" for cell in row) for i, row in enumerate(X)]
        rows[3] = rows[3].rpartition(",")[0] + ","
        (tmp_path / "my labs.csv").write_text("\n".join(["patient_id,seen,a,b,c,d,e", *rows]) + "\n")
        advised = [line.strip() for line in call("inspect", "my labs.csv").stdout.splitlines() if "fedfactor" in line]
        assert "--drop seen --missing nan --scale rms" in advised[0]
        for line in advised[:2]:
            done = call(*shlex.split(line.partition("      ")[0])[1:])
            assert done.exit_code == 0, done.output

    def test_says_what_would_leave(self, tmp_path):
        said = call("inspect", table(tmp_path / "a.csv", np.random.default_rng(0).random((9, 4)))).stdout
        assert "UᵀX" in said
        assert "Never: rows" in said

    def test_no_such_file(self, tmp_path):
        done = call("inspect", tmp_path / "none.csv")
        assert done.exit_code == 2
        assert "none.csv" in done.stderr


@pytest.mark.slow
def test_compare_puts_methods_beside_alone_and_pooled(files, tmp_path):
    out = tmp_path / "c"
    done = call(
        "compare", files, "-k", 2, "-a", "pooled-nmf", "-a", "fedavg-nmf", "--seeds", 2, "--rounds", 8, "-o", out
    )
    assert done.exit_code == 0, done.output
    methods = json.loads((out / "compare.json").read_text())["methods"]
    assert list(methods) == ["alone", "pooled-nmf", "fedavg-nmf", "pooled"]
    assert all(len(about["relative_error"]) == 2 for about in methods.values())
    assert all(sorted(about["owners"]) == ["east", "north", "west"] for about in methods.values())
    assert methods["alone"]["bytes_up"] == 0 < methods["pooled-nmf"]["bytes_up"]
    assert (out / "compare.svg").read_text().startswith("<?xml")
    assert "pooled-nmf" in done.stdout


@pytest.mark.slow
def test_compare_takes_what_can_take_the_rows(tmp_path):
    X = np.random.default_rng(0).random((2, 30, 5))
    X[0, 3, 2] = np.nan
    for name, rows in zip("ab", X, strict=True):
        np.save(tmp_path / f"{name}.npy", rows)
    words = (
        "compare",
        tmp_path / "a.npy",
        tmp_path / "b.npy",
        "--missing",
        "nan",
        "-k",
        2,
        "--seeds",
        1,
        "--rounds",
        5,
    )
    done = call(*words)
    assert done.exit_code == 0, done.output
    assert "without fedavg-nmf. FedAvgNMF needs complete rows" in done.stderr
    assert "pooled-nmf" in done.stdout
    asked = call(*words, "-a", "pooled-nmf", "-a", "fedavg-nmf")
    assert asked.exit_code == 2
    assert "run 1" not in asked.stderr  # it is known before anything is run


@pytest.mark.slow
def test_compare_says_what_is_wrong(files):
    for words in (("-a", "nothing"), ("-a", "pooled"), ("--share", 2)):
        done = call("compare", files, "-k", 2, *words)
        assert done.exit_code == 2
        assert done.stderr.splitlines()[-1].startswith("Error: ")


def test_doctor_lists_what_is_there():
    done = call("doctor")
    assert done.exit_code == 0, done.output
    for word in ("numpy", "blas", "mpi4py", "flwr", "gpu", "disk"):
        assert word in done.stdout


@pytest.mark.slow
def test_rank_says_when_the_best_lies_at_the_edge(files):
    done = call("rank", files, "-k", "1-2", "--seed", 0, "--repeats", 1, "--rounds", 15)
    assert done.exit_code == 0, done.output
    assert "largest candidate, 2" in done.stderr


@pytest.mark.parametrize("name", [command.name or command.callback.__name__ for command in app.registered_commands])
def test_every_help_is_readable(name):
    done = call(name, "--help")
    assert done.exit_code == 0
    assert "Usage" in done.stdout


def _leaves(command, name):
    return (
        [each for sub, child in command.commands.items() for each in _leaves(child, f"{name} {sub}")]
        if hasattr(command, "commands")
        else [(name, command)]
    )


@pytest.mark.parametrize(("name", "command"), _leaves(command(app), "fedfactor"))
def test_every_help_has_an_example_with_flags_that_exist(name, command):
    said = " ".join((command.help or "").split())
    assert name in said.partition("Example")[2], f"{name} --help shows no example"
    known = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    example = said.partition("Example")[2].partition(name)[2].partition(" fedfactor ")[0]
    for flag in re.findall(r"(?<![\w-])--?[a-z][\w-]*", example.partition(".")[0]):
        assert flag in known, f"{name} has no {flag}"
