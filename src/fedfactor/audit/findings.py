"""What an attack found, and the two words an audit may say."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Finding", "Verdict", "verdict_of"]

Verdict = Literal["consistent", "REFUTED"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One attack: what it assumes the attacker has, what it found, and whether that contradicts the claim.

    A failed attack proves nothing: the verdict is ``"consistent"`` (with the claim), never "safe".
    """

    attack: str
    attacker: str
    claim: str
    verdict: Verdict
    figures: dict[str, Any] = field(default_factory=dict)
    note: str = ""


def verdict_of(findings: list[Finding]) -> Verdict:
    """Return ``"REFUTED"`` if any attack contradicts its claim.

    Examples
    --------
    >>> verdict_of([Finding("a", "server", "claim", "consistent"), Finding("b", "server", "claim", "REFUTED")])
    'REFUTED'
    """
    return "REFUTED" if any(finding.verdict == "REFUTED" for finding in findings) else "consistent"
