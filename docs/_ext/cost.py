"""Draw ``docs/howto/cost_of_noise.svg``, and write tables of ``choose_epsilon.md`` and ``threat_model.md``.

``python -m claims.privacy_cost docs/howto/cost_of_noise.json`` and ``python -m claims.privacy_canaries
docs/explanation/canaries.json 2000`` measure, ``python docs/_ext/cost.py`` writes; a test compares.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

DOCS = Path(__file__).resolve().parents[1]
PICTURE = DOCS / "howto" / "cost_of_noise.svg"
BEGIN, END = "<!-- written by docs/_ext/cost.py -->", "<!-- until here -->"
EPSILONS = ("0.5", "1", "2", "4", "8")


def ratios(mine: dict[str, Any], epsilon: str) -> list[float]:
    """Divide by the best error without noise."""
    plain = min(mine["inf"])
    return [error / plain for error in mine[epsilon]]


def cost_table(found: dict[str, Any]) -> str:
    """Write the mean and the worst of all seeds for each set and ε, and the explained share that remains at ε = 4."""
    heads = [
        "data",
        "error without noise",
        *(f"ε = {epsilon}" for epsilon in EPSILONS),
        "explained squares kept, ε = 4",
    ]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, mine in found.items():
        each = [ratios(mine, epsilon) for epsilon in EPSILONS]
        cells = [f"{mean(values):.3f} ({max(values):.3f})" for values in each]
        kept = (1 - mean(error**2 for error in mine["4"])) / (1 - min(mine["inf"]) ** 2)
        lines.append(f"| {name} | {min(mine['inf']):.3f} | {' | '.join(cells)} | {kept:.1%} |")
    return "\n".join(lines)


def canary_table(found: dict[str, Any]) -> str:
    """Write for each configuration how often the attacker was wrong, and the ε that this proves."""
    lines = ["| unit and method | claimed ε | runs | missed | false alarms | proven ε |", "|---|---|---|---|---|---|"]
    for name, mine in found.items():
        runs = mine["with"] + mine["without"]
        shares = (mine["misses"] / mine["with"], mine["false_alarms"] / mine["without"])
        cells = (f"{mine['claimed']:g}", f"{runs:,}", *(f"{share:.0%}" for share in shares), f"{mine['epsilon']:.2f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


TABLES: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "howto/choose_epsilon.md": ("howto/cost_of_noise.json", cost_table),
    "explanation/threat_model.md": ("explanation/canaries.json", canary_table),
}
"""Page: stored results, and what writes the table."""


def draw(found: dict[str, Any]) -> None:
    """Draw the error over that without noise by ε, a line for each set."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams |= {"svg.hashsalt": "cost", "font.size": 8, "svg.fonttype": "none"}
    from matplotlib import pyplot as plt

    figure, ax = plt.subplots(figsize=(6.5, 3.4), layout="constrained")
    for name, mine in found.items():
        ax.plot([float(epsilon) for epsilon in EPSILONS], [mean(ratios(mine, e)) for e in EPSILONS], ".-", label=name)
    ax.axhline(1.05, color="#888888", linewidth=0.6)
    ax.set(xscale="log", xlabel="ε of one row, δ = 10⁻⁶", ylabel="error / error without noise")
    ax.set(xticks=[float(epsilon) for epsilon in EPSILONS], xticklabels=EPSILONS)
    ax.minorticks_off()
    ax.legend(fontsize=7)
    figure.savefig(PICTURE, metadata={"Date": None})


def filled(page: str) -> str:
    """Return a page with the table in its place."""
    stored, table = TABLES[page]
    before, _, rest = (DOCS / page).read_text().partition(BEGIN)
    return f"{before}{BEGIN}\n\n{table(json.loads((DOCS / stored).read_text()))}\n\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    draw(json.loads((DOCS / "howto" / "cost_of_noise.json").read_text()))
    for name in TABLES:
        (DOCS / name).write_text(filled(name))
