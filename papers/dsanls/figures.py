"""Figures of the studies; matplotlib is asked for when the first one is drawn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedfactor.plots import panels

__all__ = ["draw", "draw_parties"]


def draw(out: Path, study: str, rows: list[dict[str, Any]]) -> None:
    """Draw error against time and iterations for every set, or iterations per second against ranks."""
    if study == "scaling":
        lines: dict[str, Any] = {}
        for row in rows:
            speed = row["iterations"] / max(row["seconds"][-1], 1e-9)
            lines.setdefault(row["method"], []).append((row["ranks"], speed))
        _save(out / "scaling.png", "", {"ranks": lines}, "iterations per second")
        return
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        group = f"{row['data']}-{row['split']}" if "split" in row else row["data"]
        groups.setdefault(group, []).append(row)
    for group, members in groups.items():
        sides: dict[str, dict[str, Any]] = {}
        for row in members:
            label = f"{row['method']}, k = {row['k']}" if study == "components" else row["method"]
            sides.setdefault("virtual seconds" if study == "secure" else "seconds", {})[label] = _points(row, "seconds")
            if "marks" in row:
                sides.setdefault("iterations", {})[label] = _points(row, "marks")
        _save(out / f"{study}-{group}.png", group, sides, "relative error")


def draw_parties(out: Path, rows: list[dict[str, Any]]) -> None:
    """Draw alternations per virtual second against the number of parties, even and uneven, for every set."""
    for data in dict.fromkeys(row["data"] for row in rows):
        mine = [row for row in rows if row["data"] == data and row["clock"] == "virtual"]
        every = panels(2)
        for axes, split in zip(every, ("uniform", "imbalanced"), strict=True):
            for method in dict.fromkeys(row["method"] for row in mine):
                points = [
                    (row["parties"], row["speed"]) for row in mine if (row["method"], row["split"]) == (method, split)
                ]
                axes.plot(*zip(*points, strict=True), marker=".", label=method)
            axes.set(
                xlabel="parties", ylabel="alternations per virtual second", title=split, xscale="log", yscale="log"
            )
        every[-1].legend(fontsize="x-small")
        every[0].figure.savefig(out / f"parties-{data}.png", dpi=120, bbox_inches="tight")


def _points(row: dict[str, Any], x: str) -> list[tuple[float, float]]:
    return list(zip(row[x], row["errors"], strict=True))


def _save(path: Path, title: str, sides: dict[str, dict[str, Any]], y: str) -> None:
    """Draw one panel for each x-axis; methods differ in speed by a hundred, so seconds are drawn as powers of ten."""
    every = panels(len(sides))
    for axes, (x, lines) in zip(every, sides.items(), strict=True):
        for label, points in lines.items():
            axes.plot([a for a, _ in points], [b for _, b in points], marker=".", label=label)
        scales = {"xscale": "log" if x == "seconds" else "linear"}
        scales["yscale"] = "log" if y == "relative error" else "linear"
        axes.set(xlabel=x, ylabel=y, title=title, **scales)
    every[-1].legend(fontsize="x-small")
    every[0].figure.savefig(path, dpi=120, bbox_inches="tight")
