"""Tables of the studies, as CSV and as Markdown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from papers.tables import write_csv

__all__ = ["markdown", "write", "write_attributes"]

COLUMNS = (
    "study", "x", "method", "seed", "f1_own", "f1_foreign", "f1_tuned_foreign", "f1_best_foreign", "accuracy", "macro",
    "tuned_accuracy", "tuned_macro", "lists", "bytes_up", "bytes_down", "rounds", "epochs", "seconds",
)  # fmt: skip


def write(out: Path, study: str, rows: list[dict[str, Any]]) -> None:
    """Write ``<study>.csv`` with every repetition and ``<study>.md`` with means and spreads."""
    write_csv(out / f"{study}.csv", rows, COLUMNS)
    (out / f"{study}.md").write_text("\n".join([markdown(rows), measures(rows), by_count(rows)]))


def markdown(rows: list[dict[str, Any]]) -> str:
    """Lay out means over repetitions, with the largest distance from them.

    F1 on foreign items stands there twice: where the probability is above one half, and at the threshold that is best
    on the client's own items; in brackets the share of what one model of all data reaches.

    Examples
    --------
    >>> row = {"x": 0.5, "method": "A", "f1_own": 0.5, "f1_foreign": 0.4, "f1_tuned_foreign": 0.45}
    >>> print(markdown([{**row, "bytes_up": 2e6, "epochs": 9, "seconds": 3.0}]))
    | | method | F1 own | F1 foreign | F1 foreign, own threshold | epochs | MB up | seconds |
    |---|---|---|---|---|---|---|---|
    | 0.5 | A | 0.500 ± 0.000 | 0.400 ± 0.000 | 0.450 ± 0.000 | 9 | 2.00 | 3.0 |
    <BLANKLINE>
    """
    bound = [row for row in rows if row["method"] == "DMF, all data"]
    lines = ["| | method | F1 own | F1 foreign | F1 foreign, own threshold | epochs | MB up | seconds |"]
    lines.append("|---" * 8 + "|")
    for x, method in dict.fromkeys((row["x"], row["method"]) for row in rows):
        mine = [row for row in rows if (row["x"], row["method"]) == (x, method)]
        scores = []
        for key in ("f1_own", "f1_foreign", "f1_tuned_foreign"):
            text = _spread([row[key] for row in mine])
            most = np.mean([row[key] for row in bound]) if bound and key != "f1_own" else 0
            if most > 0:
                text += f" ({np.mean([row[key] for row in mine]) / most:.0%})"
            scores.append(text)
        epochs, mega, seconds = (np.mean([row[key] for row in mine]) for key in ("epochs", "bytes_up", "seconds"))
        costs = f"{epochs:.0f} | {mega / 1e6:.2f} | {seconds:.1f}"
        lines.append(f"| {x} | {method} | {' | '.join(scores)} | {costs} |")
    return "\n".join(lines) + "\n"


def measures(rows: list[dict[str, Any]]) -> str:
    """Lay out every measure on foreign items at the threshold of own items: a share of one model of all data each.

    Examples
    --------
    >>> row = {"x": 0.5, "f1_tuned_foreign": 0.4, "tuned_accuracy": 0.9, "tuned_macro": 0.7, "lists": 0.3}
    >>> print(measures([{**row, "method": "DMF, all data"}, {**row, "method": "A", "lists": 0.15}]))
    | | method | F1 | accuracy | macro F1 | F1 of lists |
    |---|---|---|---|---|---|
    | 0.5 | DMF, all data | 0.400 (100%) | 0.900 (100%) | 0.700 (100%) | 0.300 (100%) |
    | 0.5 | A | 0.400 (100%) | 0.900 (100%) | 0.700 (100%) | 0.150 (50%) |
    <BLANKLINE>
    """
    lines = ["| | method | F1 | accuracy | macro F1 | F1 of lists |", "|---" * 6 + "|"]
    for x, method in dict.fromkeys((row["x"], row["method"]) for row in rows):
        cells = []
        for key in ("f1_tuned_foreign", "tuned_accuracy", "tuned_macro", "lists"):
            mine, bound = (
                [row[key] for row in rows if (row["x"], row["method"]) == (x, one)] for one in (method, "DMF, all data")
            )
            share = f" ({np.mean(mine) / np.mean(bound):.0%})" if bound else ""
            cells.append(f"{np.mean(mine):.3f}{share}")
        lines.append(f"| {x} | {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def by_count(rows: list[dict[str, Any]]) -> str:
    """Lay out F1 on foreign items at the threshold of own items, by how many of the owner's users touched the item."""
    classes = list(rows[0]["by_count"])
    lines = ["| | method | " + " | ".join(f"F1, {word} users" for word in classes) + " |"]
    lines.append("|---" * (2 + len(classes)) + "|")
    for x, method in dict.fromkeys((row["x"], row["method"]) for row in rows):
        mine = [row["by_count"] for row in rows if (row["x"], row["method"]) == (x, method)]
        cells = [f"{np.mean([one[word]['f1'] for one in mine]):.3f}" for word in classes]
        lines.append(f"| {x} | {method} | " + " | ".join(cells) + " |")
    ones = [f"{np.mean([row['by_count'][word]['share of ones'] for row in rows]):.0%}" for word in classes]
    return "\n".join([*lines, "| | share of the ones | " + " | ".join(ones) + " |"]) + "\n"


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
    each = ((seed, method, one) for seed, row in enumerate(rows) for method, one in row.items())
    write_csv(out / "attributes.csv", [{"method": method, "seed": seed, **one} for seed, method, one in each])
