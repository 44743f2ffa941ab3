"""What a run leaves behind, put together by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedfactor.algorithms import PooledNMF
from fedfactor.core.algorithm import LocalFactors, Score
from fedfactor.core.run import NotPublished, OwnersOnly, RoundRecord, Run


@pytest.fixture
def run():
    V = np.ones((2, 3))
    factors = {name: LocalFactors(np.ones((1, 2)), V) for name in ("a", "b", "c")}
    scores = {"a": Score.of(1, 3, 4), "b": Score.of(9, 3, 12), "c": Score.of(0, 3, 4)}
    history = (
        RoundRecord(0, ("a", "b", "c"), 1_000_000, 200_000, 0.5, {"error": 1.0}, ("c",)),
        RoundRecord(1, ("a", "b"), 500_000, 40_000, 0.25, {"error": 0.5}, ("b", "a")),
    )
    return Run(PooledNMF(2), 7, "rounds", history, factors, scores, None)


def test_figures_add_up_over_rounds_and_owners(run):
    assert (run.rounds, run.bytes_up, run.bytes_down, run.seconds) == (2, 1_500_000, 240_000, 0.75)
    assert run.rejected == ("a", "b", "c")
    assert run.relative_error == np.sqrt(10 / 20)
    assert run.worst_client == ("b", np.sqrt(9 / 12))
    assert run.measured == OwnersOnly(run.scores, (0.5, 0.25))


def test_its_summary(run):
    told = run.summary()
    assert told["privacy"] == {"mode": "none", "epsilon": "inf", "sees": {"server": "every upload"}}
    assert (told["seconds"], told["clients"], told["seed"], told["status"]) == (0.75, 3, 7, "rounds")
    assert told["worst_client"] == {"name": "b", "relative_error": np.sqrt(9 / 12)}
    assert replace(run, privacy={"mode": "dp"}).summary()["privacy"] == {"mode": "dp"}


def test_exact_errors_of_a_private_run_are_for_its_owners(run):
    private = replace(run, privacy={"mode": "dp"}, owners_only=OwnersOnly(run.scores, (0.125,)), scores={})
    for name in ("score", "relative_error", "worst_client"):
        with pytest.raises(NotPublished, match=r"run\.owners_only"):
            getattr(private, name)
    assert not hasattr(private, "relative_error")
    assert private.owners_only.relative_error == run.relative_error
    assert private.measured is private.owners_only
    assert private.summary()["seconds"] == 0.125
    assert repr(private) == "Run(PooledNMF, 3 owners, 2 rounds, rounds, errors for owners only, 1.50 MB up)"
    shown = private._repr_html_()
    assert "error" not in shown
    assert "worst owner" not in shown
    assert "<th>privacy</th><td>dp</td>" in shown
    assert "<th>owners</th><td>3</td>" in shown


def test_a_secure_sum_hides_single_owners_only(run):
    shown = replace(run, privacy={})._repr_html_()
    assert "<th>relative error</th><td>0.70711</td>" in shown
    assert "worst owner" not in shown
    assert "<td>custom</td>" in shown


def test_how_it_is_shown(run):
    assert repr(run) == "Run(PooledNMF, 3 owners, 2 rounds, rounds, relative error 0.7071, 1.50 MB up)"
    shown = run._repr_html_()
    assert "PooledNMF, rank 2, seed 7" in shown
    assert "<td>0.86603 (b)</td>" in shown
    assert "1.50 MB up, 0.24 MB down" in shown
    assert "<th>privacy</th><td>none</td>" in shown


def test_its_history_as_a_frame(run):
    pytest.importorskip("pandas")
    frame = run.to_frame()
    assert frame.index.tolist() == [1, 2]
    assert frame["participants"].tolist() == [3, 2]
    assert frame["rejected"].tolist() == [1, 2]
    assert frame["error"].tolist() == [1.0, 0.5]


def test_blocks_of_columns_are_put_together_where_all_are_there(run):
    assert run.V is run.factors["a"].V
    blocks = {
        name: LocalFactors(np.ones((1, 2)), np.full((2, len(columns)), i, "f4"), np.array(columns))
        for i, (name, columns) in enumerate({"a": [2], "b": [0, 1], "c": [3]}.items())
    }
    grid = replace(run, factors=blocks)
    assert grid.V.tolist() == [[1, 1, 0, 2]] * 2
    assert grid.V.dtype == np.float32
    alone = replace(run, factors={"b": blocks["b"]})
    assert alone.V is blocks["b"].V
