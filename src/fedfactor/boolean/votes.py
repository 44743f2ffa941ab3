"""BooleanVotes: every client factors its own rows with a Boolean solver, the server votes on V, once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np

from fedfactor.boolean.felb import boolean_score
from fedfactor.boolean.product import boolean_refit, match_rows, round_half, vote
from fedfactor.boolean.solvers.registry import Solver, factor
from fedfactor.core.algorithm import Algorithm, Domain, LocalFactors, Meta, Round, Score, Uplink
from fedfactor.core.client_data import Shard
from fedfactor.core.download_validation import odd_octets
from fedfactor.core.input_validation import check_rank
from fedfactor.core.parameters import declares_settings, setting
from fedfactor.core.pytree import Array, public, record, telemetry
from fedfactor.core.wire import Leaf, Spec
from fedfactor.linalg.products import as_like


@record("boolean_votes.Voted")
class Voted:
    """Down: the elected V, eight cells to a byte; all zero before the vote."""

    V: Array


@record("boolean_votes.Ballots")
class Ballots:
    """Up, when positions are voted on as they are: ones and zeros to be counted, and how many vote."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    V: Array
    voters: Array = public()
    late: Array | None = telemetry(default=None)


@record("boolean_votes.Signed")
class Signed:
    """Up, when components are aligned first: a V that the server must see on its own, eight cells to a byte."""

    uplink: ClassVar[Uplink] = Uplink.GATHER

    V: Array
    rows: Array = public()
    late: Array | None = telemetry(default=None)


@record("boolean_votes.Local")
class Local:
    """Stays home: the client's own factors, whether they were found yet, and whether its solver ran out of time."""

    U: Array
    V: Array
    solved: Array
    late: Array


@record("boolean_votes.Server")
class Server:
    """The elected V, how many voted and how many of them ran out of time."""

    V: Array
    voters: Array
    late: Array
    n_clients: Array


