"""An algorithm that uses every part of the contract, to find out what an engine leaves out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from fedfactor.core.algorithm import Algorithm, Domain, LocalFactors, Meta, Round, Scatter, Score, Uplink
from fedfactor.core.client_data import Shard
from fedfactor.core.errors import ClientUnavailable
from fedfactor.core.pytree import Array, Tree, record, telemetry
from fedfactor.core.wire import Leaf, Spec

IMPOSSIBLE = 1e30
"""What no sum over rows reaches."""


@record("probe.Ask")
class Ask:
    """Down, to all alike: send your column sums."""

    V: Array


@record("probe.Own")
class Own:
    """Down, to each client its own: send your V."""

    V: Array
    weight: Array


@record("probe.Total")
class Total:
    """Up: column sums, to be added."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    sums: Array
    loss: Array | None = telemetry(default=None)


@record("probe.Each")
class Each:
    """Up: a V that the server must see on its own."""

    uplink: ClassVar[Uplink] = Uplink.GATHER

    V: Array
    seen: Array


@record("probe.Moments")
class Moments:
    """A record inside a record."""

    mean: Array
    nothing: Array | None


@record("probe.Memory")
class Memory:
    """What a client keeps: a nested record, a dict, a number."""

    moments: Moments
    weights: dict[str, Array]
    steps: Array


@record("probe.Server")
class Server:
    """What the server keeps, one V for each client among it."""

    V: Array
    own: dict[str, Array]
    moved: Array


@dataclass(frozen=True, slots=True)
class Probe(Algorithm):
    """A method for tests only: sums and gathers in turn, scatters, private and shared streams, nested states.

    Parameters
    ----------
    n_components : int
        Rank k.
    shape : tuple of int
        Of a weight that clients carry along; here so that an engine must bring a tuple across.
    absent : tuple of str
        Who drops out when, such as ``"2 north"``; ``"2 *"`` for every client.
    bad : tuple of str
        Which client sends invalid values when, such as ``"2 north NaN"``, or ``"2 north lie"`` for sums that no rows
        can give; ``"2 north quiet"`` leaves out what may be left out.
    gathers : bool
        False asks for sums only, in every round.
    tol : float
        Converged when V moves less than this.

    Examples
    --------
    >>> import fedfactor
    >>> run = fedfactor.run(Probe(2), {"a": np.eye(3), "b": np.ones((2, 3))}, rounds=4, seed=0)
    >>> run.V.shape, run.status
    ((2, 3), 'rounds')
    """

    n_components: int = 2
    shape: tuple[int, ...] = (2, 3)
    absent: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()
    gathers: bool = True
    tol: float = 0.0

    domain: ClassVar = Domain.REAL

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """Two downloads, two uploads, one leaf whose shape is only bounded."""
        V = Leaf(meta.dtype, (self.n_components, meta.n_features))
        number = Leaf("float64", ())
        seen = Leaf("int64", (1000,), exact=False)
        summed: dict[type, Spec] = {
            Ask: {"V": V},
            Total: {"sums": Leaf(meta.dtype, (meta.n_features,)), "loss": number},
        }
        if not self.gathers:
            return summed
        return {**summed, Own: {"V": V, "weight": number}, Each: {"V": V, "seen": seen}}

    def init_server(self, meta: Meta, at: Round) -> tuple[Server, Ask]:
        """Draw V."""
        V = at.shared_rng("V").random((self.n_components, meta.n_features)).astype(meta.dtype)
        return Server(V, dict.fromkeys(meta.clients, V), np.float64(np.inf)), Ask(V)

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Memory:
        """Draw weights from the client's own stream."""
        weights = {
            "a.b": at.rng("weights").random(self.shape).astype(meta.dtype),
            "zero": np.zeros((0, 2), dtype=np.float32),
        }
        return Memory(Moments(_mean(shard), None), weights, np.int64(0))

    def client_step(self, shard: Shard, state: Memory, down: Tree, at: Round) -> tuple[Memory, Tree]:
        """Answer the question, or drop out."""
        if f"{at.index} {at.client}" in self.absent or f"{at.index} *" in self.absent:
            raise ClientUnavailable(f"{at.client} does not come to round {at.index}.")
        shape: tuple[int, ...] = down.V.shape
        noise: np.ndarray = at.rng("step").random(shape).astype(shard.X.dtype)
        shared = at.shared_rng("step").random() * float(state.weights["a.b"].sum())
        new = Memory(Moments(state.moments.mean, state.moments.mean), state.weights, state.steps + 1)
        if isinstance(down, Ask):
            sums: np.ndarray = (state.moments.mean * shard.n_rows + noise[0]).astype(shard.X.dtype)
            quiet = f"{at.index} {at.client} quiet" in self.bad
            return new, Total(self._spoiled(sums, at), None if quiet else np.float64(shared))
        V: np.ndarray = (0.5 * down.V + noise * state.moments.mean).astype(shard.X.dtype)
        return new, Each(self._spoiled(V, at), np.arange(int(state.steps), dtype=np.int64))

    def _spoiled(self, values: Array, at: Round) -> Array:
        for word, value in (("NaN", np.nan), ("lie", -IMPOSSIBLE)):
            if f"{at.index} {at.client} {word}" in self.bad:
                return np.full_like(values, value)
        return values

    def doubt(self, up: Tree) -> str:
        """Find numbers beyond anything that rows can give."""
        values = up.sums if isinstance(up, Total) else up.V
        return "Numbers beyond any rows." if float(np.abs(values).max(initial=0.0)) >= IMPOSSIBLE else ""

    def server_step(self, state: Server, up: Tree, at: Round) -> tuple[Server, Tree]:
        """Alternate: after a sum ask each client for its V, after a gathering ask all for their sums."""
        if isinstance(up, Total):
            V = (state.V + up.sums / (1 + len(at.participants))).astype(state.V.dtype)
            moved = np.float64(np.abs(V - state.V).max())
            server = Server(V, state.own, moved)
            if not self.gathers:
                return server, Ask(V)
            parts = {name: Own(V + own, np.float64(len(name))) for name, own in state.own.items()}
            return server, Scatter(parts)
        own = {**state.own, **{name: each.V for name, each in up.items()}}
        V = np.median([each.V for each in up.values()], axis=0).astype(state.V.dtype)
        return Server(V, own, np.float64(np.abs(V - state.V).max())), Ask(V)

    def converged(self, state: Server) -> bool:
        """Return whether V hardly moved."""
        return float(state.moved) < self.tol

    def report(self, state: Server) -> dict[str, float]:
        """Return how far V moved."""
        return {"moved": float(state.moved)} if np.isfinite(state.moved) else {}

    def finish(self, shard: Shard, state: Memory, down: Tree) -> LocalFactors:
        """Project the rows."""
        return LocalFactors(self.fold_in(shard.X, LocalFactors(down.V, down.V)), down.V)

    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Project new rows."""
        return np.asarray(X @ factors.V.T)

    def score(self, shard: Shard, state: Tree, down: Tree) -> Score:
        """Count cells; the error is that of the mean row."""
        return Score.of(float((_mean(shard) ** 2).sum()), float(math.prod(shard.X.shape)), 1.0)


def _mean(shard: Shard) -> Array:
    return np.asarray(shard.X.sum(axis=0)).ravel().astype(shard.X.dtype) / max(1, shard.n_rows)
