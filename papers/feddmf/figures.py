"""One picture for each study: F1 on own items and on foreign ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.plots import panels

__all__ = ["draw", "draw_measures"]

LABELS = {"users": "share of users at client 1", "common": "share of common items", "clients": "clients",
          "items": "client 1's share of the other items"}  # fmt: skip


def draw(out: Path, study: str, rows: list[dict[str, Any]]) -> Path:
    """Draw ``<study>.png``: bars for one setting, curves for several."""
    axes = panels(2)
    methods = list(dict.fromkeys(row["method"] for row in rows))
    for ax, word in zip(axes, ("own", "foreign"), strict=True):
        for place, method in enumerate(methods):
            mine = [row for row in rows if row["method"] == method and row[f"f1_{word}"] is not None]
            xs = sorted({row["x"] for row in mine})
            values = [[row[f"f1_{word}"] for row in mine if row["x"] == x] for x in xs]
            if study in LABELS:
                _curves(ax, study, method, mine, xs, values, word)
            else:
                ax.barh(place, np.mean(values[0]), xerr=np.std(values[0]), color=f"C{place % 10}")
        if study in LABELS:
            ax.set(xlabel=LABELS[study], ylabel=f"F1 on {word} items", ylim=(0, None))
        else:
            ax.set(xlabel=f"F1 on {word} items", yticks=range(len(methods)))
            ax.set_yticklabels(methods if word == "own" else [], fontsize=7)
            ax.invert_yaxis()
    if study in LABELS:
        axes[0].legend(fontsize=7)
    path = out / f"{study}.png"
    axes[0].figure.savefig(path, dpi=120)
    return path


def draw_measures(out: Path, rows: list[dict[str, Any]]) -> Path:
    """Draw ``measures.png``: the share of one model of all data that each method reaches, by four measures."""
    names = {"f1_tuned_foreign": "F1", "tuned_macro": "macro F1", "lists": "F1 of lists", "tuned_accuracy": "accuracy"}
    bound = {key: np.mean([row[key] for row in rows if row["method"] == "DMF, all data"]) for key in names}
    shown = ("FedDMF", "FedAvg", "FedDMF, eq. 4", "no alignment", "popularity × activity", "random", "all zeros")
    ax = panels(1, width=7.0)[0]
    for place, method in enumerate(shown):
        mine = [row for row in rows if row["method"] == method]
        heights = [np.mean([row[key] for row in mine]) / bound[key] for key in names]
        ax.bar(np.arange(len(names)) + (place - 3) * 0.12, heights, width=0.12, label=method)
    ax.axhline(0.96, color="k", linewidth=0.5, linestyle="--")
    ax.set_xticks(range(len(names)), list(names.values()))
    ax.set(ylabel="share of one model of all data", ylim=(0, 1.3))
    ax.legend(fontsize=6, ncols=4)
    path = out / "measures.png"
    ax.figure.savefig(path, dpi=120)
    return path


def _curves(ax: Any, study: str, method: str, mine: list, xs: list, values: list, word: str) -> None:
    if study != "clients" and method != "random":
        for client, style in (("client 1", "--"), ("client 2", ":")):
            each = [np.mean([row[word][client] for row in mine if row["x"] == x and client in row[word]]) for x in xs]
            ax.plot(xs, each, style, linewidth=1, label=f"{method}, {client}")
    ax.errorbar(xs, [np.mean(v) for v in values], [np.std(v) for v in values], marker="o", markersize=3, label=method)