@declares_settings
class BooleanVotes(Algorithm):
    r"""One-shot federated Boolean factorization: local solvers, then a vote on V.

    Notes
    -----
    Defaults are sound; ``BooleanVotes.paper(k, solver)`` is the published rule. Without alignment the server needs
    only counts, a sum that secure aggregation can hide (a vote by OR then still shows the counts); with it the server
    must see each V. Up: k m bits with alignment, k m numbers without. Down: k m bits. One round; when a client was
    missing, a further round is a vote of its own, of those who come to it: the last one counts, not all together.

    References
    ----------
    .. [1] S. Dalleiger, J. Vreeken, M. Kamp, "Federated binary matrix factorization using proximal optimization",
       AAAI 2025. arXiv:2407.01776 (Algorithm 2)

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> X = np.kron(np.eye(2), np.ones((10, 4)))
    >>> run = fedfactor.run(BooleanVotes(2, solver="asso"), {"a": X[::2], "b": X[1::2]}, seed=0)
    >>> run.V.sum(axis=1), float(run.score.sse)
    (array([4., 4.]), 0.0)
    """

    n_components: int = setting("Number of components k.", at_least=1)
    solver: Solver = setting("What every owner runs on its own rows.", default="asso")
    vote: Literal["majority", "average", "or"] = setting(
        "A cell is one when at least half of the owners have a one there; when the average, rounded half to even, is "
        "one; when any owner has a one. Majority and average differ in ties only.",
        default="majority",
    )
    align: Literal["lap", "none"] = setting(
        "Match the components of all owners to those of the first (an assignment problem) before the vote; or vote on "
        "positions as they are, as published, although the order of components is each owner's own accident.",
        default="lap",
    )
    refit: Literal["boolean", "none"] = setting(
        'Choose U for the elected V; or keep the U of the local run, as published (with ``align="lap"`` its columns '
        "are put in the order of the elected components).",
        default="boolean",
    )
    tie: Literal["one", "zero"] = setting("What a majority of exactly half is.", default="one")
    options: tuple[tuple[str, Any], ...] | Mapping[str, Any] = setting(
        'Further arguments of the solver, such as ``(("tau", 0.7),)`` or ``{"tau": 0.7}``.',
        default=(),
        shown="tuple of (str, value), or mapping",
    )
    time_limit: float | None = setting(
        "Seconds for each owner's solver; components not found by then are zero, and the run's history counts who was "
        "late.",
        default=None,
        above=0,
    )

    domain: ClassVar[Domain] = Domain.BINARY
    default_rounds: ClassVar[int] = 1

    @classmethod
    def paper(cls, n_components: int, solver: Solver = "asso", **changes: Any) -> BooleanVotes:
        """Return the published rule: positions are voted on as they are, and U is kept."""
        literal: dict[str, Any] = {"align": "none", "refit": "none", **changes}
        return cls(n_components, solver, **literal)

    def check(self, meta: Meta) -> None:
        """Refuse settings that cannot work."""
        check_rank(self.n_components, meta)
        factor(np.zeros((1, 1)), 1, self.solver, rng=np.random.default_rng(0), **dict(self.options))

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """One vote, and one kind of ballot."""
        k = self.n_components
        m = meta.n_features
        number = Leaf("float64", ())
        packed = Leaf("uint8", (k, -(-m // 8)))
        if self.align == "lap":
            return {Voted: {"V": packed}, Signed: {"V": packed, "rows": number, "late": number}}
        return {Voted: {"V": packed}, Ballots: {"V": Leaf(meta.dtype, (k, m)), "voters": number, "late": number}}

    def init_server(self, meta: Meta, at: Round) -> tuple[Server, Voted]:
        """Start with nothing elected."""
        V = np.zeros((self.n_components, meta.n_features), np.uint8)
        nobody = np.float64(0)
        return Server(V, nobody, nobody, np.int64(meta.n_clients)), Voted(_pack(V))

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Local:
        """Start with nothing solved."""
        k = self.n_components
        U = np.zeros((shard.n_rows, k), np.uint8)
        V = np.zeros((k, shard.n_features), np.uint8)
        return Local(U, V, np.bool_(False), np.bool_(False))

    def client_step(self, shard: Shard, state: Local, down: Voted, at: Round) -> tuple[Local, Ballots | Signed]:
        """Factor one's own rows, the first time; send V."""
        if not state.solved and shard.n_rows:
            options = {**dict(self.options), "time_limit": self.time_limit}
            found = factor(shard.X, self.n_components, self.solver, rng=at.rng("solver"), **options)
            state = Local(found.U, found.V, np.bool_(True), np.bool_(not found.finished))
        late = np.float64(state.late)
        if self.align == "lap":
            return state, Signed(_pack(state.V), np.float64(shard.n_rows), late)
        return state, Ballots(as_like(state.V, shard.X), np.float64(shard.n_rows > 0), late)

    def accepts(self, down: Voted, meta: Meta) -> str:
        """Expect marks on columns that exist."""
        return odd_octets(down.V, meta.n_features)

    def server_step(self, state: Server, up: Ballots | Mapping[str, Signed], at: Round) -> tuple[Server, Voted]:
        """Count, after aligning where that was asked for."""
        if isinstance(up, Ballots):
            counts = as_like(up.V, np.empty(0))
            voters = float(up.voters)
            late = up.late
        else:
            ballots = [_unpack(one.V, state.V.shape[1]) for one in up.values() if float(one.rows) > 0]
            # A client whose every component is empty is a poor yardstick.
            first = next((V for V in ballots if V.any()), state.V)
            counts = sum((V[match_rows(V, first)].astype(np.float64) for V in ballots), np.zeros(state.V.shape))
            voters = float(len(ballots))
            late = sum(float(one.late) for one in up.values() if one.late is not None)
        V = vote(counts, round(voters), self.vote, self.tie).astype(np.uint8)
        late = np.float64(0.0 if late is None else late)
        return Server(V, np.float64(voters), late, state.n_clients), Voted(_pack(V))

    def converged(self, state: Server) -> bool:
        """Return whether every client has voted, so that none has anything to add."""
        return float(state.voters) >= int(state.n_clients)

    def report(self, state: Server) -> dict[str, float]:
        """Return how many clients voted, and how many of them ran out of time."""
        return {"voters": float(state.voters), "late": float(state.late)}

    def finish(self, shard: Shard, state: Local, down: Voted) -> LocalFactors:
        """Take the elected V home; choose U for it, or keep the U there is."""
        elected = _unpack(down.V, shard.n_features)
        V = as_like(elected, shard.X)
        if self.refit == "boolean":
            return LocalFactors(boolean_refit(shard.X, V), V)
        order = match_rows(state.V, elected) if self.align == "lap" else slice(None)
        return LocalFactors(as_like(np.ascontiguousarray(state.U[:, order]), shard.X), V)

    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Choose components for new rows."""
        return boolean_refit(X, round_half(as_like(factors.V, X)))

    def score(self, shard: Shard, state: Local | LocalFactors, down: Voted) -> Score:
        """Count wrong cells, cells, and ones."""
        factors = state if isinstance(state, LocalFactors) else self.finish(shard, state, down)
        return boolean_score(shard.X, factors)


def _pack(V: np.ndarray) -> np.ndarray:
    return np.packbits(V, axis=1, bitorder="little")


def _unpack(V: np.ndarray, m: int) -> np.ndarray:
    return np.unpackbits(V, axis=1, count=m, bitorder="little")
