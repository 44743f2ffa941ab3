"""Estimators that depend on the rows through totals, which change when rows come or leave."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

from fedfactor.core.algorithm import Algorithm
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.pytree import Tree
from fedfactor.core.run import Run
from fedfactor.core.totals import Held
from fedfactor.estimators.estimator import FederatedEstimator
from fedfactor.privacy.dp import asked_of


@dataclass(frozen=True, slots=True)
class Change:
    """What is asked of the next run: rows that come (sign 1) or leave (sign −1), and the totals before."""

    held: Tree
    sign: int
    in_clear: bool


class ChangesTotals(FederatedEstimator):
    """An estimator that keeps the totals of a fit in the process of the server."""

    privacy: Any
    _change: Change | None = None
    _totals: Tree | None = None

    def _asked(self, sign: int, consent: bool, remedy: str) -> Change:
        """Return the requested change, or raise with the reason why there can be none."""
        if asked_of(self.privacy) is not None:
            raise IncompatibleError(
                "Each exchange under noise spends budget of its own, and the totals before could be compared with "
                "those after. Fit the rows that remain, within the budget."
            )
        if self._totals is None:
            raise IncompatibleError(
                "No totals of the earlier rows are at hand: fit keeps them in the process of the server and in no "
                f"folder. Fit again, {remedy}, in this process."
            )
        return Change(self._totals, sign, consent)

    def _with_totals(self, algorithm: Algorithm) -> Algorithm:
        change = self._change
        if change is None:
            return algorithm
        return replace(algorithm, held=Held(change.held, change.sign))  # type: ignore[reportCallIssue]

    def _run(
        self, algorithm: Algorithm, federation: Federation, engine: Any, seed: int, participation: Any = 1.0
    ) -> Run:
        if self._change is None or self.privacy is None:
            return super()._run(algorithm, federation, engine, seed, participation)
        from fedfactor.privacy.planner import parts_of  # late: a run in the clear needs none of it

        hidden = next((link for link in parts_of(self.privacy).links if link.hides), None)
        least = 0 if hidden is None else max(2, getattr(hidden, "min_clients", 2))
        if len(federation) >= least:
            return super()._run(algorithm, federation, engine, seed, participation)
        if not self._change.in_clear:
            raise IncompatibleError(
                "Secure aggregation hides the sums of one client among others, but the totals before and after the "
                f"rows of {', '.join(federation.names)} differ by just these sums. Change the rows of {least} clients "
                "or more together, or pass consent=True where their owners agree."
            )
        plain = copy.copy(self)
        plain.privacy = None
        return FederatedEstimator._run(plain, algorithm, federation, engine, seed, participation)
