"""What an attack found, and the words an audit may say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["WORDS", "Finding", "Verdict", "verdict_of"]

Verdict = Literal["REFUTED", "not examined", "consistent", "does not apply"]

WORDS: dict[Verdict, str] = {
    "REFUTED": "An attack got what the claim says nobody gets.",
    "not examined": "The attack applies, but could not be tried here. Nothing is known: it is no clearance.",
    "consistent": "The attack was tried and did not contradict the claim. It never means safe: a better attack may "
    "exist.",
    "does not apply": "What this attack needs is not sent in this configuration.",
}
"""Every verdict with its meaning, the worst first."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One attack: what it assumes the attacker has, what it found, and whether that contradicts the claim.

    A failed attack proves nothing: the verdict is ``"consistent"`` (with the claim), never "safe". One that could not
    be tried is ``"not examined"``.
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
        if word in said and word != "does not apply":
            return word
    return "not examined"
