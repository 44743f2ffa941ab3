"""Any algorithm, with clients that do not always come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedfactor.core.algorithm import Algorithm, Domain, Layout, LocalFactors, Meta, Round, Score
from fedfactor.core.client_data import Shard
from fedfactor.core.errors import ClientUnavailable
from fedfactor.core.pytree import Array, Tree
from fedfactor.core.wire import Spec
from fedfactor.engines.capabilities import client_groups


@dataclass(frozen=True, slots=True)
class Flaky(Algorithm):
    """Behaves like another algorithm, but the named clients drop out of the named rounds.

    Parameters
    ----------
    inner : Algorithm
        The algorithm.
    absent : tuple of (round, name)
        Who is missing when; a name of ``"*"`` means every client.

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> from fedfactor.algorithms import FedAvgNMF
    >>> flaky = Flaky(FedAvgNMF(1), absent=((1, "a"),))
    >>> run = fedfactor.run(flaky, {"a": np.ones((2, 3)), "b": np.ones((2, 3))}, rounds=3, seed=0)
    >>> [record.participants for record in run.history]
    [('a', 'b'), ('b',), ('a', 'b')]
    """

    inner: Algorithm
    absent: tuple[tuple[int, str], ...]

    @property
    def domain(self) -> Domain:  # type: ignore[override]
        """What the algorithm takes."""
        return self.inner.domain

    @property
    def handles_missing(self) -> bool:  # type: ignore[override]
        """Whether cells may be missing."""
        return self.inner.handles_missing

    @property
    def layout(self) -> Layout:  # type: ignore[override]
        """Whether clients hold rows, or blocks of a grid."""
        return self.inner.layout

    def check(self, meta: Meta) -> None:
        """Refuse what the algorithm refuses."""
        self.inner.check(meta)

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """Announce what the algorithm announces."""
        return self.inner.messages(meta)

    def init_server(self, meta: Meta, at: Round) -> tuple[Tree, Tree]:
        """Start as the algorithm does."""
        return self.inner.init_server(meta, at)

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Tree:
        """Start as the algorithm does."""
        return self.inner.init_client(shard, meta, at)

    def client_step(self, shard: Shard, state: Tree, down: Tree, at: Round) -> tuple[Tree, Tree]:
        """Stay away when it is time to; the work is done first, as a client that vanishes before it sends would."""
        result = self.inner.client_step(shard, state, down, at)
        if (at.index, at.client) in self.absent or (at.index, "*") in self.absent:
            raise ClientUnavailable(f"{at.client} does not come to round {at.index}.")
        return result

    def server_step(self, state: Tree, up: Tree, at: Round) -> tuple[Tree, Tree]:
        """Combine what came."""
        return self.inner.server_step(state, up, at)

    def groups(self, down: Tree, meta: Meta) -> Mapping[str, str]:
        """Add up as the algorithm does."""
        return client_groups(self.inner, down, meta)

    def settle(self, state: Tree, down: Tree) -> Tree:
        """Settle as the algorithm does."""
        return self.inner.settle(state, down)

    def finish(self, shard: Shard, state: Tree, down: Tree) -> LocalFactors:
        """Finish as the algorithm does."""
        return self.inner.finish(shard, state, down)

    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Fold in as the algorithm does."""
        return self.inner.fold_in(X, factors, mask)

    def score(self, shard: Shard, state: Tree, down: Tree) -> Score:
        """Score as the algorithm does."""
        return self.inner.score(shard, state, down)

    def converged(self, state: Tree) -> bool:
        """Never: a run under observation uses all its rounds."""
        return False

    def report(self, state: Tree) -> dict[str, Any]:
        """Report as the algorithm does."""
        return self.inner.report(state)
