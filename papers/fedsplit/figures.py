"""Figure 3 (each group before and after) and Figure 4 (attacks), with what the paper leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.plots import panels
from papers.fedsplit.tables import group_changes

__all__ = ["draw_attacks", "draw_groups", "draw_reading"]


def draw_groups(out: Path, found: Mapping[tuple[str, int], Any]) -> None:
    """Draw Figure 3 for each data set: error, change of it, members and ratings of each group, sorted by change.

    The errors are mean squared ones, which is what the paper's figures turn out to be.
    """
    for name in dict.fromkeys(name for name, _ in found):
        rows = [row for (data, _), row in found.items() if data == name]
        axes = panels(4)
        order = np.arange(0)
        for form, colour in (("FedSPLIT as printed", "tab:orange"), ("FedSPLIT, settings of the library", "tab:blue")):
            here = [row for row in rows if form in row["methods"]]
            before, after = (
                np.array([v for row in here for v in row["methods"][m]["by_group"].values()]) ** 2
                for m in ("alone", form)
            )
            if not len(order):
                order = np.argsort(after - before)
                axes[0].plot(before[order], color="0.5", linewidth=1, label="alone")
            axes[0].plot(after[order], color=colour, linewidth=1, label=form)
            axes[1].plot((after - before)[order], color=colour, linewidth=1, label=form)
        for ax, word in zip(axes[2:], ("members", "ratings"), strict=True):
            each = np.array([row[word][g] for row in rows for g in row["methods"]["alone"]["by_group"]])
            ax.bar(np.arange(len(each)), each[order], width=1, color="0.5")
        for ax, label in zip(axes, ("MSE", "change of MSE", "members", "ratings"), strict=True):
            ax.set_xlabel("groups")
            ax.set_ylabel(label)
        axes[1].axhline(0, color="k", linewidth=0.5)
        axes[0].legend(fontsize=7)
        axes[0].figure.savefig(out / f"figure3_{name}.png", dpi=120)


def draw_reading(out: Path, found: Mapping[tuple[str, int], Any], printed: Mapping[str, Any]) -> None:
    """Draw what the paper prints beside our RMSE and our MSE: the printed bars stand beside those of the MSE."""
    for name in dict.fromkeys(name for name, _ in found):
        rows = [row for (data, _), row in found.items() if data == name]
        lines = ("central", "alone", "FedSPLIT as printed")
        change = group_changes(rows, lines[-1])
        bars = {"paper": [float(printed[name][m].split()[0]) for m in lines] + [-printed["improved"][name]]}
        for label, key, gain in (("our MSE", "macro_mse", "mse_improved"), ("our RMSE", "macro", "rmse_improved")):
            bars[label] = [float(np.mean([row["methods"][m][key] for row in rows])) for m in lines] + [-change[gain]]
        ax = panels(1, width=6.0)[0]
        for place, (label, heights) in enumerate(bars.items()):
            drawn = ax.bar(np.arange(4) + (place - 1) * 0.27, heights, width=0.27, label=label, color=f"C{place}")
            ax.bar_label(drawn, fmt="%.2f", fontsize=7)
        ax.set_xticks(range(4), [*lines, "gain of improved groups"], fontsize=7)
        ax.legend(fontsize=7)
        ax.figure.savefig(out / f"reading_{name}.png", dpi=120)


def draw_attacks(out: Path, rows: list[dict[str, Any]], curves: list[dict[str, Any]]) -> None:
    """Draw the paper's three attacks by its own measure, the same on unknown ratings, and what defences change."""
    axes = panels(3)
    for ax, word, title in (
        (axes[0], "paper", "all ratings (as in the paper)"),
        (axes[1], "unknown", "unknown ratings"),
    ):
        for attack in dict.fromkeys(row["attack"] for row in curves):
            line = [row for row in curves if row["attack"] == attack and row[word] is not None]
            heights, halves = ([row[one] for row in line] for one in (word, f"{word}_half"))
            ax.errorbar([row["known"] for row in line], heights, halves, marker=".", capsize=2, label=attack)
        ax.set_title(f"{title}, mean ± 95 %", fontsize=8)
        ax.set_ylabel("squared relative error")
    for sent in ("as printed", "unit rows, drawn", "rank n/3", "default", "sums only"):
        line = [r for r in _line(rows, 8, sent, 7 if sent == "as printed" else None) if r["known"] < 1]
        axes[2].plot([r["known"] for r in line], [r["unknown"] for r in line], marker=".", label=sent)
    axes[2].set_title("8 users: what defences change, unknown ratings", fontsize=8)
    axes[2].set_ylabel("relative error")
    for ax in axes:
        ax.set_xlabel("share known")
        ax.legend(fontsize=6)
    axes[0].figure.savefig(out / "figure4.png", dpi=120)


def _line(rows: list[dict[str, Any]], members: int, sent: str, k: int | None) -> list[dict[str, Any]]:
    wanted = [row for row in rows if row["data"] == "sparse" and row["attack"] == "ratings"]
    wanted = [row for row in wanted if (row["members"], row["sent"]) == (members, sent)]
    return [row for row in wanted if k is None or row["k"] == k]
