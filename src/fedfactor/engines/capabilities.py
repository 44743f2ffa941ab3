"""What some algorithms can do beyond the contract, and what engines do with the others.

An algorithm has a capability when it has the method: nothing is declared, and :class:`Algorithm` does not know it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from fedfactor.core.algorithm import Algorithm, Meta, Round
from fedfactor.core.client_data import Shard
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.pytree import Array, Tree

__all__ = [
    "HasSteadyRounds",
    "LearnsParameters",
    "RejectsUploads",
    "SupportsBatchedClients",
    "SupportsColumns",
    "SupportsGroups",
    "SupportsWarmStart",
    "client_groups",
    "for_columns",
    "rejected_by",
    "started_at",
    "with_learned",
]


@runtime_checkable
class SupportsBatchedClients(Protocol):
    """Takes the steps of several clients in one go, where that is faster."""

    def client_steps(
        self, shards: Sequence[Shard], states: Sequence[Tree], down: Tree, ats: Sequence[Round]
    ) -> Iterable[tuple[Tree, Tree]] | None:
        """Return new states and uploads in the order of clients, or None: one after the other.

        A client that stays away has an upload of None and the state that it had.
        """
        ...


@runtime_checkable
class SupportsGroups(Protocol):
    """Needs, for what a client receives next, the sum of uploads over the client's own group alone."""

    def groups(self, down: Tree, meta: Meta) -> Mapping[str, str]:
        """Name the group of each client, where answers to such a download are summed by group; else nothing.

        Every client must be in the sums of such a round; one in which a client is missing is asked again, and one in
        which a client sends NaN or infinity ends the run.
        """
        ...


@runtime_checkable
class SupportsColumns(Protocol):
    """Has sums over rows that are, for the transposed problem, sums over columns of clients that know the same rows."""

    def for_columns(self) -> Algorithm:
        """Return the algorithm for clients that hold columns; what arrives as a row is then a column."""
        ...


@runtime_checkable
class HasSteadyRounds(Protocol):
    """Has rounds that a GPU can repeat as they were recorded."""

    def steady(self, state: Tree, down: Tree) -> bool:
        """Return whether all rounds from here on do the same: no decision of the processor can change them."""
        ...


@runtime_checkable
class LearnsParameters(Protocol):
    """Finds values of its own parameters during a run."""

    def learned(self, down: Tree) -> Algorithm:
        """Return the algorithm with the values that the run has found, for what comes after it."""
        ...


@runtime_checkable
class SupportsWarmStart(Protocol):
    """Starts at components of an earlier run."""

    def starting_at(self, V: Array) -> Algorithm:
        """Return the algorithm with a run's first V in place of its own initialization."""
        ...


@runtime_checkable
class RejectsUploads(Protocol):
    """Has a server that sees single uploads and leaves some out."""

    def rejected(self, state: Tree) -> tuple[str, ...]:
        """Name the clients whose uploads the server left out so far."""
        ...


def client_groups(algorithm: Algorithm, down: Tree, meta: Meta) -> Mapping[str, str]:
    """Return the group of each client for the answers to a download; empty where all are summed together."""
    return algorithm.groups(down, meta) if isinstance(algorithm, SupportsGroups) else {}


def for_columns(algorithm: Algorithm) -> Algorithm:
    """Return an algorithm for clients that hold columns, or raise where it cannot take these.

    Examples
    --------
    >>> from fedfactor.algorithms import PooledPCA
    >>> for_columns(PooledPCA(2)).split
    'columns'
    """
    if not isinstance(algorithm, SupportsColumns):
        raise IncompatibleError(
            f"{type(algorithm).__name__} does not take columns of several clients. Use PooledNMF, PooledPCA or "
            "PooledSVD; SynSD and its variants cut one matrix into columns."
        )
    return algorithm.for_columns()


def rejected_by(algorithm: Algorithm, state: Tree) -> tuple[str, ...]:
    """Return the clients whose uploads the algorithm's server left out."""
    return algorithm.rejected(state) if isinstance(algorithm, RejectsUploads) else ()


def with_learned(algorithm: Algorithm, down: Tree) -> Algorithm:
    """Return the algorithm with what the run has found of its parameters."""
    return algorithm.learned(down) if isinstance(algorithm, LearnsParameters) else algorithm


def started_at(algorithm: Algorithm, V: Array) -> Algorithm:
    """Return the algorithm with a run's first V, or raise where it has no such start."""
    if not isinstance(algorithm, SupportsWarmStart):
        raise IncompatibleError(f"{type(algorithm).__name__} cannot start at components of an earlier run.")
    return algorithm.starting_at(V)
