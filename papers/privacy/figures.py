"""Loss against ε: the nominal one, dashed, and the one that holds."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import mean
from typing import Any

from fedfactor.plots import panels

__all__ = ["draw"]

MOST = 1e6
"""Where an infinite ε is drawn."""


def draw(out: Path, study: str, rows: list[dict[str, Any]]) -> Path:
    """Draw ``<study>.png``: a panel for each data set or guess of Δ, a line for each method and mechanism."""
    part = "data" if study == "curves" else "Δ"
    groups = list(dict.fromkeys(row[part] for row in rows))
    axes = panels(len(groups))
    for ax, group in zip(axes, groups, strict=True):
        mine = [row for row in rows if row[part] == group]
        for label in dict.fromkeys(f"{row['method']}, {row['mechanism']}" for row in mine):
            points = [row for row in mine if f"{row['method']}, {row['mechanism']}" == label]
            true = sorted((min(float(row["true ε"]), MOST), row["loss"]) for row in points)
            means = [(at, mean(loss for x, loss in true if x == at)) for at in dict.fromkeys(x for x, _ in true)]
            (line,) = ax.plot(*zip(*means, strict=True), label=label)
            ax.plot(*zip(*true, strict=True), "o", markersize=3, color=line.get_color())
            nominal = sorted((float(r["nominal ε"]), r["loss"]) for r in points if r.get("nominal ε"))
            nominal = [point for point in nominal if not math.isinf(point[0])]
            if nominal:
                ax.plot(*zip(*nominal, strict=True), linestyle="--", linewidth=0.8, color=line.get_color())
        ax.set_xscale("log")
        ax.set_xlabel(f"ε that holds (dashed: nominal; infinity at {MOST:g})")
        ax.set_ylabel("loss")
        ax.set_title(f"{part}: {group}", fontsize=8)
        ax.legend(fontsize=6)
    path = out / f"{study}.png"
    axes[0].figure.savefig(path, dpi=120)
    return path
