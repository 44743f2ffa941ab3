"""One picture for each study: loss, recall, similarity and seconds per client over the data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.engines.run import run
from fedfactor.plots import panels
from papers.felb.tables import means, published

__all__ = ["draw", "summary", "tiles"]

SHOWN = (
    "FELB", "FALB", "PooledBMF", "PooledBMF, proximal", "FELB to the letter", "FALB to the letter",
    "FELB, own starts", "FELB to the letter, falling steps",
)  # fmt: skip
LABELS = {"noise": "share of flipped cells", "scarcity": "clients", "abundance": "clients"}


def draw(out: Path, study: str, rows: list[dict[str, Any]]) -> Path:
    """Draw ``<study>.png``; votes as published are grey, aligned ones dashed."""
    rows = means(rows)
    data = list(dict.fromkeys(row["data"] for row in rows))
    axes = panels(4)
    for ax, quantity in zip(axes, ("loss", "recall", "similarity", "seconds_per_client"), strict=True):
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


def summary(out: Path, rows: list[dict[str, Any]]) -> Path:
    """Draw ``real-summary.png``: for each set the best vote as published, and the methods that iterate."""
    rows = means(rows)
    data = list(dict.fromkeys(row["data"] for row in rows))
    loss = {(row["data"], row["method"]): row["loss"] for row in rows}
    votes = [method for method in dict.fromkeys(row["method"] for row in rows) if published(method)]
    bars = {"best vote as published": [min(loss[one, m] for m in votes if (one, m) in loss) for one in data]}
    for method in ("FELB to the letter", "FELB", "FALB", "PooledBMF"):
        bars[method] = [loss.get((one, method), float("nan")) for one in data]
    ax = panels(1, width=8, height=3)[0]
    for place, (label, heights) in enumerate(bars.items()):
        ax.bar([spot + 0.16 * (place - 2) for spot in range(len(data))], heights, 0.15, label=label)
    ax.set_xticks(range(len(data)), data)
    ax.set_ylabel("loss")
    ax.legend(fontsize=7, ncols=5, loc="upper center", bbox_to_anchor=(0.5, 1.15), frameon=False)
    path = out / "real-summary.png"
    ax.figure.savefig(path, dpi=110)
    return path


def tiles(out: Path, owners: Mapping[str, np.ndarray], algorithms: Mapping[str, Any], seed: int) -> Path:
    """Draw ``tiles.png``, as Fig. 1 of the paper: the data of all clients, and what each method makes of them.

    Rows are sorted by the planted tiles' cells, so that tiles are blocks; lines part the clients.
    """
    names = sorted(owners)
    orders = {name: np.lexsort(owners[name].T[::-1]) for name in names}
    columns = np.argsort(-np.corrcoef(np.vstack(list(owners.values())).T)[:, 0], kind="stable")
    shown = {"data": {name: owners[name] for name in names}}
    for label, algorithm in algorithms.items():
        result = run(algorithm, owners, seed=seed)
        shown[label] = {name: (kept.U @ kept.V) > 0.5 for name, kept in result.factors.items()}
    axes = panels(len(shown), width=2.2, height=3.2)
    for ax, (label, parts) in zip(axes, shown.items(), strict=True):
        ax.imshow(np.vstack([np.asarray(parts[name])[orders[name]][:, columns] for name in names]),
                  cmap="Greys", aspect="auto", interpolation="nearest")  # fmt: skip
        for edge in np.cumsum([len(owners[name]) for name in names])[:-1]:
            ax.axhline(edge - 0.5, color="tab:red", linewidth=0.6)
        ax.set(title=label, xticks=[], yticks=[])
    path = out / "tiles.png"
    axes[0].figure.savefig(path, dpi=120)
    return path


def _style(method: str) -> dict[str, Any]:
    if method in SHOWN:
        return {"marker": "o", "markersize": 3, "linewidth": 2, "label": method}
    if method.endswith("aligned"):
        label = method if "majority" in method else None
        return {"linestyle": "--", "linewidth": 0.8, "label": label}
    return {"color": "0.7", "linewidth": 0.8, "label": "votes as published" if method == "asso majority" else None}
