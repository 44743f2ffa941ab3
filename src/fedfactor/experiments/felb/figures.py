"""One picture for each study: loss, recall and seconds per client over the data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedfactor.experiments.felb.tables import means
from fedfactor.plots import panels

__all__ = ["draw"]

SHOWN = (
    "FELB", "FALB", "PooledBMF", "PooledBMF, proximal", "FELB to the letter", "FALB to the letter",
    "FELB, own starts", "FELB to the letter, falling steps",
)  # fmt: skip
LABELS = {"noise": "share of flipped cells", "scarcity": "clients", "abundance": "clients"}


def draw(out: Path, study: str, rows: list[dict[str, Any]]) -> Path:
    """Draw ``<study>.png``; votes as published are grey, aligned ones dashed."""
    rows = means(rows)
    data = list(dict.fromkeys(row["data"] for row in rows))
    axes = panels(3)
    for ax, quantity in zip(axes, ("loss", "recall", "seconds_per_client"), strict=True):
        for method in dict.fromkeys(row["method"] for row in rows):
            mine = {row["data"]: row[quantity] for row in rows if row["method"] == method}
            ax.plot([data.index(one) for one in mine], list(mine.values()), **_style(method))
        floors = {row["data"]: row["floor"] for row in rows if row.get("floor") is not None}
        if quantity == "loss" and floors:
            ax.plot([data.index(one) for one in floors], list(floors.values()), "k:", label="noise floor")
        ax.set_xticks(range(len(data)), data, rotation=30 if len(data) > 4 else 0, fontsize=7)
        ax.set_xlabel(LABELS.get(study, ""))
        ax.set_ylabel(quantity.replace("_", " "))
        if quantity == "seconds_per_client":
            ax.set_yscale("log")
    axes[0].legend(fontsize=6)
    path = out / f"{study}.png"
    axes[0].figure.savefig(path, dpi=120)
    return path


def _style(method: str) -> dict[str, Any]:
    if method in SHOWN:
        return {"marker": "o", "markersize": 3, "linewidth": 2, "label": method}
    if method.endswith("aligned"):
        label = method if "majority" in method else None
        return {"linestyle": "--", "linewidth": 0.8, "label": label}
    return {"color": "0.7", "linewidth": 0.8, "label": "votes as published" if method == "asso majority" else None}
