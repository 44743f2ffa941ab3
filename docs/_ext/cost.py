"""Draws ``docs/howto/cost_of_noise.svg``, and writes the table under it in ``choose_epsilon.md``, from stored results.

``python -m claims.privacy_cost docs/howto/cost_of_noise.json`` measures, ``python docs/_ext/cost.py`` draws; a
test compares the table.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

HERE = Path(__file__).resolve().parents[1] / "howto"
PAGE, STORED, PICTURE = HERE / "choose_epsilon.md", HERE / "cost_of_noise.json", HERE / "cost_of_noise.svg"
BEGIN, END = "<!-- written by docs/_ext/cost.py -->", "<!-- until here -->"
UNITS, STEPS, SHOWN = ("row", "subject"), ("gradient", "newton"), ("1", "4")


def ratios(mine: dict[str, Any], unit: str, step: str, epsilon: str) -> list[float]:
    """Divide by the best error without noise."""
    plain = min(mine["without noise"]["inf"])
    return [error / plain for error in mine[f"{unit}, {step}"][epsilon]]


def table(found: dict[str, Any]) -> str:
    """Write the figures at ε = 1 and 4; where starts differ by a hundredth or more, from the best to the worst."""
    heads = [f"{unit}, ε = {epsilon}" for unit in UNITS for epsilon in SHOWN]
    lines = ["| data | without noise | steps | " + " | ".join(heads) + " |", "|---" * (len(heads) + 3) + "|"]
    for name, mine in found.items():
        for step in STEPS:
            cells = [_cell(ratios(mine, unit, step, epsilon)) for unit in UNITS for epsilon in SHOWN]
            first = (f"{name}, rank {mine['rank']}", f"{min(mine['without noise']['inf']):.3f}")
            lines.append("| " + " | ".join([*(first if step == STEPS[0] else ("", "")), step, *cells]) + " |")
    return "\n".join(lines)


def _cell(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.2f} to {high:.2f}" if high - low >= 0.01 else f"{mean(values):.3f}"


def draw(found: dict[str, Any]) -> None:
    """Draw a panel for each set: error over that without noise, by ε."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams |= {"svg.hashsalt": "cost", "font.size": 8, "svg.fonttype": "none"}
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, len(found), figsize=(2.5 * len(found), 2.6), layout="constrained")
    for ax, (name, mine) in zip(axes, found.items(), strict=True):
        for unit, colour in zip(UNITS, ("#1f5fa8", "#c4521a"), strict=True):
            for step, style in zip(STEPS, ("--", "-"), strict=True):
                points = {
                    float(epsilon): mean(ratios(mine, unit, step, epsilon)) for epsilon in mine[f"{unit}, {step}"]
                }
                ax.plot(*zip(*sorted(points.items()), strict=True), style, color=colour, label=f"{unit}, {step}")
        ax.axhline(1.05, color="#888888", linewidth=0.6)
        ax.set(xscale="log", title=name, xlabel="ε", xticks=[0.5, 1, 2, 4, 8], xticklabels=["½", "1", "2", "4", "8"])
        ax.minorticks_off()
        ax.set_ylim(0.99, min(1.7, ax.get_ylim()[1]))
    axes[0].set_ylabel("error / error without noise")
    axes[-1].legend(fontsize=7)
    figure.savefig(PICTURE, metadata={"Date": None})


def filled(page: str, found: dict[str, Any]) -> str:
    """Put the table into its place on the page."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table(found)}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    stored = json.loads(STORED.read_text())
    draw(stored)
    PAGE.write_text(filled(PAGE.read_text(), stored))
