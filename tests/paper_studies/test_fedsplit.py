"""The experiment runs on made-up ratings, resumes, and writes its tables."""

from __future__ import annotations

import gzip
from dataclasses import replace

import numpy as np
import pytest

from fedfactor.algorithms import FedSPLIT
from fedfactor.evaluation.recommender_tuning import choose_recommender
from papers import stored
from papers.fedsplit import audit, methods, run
from papers.fedsplit.protocol import make_split, prepared
from papers.fedsplit.tables import gap_closed, group_changes
from papers.kept import Store


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Ratings of 60 users and 45 movies in the file of MovieLens."""
    rng = np.random.default_rng(0)
    quality, taste = rng.normal(0, 0.7, 45), rng.normal(0, 0.4, 60)
    lines = ["userId,movieId,rating,timestamp"]
    for user in range(60):
        for movie in rng.choice(45, 30, replace=False):
            rating = np.clip(np.rint(3.5 + quality[movie] + taste[user] + 0.5 * rng.normal()), 0.5, 5)
            lines.append(f"{user},{movie},{rating},{rng.integers(10**9)}")
    where = tmp_path / "data" / "movielens-latest-small"
    where.mkdir(parents=True)
    (where / "ratings.csv.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    monkeypatch.setenv("FEDFACTOR_DATA", str(tmp_path / "data"))
    return tmp_path


class Tiny(methods.Budget):
    def __init__(self, size):
        self.trials, self.folds, self.iterations, self.ranks, self.runs, self.run_folds = 1, 1, 5, (2,), 1, 1


@pytest.mark.slow
def test_table_and_lists(folder, monkeypatch):
    pytest.importorskip("optuna")
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(run, "Budget", Tiny)
    said = []
    run.reproduce(folder / "out", only=("table", "ranking"), seeds=1, say=said.append)
    text = (folder / "out" / "tables.md").read_text()
    for method in methods.METHODS:
        assert f"| {method} |" in text
    assert "0.71 ± 0.006" in text
    assert (folder / "out" / "figure3_movielens_small.png").exists()
    assert "PooledCF" in (folder / "out" / "ranking.md").read_text()
    before = {path: path.stat().st_mtime_ns for path in (folder / "out" / "cells").iterdir()}
    run.reproduce(folder / "out", only=("table",), seeds=1, say=said.append)
    assert {path: path.stat().st_mtime_ns for path in (folder / "out" / "cells").iterdir()} == before


def test_unknown_studies_are_refused(folder):
    with pytest.raises(ValueError, match="no study"):
        run.reproduce(folder / "out", only=("weather",))


def test_protocol(folder):
    R = prepared("movielens_small")
    assert R.data.min() >= 1
    split = make_split(R, 0)
    assert sum(map(len, split.groups.values())) == R.shape[0]
    assert split.test.nnz == round(0.2 * R.nnz)
    assert gap_closed(1.0, 0.5, 0.75) == 0.5


@pytest.mark.slow
def test_joint_ranks_are_judged_as_whole_runs_would_be(folder):
    owners = make_split(prepared("movielens_small"), 0).owners
    base = FedSPLIT.as_printed(2, iterations=5)
    runs = choose_recommender({k: replace(base, n_components=k) for k in (2, 3)}, owners, folds=2, seed=3, scale=(1, 5))
    assert methods.joint_rank_errors(base, owners, (2, 3), folds=2, seed=3) == pytest.approx(runs[1], rel=1e-12)


def test_changes_of_groups_in_rmse_and_in_mse():
    alone, after = {"a": 1.0, "b": 2.0, "c": 1.0}, {"a": 0.5, "b": 1.0, "c": 1.5}
    row = {"methods": {"alone": {"by_group": alone}, "F": {"by_group": after}}}
    found = group_changes([{**row, "members": {"a": 3, "b": 9, "c": 3}, "ratings": {"a": 1, "b": 2, "c": 3}}], "F")
    assert (found["groups"], found["improved"]) == (3, 2)
    assert found["rmse_improved"] == pytest.approx(-0.75)
    assert found["mse_improved"] == pytest.approx((-0.75 - 3.0) / 2)
    assert found["mse_others"] == pytest.approx(1.25)
    assert found["r_members"] < 0


@pytest.mark.slow
@pytest.mark.slow
def test_sensitivity_is_told_for_every_joint_rank(folder):
    run.reproduce(folder / "out", size="quick", only=("sensitivity",), seeds=2, say=lambda _: None)
    rows = stored.read_tables(folder / "out")["sensitivity"]
    found = {row["joint_rank"]: row for row in rows if row["iterations"] == 100}
    assert set(found) == {2, 8}
    for one in found.values():
        assert one["improved groups"] <= one["all groups"] + 1e-12
        assert abs(one["all groups"] - (one["FedSPLIT"] - one["alone"])) < 1e-12
    assert "| 100 | 8 |" in (folder / "out" / "sensitivity.md").read_text()


def test_two_levels_give_the_factors_of_one_where_the_ranks_suffice(folder):
    """Where ranks suffice, the product of the maps of both levels nearly gives each group what one level gives it."""
    split = make_split(prepared("movielens_small"), 0)
    base = FedSPLIT.as_printed(8, local_components=1, **run.READINGS["both"])
    found = dict(methods.by_grouping(base, split.owners, seed=0))
    flat, levels = found["all groups at once"], found["two regions first"]
    assert set(flat) == set(levels)
    for name, kept in flat.items():
        assert levels[name].V.shape == kept.V.shape
        apart = np.abs(levels[name].U @ levels[name].V - kept.U @ kept.V).mean()
        assert apart < 0.05, name
    left = sorted(split.owners)[0]
    assert set(found["one group has left"]) == set(flat) - {left}


def test_curves_of_attacks_fall_when_all_is_given_and_have_intervals(folder):
    R = prepared("movielens_small")
    groups = list(make_split(R, 0).groups.values())[:3]
    rows = audit.attack_curves(R, groups, (0.25, 1.0))
    assert {row["attack"] for row in rows} == {"users", "ratings", "movies"}
    for attack in ("users", "ratings", "movies"):
        some, everything = (row for row in rows if row["attack"] == attack)
        assert everything["paper"] < some["paper"]
        assert everything["unknown"] is None
        assert some["paper_half"] > 0


def test_store_makes_once(tmp_path):
    store, calls = Store(tmp_path), []
    for _ in range(2):
        assert store.get({"a": 1}, lambda: calls.append(1) or {"x": 2}) == {"x": 2}
    assert len(calls) == 1


@pytest.mark.slow
@pytest.mark.parametrize("attack", ["ratings", "movies", "users"])
def test_small_dense_groups_give_their_ratings_away_and_large_ones_do_not(attack, folder, monkeypatch):
    monkeypatch.setattr(audit, "REPEATS", 1)
    monkeypatch.setattr(audit, "ITERATIONS", 100)
    R = prepared("movielens_small")
    small = audit.measure(R, audit.Case("dense", 4, 6, "as printed", attack, 0.25))
    large = audit.measure(R, audit.Case("dense", 30, 10, "as printed", attack, 0.25))
    if attack == "users":  # nothing is known of the other users, so nothing comes back
        assert small["unknown"] > 0.8 * small["blind"]
    else:
        assert small["unknown"] < 0.5 * small["blind"]
        assert small["back"] > 0.8 > large["back"]


def sparse_rows(R):
    """Leave one rating in ten, so that groups have items nobody rated."""
    keep = np.random.default_rng(0).random(R.nnz) < 0.1
    rows = np.repeat(np.arange(R.shape[0]), np.diff(R.indptr))
    return type(R)((R.data[keep], (rows[keep], R.indices[keep])), shape=R.shape)


def test_defences(folder, monkeypatch):
    monkeypatch.setattr(audit, "REPEATS", 2)
    monkeypatch.setattr(audit, "ITERATIONS", 100)
    R = prepared("movielens_small")
    sums = audit.measure(R, audit.Case("sparse", 8, 0, "sums only", "ratings", 0.25))
    assert sums["unknown"] > 0.7 * sums["blind"]
    support = audit.support_leak(sparse_rows(R), 1)
    assert set(support) == {
        "as printed", "mean of rated items", "drawn (default)", "drawn, with own item biases",
        "drawn, items of one rater sent",
    }  # fmt: skip
    assert support["as printed"] > 0.99 > 0.9 > support["drawn (default)"]
