"""The studies run small, go on where they stopped, and measure what the algorithms give."""

from __future__ import annotations

import csv
from functools import partial

import numpy as np
import pytest
import scipy.sparse

import fedfactor
from fedfactor.algorithms import BooleanVotes, PooledBMF
from fedfactor.datasets.boolean_tiles import even_tiles
from papers.__main__ import app
from papers.felb import run as studies
from papers.felb import tables
from papers.felb.cells import Bench, Cell, Store
from papers.felb.quantile import count_below, federated_quantile
from tests.command_line import CliRunner

METHODS = ("FELB", "PooledBMF", "asso or")


def test_quantile_from_counts_is_the_pooled_one():
    rng = np.random.default_rng(0)
    X = np.round(rng.exponential(size=(60, 30)), 3)
    owners = {"a": X[:10], "b": X[10:25], "c": scipy.sparse.csr_array(X[25:])}
    found = federated_quantile(owners, 0.95, 0.0, 50.0)
    pooled = np.quantile(X, 0.95, method="inverted_cdf")
    assert found == pytest.approx(pooled, abs=1e-6)
    assert (X <= found).mean() >= 0.95 > (X <= found - 1e-3).mean()
    np.testing.assert_array_equal(count_below(scipy.sparse.csr_array((2, 2)), np.array([-1.0, 0.0])), [0, 4])
    with pytest.raises(ValueError, match="must lie in"):
        federated_quantile(owners, 1.5, 0, 1)


@pytest.mark.slow
def test_bench_gives_what_an_engine_gives():
    data = even_tiles(120, 40, 3, 4, flips=0.05, seed=0)
    bench = Bench(data.owners)
    for algorithm in (BooleanVotes(3), BooleanVotes.paper(3), BooleanVotes(3, "zhang", vote="or"), PooledBMF(3)):
        run = fedfactor.run(algorithm, data.owners, seed=0)
        found = bench.measure(algorithm)
        assert found["pooled_loss"] == pytest.approx(float(run.score.sse / run.score.total))
        assert found["bytes_up_per_client"] * 4 == run.bytes_up


def test_store_goes_on_where_it_stopped(tmp_path):
    made = []

    def make():
        made.append(1)
        return {"loss": 0.5}

    cell = Cell("noise", "0.05", "FELB", 0)
    for _ in range(2):
        assert Store(tmp_path).get(cell, {"rate": 1.005}, make)["loss"] == 0.5
    assert len(made) == 1
    Store(tmp_path).get(cell, {"rate": 1.01}, make)
    assert len(made) == 2


@pytest.mark.slow
def test_reproduce_writes_tables_and_figures(tmp_path, monkeypatch):
    def tiny(full):
        methods = {"FELB": PooledBMF(2), "asso majority": BooleanVotes.paper(2, time_limit=1e-9)}
        yield "0.00", partial(even_tiles, 60, 20, 2, 3), methods

    monkeypatch.setitem(studies.STUDIES, "noise", tiny)
    found = CliRunner().invoke(app, ["run", "felb", "-o", str(tmp_path), "--only", "noise"])
    assert found.exit_code == 0, found.output
    assert {path.name for path in tmp_path.iterdir()} == {"cells", "noise.csv", "noise.md", "noise.png", "summary.md"}
    table = (tmp_path / "noise.md").read_text()
    assert "| asso majority | 1.000* |" in table
    assert "| *size* | 60 × 20, k = 2 | |" in table
    assert "- asso: 0.00 (3 of 3 clients)." in table


def test_unknown_paper_and_study(tmp_path):
    unknown = CliRunner().invoke(app, ["run", "gospel", "-o", str(tmp_path)])
    assert unknown.exit_code == 2
    odd = CliRunner().invoke(app, ["run", "felb", "-o", str(tmp_path), "--only", "love"])
    assert odd.exit_code == 2


def test_exceptions_are_named():
    def row(method, loss):
        return {"data": "d", "method": method, "loss": loss, "late": 0, "seconds_per_client": 1.0}

    good = [row("FELB", 0.5), row("PooledBMF", 0.4), row("asso or", 0.9), row("asso or aligned", 0.1)]
    assert tables.order_holds(good) == ["- d: PooledBMF ≤ FELB ≤ every unaligned vote."]
    bad = [row("FELB", 0.5), row("PooledBMF", 0.6), row("mebf or", 0.2), row("mebf or refit", 0.1)]
    said = "- d: PooledBMF 0.600 > FELB 0.500; FELB 0.500 > mebf or 0.200, mebf or refit 0.100."
    assert tables.order_holds(bad) == [said]


def test_every_study_names_its_data_and_methods():
    for name in ("noise", "scarcity", "abundance"):
        plan = list(studies.STUDIES[name](False))
        assert len(plan) >= 3
        assert {"FELB", "FALB", "PooledBMF", "asso majority", "primp majority aligned"} <= set(plan[0][2])


@pytest.mark.slow
def test_seeds_are_drawn_anew_and_averaged(tmp_path, monkeypatch):
    def tiny(full):
        yield "0.10", partial(even_tiles, 60, 20, 2, 3, flips=0.1, dense=0.9), {"FELB": PooledBMF(2)}

    monkeypatch.setitem(studies.STUDIES, "noise", tiny)
    studies.reproduce(tmp_path, only=("noise",), seeds=2, say=lambda _: None)
    with (tmp_path / "noise.csv").open() as file:
        rows = list(csv.DictReader(file))
    losses = [float(row["loss"]) for row in rows]
    assert [row["seed"] for row in rows] == ["0", "1"]
    assert losses[0] != losses[1]
    assert f"| FELB | {sum(losses) / 2:.3f} |" in (tmp_path / "noise.md").read_text()


def test_tiles_of_the_paper_have_holes():
    whole, holed = (even_tiles(400, 50, 3, 4, dense=dense) for dense in (1.0, 0.9))
    kept = sum(X.sum() for X in holed.owners.values()) / sum(X.sum() for X in whole.owners.values())
    assert kept == pytest.approx(0.9, abs=0.02)
    assert all((holed.owners[name] <= whole.owners[name]).all() for name in whole.owners)


def test_the_table_says_which_sets_are_absent(tmp_path):
    rows = [{"data": "d", "method": name, "loss": 0.5, "late": 0, "seconds_per_client": 1.0} for name in METHODS]
    tables.write(tmp_path, "real", rows, ["chess"])
    assert "- Not in the data folder, so left out: chess." in (tmp_path / "real.md").read_text()
