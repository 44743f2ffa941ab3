"""Writes the page of claims and one page for each paper from ``docs/papers/claims/*.toml`` and the stored results.

``python -m docs._ext.claims`` writes ``docs/papers/claims.md`` and ``docs/papers/<paper>.md``; tests compare them. One
TOML file for each paper::

    title = "FELB and FALB"             # heading
    paper = "Dalleiger, …, AAAI 2025"   # authors, title, venue
    name = "felb"                       # page felb.md; details in felb_details.md
    order = 1                           # place among the papers
    intro = "…"                         # what the paper proposes and the answer in two sentences
    changes = ["…"]                     # the library's documented changes, by letter: a, b, …
    items = ["Fig. 1", "Table 1"]       # every figure and table of the paper, and other claims by a short name
    pictures = [["felb.png", "…"]]      # in docs/papers/claims/, with captions; drawn by the programs of the studies

    [[claim]]
    items = ["Fig. 2", "Fig. 7"]        # which of the items above; no item may be left without a claim
    printed = "…"                       # what the paper says
    number = "…"                        # one printed number or direction
    measured = "{felb/noise-quick?data=0.05&method=FELB#loss}"  # one or two measured figures, looked up
    because = "…"                       # why the verdicts are these; figures looked up
    as_printed = "contradicted"         # the printed algorithm; one of VERDICTS
    as_provided = "reproduced"          # what the library provides; one of VERDICTS
    changes = "a, c"                    # which changes the second verdict needs
    data = "…"                          # on what; stand-ins are named
    seeds = "0 to 2"
    command = "make claims ITEM=felb_scale"  # empty where figures are looked up: those name their commands
    detail = "felb_details.md#…"        # where to read on

    [[objection]]
    says = "…"                          # what an author of the paper would say
    answer = "…"

``{paper/study?column=value&…#figure|format}`` is looked up in ``papers/<paper>/stored/<study>.json``, which
``python -m papers run … --store`` writes. Measured figures are never typed: a decimal number in ``measured`` or
``because`` outside of braces is refused.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from papers import stored

PAPERS = Path(__file__).resolve().parents[1] / "papers"
VERDICTS = (
    "reproduced", "holds after documented changes", "not reproduced (settings unknown)", "contradicted",
    "not testable here", "not a claim",
)  # fmt: skip
FIELDS = (
    "printed", "number", "measured", "because", "as_printed", "as_provided", "changes", "data", "seeds", "command",
    "detail",
)  # fmt: skip
PLACE = re.compile(r"\{([^{}|]+)(?:\|([^{}]+))?\}")
MARK = r"<!-- table ([^?#]+)(?:\?([^#]+))?#([^|:]+)(?:\|([^:]+))?: (.+?) by (.+?) -->"
TABLE = re.compile(MARK + r".*?<!-- end -->", re.DOTALL)
MOST = 900
"""Words on the page of a paper."""

NOTE = "<!-- Written by docs/_ext/claims.py from docs/papers/claims/ and the stored results; change those. -->"
HEAD = f"""# The five papers, claim by claim

{NOTE}

Each claim has two verdicts: one on the algorithm **as printed** (`FELB.paper`, `FNMF.paper`, `FedSPLIT.as_printed`,
`FedDMF.paper`, `DSANLS.published`; each tested against an independent implementation, see
`tests/papers/README.md`), one on what the library **provides**, with the changes that the second verdict needs (listed
by letter on the page of the paper).

| verdict | meaning |
|---|---|
| reproduced | the direction and the size that the paper reports, within what its plots and tables let one read |
| holds after documented changes | the same, for the library's variant, but not everywhere for the printed algorithm |
| not reproduced (settings unknown) | another result here, where data, sizes or parameters of the paper are not known |
| contradicted | a counter-example in the paper's own setting, named in the line |
| not testable here | data, machines or a proof are missing, and the line says which |
| not a claim | future work, an open question, or a misprint |

