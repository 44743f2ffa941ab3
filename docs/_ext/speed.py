"""Draws ``docs/explanation/speed.svg``, and writes the table under it in ``speed.md``, from stored results.

``make bench`` measures; ``python docs/_ext/speed.py benchmarks/out/bench.json`` stores what the page shows of it in
``docs/explanation/speed.json`` and draws; without a file it draws what is stored. A test compares the table.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1] / "explanation"
PAGE, STORED, PICTURE = HERE / "speed.md", HERE / "speed.json", HERE / "speed.svg"
BEGIN, END = "<!-- written by docs/_ext/speed.py -->", "<!-- until here -->"
DARK, WARM, GREY = "#1f5fa8", "#c4521a", "#888888"


def reduced(bench: dict[str, Any]) -> dict[str, Any]:
    """Return what the page shows of a file of ``make bench``."""
    sets = {}
    for label, one in bench["sets"].items():
        if one:
            race, beside = one["against_sklearn"], one["neighbour"]
            sets[label] = {
                "scikit-learn, s": race["sklearn_seconds"], "ours, s": race["seconds"], "ratio": race["ratio"],
                "share of limit": one["limit"]["share"], "ten owners / one": one["ten_owners"]["ratio"],
                "busy / quiet": beside["ratio"],
                "ratio, both beside a busy process": beside.get("against_sklearn_beside"),
                "cpu / wall on one thread": beside["one_thread_cpu_per_wall"],
            }  # fmt: skip
    return {
        "machine": {name: bench["machine"][name] for name in ("cores", "load", "numpy", "sklearn")},
        "sets": sets,
        "missing": {label: one["ratios"] for label, one in bench.get("missing", {}).items()},
        "counts": {label: one["above_best"] for label, one in bench.get("counts", {}).items()},
        "rivals": {
            f"{name}, {label}": [one["seconds"], one["ours"]]
            for label, others in bench.get("rivals", {}).items()
            for name, one in others.items()
        },
        "growth": {name: one["doubling"] for name, one in bench.get("growth", {}).items()},
    }


def table(found: dict[str, Any]) -> str:
    """Write one line for each set, and one for each other measurement."""
    heads = list(next(iter(found["sets"].values())))
    lines = ["| set | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    for label, one in found["sets"].items():
        lines.append(f"| {label} | " + " | ".join(_number(head, one[head]) for head in heads) + " |")
    load = " to ".join(f"{each:.1f}" for each in found["machine"]["load"])
    lines += ["", f"{found['machine']['cores']} cores, load {load}, scikit-learn {found['machine']['sklearn']}."]
    for label, ratios in found["missing"].items():
        said = ", ".join(f"{float(share):.0%} missing {ratio:.1f}" for share, ratio in ratios.items())
        lines.append(f"A round with missing cells over a plain one, {label}: {said}.")
    for label, above in found["counts"].items():
        said = ", ".join(f"{each:+.2%}" for each in above)
        lines.append(f"Counts, {label}: divergence after ten rounds against scikit-learn's best of three: {said}.")
    for name, (theirs, ours) in found["rivals"].items():
        lines.append(f"{name}: {theirs:.2f} s, ours {ours:.2f} s.")
    if found["growth"]:
        said = ", ".join(f"{name} {ratio:.2f}" for name, ratio in found["growth"].items())
        lines.append(f"A doubling multiplies the time of a round by: {said}.")
    return "\n".join(lines)


def _number(head: str, value: float | None) -> str:
    if value is None:  # never reached, or not measured
        return "–"
    return f"{value:.0%}" if head == "share of limit" else f"{value:.2f}"


def draw(found: dict[str, Any]) -> None:
    """Draw three panels: the race with scikit-learn, what owners and neighbours cost, what missing cells cost."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams |= {"svg.hashsalt": "speed", "font.size": 8, "svg.fonttype": "none"}
    from matplotlib import pyplot as plt

    figure, (race, cost, holes) = plt.subplots(1, 3, figsize=(9, 2.6), layout="constrained", width_ratios=(1.5, 1.2, 1))
    labels, places = list(found["sets"]), range(len(found["sets"]))
    ratios = [one["ratio"] for one in found["sets"].values()]
    bars = race.barh(places, ratios, color=DARK)
    race.bar_label(bars, [f" {ratio:.1f}×" for ratio in ratios], padding=1)
    race.axvline(1, color=GREY, linewidth=0.6)
    race.set(title="times faster than scikit-learn,\nto the same error", yticks=places, yticklabels=labels)
    race.set_xlim(0, 1.15 * max(ratios))
    race.invert_yaxis()
    for name, colour, mark in (("ten owners / one", DARK, "o"), ("busy / quiet", WARM, "s")):
        cost.plot([one[name] for one in found["sets"].values()], places, mark, color=colour, label=name)
    cost.axvline(1, color=GREY, linewidth=0.6)
    cost.set(title="what ten owners cost, and\na busy neighbour", yticks=places, yticklabels=[], xlim=(0.8, None))
    cost.set_ylim(race.get_ylim())
    cost.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=2, frameon=False)
    for (label, shares), colour in zip(found["missing"].items(), (DARK, WARM), strict=False):
        holes.plot([100 * float(s) for s in shares], list(shares.values()), "o-", color=colour, label=label)
    holes.set(title="a round with missing cells\nover a plain one", xlabel="cells missing, %", ylim=(0, None))
    if found["missing"]:
        holes.legend(fontsize=7)
    for ax in (race, cost, holes):
        ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(PICTURE, metadata={"Date": None})


def filled(page: str, found: dict[str, Any]) -> str:
    """Put the table into its place on the page."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table(found)}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    if len(sys.argv) > 1:
        STORED.write_text(json.dumps(reduced(json.loads(Path(sys.argv[1]).read_text())), indent=1) + "\n")
    stored = json.loads(STORED.read_text())
    draw(stored)
    PAGE.write_text(filled(PAGE.read_text(), stored))
