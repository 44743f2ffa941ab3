"""``fedfactor federation dossier``: the record of processing and an annex for an impact assessment, on one page."""

from __future__ import annotations

import html
import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedfactor.audit.findings import LABELS, WORDS
from fedfactor.cli.console import Debug, polite
from fedfactor.cli.shared_options import Toml
from fedfactor.core.atomic_files import read_json, write_atomic
from fedfactor.core.errors import DataError
from fedfactor.core.printable_text import printable
from fedfactor.core.pytree import is_mapping

if TYPE_CHECKING:
    from fedfactor.federation.terms import Terms
    from fedfactor.privacy.ledger import Ledger

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Privacy dossier</title><style>
body{{font:14px/1.4 system-ui,sans-serif;max-width:52rem;margin:1.2rem auto;padding:0 1rem;color:#1b1b1b}}
h1{{font-size:1.4rem;margin:0}}h2{{font-size:1.05rem;margin:.8rem 0 .2rem}}p,ul{{margin:.2rem 0}}
table{{border-collapse:collapse;width:100%}}td,th{{text-align:left;vertical-align:top;padding:.15rem .5rem .15rem 0;
border-bottom:1px solid #ddd}}th{{width:14rem}}pre{{white-space:pre-wrap;font-size:.85em}}
@media(max-width:600px){{td,th{{display:block;width:auto}}}}
@media(prefers-color-scheme:dark){{body{{background:#15181c;color:#e4e4e4}}td,th{{border-color:#444}}}}</style>
<h1>{title}</h1><p>{purpose}</p>{parts}</html>
"""

OPEN = "To be completed by the controller."
RECORD = {
    "controller": "Controller, and joint controllers",
    "processor": "Processor",
    "contact": "Contact",
    "protection_officer": "Data-protection officer",
    "purpose": "Purpose of the processing",
    "legal_basis": "Legal basis",
    "data_subjects": "Categories of data subjects",
    "data_categories": "Categories of personal data",
    "recipients": "Recipients",
    "transfers": "Transfers to third countries",
    "retention": "Retention",
}
"""Fields of a record of processing (Article 30 of the GDPR) that the file of ``--record`` states."""

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
    record: Annotated[
        Path | None,
        typer.Option("--record", help=f"TOML file with fields of the record of processing: {', '.join(RECORD)}."),
    ] = None,
    debug: Debug = False,
) -> None:
    """Write the privacy dossier: record of processing, risks and measures (annex for a DPIA), budget, audit, limits.

    Example: fedfactor federation dossier federation.toml --record record.toml -o dossier.html
    """
    from fedfactor.federation.terms import Terms

    with polite(debug):
        terms = Terms.read(file)
        report = None if audited is None else _audit(audited)
        ledgers = [_books(path) for path in ledger or ()]
        text = page(terms, ledgers, report, stated(record), run_history(file.parent / "server"))
        write_atomic(out, text.encode(), mode=0o644)
    typer.echo(f"Wrote {out}. Compare the fingerprint in it with the one that join showed to every party.")


def stated(record: Path | None) -> dict[str, str]:
    """Read the fields that people state; a field that is not given stays open on the page."""
    if record is None:
        return {}
    try:
        fields = tomllib.loads(record.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise DataError(f"{record} is no TOML file ({error}). Write lines such as: controller = 'Hospital'") from error
    for name, value in fields.items():
        if name not in RECORD or not isinstance(value, str):
            raise DataError(f"{record}: {name!r} must be a text and one of {', '.join(RECORD)}.")
    return fields


def run_history(folder: Path) -> list[tuple[str, str]]:
    """List the runs in the journal of the coordinator; empty where the page is written elsewhere."""
    from fedfactor.network.coordinator_journal import JOURNAL, Journal

    if not (folder / JOURNAL).exists():
        return []
    deeds = [each for each in Journal(folder).lines() if str(each.get("deed", "")).startswith("run ")]
    return [
        (
            str(each["time"]),
            f"{each['deed']}: {each.get('run', '')}, round {each.get('round', 0)} {each.get('reason', '')}",
        )
        for each in deeds
    ]


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


def page(
    terms: Terms,
    books: Sequence[Ledger],
    report: Mapping[str, Any] | None,
    fields: Mapping[str, str] | None = None,
    runs: Sequence[tuple[str, str]] = (),
) -> str:
    """Return the page."""
    from fedfactor.federation.setup import words

    c = terms.content
    parts: list[Part] = [
        ("Summary", _short(terms, report)),
        ("Record of processing", _record(terms, fields or {})),
        ("Run history", runs or ["No journal of the coordinator was found beside the terms."]),
        ("What each participant can learn", _who(terms)),
        ("Privacy budget spent", [_spent(ledger) for ledger in books] or ["Not stated: no ledger was given."]),
        ("Attacks that were tested", _tried(terms, report)),
        ("Not covered by the protection", _not_covered(terms)),
        ("Annex for a data-protection impact assessment", _assessment(terms, report)),
        ("Terms that every party accepted", words(terms)),
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


def _record(terms: Terms, fields: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the fields of a record of processing: what people stated, else what the terms state, else open."""
    c = terms.content
    agreed = {
        "processor": f"coordinator at {c['server']['address']}",
        "contact": c["federation"]["contact"],
        "purpose": c["federation"]["purpose"],
        "recipients": f"components: {', '.join(terms.names)} and the coordinator",
        "data_categories": f"{len(terms.features)} columns: {', '.join(terms.features[:40])}",
    }
    rows = [(label, fields.get(name) or agreed.get(name) or OPEN) for name, label in RECORD.items()]
    return [*rows, ("Technical safeguards", "; ".join(_safeguards(terms)))]


def _safeguards(terms: Terms) -> list[str]:
    """List the measures that the terms put in force."""
    noise = _noise(terms)
    found = [
        "rows stay at each party",
        "mutual TLS 1.3 between registered keys",
        "requests validated against the terms",
    ]
    if terms.secure or noise:
        found.append("verified secure aggregation")
    if noise:
        found.append(f"differential privacy with {noise}, enforced by a ledger at each party")
    runs, rounds, until, _ = terms.limits
    found.append(
        f"at most {runs} runs" + (f", {rounds} rounds" if rounds else "") + (f", until {until}" if until else "")
    )
    return found


def _assessment(terms: Terms, report: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """List risks for data subjects with the measures against them; people judge what remains."""
    noise = _noise(terms)
    secure = terms.secure or noise
    tested = LABELS[_verdict(terms, report)]  # type: ignore[index]
    measures = {
        "Disclosure of rows to the coordinator": "secure aggregation: it receives totals only"
        if secure
        else "none: it receives the uploads of each party",
        "Disclosure of rows through the result": f"noise: {noise}" if noise else "none: results may show rare rows",
        "Inference that a person took part": f"noise: {noise}" if noise else "none",
        "Processing for another purpose": "fixed terms, limits of runs and rounds, acceptance by each party",
        "Loss of control after publication": "none: published components cannot be recalled",
    }
    rows = [(risk, f"Measure: {measure}. Remaining risk and decision: {OPEN}") for risk, measure in measures.items()]
    return [
        ("Systematic description", f"{terms.content['algorithm']['name']} over the columns above; see Summary."),
        ("Necessity and proportionality", OPEN),
        *rows,
        ("Evidence", f"Audit: {tested}. Verified by attack simulation only; see above."),
        ("Opinion of the data-protection officer", OPEN),
        ("Consultation of data subjects", OPEN),
    ]


def _verdict(terms: Terms, report: Mapping[str, Any] | None) -> str:
    """Return the verdict of an audit of these terms; one of other terms counts as none."""
    return "not examined" if report is None or _of_other_terms(terms, report) else str(report["verdict"])


def _noise(terms: Terms) -> str:
    """Describe the noise that was agreed on; empty when there is none."""
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
        f"Noise limits what the result reveals: {noise}."
        if noise
        else ("There is no noise (ε is infinite): the sums and the result may reveal single rows.")
    )
    word = _verdict(terms, report)
    return [
        f"{len(terms.names)} parties compute {terms.content['algorithm']['name']} over {len(terms.features)} columns. "
        "Rows never leave a party; numbers computed from them do.",
        f"The coordinator receives {hidden}.",
        told,
        f"Audit: {LABELS[word]}. {WORDS[word]}",  # type: ignore[index]
    ]


def _who(terms: Terms) -> list[tuple[str, str]]:
    noise = bool(_noise(terms))
    secure = terms.secure or noise
    runs, rounds, until, since = terms.limits
    limit = f"{runs} runs" + (f", {rounds} rounds" if rounds else "")
    limit += (f", from {since}" if since else "") + (f", until {until}" if until else "")
    alone = "nothing but that it took part" if secure else "all that the party sends"
    rows = "noise bounds what can be revealed about one unit" if noise else "rare rows may show in the sums"
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
        ("The party that reads the published V", rows),
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
        return ["None: no audit was given. Run fedfactor audit with --terms and rows like the real ones."]
    other = [(LABELS["not examined"], line) for line in _of_other_terms(terms, report)]
    tested = [(LABELS.get(each["verdict"], str(each["verdict"])), str(each["attack"])) for each in report["findings"]]
    return other + tested


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
    return [*found, "disclosure by a party's own staff or machines", "attacks that were not tried"]
