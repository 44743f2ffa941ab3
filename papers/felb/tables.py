"""Tables of the studies, as CSV and as Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from papers.tables import write_csv

__all__ = ["late_solvers", "markdown", "means", "order_holds", "write"]

COLUMNS = (
    "study", "data", "seed", "clients", "rows", "columns", "density", "components", "method", "loss", "recall",
    "precision", "similarity", "pooled_loss", "floor", "gap", "seconds_per_client", "bytes_up_per_client", "late",
    "status",
)  # fmt: skip


def write(out: Path, study: str, rows: list[dict[str, Any]], absent: Iterable[str] = ()) -> None:
    """Write ``<study>.csv`` with everything and ``<study>.md`` with the losses, one line for each method.

    Under the table of real data it says whether the hoped-for order holds, and which sets were `absent`.
    """
    write_csv(out / f"{study}.csv", rows, COLUMNS)
    notes = list(order_holds(rows)) if study == "real" else []
    notes += [f"- Not in the data folder, so left out: {', '.join(absent)}."] if (absent := list(absent)) else []
    (out / f"{study}.md").write_text(markdown(rows) + "\n".join(["", *notes, ""] if notes else []))
    if study in ("real", "drawn"):
        write_csv(out / f"{study}_summary.csv", summary(rows))


def markdown(rows: Iterable[dict[str, Any]]) -> str:
    """Lay losses out by method and data; a star marks solvers that ran out of time at some clients.

    Examples
    --------
    >>> row = {"data": "a", "method": "FELB", "loss": 0.25, "late": 0, "floor": None, "seconds_per_client": 1.0}
    >>> print(markdown([row]))
    | loss | a | seconds per client |
    |---|---|---|
    | FELB | 0.250 | 1.00 |
    <BLANKLINE>
    """
    rows = means(rows)
    data = list(dict.fromkeys(row["data"] for row in rows))
    lines = ["| loss | " + " | ".join(data) + " | seconds per client |", "|---" * (len(data) + 2) + "|"]
    sizes = {row["data"]: f"{row['rows']} × {row['columns']}, k = {row['components']}" for row in rows if "rows" in row}
    if sizes:
        lines.append("| *size* | " + " | ".join(sizes[one] for one in data) + " | |")
    floors = {row["data"]: row["floor"] for row in rows if row.get("floor") is not None}
    if floors:
        lines.append("| *floor* | " + " | ".join(f"{floors[one]:.3f}" for one in data) + " | |")
    for method in dict.fromkeys(row["method"] for row in rows):
        mine = {row["data"]: row for row in rows if row["method"] == method}
        cells = [f"{mine[one]['loss']:.3f}{'*' if mine[one]['late'] else ''}" if one in mine else "" for one in data]
        seconds = sum(row["seconds_per_client"] for row in mine.values()) / len(mine)
        lines.append(f"| {method} | " + " | ".join(cells) + f" | {seconds:.2f} |")
    if any(row["late"] for row in rows):
        lines += ["", "\\* the solver ran out of its time at some clients; what it had found by then was voted on:", ""]
        lines += late_solvers(rows)
    return "\n".join(lines) + "\n"


def means(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Average the seeds of each method and data; clients that ran out of time are counted together.

    Examples
    --------
    >>> row = {"data": "a", "method": "FELB", "seconds_per_client": 1.0, "floor": None}
    >>> one = means([{**row, "loss": 0.2, "late": 1}, {**row, "loss": 0.4, "late": 2}])[0]
    >>> one["loss"], one["late"]
    (0.3, 3)
    """
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["data"], row["method"]), []).append(row)
    made = []
    for same in found.values():
        mean = {
            name: round(sum(one[name] for one in same) / len(same), 12)
            for name in (
                "loss",
                "recall",
                "precision",
                "similarity",
                "pooled_loss",
                "floor",
                "gap",
                "seconds_per_client",
                "gap",
            )
            if same[0].get(name) is not None
        }
        made.append({**same[0], **mean, "late": sum(one["late"] for one in same)})
    return made


def published(method: str) -> bool:
    """Tell a vote as published from methods that iterate, and from votes with changes of ours.

    Examples
    --------
    >>> published("asso or"), published("asso or aligned"), published("FELB"), published("primp or")
    (True, False, False, False)
    """
    solver, *form = method.split()
    return solver.islower() and solver != "primp" and len(form) == 1


def summary(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each set's lowest loss of a published vote, and on how many sets each method that iterates is below it.

    Rows of a set have the lowest loss of a published vote, and its name under ``below``; rows of "all" have the mean
    loss of a method and the number of sets.

    Examples
    --------
    >>> loss = {"FELB": 0.5, "asso or": 0.9, "asso or aligned": 0.1}
    >>> summary([{"data": "d", "method": name, "loss": one} for name, one in loss.items()])[1]
    {'data': 'all', 'method': 'FELB', 'loss': 0.5, 'below': 1, 'sets': 1}
    """
    rows, found = list(rows), []
    iterating = dict.fromkeys(row["method"] for row in rows if not row["method"].split()[0].islower())
    loss: dict[str, list[float]] = {method: [] for method in iterating}
    data = list(dict.fromkeys(row["data"] for row in rows))
    below = dict.fromkeys(loss, 0)
    for one in data:
        each: dict[str, list[float]] = {}
        for row in rows:
            if row["data"] == one:
                each.setdefault(row["method"], []).append(row["loss"])
        mine = {method: sum(losses) / len(losses) for method, losses in each.items()}
        best = min((value, method) for method, value in mine.items() if published(method))
        found.append({"data": one, "method": "best published vote", "loss": best[0], "below": best[1], "sets": ""})
        for method in loss:
            if method in mine:
                loss[method].append(mine[method])
                below[method] += mine[method] < best[0]
    for method, each in loss.items():
        mean = round(sum(each) / len(each), 12)
        found.append({"data": "all", "method": method, "loss": mean, "below": below[method], "sets": len(each)})
    return found


def late_solvers(rows: list[dict[str, Any]]) -> list[str]:
    """Name the solvers that ran out of time, and at how many clients of which set.

    Examples
    --------
    >>> late_solvers([{"data": "a", "method": "asso or", "late": 3, "clients": 20}])
    ['- asso: a (3 of 20 clients).']
    """
    found: dict[str, dict[str, str]] = {}
    for row in rows:
        if row["late"]:
            where = f"{row['data']} ({row['late']} of {row['clients']} clients)"
            found.setdefault(row["method"].split()[0], {}).setdefault(row["data"], where)
    return [f"- {solver}: {', '.join(where.values())}." for solver, where in found.items()]


def order_holds(rows: list[dict[str, Any]]) -> list[str]:
    """Say for every set whether PooledBMF ≤ FELB ≤ every unaligned vote in loss, or name the exceptions."""
    said = []
    rows = means(rows)
    for data in dict.fromkeys(row["data"] for row in rows):
        loss = {row["method"]: row["loss"] for row in rows if row["data"] == data}
        unaligned = {m: v for m, v in loss.items() if m.split()[0].islower() and not m.endswith("aligned")}
        felb, pooled = loss["FELB"], loss["PooledBMF"]
        odd = [f"PooledBMF {pooled:.3f} > FELB {felb:.3f}"] if pooled > felb else []
        below = [f"{method} {value:.3f}" for method, value in unaligned.items() if value < felb]
        odd += [f"FELB {felb:.3f} > {', '.join(below)}"] if below else []
        said.append(f"- {data}: " + ("; ".join(odd) if odd else "PooledBMF ≤ FELB ≤ every unaligned vote") + ".")
    return said
