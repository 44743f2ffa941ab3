"""Tables of the experiment, as CSV and as Markdown, with the paper's figures beside ours."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.evaluation.metrics.ratings import mean_interval
from papers.tables import markdown_lines, write_csv

__all__ = [
    "gap_closed",
    "group_changes",
    "write",
    "write_audit",
    "write_ranking",
    "write_sensitivity",
    "write_surprise",
]


def printed() -> dict[str, Any]:
    """Return the figures that the paper prints, and those that it quotes."""
    return json.loads(resources.files("papers.fedsplit").joinpath("printed.json").read_text())


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
    lines, sizes = ["| data | users | items | ratings | groups |", "|---|---|---|---|---|"], []
    for name in names:
        groups = [len(row["members"]) for (data, _), row in found.items() if data == name]
        R = ratings[name]
        lines.append(f"| {name}, filtered | {R.shape[0]} | {R.shape[1]} | {R.nnz:,} | {_pm(groups, 1)} |")
        rated = {"users": R.shape[0], "items": R.shape[1], "ratings": R.nnz, "groups": float(np.mean(groups))}
        sizes.append({"data": name, **rated})
    write_csv(out / "table1.csv", sizes)
    sections = [
        "## Table 1: the data",
        *lines,
        "",
        "## Table 2: groups before and after FedSPLIT",
        *_groups(out, found, names),
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


def group_changes(rows: Sequence[Any], form: str) -> dict[str, Any]:
    """Return Table 2: how each group's error changes against its own model, in RMSE and in MSE.

    ``mse_improved`` is the mean change of the groups that improved, ``mse_others`` the mean rise of the others; the
    correlations are those of the change in MSE with the number of members and of ratings.
    """
    rows = [row for row in rows if form in row["methods"]]
    pairs = [(row["methods"]["alone"]["by_group"], row["methods"][form]["by_group"], row) for row in rows]
    before = np.array([old[g] for old, new, _ in pairs for g in new])
    after = np.array([new[g] for _, new, _ in pairs for g in new])
    sizes = {word: [row[word][g] for _, new, row in pairs for g in new] for word in ("members", "ratings")}
    found: dict[str, Any] = {"groups": len(after), "improved": int((after < before).sum())}
    for word, change in (("rmse", after - before), ("mse", after**2 - before**2)):
        better, worse = change[change < 0], change[change >= 0]
        found[f"{word}_improved"], found[f"{word}_improved_half"] = mean_interval(better.tolist())
        found[f"{word}_others"] = float(worse.mean()) if len(worse) else None
    for word, size in sizes.items():
        found[f"r_{word}"] = float(np.corrcoef(size, after**2 - before**2)[0, 1])
    return found


def _groups(out: Path, found: Mapping[tuple[str, int], Any], names: list[str]) -> list[str]:
    words = "data|form|groups|improved|change of RMSE|of MSE|rise of the others, RMSE|MSE|r(members)|r(ratings)"
    lines, table = ["| " + words.replace("|", " | ") + " |", "|---" * 10 + "|"], []
    for name in names:
        rows = [row for (data, _), row in found.items() if data == name]
        for form in [m for m in rows[0]["methods"] if m.startswith("FedSPLIT")][:2]:
            one = group_changes(rows, form)
            table.append({"data": name, "form": form, **one})
            cells = [name, form, str(one["groups"]), str(one["improved"])]
            cells += [f"{one[f'{w}_improved']:.3f} ± {one[f'{w}_improved_half']:.3f}" for w in ("rmse", "mse")]
            cells += ["none" if one[f"{w}_others"] is None else f"{one[f'{w}_others']:.3f}" for w in ("rmse", "mse")]
            cells += [f"{one[w]:.2f}" for w in ("r_members", "r_ratings")]
            lines.append("| " + " | ".join(cells) + " |")
    write_csv(out / "table2.csv", table)
    return lines


def _methods(out: Path, name: str, rows: list[Any]) -> list[str]:
    paper = printed()["paper"].get(name, {})
    methods = list(rows[0]["methods"])
    words = "method|splits|exchanges|macro RMSE|macro MSE|micro RMSE|macro MAE|gap closed|groups improved|MB up|paper"
    lines = ["| " + words.replace("|", " | ") + " |", "|---" * 11 + "|"]
    table = []
    for m in methods:
        here = [row for row in rows if m in row["methods"]]
        figures = [row["methods"][m] for row in here]
        # The ends of the gap on the same splits: rivals are run on fewer of them.
        alone, central = (
            float(np.mean([row["methods"][end]["macro"] for row in here])) for end in ("alone", "central")
        )
        improved = np.mean([
            one["by_group"][g] < row["methods"]["alone"]["by_group"][g]
            for row, one in zip(here, figures, strict=True) for g in one["by_group"]
        ])  # fmt: skip
        macro, mse = ([one[word] for one in figures] for word in ("macro", "macro_mse"))
        table.append({
            "method": m,
            "splits": len(here),
            "exchanges": figures[0].get("rounds", ""),
            "macro": float(np.mean(macro)),
            "macro_mse": float(np.mean(mse)),
            "micro": float(np.mean([one["micro"] for one in figures])),
            "mae": float(np.mean([one["mae"] for one in figures])),
            "gap_closed": gap_closed(float(alone), float(central), float(np.mean(macro))),
            "improved": float(improved),
            "mb_up": figures[0].get("bytes_up", 0) / 1e6,
            "paper": paper.get(m, ""),
        })  # fmt: skip
        last = table[-1]
        cells = [m, str(len(here)), str(last["exchanges"]), _pm(macro), _pm(mse), f"{last['micro']:.3f}"]
        cells += [f"{last['mae']:.3f}", f"{last['gap_closed']:.0%}", f"{last['improved']:.0%}", f"{last['mb_up']:.1f}"]
        lines.append("| " + " | ".join([*cells, str(last["paper"])]) + " |")
    write_csv(out / f"table3_{name}.csv", table)
    quoted = printed()["quoted"]
    lines += ["", "Quoted by the paper, not run here (RMSE on their authors' own splits):", ""]
    lines += ["| method | exchanges | " + name + " | source |", "|---|---|---|---|"]
    lines += [f"| {m} | {one['exchanges']} | {one[name]} | {one['source']} |" for m, one in quoted.items()]
    return lines


def sensitivity(rows: Sequence[Any]) -> dict[str, dict[str, float]]:
    """Return, for each joint rank, FedSPLIT's MSE and the change of groups by four definitions."""
    found = {}
    for rank in (method for method in rows[0]["methods"] if method != "alone"):
        pairs = [(row["methods"]["alone"]["by_group"], row["methods"][rank]["by_group"], row) for row in rows]
        before, after = (np.array([pair[i][g] ** 2 for pair in pairs for g in pair[1]]) for i in (0, 1))
        weight = np.array([row["ratings"][g] for _, new, row in pairs for g in new], float)
        change, better = after - before, after < before
        by_split = [np.mean([new[g] ** 2 - old[g] ** 2 for g in new if new[g] < old[g]]) for old, new, _ in pairs]
        found[rank] = {
            "FedSPLIT": float(after.mean()),
            "alone": float(before.mean()),
            "improved groups": float(change[better].mean()),
            "all groups": float(change.mean()),
            "improved groups by ratings": float(np.average(change[better], weights=weight[better])),
            "deviation over splits": float(np.std(by_split, ddof=1)) if len(rows) > 1 else 0.0,
        }
    return found


