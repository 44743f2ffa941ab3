"""What engines share: callbacks, what an engine is, and what it refuses before round 0."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from fedfactor.core.algorithm import Algorithm, Layout, Meta, Scatter, Uplink
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.parameters import check_settings
from fedfactor.core.pytree import Tree, nbytes
from fedfactor.core.run import RoundRecord, Run
from fedfactor.core.wire import Spec
from fedfactor.engines.client_sampling import Participation


class Callback:
    """Follows a run. Override what you need; return True from :meth:`on_round` to stop the run."""

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
    if meta.blocks is not None and algorithm.layout != Layout.BLOCKS:
        raise IncompatibleError(
            f"{type(algorithm).__name__} needs whole rows, but these are blocks of a grid. Take GridNMF, or cut the "
            "matrix into blocks of rows."
        )
    check_settings(algorithm)
    algorithm.check(meta)
    return algorithm.messages(meta)


def sums_by_group(algorithm: Algorithm, meta: Meta) -> bool:
    """Return whether some uploads are summed by group."""
    return any(getattr(kind, "uplink", "") == Uplink.GROUP for kind in algorithm.messages(meta))


def refuse_groups(algorithm: Algorithm, meta: Meta) -> None:
    """Refuse, between parties, what is made for the nodes of one cluster."""
    if sums_by_group(algorithm, meta):
        raise IncompatibleError(
            f"{type(algorithm).__name__} sums among nodes that hold blocks of the same rows, but parties hold whole "
            "rows, and what it sends has a line for each of them. Take PooledNMF."
        )


def rounds_of(algorithm: Algorithm, rounds: int | None) -> int:
    """Return the number of rounds asked for, or the algorithm's own."""
    rounds = algorithm.default_rounds if rounds is None else rounds
    if rounds < 1:
        raise ValueError(f"rounds={rounds} must be at least 1.")
    return rounds


def judge_small(algorithm: Algorithm, rows: Mapping[str, int], *, simulation: bool) -> None:
    """Warn of (or refuse) clients whose rows could be read from one upload in the clear."""
    k = getattr(algorithm, "n_components", 0)
    if len(rows) > 1 and min(rows.values()) <= k:
        from fedfactor.privacy.minimums import judge_rows  # late: most runs in the clear need none of it

        judge_rows(k, rows, simulation=simulation)
