"""Listening in where the server sits: what an audit works with."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedfactor.core.algorithm import Round
from fedfactor.core.pytree import Tree
from fedfactor.core.transforms import Transform

__all__ = ["Listener"]


@dataclass(frozen=True, slots=True)
class Listener(Transform):
    """Keep what the server is handed in each round: (round, combined upload, download the clients had).

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> from fedfactor.algorithms import PooledNMF
    >>> from fedfactor.privacy import Listener
    >>> heard, X = Listener(), np.random.default_rng(0).random((30, 6))
    >>> owners = {"a": X[:15], "b": X[15:]}
    >>> run = fedfactor.run(PooledNMF(2, start="random"), owners, rounds=3, seed=0, privacy=(heard,))
    >>> len(heard.rounds), heard.rounds[0][1].A.shape
    (3, (2, 6))
    """

    rounds: list[tuple[Round, Tree, Tree]] = field(default_factory=list[tuple[Round, Tree, Tree]], compare=False)

    def heard(self, total: Tree, at: Round, down: Tree) -> None:
        """Keep one round."""
        self.rounds.append((at, total, down))
