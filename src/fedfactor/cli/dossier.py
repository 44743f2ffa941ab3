"""``fedfactor federation dossier``: one page for an ethics board, made from the terms, the books and an audit."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedfactor.audit.findings import WORDS
from fedfactor.cli.console import Debug, polite
from fedfactor.cli.shared_options import Toml
from fedfactor.core.atomic_files import read_json, write_atomic
from fedfactor.core.errors import DataError
from fedfactor.core.printable_text import printable
from fedfactor.core.pytree import is_mapping

if TYPE_CHECKING:
    from fedfactor.federation.terms import Terms
    from fedfactor.privacy.ledger import Ledger

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Privacy dossier</title><style>
body{{font:14px/1.4 system-ui,sans-serif;max-width:52rem;margin:1.2rem auto;padding:0 1rem;color:#1b1b1b}}
h1{{font-size:1.4rem;margin:0}}h2{{font-size:1.05rem;margin:.8rem 0 .2rem}}p,ul{{margin:.2rem 0}}
table{{border-collapse:collapse;width:100%}}td,th{{text-align:left;vertical-align:top;padding:.15rem .5rem .15rem 0;
border-bottom:1px solid #ddd}}pre{{white-space:pre-wrap;font-size:.85em}}</style>
<h1>{title}</h1><p>{purpose}</p>{parts}</html>
"""

Part = tuple[str, Sequence[str] | Sequence[tuple[str, str]] | str]


