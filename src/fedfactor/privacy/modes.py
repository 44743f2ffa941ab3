"""What protects uploads, by name: the words that Python, the command line and federation terms take."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from fedfactor.aggregation.robust_rules import robust_rules

if TYPE_CHECKING:
    from fedfactor.core.transforms import Transform

__all__ = ["Protection", "run_modes", "transform_named"]


class Protection(StrEnum):
    """What the parties of a federation agree on."""

    NONE = "none"
    SECURE_SUM = "secure-sum"
    DP = "dp"


def run_modes() -> tuple[str, ...]:
    """Return the words for ``privacy=`` of a run, beside ``dp(...)``.

    Examples
    --------
    >>> run_modes()
    ('secure-sum', 'median', 'trimmed-mean', 'group-median')
    """
    return (Protection.SECURE_SUM.value, *robust_rules())


def transform_named(mode: str) -> Transform:
    """Return the transform that a word stands for."""
    from fedfactor.aggregation.robust import Robust  # late: a list of words for a help text needs neither
    from fedfactor.privacy.secure_aggregation.transform import SecureSum

    if mode == Protection.SECURE_SUM:
        return SecureSum()
    if mode in robust_rules():
        return Robust(mode)
    raise ValueError(f"privacy={mode!r} is not known. Use {', '.join(map(repr, run_modes()))}, or dp(...).")
