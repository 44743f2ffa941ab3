"""The pages of claims say what the stored results say, and leave out no figure and no table of the five papers."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from papers import stored
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


def test_the_pages_are_up_to_date(claims, papers):
    for name, text in claims.pages(papers).items():
        assert text == (claims.PAPERS / name).read_text(), f"{name}: run python -m docs._ext.claims"


def test_no_figure_and_no_table_lacks_a_line(papers):
    covered = {paper["name"]: {item.split(",")[0] for item in paper["items"]} for paper in papers}
    named = {paper["name"]: set(paper["items"]) for paper in papers}
    wanted = [(name, item) for name, items in NUMBERED.items() for item in sorted(items)]
    assert [(name, item) for name, item in wanted if item not in covered[name] | named[name]] == []


def test_commands_name_what_exists(papers):
    for command in (claim["command"] for paper in papers for claim in paper["claim"] if claim["command"]):
        if proved := re.fullmatch(r"make claims ITEM=(\w+)", command):
            assert (ROOT / "claims" / f"{proved[1]}.py").exists(), command
        elif tested := re.fullmatch(r"python -m pytest (tests/\S+)", command):
            assert (ROOT / tested[1]).exists(), command
        else:
            found = re.fullmatch(r"python -m papers run (\w+)( --\w+[\w ,]*)*", command)
            assert found, command
            assert found[1] in PAPERS, command
            for asked in re.findall(r"--only (\w+)", command):
                assert find_study(found[1], asked), command


def test_details_exist(claims, papers):
    for claim in (claim for paper in papers for claim in paper["claim"]):
        page, _, anchor = claim["detail"].partition("#")
        heads = re.findall(r"^#+ (.*)$", (claims.PAPERS / page).read_text(), re.MULTILINE)
        slugs = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
        assert not anchor or anchor in slugs, claim["detail"]


def test_every_line_with_a_figure_has_its_commands_and_its_files(claims, papers):
    known = stored.read()
    page = (claims.PAPERS / "claims.md").read_text()
    for paper in papers:
        rows = page.partition(f"## {paper['title']}\n")[2].splitlines()
        for claim in paper["claim"]:
            row = next(line for line in rows if line.startswith(f"| {', '.join(claim['items'])} |"))
            for place in claims.PLACE.finditer(claim["measured"] + claim["because"]):
                name = place[1].partition("?")[0]
                assert f"`{known[name]['command']}`" in row, claim["items"]
                assert name in row.split("|")[-2], claim["items"]


def test_a_result_that_is_not_stored_is_refused(claims):
    known = {"a/s": {"tables": {"s": [{"k": 2, "loss": 0.125}, {"k": 3, "loss": 0.5}]}}}
    assert claims.filled("{a/s?k=2#loss}, {a/s?k=3#loss|.1f}", known) == "0.125, 0.5"
    for missing in ("{a/c}", "{a/t?k=2#loss}", "{a/s?k=4#loss}"):
        with pytest.raises(ValueError, match=r"stored"):
            claims.filled(missing, known)


CLAIM = """
[[claim]]
items = ["Fig. 1"]
printed = "p"
number = "n"
measured = "MEASURED"
because = ""
as_printed = "VERDICT"
as_provided = "reproduced"
changes = ""
data = ""
seeds = ""
command = ""
detail = ""
"""


@pytest.mark.parametrize(
    ("items", "measured", "verdict", "message"),
    [
        ('"Fig. 1", "Fig. 2"', "", "reproduced", r"Fig\. 2"),
        ('"Fig. 1"', "a loss of 0.25", "reproduced", "typed by hand"),
        ('"Fig. 1"', "", "refuted", "no verdict"),
    ],
)
def test_an_incomplete_claim_is_refused(claims, tmp_path, items, measured, verdict, message):
    text = CLAIM.replace("MEASURED", measured).replace("VERDICT", verdict)
    (tmp_path / "x.toml").write_text(f'title = "X"\norder = 1\nitems = [{items}]\n{text}')
    with pytest.raises(ValueError, match=message):
        claims.read(tmp_path)
