"""What every engine shares: who takes part, who watches, and how uploads are combined."""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Protocol

from fedfactor.core.errors import IncompatibleError, NotFiniteError, ProtocolError
from fedfactor.core.federation import Federation
from fedfactor.core.protocol import Algorithm, Meta, Round, Scatter
from fedfactor.core.run import RoundRecord, Run
from fedfactor.core.settings import check_settings
from fedfactor.core.tree import Tree, kind_of, nbytes, tree_sum
from fedfactor.core.wire import Spec, check_message

Participation = float | Callable[[Round, tuple[str, ...]], Collection[str]]
"""A share of the clients drawn anew each round, or a rule that names those who take part."""


class Callback:
    """Watches a run. Override what you need; return True from :meth:`on_round` to stop the run."""

    def on_start(self, algorithm: Algorithm, meta: Meta, rounds: int, first: int) -> None:
        """Follow the start: ``first`` is above 0 when a checkpoint was resumed."""

    def on_round(self, record: RoundRecord) -> bool | None:
        """Follow one finished round."""

    def on_end(self, run: Run | None) -> None:
        """Follow the end, with None when the run failed."""


AnyCallback = Callback | Callable[[RoundRecord], bool | None]


class Engine(Protocol):
    """Anything that can run an algorithm over a federation."""

    def run(
        self,
        algorithm: Algorithm,
        federation: Federation,
        *,
        rounds: int | None = None,
        seed: int = 0,
        participation: Participation = 1.0,
        checkpoint: Any = None,
        callbacks: Sequence[AnyCallback] = (),
    ) -> Run:
        """Run all rounds and return what is left behind."""
        ...


def participants(rule: Participation, at: Round, names: tuple[str, ...]) -> tuple[str, ...]:
    """Name those who take part in a round, in name order; the draw depends on the seed and the round only."""
    if callable(rule):
        chosen: set[str] = set(rule(at, names))
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
    """Name a rule for a checkpoint, alike in every process: a function by its name, an object by its type."""
    if not callable(rule):
        return str(rule)
    return str(getattr(rule, "__qualname__", type(rule).__qualname__))


class Inbox:
    """Combines the uploads of one round as they come, in name order: a running sum, or a mapping for ``gather``.

    An upload that holds NaN or infinity, or that `doubt` finds impossible, is left out as if its sender had not come,
    and the sender is named in ``rejected``: here each upload is seen before it is added, so one bad client need not
    cost all others their run. An upload of another form than announced is a fault of the code, and raises.
    """

    def __init__(self, expected: dict[type, Spec], doubt: Callable[[Tree], str] = lambda up: "") -> None:
        self._expected = {kind: spec for kind, spec in expected.items() if hasattr(kind, "uplink")}
        self._doubt = doubt
        self.present: list[str] = []
        self.rejected: dict[str, str] = {}
        self.bytes_up = 0
        self._kind: type | None = None
        self._sum: Tree = None
        self._gathered: dict[str, Tree] = {}

    def add(self, name: str, up: Tree) -> None:
        """Check one upload and take it in, or leave it out and say so."""
        try:
            check_message(up, self._expected)
            wrong = self._doubt(up)
        except NotFiniteError as error:
            wrong = str(error)
        except ProtocolError as error:
            raise ProtocolError(f"Client {name!r}: {error}") from None
        if wrong:
            self.rejected[name] = wrong
            return
        if self._kind not in (None, type(up)):
            raise ProtocolError(f"Client {name!r} sent {type(up).__name__} in a round of {self._kind.__name__}.")
        self._kind = kind_of(up)
        self.present.append(name)
        self.bytes_up += nbytes(up)
        if up.uplink == "gather":
            self._gathered[name] = up
        else:
            self._sum = up if self._sum is None else tree_sum((self._sum, up))

    @property
    def combined(self) -> Tree:
        """What the server step takes: the sum, or the mapping."""
        if self.rejected and not self.present:
            raise ProtocolError("No upload could be used. " + " ".join(f"{n}: {w}" for n, w in self.rejected.items()))
        return self._gathered or self._sum


def downloads(down: Tree, names: Iterable[str]) -> int:
    """Count the bytes that a broadcast or a scatter sends to these clients."""
    if isinstance(down, Scatter):
        return sum(nbytes(down.items[name]) for name in names)
    return nbytes(down) * len(tuple(names))


def check_fit(algorithm: Algorithm, meta: Meta) -> dict[type, Spec]:
    """Refuse, before round 0, settings that cannot work; return the messages that may travel."""
    if meta.masked and not algorithm.handles_missing:
        raise IncompatibleError(
            f"{type(algorithm).__name__} needs complete rows, but some cells are missing. Fill them, or take a method "
            "that handles missing cells, such as PooledNMF."
        )
    check_settings(algorithm)
    algorithm.check(meta)
    return algorithm.messages(meta)
