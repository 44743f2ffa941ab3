"""What an attack found, and the verdicts of an audit."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["LABELS", "WORDS", "Finding", "Verdict", "verdict_of"]

Verdict = Literal["REFUTED", "not examined", "consistent", "no claim", "does not apply"]

WORDS: dict[Verdict, str] = {
    "REFUTED": "An attack obtained information that the stated protection excludes.",
    "not examined": "The attack is relevant, but could not be carried out here. The result is unknown.",
    "consistent": "The attack was carried out and did not succeed. It never means safe: a better attack may exist.",
    "no claim": "No protection is stated against this attack. The figures show what an attacker obtains.",
    "does not apply": "This configuration does not send the data that the attack needs.",
}
"""Every verdict with its meaning, the worst first."""

LABELS: dict[Verdict, str] = {
    "REFUTED": "Protection failed",
    "not examined": "Not tested",
    "consistent": "Attack did not succeed",
    "no claim": "No protection stated",
    "does not apply": "Not applicable",
}
"""Every verdict in the words of a report for decision makers."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One attack: what it assumes the attacker has, what it found, and whether that contradicts the claim.

    A failed attack proves nothing: the verdict is ``"consistent"`` (with the claim), never "safe". An attack that could
    not be tried is ``"not examined"``; one against which no protection is claimed is ``"no claim"``.
    """

    attack: str
    attacker: str
    claim: str
    verdict: Verdict
    figures: dict[str, Any] = field(default_factory=dict[str, Any])
    note: str = ""


def verdict_of(findings: list[Finding]) -> Verdict:
    """Return the worst word that any attack gave; without attacks nothing was examined.

    Examples
    --------
    >>> verdict_of([Finding("a", "server", "claim", "consistent"), Finding("b", "server", "claim", "not examined")])
    'not examined'
    >>> verdict_of([])
    'not examined'
    """
    said = {finding.verdict for finding in findings}
    for word in WORDS:
        if word in said and word not in ("no claim", "does not apply"):
            return word
    return "not examined"
