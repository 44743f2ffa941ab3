"""Tables of the studies, as CSV and as Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from papers.tables import markdown_lines, write_csv

__all__ = ["markdown", "write", "write_parties"]

COLUMNS = (
    "study",
    "data",
    "split",
    "method",
    "k",
    "ranks",
    "iterations",
    "final",
    "seconds_all",
    "seconds_exchange",
    "sent",
)


def write(out: Path, study: str, rows: list[dict[str, Any]]) -> None:
    """Write ``<study>.csv`` and ``<study>.md``."""
    rows = [{**row, "seconds_all": row["seconds"][-1] if row["seconds"] else None} for row in rows]
    columns = [name for name in COLUMNS if any(name in row for row in rows)]
    write_csv(out / f"{study}.csv", rows, columns)
    (out / f"{study}.md").write_text(markdown(study, rows))


def write_parties(out: Path, rows: list[dict[str, Any]]) -> None:
    """Write ``parties.csv`` and ``parties.md``: alternations per second, messages and bytes of a party, error."""
    names = ("data", "clock", "split", "parties", "method", "speed", "messages", "sent", "final")
    write_csv(out / "parties.csv", rows, names)
    head = (*names[:5], "alternations per second", "messages", "bytes sent", "relative error")
    cells = (
        [*(row[name] for name in names[:5]), f"{row['speed']:.1f}", f"{row['messages']:g}", row["sent"],
         f"{row['final']:.4f}"]
        for row in rows
    )  # fmt: skip
    (out / "parties.md").write_text("\n".join(markdown_lines(head, cells)) + "\n")


def markdown(study: str, rows: list[dict[str, Any]]) -> str:
    """Lay the final errors and times out, one line for each measurement.

    Examples
    --------
    >>> row = {"data": "a", "method": "x", "k": 3, "ranks": 2, "final": 0.25, "seconds_all": 1.0, "sent": 10}
    >>> print(markdown("errors", [row]))
    | data | method | k | ranks | relative error | seconds | a rank sent |
    |---|---|---|---|---|---|---|
    | a | x | 3 | 2 | 0.2500 | 1.00 | 10 |
    <BLANKLINE>
    """
    where = "split" if study == "secure" else "ranks"
    clock = "virtual seconds" if study == "secure" else "seconds"
    who = "party" if study == "secure" else "rank"
    head = ("data", "method", "k", where, "relative error", clock, f"a {who} sent")
    cells = (
        [*(row[name] for name in ("data", "method", "k", where)), f"{row['final']:.4f}", f"{row['seconds_all']:.2f}",
         row["sent"]]
        for row in rows
    )  # fmt: skip
    return "\n".join(markdown_lines(head, cells)) + "\n"
