"""One small file for each figure, so that a study that was interrupted goes on where it stopped."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedfactor.experiments.kept import kept

__all__ = ["Store", "write_table"]

Row = dict[str, Any]


class Store:
    """A folder of figures by what they are figures of."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, key: Row, make: Callable[[], Row]) -> Row:
        """Return a figure that is there, or make and keep it."""
        return kept(self._folder, key, lambda: {**key, **make()}, prefix=f"{key['study']}-")


def write_table(out: Path, study: str, rows: list[Row]) -> None:
    """Write a study as CSV and as Markdown."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    with open(out / f"{study}.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(_cell(row.get(name)) for name in names) + " |" for row in rows]
    (out / f"{study}.md").write_text("\n".join(lines) + "\n")


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "inf" if math.isinf(value) else f"{value:.4g}"
    return "" if value is None else str(value)
