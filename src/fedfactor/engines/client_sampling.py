"""Who takes part in a round: a share of the clients that is drawn from the seed, or a rule that names them."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Collection
from typing import Any

from fedfactor.core.algorithm import Round

Participation = float | Callable[[Round, tuple[str, ...]], Collection[str]]
"""A share of the clients drawn again each round, or a rule that selects the participants."""


def participants(rule: Participation, at: Round, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of the clients that take part in a round, sorted; the draw depends on seed and round only."""
    if callable(rule):
        found: Any = rule(at, names)
        if isinstance(found, (str, bytes)) or not hasattr(found, "__iter__"):
            raise ValueError(f"participation must return a list of clients' names, but it returned {found!r}.")
        chosen: set[str] = set(found)
        unknown = sorted(chosen - set(names))
        if unknown:
            raise ValueError(f"participation named {unknown[0]!r}, which is not a client of this federation.")
    else:
        if not isinstance(rule, numbers.Real) or not 0 < rule <= 1:
            raise ValueError(f"participation={rule!r} must lie in (0, 1], or be a function (round, names) -> names.")
        if rule == 1:
            return names
        size = max(1, math.ceil(rule * len(names)))
        chosen = {names[i] for i in at.shared_rng("participation").choice(len(names), size=size, replace=False)}
    return tuple(name for name in names if name in chosen)


def rule_name(rule: Participation) -> str:
    """Return the name of a rule for a checkpoint, equal in every process: of a function its name, of an object its
    type.
    """
    if not callable(rule):
        return str(rule)
    return str(getattr(rule, "__qualname__", type(rule).__qualname__))
