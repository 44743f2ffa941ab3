from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedfactor.core.algorithm import Algorithm, LocalFactors, Score
from fedfactor.core.pytree import record
from fedfactor.core.wire import Leaf
from fedfactor.linalg import nnls as nmf
from fedfactor.linalg import products


@record
class Local:
    """State of a client between rounds; it is never sent."""

    U: np.ndarray


@record
class Down:
    """Message from the server to all clients."""

    V: np.ndarray


@record
class Up:
    """Message from a client: its own copy of V."""

    uplink: ClassVar = "gather"  # a median must see every V

    V: np.ndarray


@dataclass(frozen=True, slots=True)
class MedianNMF(Algorithm):
    """NMF whose server takes the entry-wise median of the clients' V, so that a few bad clients do little harm."""

    n_components: int
    local_steps: int = 5

    def messages(self, meta):
        V = Leaf(meta.dtype, (self.n_components, meta.n_features))
        return {Down: {"V": V}, Up: {"V": V}}

    def init_server(self, meta, at):
        V = at.shared_rng("init").random((self.n_components, meta.n_features)).astype(meta.dtype)
        return Down(V), Down(V)

    def init_client(self, shard, meta, at):
        return Local(U=np.zeros((shard.n_rows, self.n_components), dtype=meta.dtype))

    def client_step(self, shard, state, down, at):
        U, V = state.U, down.V
        for _ in range(self.local_steps):
            U = nmf.solve_rows(U, products.gram_rows(V), products.cross(shard.X, V), sweeps=3)
            V = nmf.solve_rows(V.T, products.gram(U), products.sums(U, shard.X).T).T
        return Local(U), Up(V)

    def server_step(self, state, up, at):
        V = np.median([one.V for one in up.values()], axis=0)
        return Down(V), Down(V)

    def finish(self, shard, state, down):
        return LocalFactors(U=self._solve(shard.X, down.V), V=down.V)

    def fold_in(self, X, factors, mask=None):
        return self._solve(X, factors.V)

    def score(self, shard, state, down):
        U, total = self._solve(shard.X, down.V), products.squared_norm(shard.X)
        sse = nmf.squared_error(total, products.sums(U, shard.X), products.gram(U), down.V)
        return Score.of(sse=sse, n=np.prod(shard.X.shape), total=total)

    def _solve(self, X, V):
        start = np.zeros((X.shape[0], self.n_components), dtype=V.dtype)
        return nmf.solve_rows(start, products.gram_rows(V), products.cross(X, V), sweeps=50)
