"""Write ``federation.toml`` for people to read: sections in a fixed order, each with a line on what it is for."""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from typing import Any

from fedfactor.core.atomic_files import write_atomic
from fedfactor.core.pytree import is_list, is_mapping
from fedfactor.federation.terms import DEFAULTS, Terms

NOTES = {
    "federation": "Purpose and contact. id: drawn once; keys and vouchers are bound to it.",
    "server": "Where the server listens, and the certificate that it must show.",
    "algorithm": "What is computed. Entries beside the name are the algorithm's settings.",
    "run": "payload: exact, or float16 (half the bytes, rounded). threads is part of the bits of the result.",
    "policy": (
        "minimum: parties that a round needs (0: more than half). dropouts: continue, or wait (no party may be "
        "missing; always so with secure aggregation).\n# Times are in seconds; absent (60 unless given): how long a "
        "round waits for "
        "a party that is known to be unavailable."
    ),
    "privacy": (
        "protect = none: the server sees each party's sums; secure-sum: only their total; dp: their total with noise "
        "(then also epsilon, delta, unit = row, subject or client, row_bound and rows, or clip, and colluding).\n"
        "# minimum_rows: who has fewer may not take part (0: ten for each component, and at least 100).\n"
        "# With secure-sum, a column that fewer rows or parties fill is left out."
        "\n# protocol = verified: every party computes the next question itself, checks every total, and so sees it "
        "(totals = parties).\n# public_rows: the number of rows of all parties, where that may be known (0: not "
        "public)."
        "\n# links: what else becomes of an upload at its party, in order, such as { link = 'Clip', norm = 1.0 }."
    ),
    "limits": (
        "How much every party answers, counted by itself: runs, rounds in all of them (0: any), first and last day.\n"
        "# keep: days after which a party deletes what it sent and what it got (0: it does so by itself)."
    ),
    "features": "The agreed columns, in order. split: what each party holds.\n"
    "# how: same, union (absent cells are zero or missing), intersection.",
    "units": "Where cells of a column usually lie: nine tenths of each party's own must, or that party is warned.",
    "preprocess": (
        "steps, in order: library-size N, log1p, binarize T; last select N, one of tf-idf, scale [max, ...].\n"
        "# scale declared: by the upper ends of [units], made of no rows, so also for secure aggregation and noise."
    ),
    "parties": "Who may join: the public key of each. No other party is spoken to.",
}

HEAD = """\
# Every party reads this file before it takes part, and takes part only on these terms.
# Comments and layout are free; any other change makes it another agreement.
"""


def dump(content: Mapping[str, Any]) -> str:
    """Write content as TOML."""
    lines = [HEAD]
    for section in DEFAULTS:
        if section not in content:
            continue
        lines += [f"# {NOTES[section]}", f"[{section}]"]
        lines += [f"{_key(key)} = {_value(value)}" for key, value in content[section].items()]
        lines.append("")
    lines.append(f"# {NOTES['parties']}")
    for name, party in content.get("parties", {}).items():
        lines += [f"[parties.{_value(name)}]", *(f"{key} = {_value(value)}" for key, value in party.items()), ""]
    return "\n".join(lines).rstrip() + "\n"


def save(path: str | os.PathLike[str], content: Mapping[str, Any]) -> Terms:
    """Check content, write it, and return the terms as they will be read."""
    text = dump(Terms.of(content).content)
    terms = Terms.of(tomllib.loads(text))  # before a file that can be read is replaced by it
    write_atomic(path, text.encode(), mode=0o644)
    return terms


def _key(name: str) -> str:
    return name if re.fullmatch("[A-Za-z0-9_-]+", name) else _one_line(name)


def _value(value: Any) -> str:
    if isinstance(value, str) and "\n" in value and _is_plain(value):
        return f'"""\n{value}"""'
    if is_list(value):
        items = [_value(item) for item in value]
        if sum(map(len, items)) < 90:
            return f"[{', '.join(items)}]"
        return "[\n" + "".join(f"  {item},\n" for item in items) + "]"
    if is_mapping(value):
        return "{ " + ", ".join(f"{key} = {_value(part)}" for key, part in value.items()) + " }"
    if value is None:
        raise ValueError("TOML has no null: leave the entry out.")
    return _one_line(value)


def _one_line(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _is_plain(text: str) -> bool:
    """Return whether a text of several lines may stand as it is."""
    return all(line.isprintable() for line in text.split("\n")) and '"""' not in text and "\\" not in text
