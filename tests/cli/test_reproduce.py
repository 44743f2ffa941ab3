from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from fedfactor.cli import app
from fedfactor.experiments.fnmf import barycenters, real, synthetic
from fedfactor.experiments.fnmf.run import STUDIES


def call(*words):
    return CliRunner().invoke(app, ["reproduce", *map(str, words)])


def test_experiments_are_listed():
    done = call()
    assert done.exit_code == 0
    assert "fnmf" in done.output


@pytest.mark.parametrize(
    ("words", "message"),
    [(["nope"], "No experiments are called 'nope'"), (["fnmf", "--only", "magic"], "No study is called 'magic'")],
)
def test_unknown_names(words, message, tmp_path):
    done = call(*words, "-o", tmp_path)
    assert done.exit_code == 2
    assert message in done.output


def test_a_study_writes_its_table_and_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(barycenters, "NOISE", (0.0,))
    done = call("fnmf", "--only", "barycenters", "--seeds", 1, "-o", tmp_path)
    assert done.exit_code == 0, done.output
    table = (tmp_path / "barycenters.csv").read_text()
    assert len(table.splitlines()) == 1 + 2 * len(barycenters.METHODS)
    assert (tmp_path / "barycenters.png").stat().st_size > 1000
    cells = sorted((tmp_path / "cells").glob("*.json"))
    cells[0].unlink()
    marked = json.loads(cells[1].read_text()) | {"own_loss": 123.0}
    cells[1].write_text(json.dumps(marked))
    assert call("fnmf", "--only", "barycenters", "--seeds", 1, "-o", tmp_path).exit_code == 0
    assert cells[0].exists()
    assert "123.0" in (tmp_path / "barycenters.csv").read_text()  # what was there was not made again


def test_every_study_has_a_figure():
    from fedfactor.experiments.fnmf import figures

    assert set(figures._DRAW) == set(STUDIES)


def test_methods_of_the_tables_differ():
    for methods in (synthetic.rivals(3, 5), synthetic.personal_methods(3), real.methods(3)):
        assert len(set(map(repr, methods.values()))) == len(methods)
