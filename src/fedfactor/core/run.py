"""What a run leaves behind: factors, history, traffic, time, and how it ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from importlib import import_module
from typing import Any, Literal

import numpy as np

from fedfactor.core.algorithm import LocalFactors, Score, settings_of
from fedfactor.core.errors import FedfactorError, MissingExtraError
from fedfactor.core.pytree import Array, Tree, tree_sum

Status = Literal["converged", "rounds", "stopped", "budget"]
"""``converged``: the algorithm's own test; ``rounds``: all rounds were used; ``stopped``: a callback asked for it;
``budget``: the privacy budget allows no further round."""


STATUS = {
    "converged": "converged",
    "rounds": "all rounds used, not yet converged",
    "stopped": "stopped on request",
    "budget": "the privacy budget is spent",
}
"""Why a run ended, for people."""


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One round: who took part, what travelled, how long it took, and what the server could see of the error.

    ``rejected`` names those whose upload came and was left out, because it was not finite or could not be true.
    """

    index: int
    participants: tuple[str, ...]
    bytes_up: int
    bytes_down: int
    seconds: float
    metrics: Mapping[str, float] = field(default_factory=dict[str, float])
    rejected: tuple[str, ...] = ()


class NotPublished(FedfactorError, AttributeError):
    """A figure that the promise of a private run does not cover was asked for under a public name."""


class _Errors:
    """What follows from the errors of the clients."""

    __slots__ = ()
    scores: Mapping[str, Score]

    def _check_published(self) -> None:
        """Raise where the errors are not released."""

    @property
    def score(self) -> Score:
        """The error of all clients together."""
        self._check_published()
        return tree_sum(self.scores.values())

    @property
    def relative_error(self) -> float:
        """``‖X − UV‖ / ‖X‖`` over all rows."""
        return self.score.relative_error

    @property
    def worst_client(self) -> tuple[str, float]:
        """The client with the largest relative error, and that error: a good mean can hide a bad client."""
        self._check_published()
        return max(((name, score.relative_error) for name, score in self.scores.items()), key=lambda pair: pair[1])


