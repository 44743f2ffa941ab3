"""Robust centres of uploads, by name: a new rule is one class in this file, marked with :func:`robust_rule`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

import numpy as np

from fedfactor.core.algorithm import Round

__all__ = ["RobustRule", "RuleParameters", "robust_rule", "robust_rules", "rule_named"]


class RuleParameters(Protocol):
    """What a user may set of a rule (fields of :class:`~fedfactor.aggregation.robust.Robust`)."""

    @property
    def trim(self) -> float:
        """Share cut at either end."""
        ...

    @property
    def groups(self) -> int | None:
        """Number of groups."""
        ...


class RobustRule(ABC):
    """A centre of uploads that a few hostile ones do not decide."""

    __slots__ = ()

    def least_clients(self, parameters: RuleParameters) -> int:
        """Return the number of clients below which the rule gives no protection."""
        return 3

    @abstractmethod
    def withstands(self, parameters: RuleParameters, n_clients: int) -> int:
        """Return how many hostile clients, of so many, cannot move a number beyond those of honest ones."""

    @abstractmethod
    def centre(self, uploads: np.ndarray, parameters: RuleParameters, at: Round) -> np.ndarray:
        """Return the centre of uploads, one in each row."""


_RULES: dict[str, RobustRule] = {}


def robust_rule(name: str) -> Callable[[type[RobustRule]], type[RobustRule]]:
    """Register a rule under the name that Python and the command line take."""

    def register(kind: type[RobustRule]) -> type[RobustRule]:
        _RULES[name] = kind()
        return kind

    return register


def robust_rules() -> tuple[str, ...]:
    """Return the names of all rules.

    Examples
    --------
    >>> robust_rules()
    ('median', 'trimmed-mean', 'group-median')
    """
    return tuple(_RULES)


def rule_named(name: str) -> RobustRule:
    """Return a rule, or raise ValueError with the names that are known."""
    if name not in _RULES:
        *names, last = map(repr, _RULES)
        raise ValueError(f"rule={name!r} is not known. Use {', '.join(names)} or {last}.")
    return _RULES[name]


@robust_rule("median")
class Median(RobustRule):
    """The median of each entry."""

    __slots__ = ()

    def withstands(self, parameters: RuleParameters, n_clients: int) -> int:
        """Return just under a half."""
        return (n_clients - 1) // 2

    def centre(self, uploads: np.ndarray, parameters: RuleParameters, at: Round) -> np.ndarray:
        """Return the median of each entry."""
        return np.median(uploads, axis=0)


@robust_rule("trimmed-mean")
class TrimmedMean(RobustRule):
    """The mean of each entry without its largest and smallest values."""

    __slots__ = ()

    def withstands(self, parameters: RuleParameters, n_clients: int) -> int:
        """Return how many values are cut at either end."""
        return min(int(np.ceil(parameters.trim * n_clients)), (n_clients - 1) // 2)

    def centre(self, uploads: np.ndarray, parameters: RuleParameters, at: Round) -> np.ndarray:
        """Return the mean of what is left of each entry."""
        n_clients = len(uploads)
        cut = self.withstands(parameters, n_clients)
        return np.sort(uploads, axis=0)[cut : n_clients - cut].mean(axis=0)


@robust_rule("group-median")
class GroupMedian(RobustRule):
    """The median of the means of random groups."""

    __slots__ = ()

    def least_clients(self, parameters: RuleParameters) -> int:
        """Return two for each group."""
        return 2 * (3 if parameters.groups is None else parameters.groups)

    def groups_of(self, parameters: RuleParameters, n_clients: int) -> int:
        """Return the number of groups that so many clients are dealt to."""
        if parameters.groups is not None:
            return min(parameters.groups, n_clients)
        pairs = max(n_clients // 2, 1)
        return pairs - (pairs % 2 == 0)  # of an even number one would be of no help

    def withstands(self, parameters: RuleParameters, n_clients: int) -> int:
        """Return just under half of the groups, each of which one hostile client spoils."""
        return (self.groups_of(parameters, n_clients) - 1) // 2

    def centre(self, uploads: np.ndarray, parameters: RuleParameters, at: Round) -> np.ndarray:
        """Return the median of the means of groups, drawn again in each round."""
        n_clients = len(uploads)
        order = at.shared_rng("groups").permutation(n_clients)
        parts = np.array_split(order, self.groups_of(parameters, n_clients))
        return np.median([uploads[part].mean(axis=0) for part in parts], axis=0)
