"""Stored results: every figure of a study with the command, commit, seeds, parameters and time that made it.

``python -m papers run NAME --only STUDY --store`` writes ``papers/NAME/stored/STUDY.json`` (``STUDY-quick.json`` with
``--quick``); the pages look figures up in these files, and a test computes some of them again.
"""

from __future__ import annotations

import csv
import json
import math
import platform
import subprocess
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fedfactor.core.atomic_files import write_atomic
from papers.catalogue import PAPERS

__all__ = ["ROOT", "commit", "compare", "name_of", "read", "read_tables", "rows", "select", "write"]

ROOT = Path(__file__).resolve().parent
TIMES = ("seconds", "milliseconds", "cpu", "late")
"""Columns that begin with these depend on the machine and are not compared."""
TOLERANCE = 1e-6
"""Largest relative difference of a recomputed figure, for studies that the catalogue gives no other."""


def name_of(study: str, size: str) -> str:
    """Name the file of a study at a size.

    Examples
    --------
    >>> name_of("noise", "usual"), name_of("noise", "quick")
    ('noise', 'noise-quick')
    """
    return study if size == "usual" else f"{study}-{size}"


def read_tables(folder: Path, since: float = 0.0) -> dict[str, list[dict[str, Any]]]:
    """Read the CSV tables of a folder that were written after a moment; cells become numbers where they can."""
    found = {}
    for path in sorted(folder.glob("*.csv")):
        if path.stat().st_mtime >= since:
            with path.open(newline="") as file:
                found[path.stem] = [{name: _number(text) for name, text in row.items()} for row in csv.DictReader(file)]
    return found


def _number(text: str) -> Any:
    try:
        return int(text) if text.lstrip("-").isdigit() else float(text)
    except ValueError:
        return text


def write(paper: str, study: str, options: Mapping[str, Any], made: Mapping[str, Any], tables: Any) -> Path:
    """Store the tables of one study with its command, commit and seconds, which are in `made`."""
    record = {
        "paper": paper, "study": study, **made,
        "uncommitted": bool(_git("status", "--porcelain", "--untracked-files=no", "--", "src", "papers/*.py")),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "parameters": dict(options),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in ("numpy", "scipy")}},
        "tables": tables,
    }  # fmt: skip
    path = ROOT / paper / "stored" / f"{name_of(study, options['size'])}.json"
    path.parent.mkdir(exist_ok=True)
    head, rows = {**record, "tables": {}}, []
    for name, table in tables.items():
        lines = ",\n".join("   " + json.dumps(row, ensure_ascii=False) for row in table)
        rows.append(f"  {json.dumps(name)}: [\n{lines}\n  ]")
    text = json.dumps(head, indent=1, ensure_ascii=False)
    text = text[: text.rindex('"tables": {}')] + '"tables": {\n' + ",\n".join(rows) + "\n }\n}\n"
    json.loads(text)
    write_atomic(path, text.encode(), 0o644)
    return path


def commit() -> str:
    """Return the commit of the working tree."""
    return _git("rev-parse", "HEAD")


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], capture_output=True, text=True, cwd=ROOT.parent)
    return done.stdout.strip() if done.returncode == 0 else ""


def read(root: Path = ROOT) -> dict[str, dict[str, Any]]:
    """Read every stored study: ``paper/study`` → record."""
    paths = sorted(root.glob("*/stored/*.json"))
    return {f"{path.parents[1].name}/{path.stem}": json.loads(path.read_text()) for path in paths}


def select(record: Mapping[str, Any], wanted: Mapping[str, str], column: str) -> Any:
    """Return the one figure of a stored study that the wanted values single out; ``sum:`` and ``count:`` take several.

    Examples
    --------
    >>> record = {"tables": {"noise": [{"data": 0.05, "method": "FELB", "loss": 0.4}]}}
    >>> select(record, {"data": "0.05", "method": "FELB"}, "loss"), select(record, {"data": "0.05"}, "count:loss")
    (0.4, 1)
    """
    fold, _, column = column.rpartition(":")
    found = [row[column] for row in rows(record, wanted, column)]
    if fold and found:
        return len(found) if fold == "count" else sum(found)
    if len(found) != 1:
        raise ValueError(f"{len(found)} stored rows have {dict(wanted)} and a column {column!r}, but one is needed.")
    return found[0]


def rows(record: Mapping[str, Any], wanted: Mapping[str, str], column: str) -> list[dict[str, Any]]:
    """Return the stored rows that have a column and the wanted values."""
    every = [row for table in record["tables"].values() for row in table if column in row]
    return [row for row in every if all(_same(row.get(name), value) for name, value in wanted.items())]


def _same(value: Any, text: str) -> bool:
    return str(value) == text or (isinstance(value, (int, float)) and isinstance(_number(text), (int, float)) and
                                  value == _number(text))  # fmt: skip


def compare(stored: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    """Yield where recomputed tables differ from stored ones by more than the catalogue allows; times do not count."""
    tolerance = PAPERS[stored["paper"]].tolerance.get(stored["study"], TOLERANCE)
    for name, rows in stored["tables"].items():
        if len(found.get(name, ())) != len(rows):
            yield f"{name}: {len(found.get(name, ()))} rows in place of {len(rows)}"
            continue
        for place, (old, new) in enumerate(zip(rows, found[name], strict=True)):
            for column, value in old.items():
                if not column.startswith(TIMES) and not _close(value, new.get(column), tolerance):
                    yield f"{name}, row {place}, {column}: {new.get(column)} in place of {value}"


def _close(old: Any, new: Any, tolerance: float) -> bool:
    if isinstance(old, float) and isinstance(new, (int, float)):
        return math.isclose(old, new, rel_tol=tolerance, abs_tol=tolerance) or (math.isnan(old) and math.isnan(new))
    return bool(old == new)
