from __future__ import annotations

import json
import pkgutil
from importlib import import_module

import pytest

import papers as experiments
from papers import __main__ as command
from papers import catalogue
from papers.catalogue import PAPERS
from papers.fnmf import barycenters, real, synthetic
from papers.fnmf.cells import Store, mean_rows
from papers.fnmf.run import QUICK, STUDIES
from tests.command_line import CliRunner


def call(*words):
    return CliRunner().invoke(command.app, [*map(str, words)])


def test_experiments_are_listed_with_figures_and_missing_sets(tmp_path, monkeypatch):
    monkeypatch.setenv("FEDFACTOR_DATA", str(tmp_path))
    done = call("list")
    assert done.exit_code == 0
    assert "table (Table 1, Table 2, Table 3, Fig. 3)" in done.output
    assert "not here: movielens_small, movielens_1m" in done.output


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nope"], "No experiments are called 'nope'"),
        (["fnmf", "--only", "magic"], "no study 'magic'"),
        (["fnmf", "--only", "fig9"], "no study 'fig9'"),
        (["privacy", "--seeds", "2"], "choose their seeds themselves"),
        (["--quick", "--full"], "Give one of them"),
        (["--quick", "--only", "fig5"], "Give a name"),
    ],
)
def test_unknown_names(words, message, tmp_path):
    done = call("run", *words, "-o", tmp_path)
    assert done.exit_code == 2
    assert message in done.output


def test_the_catalogue_has_every_folder_and_every_study():
    folders = {found.name for found in pkgutil.iter_modules(experiments.__path__) if found.ispkg}
    assert set(PAPERS) == folders
    for name, paper in PAPERS.items():
        work = import_module(f"papers.{name}.run")
        extra = {
            "feddmf": {"attributes"},
            "dsanls": {"secure", "parties", "iterations", "complexity", "protocol", "stalls"},
        }.get(name, set())
        assert set(paper.studies) == set(work.STUDIES) | extra
        assert set(paper.named_only) <= set(paper.studies)
        for other, study in paper.elsewhere.values():
            assert study in PAPERS[other].studies


def test_a_study_that_is_large_runs_by_its_own_name_only():
    assert catalogue.find_study("felb", "fig3") == [("felb", "scarcity")]
    assert catalogue.find_study("felb", "size") == [("felb", "size")]


def test_a_quick_run_leaves_cells_out(tmp_path):
    store = Store(tmp_path, few={"level": (0.2,)})
    rows = [store.get({"level": level}, None, lambda: {"error": 1.0}) for level in (0.1, 0.2)]
    assert mean_rows(rows, ("level",), ("error",)) == [{"level": 0.2, "error": 1.0, "seeds": 1}]
    assert set(QUICK) <= set(STUDIES)
    assert set(QUICK["real"]["set"]) <= set(real.SETS)


@pytest.mark.slow
def test_all_papers_go_on_past_a_study_that_cannot_run_here(tmp_path, monkeypatch):
    few = {"fedsplit": catalogue.PAPERS["fedsplit"], "fnmf": catalogue.Paper("FNMF", {"barycenters": ("Fig. 1",)})}
    monkeypatch.setattr(command, "PAPERS", few)
    monkeypatch.setattr(barycenters, "NOISE", (0.0,))
    monkeypatch.setenv("FEDFACTOR_DATA", str(tmp_path / "nothing"))
    done = call("run", "--quick", "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "the set movielens_1m is not here" in done.output
    assert "Left out: fedsplit table: No MovieLens ratings are here" in done.output
    summary = (tmp_path / "out" / "summary.md").read_text()
    assert "| fnmf | barycenters | Fig. 1 |" in summary
    assert "[barycenters.png](fnmf/barycenters.png)" in summary
    assert (tmp_path / "out" / "fnmf" / "barycenters.png").stat().st_size > 1000


@pytest.mark.slow
def test_a_study_writes_its_table_and_goes_on_where_it_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(barycenters, "NOISE", (0.0,))
    done = call("run", "fnmf", "--only", "fig1", "--seeds", 1, "-o", tmp_path)
    assert done.exit_code == 0, done.output
    table = (tmp_path / "barycenters.csv").read_text()
    assert len(table.splitlines()) == 1 + 2 * len(barycenters.METHODS)
    assert (tmp_path / "barycenters.png").stat().st_size > 1000
    cells = sorted((tmp_path / "cells").glob("*.json"))
    cells[0].unlink()
    marked = json.loads(cells[1].read_text()) | {"own_loss": 123.0}
    cells[1].write_text(json.dumps(marked))
    assert call("run", "fnmf", "--only", "barycenters", "--seeds", 1, "-o", tmp_path).exit_code == 0
    assert cells[0].exists()
    assert "123.0" in (tmp_path / "barycenters.csv").read_text()  # what was there was not made again


def test_every_study_has_a_figure():
    from papers.fnmf import figures

    assert set(figures._DRAW) == set(STUDIES)


def test_methods_of_the_tables_differ():
    for methods in (synthetic.rivals(3, 5), synthetic.personal_methods(3), real.methods(3)):
        assert len(set(map(repr, methods.values()))) == len(methods)
