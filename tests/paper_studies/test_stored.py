"""Stored results can be computed again, and say what made them."""

from __future__ import annotations

import json

import pytest

from papers import stored
from papers.__main__ import app
from papers.fnmf import barycenters
from tests.command_line import CliRunner

KNOWN = stored.read()
CHEAP = [method for method in barycenters.METHODS if method.startswith(("LAP", "1-NN", "3-NN"))]


def test_every_record_names_commit_command_seeds_and_time():
    assert KNOWN
    for name, record in KNOWN.items():
        paper, study = name.split("/")
        assert record["command"].startswith(f"python -m papers run {paper} --only {record['study']}")
        assert len(record["commit"]) == 40
        assert record["seconds"] >= 0
        assert record["cpu_seconds"] >= 0
        assert not record["uncommitted"]
        assert study == stored.name_of(record["study"], record["parameters"]["size"])
        assert any(record["tables"].values())


@pytest.mark.parametrize("method", CHEAP)
def test_barycenters(method):
    truth, Vs = barycenters.sample(30, 60, 20, 0.5, 0)
    found = barycenters.score(method, truth, Vs, 0)
    wanted = {"noise": "0.5", "k": "30", "clients": "20", "method": method}
    for figure in ("own_loss", "lap_loss", "distance_to_truth", "orthogonality_gap"):
        old = stored.select(KNOWN["fnmf/barycenters-quick"], wanted, figure)
        assert found[figure] == pytest.approx(old, rel=1e-6, abs=1e-9), figure


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dsanls/complexity", "dsanls/protocol", "fnmf/letter", "fnmf/personal"])
def test_a_cheap_study_gives_its_stored_tables(name, tmp_path):
    record = KNOWN[f"{name}-quick"]
    done = CliRunner().invoke(app, [*record["command"].split()[3:], "-o", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert list(stored.compare(record, stored.read_tables(tmp_path))) == []


def test_results_of_two_commits_are_not_mixed(tmp_path):
    (tmp_path / "cells").mkdir()
    done = CliRunner().invoke(app, ["run", "fnmf", "--only", "letter", "--store", "-o", str(tmp_path)])
    assert done.exit_code == 2
    assert "figures of another commit" in done.output


def test_a_changed_figure_is_noticed():
    record = KNOWN["dsanls/complexity-quick"]
    rows = json.loads(json.dumps(record["tables"]))
    assert list(stored.compare(record, rows)) == []
    rows["complexity"][0]["numbers_sent"] += 1
    assert len(list(stored.compare(record, rows))) == 1
    rows["complexity"].pop()
    assert "rows in place of" in next(iter(stored.compare(record, rows)))


def test_a_study_is_stored_and_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "ROOT", tmp_path / "papers")
    words = ["run", "dsanls", "--only", "complexity", "--quick", "--store", "-o", str(tmp_path / "out" / "dsanls")]
    (tmp_path / "papers" / "dsanls").mkdir(parents=True)
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    record = stored.read(tmp_path / "papers")["dsanls/complexity-quick"]
    assert record["command"] == "python -m papers run dsanls --only complexity --quick"
    assert (
        stored.select(record, {"rows": "20000", "columns": "784", "nodes": "2", "method": "MPI-FAUN HALS"}, "rank")
        == 20
    )
