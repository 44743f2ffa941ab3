"""Privacy words on the command line."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from typer.testing import CliRunner

from fedfactor.cli import app
from fedfactor.privacy import Ledger

pytest.importorskip("cryptography")
pytest.importorskip("dp_accounting")


@pytest.fixture
def owners(tmp_path):
    rng = np.random.default_rng(0)
    folder = tmp_path / "owners"
    folder.mkdir()
    for i in range(4):
        np.save(folder / f"o{i}.npy", rng.random((120, 3)) @ rng.random((3, 10)))
    return folder


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def test_fit_with_noise_and_books_across_runs(owners, tmp_path):
    for name in ("one", "two"):
        result = call("fit", owners, "-k", 3, "-o", tmp_path / name, "--rounds", 3, "--privacy", "dp", "--epsilon", 2,
                      "--ledger", tmp_path / "books.jsonl", "--budget", 5)  # fmt: skip
        assert result.exit_code == 0, result.output
    assert "ε = 2" in result.output
    about = json.loads((tmp_path / "two" / "run.json").read_text())["privacy"]
    assert about["epsilon"] <= 2 < about["data_set_epsilon"]
    assert len(Ledger(tmp_path / "books.jsonl").entries()) == 8


def test_fit_under_a_secure_sum(owners, tmp_path):
    result = call("fit", owners, "-k", 3, "-o", tmp_path / "out", "--rounds", 3, "--privacy", "secure-sum")
    assert result.exit_code == 0, result.output
    assert "no single one" in result.output


def test_audit_ends_with_its_verdict(owners, tmp_path):
    result = call("audit", owners, "-k", 3, "-o", tmp_path / "out", "--rounds", 3, "--privacy", "secure-sum")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "out" / "audit.html").exists()
    result = call("audit", owners, "-k", 3, "-o", tmp_path / "out", "--rounds", 3, "--privacy", "secure-sum",
                  "--allow", "changed-cohort", "--allow", "rare-columns")  # fmt: skip
    assert result.exit_code == 1, result.output
    assert "REFUTED" in result.output


def test_audit_says_what_was_not_tried(owners, tmp_path):
    result = call("audit", owners, "-k", 3, "-o", tmp_path / "out", "--rounds", 3)
    assert result.exit_code == 0, result.output
    assert "Only binary rows are searched for; these are not." in result.output


def test_words_that_are_not_known(owners, tmp_path):
    result = call("fit", owners, "-k", 3, "-o", tmp_path / "out", "--privacy", "hope")
    assert result.exit_code == 2
    assert "'hope' is not known" in result.output


@pytest.mark.parametrize("word", ["none", "secure-sum"])
@pytest.mark.parametrize("option", [("--epsilon", 1), ("--delta", 1e-6), ("--unit", "row"), ("--row-bound", 3)])
def test_a_budget_without_noise_is_refused(owners, tmp_path, word, option):
    for command in ("fit", "audit"):
        result = call(command, owners, "-k", 3, "-o", tmp_path / "out", "--privacy", word, *option)
        assert result.exit_code == 2
        assert option[0] in result.output
        assert not (tmp_path / "out").exists()


def test_a_run_without_noise_is_in_the_books_too(owners, tmp_path):
    books = tmp_path / "books.jsonl"
    result = call("fit", owners, "-k", 3, "-o", tmp_path / "out", "--rounds", 3, "--ledger", books)
    assert result.exit_code == 0, result.output
    assert Ledger(books).epsilon() == math.inf
    assert len(Ledger(books).entries()) == 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--privacy", "secure-sum", "--allow", "nonsense"), "not a minimum"),
        (("--allow", "nonsense"), "not a minimum"),
        (("--allow", "small-client"), "overrides nothing"),
        (("--privacy", "dp", "--allow", "small-client"), "overrides nothing"),
        (("--privacy", "median", "--allow", "rare-columns"), "overrides nothing"),
        (("--privacy", "secure-sum", "--cap", "3"), "--cap speaks of noise"),
        (("--known-to", "2"), "--known-to speaks of noise"),
        (("--privacy", "dp", "--cap", "3"), "cap and known_to"),
    ],
)
def test_words_that_do_not_apply_are_not_dropped_in_silence(owners, tmp_path, words, said):
    result = call("fit", owners, "-k", 3, "-o", tmp_path / "out", "--rounds", 2, *words)
    assert result.exit_code == 2, result.output
    assert said in result.output
    assert not (tmp_path / "out").exists()


def test_a_ledger_is_a_budget(owners, tmp_path):
    """Its limit was in no file: three more runs reached 2.11 of 1.0."""
    books = tmp_path / "books.jsonl"
    words = ("--rounds", 3, "--privacy", "dp", "--epsilon", 1, "--ledger", books)
    assert call("fit", owners, "-k", 3, "-o", tmp_path / "one", *words).exit_code == 0
    result = call("fit", owners, "-k", 3, "-o", tmp_path / "two", *words)
    assert result.exit_code == 2
    assert "what is left of the budget" in result.output
    result = call("fit", owners, "-k", 3, "-o", tmp_path / "two", *words, "--budget", 9)
    assert result.exit_code == 2
    assert "raise_budget" in result.output
    assert Ledger(books).epsilon() <= 1
    assert books.stat().st_mode & 0o777 == 0o600