def write_sensitivity(out: Path, rows: Mapping[int, Sequence[Any]]) -> None:
    """Write what the change of groups owes to the joint rank, the iterations, and the definition (MSE)."""
    words = ("FedSPLIT", "improved groups", "all groups", "improved groups by ratings", "deviation over splits")
    lines = ["| iterations | joint rank | alone | " + " | ".join(words) + " |", "|---" * (3 + len(words)) + "|"]
    found = {str(iterations): sensitivity(each) for iterations, each in rows.items()}
    for iterations, ranks in found.items():
        for rank, one in ranks.items():
            cells = " | ".join(f"{one[word]:.3f}" for word in ("alone", *words))
            lines.append(f"| {iterations} | {rank} | {cells} |")
    (out / "sensitivity.md").write_text("\n".join(lines) + "\n")
    each = ((iterations, rank, one) for iterations, ranks in found.items() for rank, one in ranks.items())
    write_csv(out / "sensitivity.csv", [{"iterations": n, "joint_rank": rank, **one} for n, rank, one in each])


def write_audit(
    out: Path,
    rows: list[dict[str, Any]],
    support: Mapping[str, float],
    raters: Mapping[str, Mapping[str, Any]],
    curves: list[dict[str, Any]],
) -> None:
    """Write what the adversary gets back, by group size, rank, kind of attack and share of known ratings."""
    write_csv(out / "audit.csv", rows)
    write_csv(out / "figure4.csv", curves)
    words = "data|members|rank|sent|attack|known|come back|(no upload)|unknown|(no upload)|biases|all known|as printed"
    head = "| " + words.replace("|", " | ") + " |"
    lines = ["## Figure 4: squared relative error, mean over groups ± 95 % interval"]
    lines += ["| attack | share | ratings given | all ratings (as in the paper) | unknown ratings |", "|---" * 5 + "|"]
    for one in curves:
        parts = [f"{one[w]:.4f} ± {one[f'{w}_half']:.4f}" if one[w] is not None else "" for w in ("paper", "unknown")]
        lines.append(f"| {one['attack']} | {one['known']:.0%} | {one['given']:.0%} | {parts[0]} | {parts[1]} |")
    lines += ["", "## What an adversary gets back", head, "|---" * 13 + "|"]
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
    write_csv(out / "ranking.csv", [{"data": name, "method": method, **row} for (name, method), row in rows.items()])
    words = list(next(iter(rows.values())))
    cells = ((*both, *(f"{row[word]:.3f}" for word in words)) for both, row in rows.items())
    lines = markdown_lines(["data", "method", *words], cells)
    (out / "ranking.md").write_text("\n".join(lines) + "\n")


def write_surprise(out: Path, means: Mapping[str, float]) -> None:
    """Write the macro RMSE of Surprise's central models."""
    lines = markdown_lines(["central model of Surprise", "macro RMSE"], ((k, f"{v:.3f}") for k, v in means.items()))
    (out / "surprise.md").write_text("\n".join(lines) + "\n")