Every measured figure is looked up in the file of the record column, in `papers/<paper>/stored/`, with the commit, the
seeds, the parameters and the processor time of its run. The command of the line prints the figures again, and
`--store` writes the file. `python -m papers run --quick -o OUT` runs a part of all studies with one seed, and
`python -m papers compare OUT` compares its tables with the stored ones, within the tolerance that
`papers/catalogue.py` states, and the pages that they give.
"""


def read(folder: Path = PAPERS / "claims") -> list[dict[str, Any]]:
    """Read the papers in their order, and refuse what would leave the pages incomplete."""
    papers = sorted((tomllib.loads(path.read_text()) for path in folder.glob("*.toml")), key=lambda one: one["order"])
    for paper in papers:
        covered = {item for claim in paper["claim"] for item in claim["items"]}
        if covered != set(paper["items"]):
            raise ValueError(
                f"{paper['title']}: {sorted(covered ^ set(paper['items']))} is listed or claimed, not both."
            )
        for claim in paper["claim"]:
            _check(paper, claim)
    return papers


def _check(paper: Mapping[str, Any], claim: Mapping[str, Any]) -> None:
    where = f"{paper['title']}, {claim['items']}"
    missing = [field for field in FIELDS if field not in claim]
    wrong = [claim[name] for name in ("as_printed", "as_provided") if claim.get(name) not in VERDICTS]
    if missing or wrong:
        raise ValueError(f"{where}: {missing or wrong} is missing or no verdict.")
    text = re.sub(r"[=≤] ?[\d.]+", "", PLACE.sub("", claim["measured"] + claim["because"]))  # parameters may be named
    typed = re.findall(r"\d\.\d", text)
    if typed:
        raise ValueError(f"{where}: {typed} is typed by hand. Look measured figures up.")
    if claim["as_provided"] == "holds after documented changes" and not claim["changes"]:
        raise ValueError(f"{where}: name the changes after which it holds.")


def pages(papers: list[dict[str, Any]], known: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Return every page by file name, from the stored results or from others of the same form."""
    known = stored.read() if known is None else known
    found = {"claims.md": _claims_page(papers, known)}
    found |= {f"{paper['name']}.md": _paper_page(paper, known) for paper in papers}
    details = {path.name: path.read_text() for path in sorted(PAPERS.glob("*.md")) if path.name not in found}
    return found | {name: with_tables(text, known) for name, text in details.items() if "<!-- table " in text}


def with_tables(text: str, known: Mapping[str, Any]) -> str:
    """Write the stored tables that a page asks for between its marks.

    A mark is ``<!-- table paper/study?column=value#figure|format: rows by columns -->``, and ``<!-- end -->`` ends the
    table; ``rows`` and ``columns`` are columns of the stored table, several of them joined by ``+``.
    """

    def table(mark: re.Match[str]) -> str:
        study, wanted, figure, form, down, across = mark.groups()
        found = stored.rows(
            known[study], dict(pair.split("=", 1) for pair in (wanted or "").split("&") if pair), figure
        )
        cells: dict[str, dict[str, str]] = {}
        for row in found:
            side, head = (", ".join(str(row[name]) for name in names.split("+")) for names in (down, across))
            if head in cells.setdefault(side, {}):
                raise ValueError(f"{mark[0]}: two stored rows for {side}, {head}.")
            cells[side][head] = format(row[figure], form or ".3f") if isinstance(row[figure], float) else row[figure]
        heads = list(dict.fromkeys(head for row in cells.values() for head in row))
        lines = [
            "| " + " | ".join([f"{figure} by {down} and {across}", *heads]) + " |",
            "|---" * (len(heads) + 1) + "|",
        ]
        lines += ["| " + " | ".join([side, *(str(row.get(head, "")) for head in heads)]) + " |"
                  for side, row in cells.items()]  # fmt: skip
        return "\n".join(
            [mark[0].partition("-->")[0] + "-->", "", f"`{known[study]['command']}`:", "", *lines, "<!-- end -->"]
        )

    return TABLE.sub(table, text)


