"""Figure 3 (each group before and after) and Figure 4 (attacks), with what the paper leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.plots import panels

__all__ = ["draw_attacks", "draw_groups"]


def draw_groups(out: Path, found: Mapping[tuple[str, int], Any]) -> None:
    """Draw, for each data set, error by group, change by group, and members by group, sorted by change."""
    for name in dict.fromkeys(name for name, _ in found):
        rows = [row for (data, _), row in found.items() if data == name]
        axes = panels(3)
        before = np.array([v for row in rows for v in row["methods"]["alone"]["by_group"].values()])
        order = None
        for form, colour in (("FedSPLIT as printed", "tab:orange"), ("FedSPLIT", "tab:blue")):
            after = np.array([v for row in rows for v in row["methods"][form]["by_group"].values()])
            order = np.argsort(after - before) if order is None else order
            axes[0].plot(after[order], color=colour, linewidth=1, label=form)
            axes[1].plot((after - before)[order], color=colour, linewidth=1, label=form)
        axes[0].plot(before[order], color="0.5", linewidth=1, label="alone")
        members = np.array([row["members"][g] for row in rows for g in row["methods"]["alone"]["by_group"]])
        axes[2].bar(np.arange(len(members)), members[order], color="0.5")
        for ax, label in zip(axes, ("RMSE", "change of RMSE", "members"), strict=True):
            ax.set_xlabel("groups")
            ax.set_ylabel(label)
        axes[1].axhline(0, color="k", linewidth=0.5)
        axes[0].legend(fontsize=7)
        axes[0].figure.savefig(out / f"figure3_{name}.png", dpi=120)


def draw_attacks(out: Path, rows: list[dict[str, Any]]) -> None:
    """Draw the paper's metric, and beside it the error on ratings that the adversary does not know."""
    axes = panels(3)
    for ax, word, title in (
        (axes[0], "paper", "all ratings (as in the paper)"),
        (axes[1], "unknown", "unknown ratings"),
    ):
        for members, k in ((3, 2), (8, 7), (15, 14), (30, 10)):
            line = [r for r in _line(rows, members, "as printed", k) if word == "paper" or r["known"] < 1]
            ax.plot([r["known"] for r in line], [r[word] for r in line], marker=".", label=f"{members} users, k = {k}")
        ax.set_title(title, fontsize=8)
    for sent in ("as printed", "unit rows, drawn", "rank n/3", "default", "sums only"):
        line = [r for r in _line(rows, 8, sent, 7 if sent == "as printed" else None) if r["known"] < 1]
        axes[2].plot([r["known"] for r in line], [r["unknown"] for r in line], marker=".", label=sent)
    axes[2].set_title("8 users: what defences change, unknown ratings", fontsize=8)
    for ax in axes:
        ax.set_xlabel("share of ratings known")
        ax.set_ylabel("relative error")
        ax.legend(fontsize=6)
    axes[0].figure.savefig(out / "figure4.png", dpi=120)


def _line(rows: list[dict[str, Any]], members: int, sent: str, k: int | None) -> list[dict[str, Any]]:
    wanted = [row for row in rows if row["data"] == "sparse" and row["attack"] == "ratings"]
    wanted = [row for row in wanted if (row["members"], row["sent"]) == (members, sent)]
    return [row for row in wanted if k is None or row["k"] == k]
