"""Tables of the studies, as CSV and as Markdown."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

__all__ = ["markdown", "order_holds", "write"]

COLUMNS = (
    "study", "data", "clients", "method", "loss", "recall", "precision", "similarity", "pooled_loss", "floor",
    "seconds_per_client", "bytes_up_per_client", "late", "status",
)  # fmt: skip


def write(out: Path, study: str, rows: list[dict[str, Any]]) -> None:
    """Write ``<study>.csv`` with everything and ``<study>.md`` with the losses, one line for each method."""
    with (out / f"{study}.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
        table.writeheader()
        table.writerows(rows)
    notes = "" if study != "real" else "\n".join(["", *order_holds(rows), ""])
    (out / f"{study}.md").write_text(markdown(rows) + notes)


def markdown(rows: Iterable[dict[str, Any]]) -> str:
    """Lay losses out by method and data; a star marks solvers that ran out of time at some clients.

    Examples
    --------
    >>> row = {"data": "a", "method": "FELB", "loss": 0.25, "late": 0, "floor": None, "seconds_per_client": 1.0}
    >>> print(markdown([row]))
    | loss | a | seconds per client |
    |---|---|---|
    | FELB | 0.250 | 1.00 |
    <BLANKLINE>
    """
    rows = list(rows)
    data = list(dict.fromkeys(row["data"] for row in rows))
    lines = ["| loss | " + " | ".join(data) + " | seconds per client |", "|---" * (len(data) + 2) + "|"]
    floors = {row["data"]: row["floor"] for row in rows if row.get("floor") is not None}
    if floors:
        lines.append("| *floor* | " + " | ".join(f"{floors[one]:.3f}" for one in data) + " | |")
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = {row["data"]: row for row in rows if row["method"] == method}
        cells = [f"{mine[one]['loss']:.3f}{'*' if mine[one]['late'] else ''}" if one in mine else "" for one in data]
        seconds = sum(row["seconds_per_client"] for row in mine.values()) / len(mine)
        lines.append(f"| {method} | " + " | ".join(cells) + f" | {seconds:.2f} |")
    if any(row["late"] for row in rows):
        lines += ["", "\\* the solver ran out of its time at some clients; components not found by then are empty."]
    return "\n".join(lines) + "\n"


def order_holds(rows: list[dict[str, Any]]) -> list[str]:
    """Say for every set whether PooledBMF ≤ FELB ≤ every unaligned vote in loss, or name the exceptions."""
    said = []
    for data in dict.fromkeys(row["data"] for row in rows):
        loss = {row["method"]: row["loss"] for row in rows if row["data"] == data}
        unaligned = {m: v for m, v in loss.items() if m.split()[0].islower() and not m.endswith("aligned")}
        felb, pooled = loss["FELB"], loss["PooledBMF"]
        odd = [f"PooledBMF {pooled:.3f} > FELB {felb:.3f}"] if pooled > felb else []
        odd += [f"{method} {value:.3f} < FELB {felb:.3f}" for method, value in unaligned.items() if value < felb]
        said.append(f"- {data}: " + ("; ".join(odd) if odd else "PooledBMF ≤ FELB ≤ every unaligned vote") + ".")
    return said
