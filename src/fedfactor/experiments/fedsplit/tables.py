"""Tables of the experiment, as CSV and as Markdown, with the paper's figures beside ours."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.metrics.ratings import mean_interval

__all__ = ["gap_closed", "write", "write_audit", "write_ranking", "write_surprise"]


def expected() -> dict[str, Any]:
    """Return the figures that the paper prints, and ours."""
    return json.loads(resources.files("fedfactor.experiments.fedsplit").joinpath("expected.json").read_text())


def gap_closed(alone: float, central: float, method: float) -> float:
    """Return how much of the way from groups alone to one central model a method goes.

    Examples
    --------
    >>> gap_closed(1.0, 0.8, 0.85)
    0.75
    """
    return round((alone - method) / (alone - central), 12)


def write(out: Path, found: Mapping[tuple[str, int], Any], ratings: Mapping[str, Any]) -> None:
    """Write Table 1 (data), Table 2 (groups before and after) and Table 3 (methods)."""
    names = list(dict.fromkeys(name for name, _ in found))
    lines = ["| data | users | items | ratings | groups |", "|---|---|---|---|---|"]
    for name in names:
        groups = [len(row["members"]) for (data, _), row in found.items() if data == name]
        R = ratings[name]
        lines.append(f"| {name}, filtered | {R.shape[0]} | {R.shape[1]} | {R.nnz:,} | {_pm(groups, 1)} |")
    sections = [
        "## Table 1: the data",
        *lines,
        "",
        "## Table 2: groups before and after FedSPLIT",
        *_groups(found, names),
    ]
    for name in names:
        sections += [
            "",
            f"## Table 3: {name}",
            *_methods(out, name, [row for (data, _), row in found.items() if data == name]),
        ]
    (out / "tables.md").write_text("\n".join(sections) + "\n")


def _pm(values: Any, digits: int = 3) -> str:
    mean, half = mean_interval(values)
    return f"{mean:.{digits}f} ± {half:.{digits}f}"


def _groups(found: Mapping[tuple[str, int], Any], names: list[str]) -> list[str]:
    head = "| data | form | groups | improved | mean change | mean rise of the others | r(members) | r(ratings) |"
    lines = [head, "|---|---|---|---|---|---|---|---|"]
    for name in names:
        for form in ("FedSPLIT as printed", "FedSPLIT"):
            gains, members, ratings = [], [], []
            for (data, _), row in found.items():
                if data == name:
                    before, after = (row["methods"][m]["by_group"] for m in ("alone", form))
                    gains += [after[g] - before[g] for g in after]
                    members += [row["members"][g] for g in after]
                    ratings += [row["ratings"][g] for g in after]
            change = np.array(gains)
            worse = change[change >= 0]
            cells = [name, form, str(len(change)), str(int((change < 0).sum())), f"{change[change < 0].mean():.3f}"]
            cells += [f"{worse.mean():.3f}" if len(worse) else "none"]
            cells += [f"{np.corrcoef(size, change)[0, 1]:.2f}" for size in (members, ratings)]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def _methods(out: Path, name: str, rows: list[Any]) -> list[str]:
    printed = expected()["paper"].get(name, {})
    methods = list(rows[0]["methods"])
    macro = {m: [row["methods"][m]["macro"] for row in rows] for m in methods}
    central, alone = np.mean(macro["central"]), np.mean(macro["alone"])
    head = "| method | exchanges | macro RMSE | micro RMSE | macro MAE | gap closed | groups improved | MB up | paper |"
    lines = [head, "|---" * 9 + "|"]
    table = []
    for m in methods:
        figures = [row["methods"][m] for row in rows]
        improved = np.mean([
            one["by_group"][g] < row["methods"]["alone"]["by_group"][g]
            for row, one in zip(rows, figures, strict=True) for g in one["by_group"]
        ])  # fmt: skip
        table.append({
            "method": m,
            "exchanges": figures[0].get("rounds", ""),
            "macro": float(np.mean(macro[m])),
            "micro": float(np.mean([one["micro"] for one in figures])),
            "mae": float(np.mean([one["mae"] for one in figures])),
            "gap_closed": gap_closed(float(alone), float(central), float(np.mean(macro[m]))),
            "improved": float(improved),
            "mb_up": figures[0].get("bytes_up", 0) / 1e6,
            "paper": printed.get(m, ""),
        })  # fmt: skip
        last = table[-1]
        cells = [m, str(last["exchanges"]), _pm(macro[m]), f"{last['micro']:.3f}", f"{last['mae']:.3f}"]
        cells += [f"{last['gap_closed']:.0%}", f"{last['improved']:.0%}", f"{last['mb_up']:.1f}", str(last["paper"])]
        lines.append("| " + " | ".join(cells) + " |")
    _csv(out / f"table3_{name}.csv", table)
    return lines


def write_audit(
    out: Path, rows: list[dict[str, Any]], support: Mapping[str, float], raters: Mapping[str, Mapping[str, Any]]
) -> None:
    """Write what the adversary gets back, by group size, rank, kind of attack and share of known ratings."""
    _csv(out / "audit.csv", rows)
    words = "data|members|rank|sent|attack|known|come back|(no upload)|unknown|(no upload)|biases|all known|as printed"
    head = "| " + words.replace("|", " | ") + " |"
    lines = ["## What an adversary gets back", head, "|---" * 13 + "|"]
    for row in rows:
        cells = [row["data"], str(row["members"]), str(row["k"]), row["sent"], row["attack"], f"{row['known']:.0%}"]
        cells += [f"{row['back']:.0%}", f"{row['back_without']:.0%}"]
        cells += [f"{row[word]:.3f}" for word in ("unknown", "without", "blind", "oracle", "paper")]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", "## By the number of users of the group who rated the movie; a quarter known"]
    lines += ["| group | raters | of the ratings | come back |", "|---|---|---|---|"]
    for group, found in raters.items():
        lines += [f"| {group} | {word} | {one['share']:.0%} | {one['back']:.0%} |" for word, one in found.items()]
    lines += ["", "## Which items a group rated, told from what it sends (area under the curve; 0.5 is a guess)"]
    lines += ["| sent | AUC |", "|---|---|", *(f"| {word} | {value:.3f} |" for word, value in support.items())]
    (out / "audit.md").write_text("\n".join(lines) + "\n")


def write_ranking(out: Path, rows: Mapping[tuple[str, str], Mapping[str, float]]) -> None:
    """Write precision, recall and NDCG of lists of ten."""
    _csv(out / "ranking.csv", [{"data": name, "method": method, **row} for (name, method), row in rows.items()])
    words = list(next(iter(rows.values())))
    lines = ["| data | method | " + " | ".join(words) + " |", "|---" * (len(words) + 2) + "|"]
    for (name, method), row in rows.items():
        lines.append(f"| {name} | {method} | " + " | ".join(f"{row[word]:.3f}" for word in words) + " |")
    (out / "ranking.md").write_text("\n".join(lines) + "\n")


def write_surprise(out: Path, means: Mapping[str, float]) -> None:
    """Write the macro RMSE of Surprise's central models."""
    lines = [
        "| central model of Surprise | macro RMSE |",
        "|---|---|",
        *(f"| {k} | {v:.3f} |" for k, v in means.items()),
    ]
    (out / "surprise.md").write_text("\n".join(lines) + "\n")


def _csv(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