def _claims_page(papers: list[dict[str, Any]], known: Mapping[str, Any]) -> str:
    lines = [HEAD, "| as printed / as provided | " + " | ".join(VERDICTS) + " |", "|---" * (len(VERDICTS) + 1) + "|"]
    for paper in papers:
        counts = [Counter(claim[which] for claim in paper["claim"]) for which in ("as_printed", "as_provided")]
        cells = (f"{counts[0][one]} / {counts[1][one]}" for one in VERDICTS)
        lines.append(f"| [{paper['title']}]({paper['name']}.md) | " + " | ".join(cells) + " |")
    for paper in papers:
        lines += ["", f"## {paper['title']}", "", paper["paper"], ""]
        lines += ["| where | printed | measured | as printed | as provided | data; seeds | command | record |"]
        lines += ["|---|---|---|---|---|---|---|---|"]
        lines += [_line(claim, known) for claim in paper["claim"]]
        lines += ["", "What an author would object, and the answer:", ""]
        lines += [f"- *{one['says']}* {filled(one['answer'], known)}" for one in paper["objection"]]
    return "\n".join(lines) + "\n"


def _line(claim: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    command = ", ".join(f"`{one}`" for one in _commands(claim, known))
    where = f"{claim['data']}; {claim['seeds']}" if claim["seeds"] else claim["data"]
    measured = f"{filled(claim['measured'], known)}. {filled(claim['because'], known)}".removeprefix(". ")
    provided = f"**{claim['as_provided']}**" + (f" ({claim['changes']})" if claim["changes"] else "")
    cells = [", ".join(claim["items"]), claim["printed"], measured, f"**{claim['as_printed']}**", provided, where]
    return "| " + " | ".join([*cells, command, ", ".join(_records(claim))]) + " |"


def _records(claim: Mapping[str, Any]) -> list[str]:
    """Name the stored studies that a claim's figures come from, in the order of their first figure."""
    places = PLACE.finditer(claim["measured"] + claim["because"])
    return list(dict.fromkeys(place[1].partition("?")[0] for place in places))


def _commands(claim: Mapping[str, Any], known: Mapping[str, Any]) -> list[str]:
    """Return the commands that print the figures of a claim, and the one that its file names."""
    found = [known[name]["command"] for name in _records(claim)]
    return list(dict.fromkeys([*found, *([claim["command"]] if claim["command"] else [])]))


def _paper_page(paper: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    lines = [f"# {paper['title']}", "", NOTE, "", f"{paper['paper']} {filled(paper['intro'], known)}", ""]
    for picture, caption in paper["pictures"]:
        lines += [f"![{caption}](claims/{picture})", "", f"*{caption}*", ""]
    lines += ["| claim | as printed | as provided | printed | measured | more |", "|---|---|---|---|---|---|"]
    for claim in paper["claim"]:
        provided = claim["as_provided"] + (f" ({claim['changes']})" if claim["changes"] else "")
        cells = [", ".join(claim["items"]), claim["as_printed"], provided, claim["number"]]
        cells += [filled(claim["measured"], known), f"[details]({claim['detail']})"]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "Changes of the library:", ""]
    lines += [f"- ({chr(97 + place)}) {text}" for place, text in enumerate(paper["changes"])]
    lines += ["", f"Data, seeds, commands and objections: [the page of claims](claims.md). Everything measured: "
              f"[details]({paper['name']}_details.md)."]  # fmt: skip
    text = "\n".join(lines) + "\n"
    words = len(re.findall(r"\w[\w.,'’-]*", text))
    if words > MOST:
        raise ValueError(f"{paper['title']}: the page has {words} words, and {MOST} at most are allowed.")
    return text


def filled(text: str, known: Mapping[str, Any]) -> str:
    """Put stored results in place of ``{paper/study?column=value#figure}``."""

    def value(place: re.Match[str]) -> str:
        study, _, rest = place[1].partition("?")
        wanted, _, column = rest.partition("#")
        if study not in known:
            raise ValueError(f"No stored study {study!r}. Run it with --store.")
        found = stored.select(known[study], dict(pair.split("=", 1) for pair in wanted.split("&")), column)
        return format(found, place[2] or (".3f" if isinstance(found, float) else ""))

    return PLACE.sub(value, text)


if __name__ == "__main__":
    for file, page in pages(read()).items():
        (PAPERS / file).write_text(page)