@dataclass(frozen=True, slots=True)
class OwnersOnly(_Errors):
    """What the promise of a private run does not cover: exact errors and times. For the clients' own eyes."""

    scores: Mapping[str, Score]
    seconds: tuple[float, ...] = ()
    metrics: tuple[Mapping[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Run(_Errors):
    """The result of a run. Everything a plot, a table or a paper needs; nothing here calls an engine.

    ``factors`` maps each client to its own U and the shared V: in a simulation all of them are at hand, in a real
    federation each client holds only its own. ``totals`` are the sums that stand for all rows, at the server and where
    the method has such (PooledPCA); they stay there. A run with noise keeps exact errors and times in ``owners_only``:
    its promise does not cover them, and ``scores``, ``relative_error`` and their like are not there.
    """

    algorithm: Any
    seed: int
    status: Status
    history: tuple[RoundRecord, ...]
    factors: Mapping[str, LocalFactors]
    scores: Mapping[str, Score]
    down: Tree
    environment: Mapping[str, Any] = field(default_factory=dict[str, Any])
    feature_names: tuple[str, ...] | None = None
    privacy: Mapping[str, Any] | None = None
    owners_only: OwnersOnly | None = None
    totals: Tree = None

    @property
    def V(self) -> Array:
        """The shared factor (k × m)."""
        first = next(iter(self.factors.values()))
        if first.columns is None or len(self.factors) < len(self.scores):
            return first.V
        return whole_V([(kept.V, kept.columns) for kept in self.factors.values()])

    @property
    def rounds(self) -> int:
        """Rounds that were run."""
        return len(self.history)

    @property
    def still_expected(self) -> str:
        """Words on the rounds that the algorithm expects to need beyond those of the run; empty where it has none."""
        more = self.history[-1].metrics.get("more_rounds", 0) if self.history and self.status == "rounds" else 0
        return f" (about {more:,.0f} more rounds are expected to help)" if more > 0 else ""

    @property
    def rejected(self) -> tuple[str, ...]:
        """Clients with at least one rejected upload, in name order."""
        return tuple(sorted({name for r in self.history for name in r.rejected}))

    @property
    def bytes_up(self) -> int:
        """Bytes that all clients sent."""
        return sum(r.bytes_up for r in self.history)

    @property
    def bytes_down(self) -> int:
        """Bytes that all clients received."""
        return sum(r.bytes_down for r in self.history)

    @property
    def seconds(self) -> float:
        """Time spent in rounds."""
        return sum(r.seconds for r in self.history)

    def _check_published(self) -> None:
        if self.owners_only is not None:
            raise NotPublished(
                "The promise of a private run does not cover exact errors: they are the owners' own. In a simulation "
                "they are at run.owners_only."
            )

    @property
    def measured(self) -> OwnersOnly:
        """Return the measurements without noise, of all clients: for callers that hold all rows anyway."""
        return self.owners_only or OwnersOnly(self.scores, tuple(r.seconds for r in self.history))

    def summary(self) -> dict[str, Any]:
        """Plain data for ``run.json``, figures of the clients among it: no factors, no rows."""
        measured = self.measured
        name, error = measured.worst_client
        return {
            "algorithm": type(self.algorithm).__name__,
            "settings": settings_of(self.algorithm),
            "seed": self.seed,
            "status": self.status,
            "rounds": self.rounds,
            "clients": len(measured.scores),
            "relative_error": measured.relative_error,
            "worst_client": {"name": name, "relative_error": error},
            "bytes_up": self.bytes_up,
            "bytes_down": self.bytes_down,
            "seconds": sum(measured.seconds),
            "environment": dict(self.environment),
            "privacy": self.privacy or {"mode": "none", "epsilon": "inf", "sees": {"server": "every upload"}},
            "history": [asdict(r) for r in self.history],
        }

    def to_frame(self) -> Any:
        """Return the history as a pandas data frame, one line for each round.

        Examples
        --------
        >>> import numpy as np, fedfactor
        >>> X = np.random.default_rng(0).random((30, 6))
        >>> run = fedfactor.run(fedfactor.algorithms.PooledNMF(2), {"a": X[:7], "b": X[7:]}, rounds=5, seed=0)
        >>> frame = run.to_frame()
        >>> len(frame), frame.index.name, list(frame.columns[:3])
        (5, 'round', ['participants', 'bytes_up', 'bytes_down'])
        """
        try:
            pandas: Any = import_module("pandas")
        except ImportError as error:
            raise MissingExtraError.named("pandas", "data", "A data frame") from error
        rows = [
            {
                "participants": len(r.participants),
                "bytes_up": r.bytes_up,
                "bytes_down": r.bytes_down,
                "seconds": r.seconds,
                "rejected": len(r.rejected),
                **r.metrics,
            }
            for r in self.history
        ]
        return pandas.DataFrame(rows, index=pandas.RangeIndex(1, len(rows) + 1, name="round"))

    def _repr_html_(self) -> str:
        """Show the essentials as a small table in a notebook; of a private run no client's own error."""
        lines: dict[str, str] = {
            "algorithm": f"{type(self.algorithm).__name__}, rank {self.V.shape[0]}, seed {self.seed}",
            "owners": str(len(self.measured.scores)),
        }
        if self.owners_only is None:
            lines["relative error"] = f"{self.relative_error:.5f}"
        if self.privacy is None:
            name, error = self.worst_client
            lines["worst owner"] = f"{error:.5f} ({name})"
        lines["rounds"] = f"{self.rounds}, {self.status}"
        lines["sent"] = f"{self.bytes_up / 1e6:.2f} MB up, {self.bytes_down / 1e6:.2f} MB down"
        lines["privacy"] = "none" if self.privacy is None else str(self.privacy.get("mode", "custom"))
        cells = "".join(f"<tr><th>{escape(key)}</th><td>{escape(value)}</td></tr>" for key, value in lines.items())
        return f"<table><caption>Run</caption>{cells}</table>"

    def __repr__(self) -> str:
        """Return the essentials in one line."""
        hidden = self.owners_only is not None
        error = "errors for owners only" if hidden else f"relative error {self.relative_error:.4f}"
        who = owners(len(self.measured.scores))
        return (
            f"Run({type(self.algorithm).__name__}, {who}, {self.rounds} rounds, {self.status}, "
            f"{error}, {self.bytes_up / 1e6:.2f} MB up)"
        )


def whole_V(parts: Sequence[tuple[Array, Array]]) -> Array:
    """Put V together where every node kept its own columns of it, the same ones perhaps at several.

    Examples
    --------
    >>> whole_V([(np.ones((1, 1)), np.array([1])), (np.zeros((1, 1)), np.array([0]))])
    array([[0., 1.]])
    """
    V = np.zeros((len(parts[0][0]), 1 + max(int(columns.max(initial=-1)) for _, columns in parts)), parts[0][0].dtype)
    for part, columns in parts:
        V[:, columns] = part
    return V


def owners(count: int) -> str:
    """Write a number of clients.

    Examples
    --------
    >>> owners(1), owners(3)
    ('1 owner', '3 owners')
    """
    return f"{count} owner{'' if count == 1 else 's'}"
