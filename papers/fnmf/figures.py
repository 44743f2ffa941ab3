"""One picture for each study, from the rows of its table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fedfactor.core.errors import MissingExtraError
from fedfactor.plots.axes import panels

__all__ = ["draw"]

Row = dict[str, Any]


def draw(name: str, rows: list[Row], path: Path) -> None:
    """Draw a study; without matplotlib there are only tables."""
    try:
        axes = _DRAW[name](rows)
    except MissingExtraError:
        return
    axes[0].figure.savefig(path, dpi=120)


def _lines(ax: Any, rows: list[Row], x: str, y: str, *, log: str = "") -> None:
    for method in dict.fromkeys(row["method"] for row in rows):
        points = [(row[x], row[y]) for row in rows if row["method"] == method and y in row]
        if points:
            ax.plot(*zip(*points, strict=True), marker=".", label=method)
    ax.set(xlabel=x.replace("_", " "), ylabel=y.replace("_", " "))
    if "x" in log:
        ax.set_xscale("log")
    if "y" in log:
        ax.set_yscale("log")


def _bars(ax: Any, rows: list[Row], y: str, title: str) -> None:
    names = [row["method"] for row in rows]
    ax.barh(range(len(rows)), [row[y] for row in rows])
    ax.set_yticks(range(len(rows)), names, fontsize=7)
    ax.invert_yaxis()
    ax.set(xlabel=y.replace("_", " "), title=title)


def _barycenters(rows: list[Row]) -> list[Any]:
    noisy = [row for row in rows if row["noise"] == 0.5 and row["k"] == 30 and row["clients"] == 20]
    axes = panels(3, width=4.5)
    for ax, figure in zip(axes, ("own_loss", "distance_to_truth", "milliseconds"), strict=True):
        _bars(ax, noisy, figure, "k = 30, noise 0.5")
    return axes


def _drift(rows: list[Row]) -> list[Any]:
    axes = panels()
    _lines(axes[0], rows, "local_steps", "sum_rmsd", log="xy")
    axes[0].legend(frameon=False, fontsize=6)
    return axes


def _trace(rows: list[Row]) -> list[Any]:
    axes = panels(3, width=4.0)
    for ax, figure in zip(axes, ("relative_error", "drift", "server_similarity"), strict=True):
        _lines(ax, rows, "round", figure, log="" if figure == "server_similarity" else "y")
    axes[0].legend(frameon=False, fontsize=7)
    return axes


def _letter(rows: list[Row]) -> list[Any]:
    axes = panels()
    _lines(axes[0], rows, "local_steps", "largest_cell", log="xy")
    axes[0].legend(frameon=False)
    return axes


def _convergence(rows: list[Row]) -> list[Any]:
    axes = panels()
    renamed = [{**row, "method": f"participation {row['participation']}"} for row in rows]
    _lines(axes[0], renamed, "gamma", "final_error")
    axes[0].set_xscale("symlog", linthresh=0.01)
    axes[0].legend(frameon=False)
    return axes


def _clients(rows: list[Row]) -> list[Any]:
    axes = panels(4, width=3.6)
    for i, supply in enumerate(("shortage", "surplus")):
        part = [row for row in rows if row["supply"] == supply]
        _lines(axes[2 * i], part, "clients", "mean_rmsd", log="xy")
        _lines(axes[2 * i + 1], part, "clients", "seconds", log="xy")
        axes[2 * i].set_title(supply)
    axes[0].legend(frameon=False, fontsize=6)
    return axes


def _noise(rows: list[Row]) -> list[Any]:
    axes = panels(3, width=4.0)
    for ax, kind in zip(axes, ("gauss", "exponential", "binomial"), strict=True):
        _lines(ax, [row for row in rows if row["kind"] == kind], "level", "mean_rmsd")
        ax.set_title(kind)
    axes[0].legend(frameon=False, fontsize=6)
    return axes


def _personal(rows: list[Row]) -> list[Any]:
    axes = panels(2, width=4.5)
    _lines(axes[0], rows, "private", "private_found")
    _lines(axes[1], rows, "private", "relative_error")
    axes[0].legend(frameon=False, fontsize=7)
    return axes


def _real(rows: list[Row]) -> list[Any]:
    axes = panels(2, width=7.0, height=4.5)
    sets = list(dict.fromkeys(row["set"] for row in rows))
    names = list(dict.fromkeys(row["method"] for row in rows))
    for ax, how in zip(axes, ("at random", "by label"), strict=True):
        for i, method in enumerate(names):
            gaps = {row["set"]: row["gap_percent"] for row in rows if row["split"] == how and row["method"] == method}
            places = [sets.index(one) + 0.8 * (i / len(names) - 0.5) for one in gaps]
            ax.bar(places, list(gaps.values()), width=0.8 / len(names), label=method)
        ax.set_xticks(range(len(sets)), sets, rotation=30)
        ax.set(ylabel="% above pooled", title=how)
        ax.set_yscale("symlog", linthresh=1)
    axes[0].legend(frameon=False, fontsize=6)
    return axes


def _fashion(rows: list[Row]) -> list[Any]:
    axes = panels(1, width=5.0)
    axes[0].bar([row["method"] for row in rows], [row["sum_rmsd"] for row in rows])
    axes[0].set_ylabel("sum of RMSD")
    return axes


_DRAW = {
    "barycenters": _barycenters,
    "drift": _drift,
    "trace": _trace,
    "convergence": _convergence,
    "letter": _letter,
    "clients": _clients,
    "noise": _noise,
    "personal": _personal,
    "real": _real,
    "fashion": _fashion,
}