def dossier(
    file: Toml,
    out: Annotated[Path, typer.Option("--out", "-o", help="The page to write.")] = Path("dossier.html"),
    ledger: Annotated[
        list[Path] | None, typer.Option("--ledger", help="Books of a party's rows; may be repeated.")
    ] = None,
    audited: Annotated[
        Path | None, typer.Option("--audit", help="Folder or audit.json of fedfactor audit with these settings.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Write one page for an ethics board: who learns what, what was spent, what was tried, and what is not covered.

    Example: fedfactor federation dossier federation.toml -o dossier.html
    """
    from fedfactor.federation.terms import Terms

    with polite(debug):
        terms = Terms.read(file)
        report = None if audited is None else _audit(audited)
        write_atomic(out, page(terms, [_books(path) for path in ledger or ()], report).encode(), mode=0o644)
    typer.echo(f"Wrote {out}. Compare its words with those that every party was shown by join.")


def _audit(path: Path) -> Mapping[str, Any]:
    file = path / "audit.json" if path.is_dir() else path
    report = read_json(file, "Give what fedfactor audit wrote.")
    if not is_mapping(report) or report.get("verdict") not in WORDS or "findings" not in report:
        raise DataError(f"{file} is no audit. Give what fedfactor audit wrote.")
    return report


def _books(path: Path) -> Ledger:
    if not path.is_file():
        raise DataError(f"{path} is not there. Give the ledger of a party, or leave --ledger out.")
    from fedfactor.privacy.ledger import Ledger

    return Ledger(path)


def page(terms: Terms, books: Sequence[Ledger], report: Mapping[str, Any] | None) -> str:
    """Return the page."""
    from fedfactor.federation.setup import words

    c = terms.content
    parts: list[Part] = [
        ("In short", _short(terms, report)),
        ("Who could learn what of a single party", _who(terms)),
        ("What was spent", [_spent(ledger) for ledger in books] or ["No books were given: nothing is said about it."]),
        ("What was tried", _tried(terms, report)),
        ("What is not covered", _not_covered(terms)),
        ("What every party agreed to, as join showed it", words(terms)),
    ]
    title = html.escape(printable(f"Privacy dossier: {c['federation']['name'] or 'a federation'}"))
    purpose = html.escape(printable(c["federation"]["purpose"] or "No purpose was given."))
    return _PAGE.format(title=title, purpose=purpose, parts="".join(_section(*part) for part in parts))


def _section(title: str, content: Any) -> str:
    def safe(text: str) -> str:
        return html.escape(printable(text))

    head = f"<h2>{html.escape(title)}</h2>"
    if isinstance(content, str):
        return f"{head}<pre>{chr(10).join(map(safe, content.splitlines()))}</pre>"
    if content and isinstance(content[0], tuple):
        rows = "".join(f"<tr><th>{safe(left)}</th><td>{safe(right)}</td></tr>" for left, right in content)
        return f"{head}<table>{rows}</table>"
    return f"{head}<ul>{''.join(f'<li>{safe(line)}</li>' for line in content)}</ul>"


def _noise(terms: Terms) -> str:
    """Say what noise was agreed on; nothing when none was."""
    privacy = terms.content["privacy"]
    if privacy["protect"] != "dp":
        return ""
    return f"ε = {privacy.get('epsilon')}, δ = {privacy.get('delta')} for one {privacy.get('unit', 'row')}"


def _short(terms: Terms, report: Mapping[str, Any] | None) -> list[str]:
    noise = _noise(terms)
    hidden = (
        "only what all parties' uploads add up to" if terms.secure or noise else "each party's uploads by themselves"
    )
    told = (
        f"Noise limits what the result tells: {noise}."
        if noise
        else ("There is no noise (ε is infinite): the sums and the result may tell about single rows.")
    )
    word = "not examined" if report is None or _of_other_terms(terms, report) else str(report["verdict"])
    return [
        f"{len(terms.names)} parties compute {terms.content['algorithm']['name']} over {len(terms.features)} columns. "
        "Rows never leave a party; numbers computed from them do.",
        f"The coordinator is handed {hidden}.",
        told,
        f"Audit: {word}. {WORDS[word]}",  # type: ignore[index]
    ]


def _who(terms: Terms) -> list[tuple[str, str]]:
    noise = bool(_noise(terms))
    secure = terms.secure or noise
    runs, rounds, until, since = terms.limits
    limit = f"{runs} runs" + (f", {rounds} rounds" if rounds else "")
    limit += (f", from {since}" if since else "") + (f", until {until}" if until else "")
    alone = "nothing but that it took part" if secure else "all that the party sends"
    rows = "noise bounds what can be told of one unit" if noise else "rare rows may show in the sums"
    lying = (
        "as the curious one, if all parties compared the words below by another way than the coordinator; if not, "
        f"everything that the party sends. Parties compute its questions themselves, at most {limit}; with one party "
        "on its side it can set the totals, and so choose questions"
        if secure
        else f"everything that the party sends, for any V that the method allows, at most {limit}"
    )
    return [
        ("An honest coordinator", f"{alone}; keeps to the sums"),
        ("A curious coordinator", f"{alone}; in what it is handed, {rows}"),
        ("A lying coordinator", lying),
        ("Other parties", f"the shared V of every round; {rows}"),
        ("Whoever reads the published V", rows),
    ]


def _spent(ledger: Ledger) -> str:
    spent = ledger.epsilon()
    budget = ledger.budget
    left = "no limit was set" if math.isinf(budget) else f"of {budget:g}"
    return (
        f"{ledger.path}: ε = {spent:.4g} {left} at δ = {ledger.delta:g}, for one {ledger.unit}, in "
        f"{len(ledger.entries())} releases; it belongs to rows {ledger.rows[:12] or 'not named'}."
    )


def _tried(terms: Terms, report: Mapping[str, Any] | None) -> list[str] | list[tuple[str, str]]:
    if report is None:
        return ["Nothing: no audit was given. Run fedfactor audit with --terms and rows like the real ones."]
    other = [("not examined", line) for line in _of_other_terms(terms, report)]
    return other + [(str(each["verdict"]), str(each["attack"])) for each in report["findings"]]


def _of_other_terms(terms: Terms, report: Mapping[str, Any]) -> list[str]:
    """Say how an audit is of something else than the terms."""
    about = report.get("about", {})
    c = terms.content
    asked = str(about.get("privacy"))
    wanted = str(c["privacy"]["protect"])
    found: list[str] = []
    if about.get("algorithm") != c["algorithm"]["name"]:
        found.append(f"these terms: the audit is of {about.get('algorithm')}, the terms say {c['algorithm']['name']}")
    if {"none": asked != "none", "secure-sum": "secure-sum" not in asked, "dp": "DP(" not in asked}.get(wanted):
        found.append(f"these terms: the audit is of privacy {asked[:80]}, the terms say {wanted}")
    elif wanted == "dp":
        for name in ("epsilon", "delta", "unit"):
            here = re.search(rf"\b{name}='?([^,')]+)", asked)
            said = str(c["privacy"].get(name, "row" if name == "unit" else ""))
            if here is not None and said and not _equal(here[1], said):
                found.append(f"these terms: the audit is of {name} = {here[1]}, the terms say {said}")
    rounds = c["run"].get("rounds")
    if "rounds" in about and rounds and int(about["rounds"]) < int(rounds):
        found.append(f"all rounds: the audit is of {about['rounds']}, the terms say {rounds}")
    return found


def _equal(one: str, other: str) -> bool:
    try:
        return math.isclose(float(one), float(other))
    except ValueError:
        return one == other


def _not_covered(terms: Terms) -> list[str]:
    noise = _noise(terms)
    found = ["choices made by looking at the data: columns, number of components, rounds"]
    if noise:
        unit = terms.content["privacy"].get("unit", "row")
        found += ["a person with several rows"] if unit == "row" else []
        found += ["properties of a whole party"] if unit != "client" else []
    else:
        found += ["whether a row took part, and rows that are rare or alike in nothing else"]
    if not (terms.secure or noise):
        found += ["a party's own sums, which the coordinator sees"]
    return [*found, "what a party's own people or machines give away", "attacks that nobody has tried"]
