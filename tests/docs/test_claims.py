"""The page of claims says what the stored results say, and leaves out no figure and no table of the five papers."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from papers.catalogue import PAPERS, find_study

ROOT = Path(__file__).resolve().parents[2]
# What the papers number. DSANLS is known without its figure numbers: its studies go by name.
NUMBERED = {
    "felb": {*(f"Fig. {n}" for n in range(1, 18)), "Table 1"},
    "fedsplit": {*(f"Fig. {n}" for n in range(1, 5)), *(f"Table {n}" for n in range(1, 4))},
    "fnmf": {*(f"Fig. {n}" for n in range(1, 5)), "Table 1"},
    "feddmf": {f"Fig. {n}" for n in range(1, 9)},
    "dsanls": {
        "error against time", "scalability", "rank", "PGD against PCD", "secure, even", "secure, uneven",
        "secure scalability, even", "secure scalability, uneven",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def claims():
    spec = importlib.util.spec_from_file_location("claims", ROOT / "docs" / "_ext" / "claims.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def papers(claims):
    return claims.read()


def test_the_page_is_up_to_date(claims, papers):
    assert claims.page(papers) == (claims.PAPERS / "claims.md").read_text(), "Run: python docs/_ext/claims.py"


def test_no_figure_and_no_table_lacks_a_line(papers):
    told = {paper["page"].removesuffix(".md"): set(paper["items"]) for paper in papers}
    assert [item for name, items in NUMBERED.items() for item in sorted(items - told.get(name, set()))] == []


def test_commands_name_what_exists(papers):
    for command in (claim["command"] for paper in papers for claim in paper["claim"] if claim["command"]):
        if proved := re.fullmatch(r"make claims ITEM=(\w+)", command):
            assert (ROOT / "claims" / f"{proved[1]}.py").exists(), command
        else:
            found = re.fullmatch(r"python -m papers run (\w+)( --\w+[\w ,]*)*", command)
            assert found, command
            assert found[1] in PAPERS, command
            for asked in re.findall(r"--only (\w+)", command):
                assert find_study(found[1], asked), command


def test_a_result_that_is_not_stored_is_refused(claims):
    assert claims.filled("{a/b} of {a/n|.1f}", {"a": {"b": 0.25, "n": 2}}) == "0.250 of 2.0"
    with pytest.raises(ValueError, match=r"No stored result 'a/c'"):
        claims.filled("{a/c}", {"a": {"b": 0.25}})


def test_an_item_without_a_claim_is_refused(claims, tmp_path):
    (tmp_path / "x.toml").write_text('title = "X"\norder = 1\nitems = ["Fig. 1"]\nclaim = []\n')
    with pytest.raises(ValueError, match=r"Fig\. 1"):
        claims.read(tmp_path)
