"""Tables of the studies, as CSV and as Markdown."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["markdown", "write", "write_attributes"]

COLUMNS = (
    "study", "x", "method", "seed", "f1_own", "f1_foreign", "f1_best_foreign", "bytes_up", "bytes_down", "rounds",
    "seconds",
)  # fmt: skip


def write(out: Path, study: str, rows: list[dict[str, Any]]) -> None:
    """Write ``<study>.csv`` with every repetition and ``<study>.md`` with means and spreads."""
    with (out / f"{study}.csv").open("w", newline="") as file:
        table = csv.DictWriter(file, COLUMNS, extrasaction="ignore")
        table.writeheader()
        table.writerows(rows)
    (out / f"{study}.md").write_text(markdown(rows))


def markdown(rows: list[dict[str, Any]]) -> str:
    """Lay out means over repetitions, with the largest distance from them.

    Examples
    --------
    >>> row = {"x": 0.5, "method": "A", "f1_own": 0.5, "f1_foreign": 0.4, "bytes_up": 2e6, "seconds": 3.0}
    >>> print(markdown([row]))
    | | method | F1 own | F1 foreign | MB up | seconds |
    |---|---|---|---|---|---|
    | 0.5 | A | 0.500 ± 0.000 | 0.400 ± 0.000 | 2.00 | 3.0 |
    <BLANKLINE>
    """
    reference = [row["f1_foreign"] for row in rows if row["method"] == "DMF, all data"]
    ratio = f" of DMF ({np.mean(reference):.3f}) |" if reference else ""
    lines = [f"| | method | F1 own | F1 foreign |{ratio} MB up | seconds |", "|---" * (6 + bool(ratio)) + "|"]
    for x, method in dict.fromkeys((row["x"], row["method"]) for row in rows):
        mine = [row for row in rows if (row["x"], row["method"]) == (x, method)]
        own, foreign = (_spread([row[key] for row in mine]) for key in ("f1_own", "f1_foreign"))
        share = f" {np.mean([row['f1_foreign'] for row in mine]) / np.mean(reference):.0%} |" if ratio else ""
        mega, seconds = (np.mean([row[key] for row in mine]) for key in ("bytes_up", "seconds"))
        lines.append(f"| {x} | {method} | {own} | {foreign} |{share} {mega / 1e6:.2f} | {seconds:.1f} |")
    return "\n".join(lines) + "\n"


def _spread(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return ""
    return f"{np.mean(known):.3f} ± {np.abs(np.array(known) - np.mean(known)).max():.3f}"


def write_attributes(out: Path, rows: list[dict[str, Any]]) -> None:
    """Write ``attributes.md``: mean AUC over repetitions."""
    lines = ["| | AUC of user vectors | AUC of the foreign share |", "|---|---|---|"]
    for method in rows[0]:
        parts = [_spread([row[method][key] for row in rows]) for key in ("auc_vectors", "auc_foreign_share")]
        lines.append(f"| {method} | " + " | ".join(parts) + " |")
    (out / "attributes.md").write_text("\n".join(lines) + "\n")
