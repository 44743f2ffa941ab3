"""Writes ``docs/papers/claims.md`` from the claims in ``docs/papers/claims/*.toml`` and the stored results.

``python docs/_ext/claims.py`` writes the page; a test compares it. One TOML file for each paper::

    title = "FELB and FALB"             # heading
    paper = "Dalleiger, …, AAAI 2025"   # who, where
    page = "felb.md"                    # the page with the detail
    order = 1                           # place among the papers
    items = ["Fig. 1", "Table 1"]       # every figure and table of the paper, and other claims by a short name
    picture = "felb.png"                # optional, in docs/papers/claims/; drawn by the reproduce code
    caption = "…"                       # what the picture says

    [[claim]]
    items = ["Fig. 2", "Fig. 7"]        # which of the items above; no item may be left without a claim
    printed = "…"                       # what the paper says, with its figures where they can be read
    measured = "FELB {felb/noise/0.05/FELB}, ASSO {felb/noise/0.05/asso majority|.2f}"
    data = "…"                          # on what; stand-ins are named
    seeds = "0 to 2"
    verdict = "reproduced"              # or: partly, refuted, cannot be tested here
    command = "python -m papers run felb --only noise"   # or "make claims ITEM=…"; empty where nothing can be run

``{experiment/key/key|format}`` is looked up in ``papers/<experiment>/expected.json``, where a small
run keeps its results; ``.3f`` when no format is given. Figures are never typed where a result is stored.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PAPERS = Path(__file__).resolve().parents[1] / "papers"
RESULTS = PAPERS.parents[1] / "papers"
VERDICTS = ("reproduced", "partly", "refuted", "cannot be tested here")
FIELDS = ("printed", "measured", "data", "seeds", "verdict", "command")
PLACE = re.compile(r"\{([^{}|]+)(?:\|([^{}]+))?\}")

HEAD = """# The five papers, claim by claim

<!-- Written by docs/_ext/claims.py from docs/papers/claims/ and the stored results; change those. -->

Each line is one claim: what is printed, what this library measures, on which data, and whether it holds. *Partly* means
that the direction holds and the size does not, or that it holds on some of the data. *Cannot be tested here* means that
data, machines or details are missing, and the line says which. Measured figures come from the results stored with the
experiments (`papers/*/expected.json`), of runs at small sizes unless it says otherwise; where the
line names `make claims ITEM=…`, from what that claim printed.

`python -m papers run NAME` runs a paper's studies again, `--only fig3` those of a figure. `python -m papers run --quick` runs
a part of all of them with one seed: ten and a half minutes in one process on two cores that did other work as well
(FELB 164 s, DSANLS 149, FNMF 131, privacy 91, FedDMF 66, FedSPLIT 17; 461 s of processor time together).
"""


def read(folder: Path = PAPERS / "claims") -> list[dict[str, Any]]:
    """Read the papers in their order, and refuse what would leave the page incomplete."""
    papers = sorted((tomllib.loads(path.read_text()) for path in folder.glob("*.toml")), key=lambda one: one["order"])
    for paper in papers:
        told = {item for claim in paper["claim"] for item in claim["items"]}
        if told != set(paper["items"]):
            raise ValueError(f"{paper['title']}: {sorted(told ^ set(paper['items']))} is listed or told, not both.")
        for claim in paper["claim"]:
            missing = [field for field in FIELDS if field not in claim]
            if missing or claim["verdict"] not in VERDICTS:
                raise ValueError(f"{paper['title']}, {claim['items']}: {missing or claim['verdict']!r} is amiss.")
    return papers


def page(papers: list[dict[str, Any]], results: Path = RESULTS) -> str:
    """Lay the claims out as one page."""
    stored = {path.parent.name: json.loads(path.read_text()) for path in results.glob("*/expected.json")}
    lines = [HEAD, "| | " + " | ".join(VERDICTS) + " |", "|---" * (len(VERDICTS) + 1) + "|"]
    for paper in papers:
        counts = Counter(claim["verdict"] for claim in paper["claim"])
        lines.append(f"| {paper['title']} | " + " | ".join(str(counts[one]) for one in VERDICTS) + " |")
    for paper in papers:
        lines += ["", f"## {paper['title']}", "", f"{paper['paper']} Detail: [{paper['page']}]({paper['page']}).", ""]
        if "picture" in paper:
            lines += [f"![{paper['caption']}](claims/{paper['picture']})", "", f"*{paper['caption']}*", ""]
        lines += ["| where | printed | measured | data; seeds | verdict | command |", "|---|---|---|---|---|---|"]
        lines += [_line(claim, stored) for claim in paper["claim"]]
    return "\n".join(lines) + "\n"


def filled(text: str, stored: Mapping[str, Any]) -> str:
    """Put stored results in place of ``{experiment/key/key|format}``."""

    def value(place: re.Match[str]) -> str:
        found: Any = stored
        for key in place[1].split("/"):
            if key not in found:
                raise ValueError(f"No stored result {place[1]!r}: {key!r} is not among {sorted(found)}.")
            found = found[key]
        return format(found, place[2] or (".3f" if isinstance(found, float) else ""))

    return PLACE.sub(value, text)


def _line(claim: Mapping[str, Any], stored: Mapping[str, Any]) -> str:
    command = f"`{claim['command']}`" if claim["command"] else ""
    where = f"{claim['data']}; {claim['seeds']}" if claim["seeds"] else claim["data"]
    cells = [", ".join(claim["items"]), claim["printed"], filled(claim["measured"], stored), where]
    return "| " + " | ".join([*cells, f"**{claim['verdict']}**", command]) + " |"


if __name__ == "__main__":
    (PAPERS / "claims.md").write_text(page(read()))
