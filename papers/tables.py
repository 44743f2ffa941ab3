"""Tables of studies: CSV with everything, Markdown to read; and which studies were asked for."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["check_studies", "markdown_lines", "write_csv", "write_table"]


def check_studies(only: Iterable[str], known: Iterable[str]) -> None:
    """Refuse a study that is not there."""
    known = list(known)
    unknown = sorted(set(only) - set(known))
    if unknown:
        raise ValueError(f"There is no study {unknown[0]!r}. Use one of {', '.join(known)}.")


def markdown_lines(head: Iterable[Any], rows: Iterable[Iterable[Any]]) -> list[str]:
    """Lay out a table in Markdown.

    Examples
    --------
    >>> markdown_lines(["data", "loss"], [["a", "0.2"]])
    ['| data | loss |', '|---|---|', '| a | 0.2 |']
    """
    head = list(head)
    lines = ["| " + " | ".join(map(str, row)) + " |" for row in (head, *rows)]
    return [lines[0], "|---" * len(head) + "|", *lines[1:]]


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> None:
    """Write rows with some columns, by default those of the first row."""
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]) if columns is None else columns, extrasaction="ignore")
        table.writeheader()
        table.writerows(rows)


def write_table(path: Path, rows: Sequence[Mapping[str, Any]], columns: Sequence[str] | None = None) -> None:
    """Write rows as CSV and as Markdown, by default with the columns of the first one."""
    columns = list(rows[0]) if columns is None else columns
    write_csv(path.with_suffix(".csv"), rows, columns)
    lines = markdown_lines(columns, ([_text(row.get(name)) for name in columns] for row in rows))
    path.with_suffix(".md").write_text("\n".join(lines) + "\n")


def _text(value: Any) -> str:
    if isinstance(value, float):
        return "inf" if math.isinf(value) else f"{value:.4g}"
    return "" if value is None else str(value)
