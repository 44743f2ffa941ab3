"""Figures of the studies; matplotlib is asked for when the first one is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedfactor.plots import panels

__all__ = ["draw"]


def draw(out: Path, study: str, rows: list[dict[str, Any]]) -> None:
    """Draw error against time for every set, or seconds against ranks."""
    if study == "scaling":
        lines: dict[str, Any] = {}
        for row in rows:
            lines.setdefault(row["method"], []).append(
                (row["ranks"], row["iterations"] / max(row["seconds"][-1], 1e-9))
            )
        _panel(out / "scaling.png", lines, "ranks", "iterations per second", "")
        return
    groups: dict[str, dict[str, Any]] = {}
    for row in rows:
        group = f"{row['data']}-{row['split']}" if "split" in row else row["data"]
        label = f"{row['method']}, k = {row['k']}" if study == "components" else row["method"]
        groups.setdefault(group, {})[label] = list(zip(row["seconds"], row["errors"], strict=True))
    clock = "virtual seconds" if study == "secure" else "seconds"
    for group, lines in groups.items():
        _panel(out / f"{study}-{group}.png", lines, clock, "relative error", group)


def _panel(path: Path, lines: dict[str, Any], x: str, y: str, title: str) -> None:
    (axes,) = panels()
    for label, points in lines.items():
        axes.plot([a for a, _ in points], [b for _, b in points], marker=".", label=label)
    axes.set(xlabel=x, ylabel=y, title=title, yscale="log" if y == "relative error" else "linear")
    axes.legend(fontsize="small")
    axes.figure.savefig(path, dpi=120, bbox_inches="tight")
