"""The report of an audit: JSON for programs, one page for a data-protection officer."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, cast

from fedfactor.audit.explanations import explanations
from fedfactor.audit.findings import LABELS, WORDS, Finding, Verdict, verdict_of
from fedfactor.core.atomic_files import write_atomic
from fedfactor.core.pytree import is_list, is_mapping

__all__ = ["AuditReport", "short"]

_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Privacy audit</title><style>
body{{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1b1b}}
table{{border-collapse:collapse;width:100%}}
td,th{{text-align:left;vertical-align:top;padding:.4rem .6rem;border-bottom:1px solid #ccc}}
.REFUTED{{color:#a30000;font-weight:700}}.not-examined{{color:#8a4b00;font-weight:700}}.consistent{{font-weight:600}}
.no-claim,.does-not-apply{{color:#555}}pre{{white-space:pre-wrap}}.scroll{{overflow-x:auto}}
@media(prefers-color-scheme:dark){{body{{background:#15181c;color:#e4e4e4}}.REFUTED{{color:#ff8a80}}
.not-examined{{color:#ffb74d}}.no-claim,.does-not-apply{{color:#aaa}}td,th{{border-color:#444}}}}
dt{{font-weight:600}}dd{{margin:0 0 .4rem 1.5rem}}code{{font-size:.9em}}</style>
<h1>Privacy audit: <span class="{mark}">{verdict}</span></h1>
<p>{meaning} This is the worst result of all attacks below.</p>
<p>The audit simulates attackers on data of the same kind and measures what they obtain. It can show that a protection
fails; it cannot prove that a protection holds.</p><h2>Configuration</h2><p>{about}</p><h2>Attacks</h2>
<div class="scroll"><table><tr><th>Attack</th><th>Attacker</th><th>Stated protection</th><th>Result</th>
<th>Figures</th></tr>
{rows}</table></div><h2>Meaning of the results</h2><dl>{words}</dl><h2>Meaning of the figures</h2><dl>{figures}</dl>
<h2>Stated protection in full</h2><pre>{claim}</pre></html>
"""


@dataclass(frozen=True, slots=True)
class AuditReport:
    """All findings about one configuration."""

    about: dict[str, Any]
    findings: list[Finding]
    claim: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def verdict(self) -> Verdict:
        """The worst word of all attacks; never "safe"."""
        return verdict_of(self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        data = {"verdict": self.verdict, **asdict(self)}
        return _plain(data)

    def write(self, folder: str | Path) -> None:
        """Write ``audit.json`` and ``audit.html``."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(
            folder / "audit.json", json.dumps(self.to_dict(), indent=2, ensure_ascii=False).encode(), mode=0o644
        )
        write_atomic(folder / "audit.html", self.to_html().encode(), mode=0o644)

    def to_html(self) -> str:
        """Return one self-contained page."""
        rows: list[str] = []
        for each in self.findings:
            figures = "<br>".join(f"{html.escape(k)}: {html.escape(short(v))}" for k, v in each.figures.items())
            note = f"<br><em>{html.escape(each.note)}</em>" if each.note else ""
            cells = (html.escape(each.attack), html.escape(each.attacker), html.escape(each.claim))
            verdict = f'<span class="{_mark(each.verdict)}">{LABELS[each.verdict]}</span>'
            rows.append(f"<tr>{''.join(f'<td>{c}</td>' for c in cells)}<td>{verdict}</td><td>{figures}{note}</td></tr>")
        about = html.escape(", ".join(f"{key}: {short(value)}" for key, value in self.about.items()))
        claim = html.escape(json.dumps(_plain(self.claim), indent=2, ensure_ascii=False))
        return _PAGE.format(
            verdict=LABELS[self.verdict],
            mark=_mark(self.verdict),
            meaning=html.escape(WORDS[self.verdict]),
            about=about,
            rows="\n".join(rows),
            claim=claim,
            words=_listed({f"{LABELS[word]} ({word})": meaning for word, meaning in WORDS.items()}),
            figures=_listed(explanations(self.findings)),
        )


def _mark(verdict: str) -> str:
    return verdict.replace(" ", "-")


def _listed(words: Mapping[Any, str]) -> str:
    return "".join(f"<dt>{html.escape(name)}</dt><dd>{html.escape(text)}</dd>" for name, text in words.items())


def short(value: Any) -> str:
    """Write a figure with four digits."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if is_list(value):
        return "[" + ", ".join(map(short, value)) + "]"
    return str(value)


def _plain(value: Any) -> Any:
    """Turn numbers that JSON does not know into words."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if is_mapping(value):
        return {str(key): _plain(part) for key, part in value.items()}
    if is_list(value):
        return [_plain(part) for part in value]
    return cast("Any", value).item() if hasattr(value, "item") else value
