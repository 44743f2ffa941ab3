"""Asyn-SD and Asyn-SSD: parties of one matrix work at their own pace, and the server merges what arrives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from fedfactor.algorithms.secure_steps import (
    Inner,
    check_inner,
    first_common,
    first_local,
    measure,
    private_rows,
    refit,
    row_length,
)
from fedfactor.core.federation import Shard
from fedfactor.core.protocol import Algorithm, LocalFactors, Meta, Round, Score, Uplink
from fedfactor.core.tree import Array, Tree, public, record, telemetry
from fedfactor.core.wire import Leaf, Spec
from fedfactor.kernels.factors import match_common, refit_rows
from fedfactor.kernels.nmf.steps import squared_error
from fedfactor.kernels.products import as_like, gram, sums

SERVERS = ("history", "harmonic", "constant")


@record
class Common:
    """Down: the V that the server has now."""

    V: Array


@record
class Change:
    """Up, to a server that keeps a history: how a party's V changed since it last sent one."""

    uplink: ClassVar[Uplink] = "sum"

    V: Array
    n: Array = public()
    sse: Array | None = telemetry(default=None)
    total: Array | None = telemetry(default=None)


@record
class Own:
    """Up, to a server that forgets: a party's V."""

    uplink: ClassVar[Uplink] = "sum"

    V: Array
    n: Array = public()
    sse: Array | None = telemetry(default=None)
    total: Array | None = telemetry(default=None)


@record
class Local:
    """Stays home: private U, the V sent last, steps so far, ‖X‖², and the weight of this party."""

    U: Array
    sent: Array
    steps: Array
    total: Array
    weight: Array


@record
class Server:
    """V, arrivals so far, parties, and the error that the last sender saw."""

    V: Array
    arrivals: Array
    parties: Array
    sse: Array
    total: Array


def _messages(algorithm: AsynSD | AsynSSD, meta: Meta) -> dict[type, Spec]:
    wide, number = Leaf(meta.dtype, (algorithm.n_components, meta.n_features)), Leaf("float64", ())
    up = Change if algorithm.server == "history" else Own
    return {Common: {"V": wide}, up: {"V": wide, "n": number, "sse": number, "total": number}}


def _check(algorithm: AsynSD | AsynSSD, meta: Meta) -> None:
    check_inner(algorithm, meta)
    if algorithm.server not in SERVERS:
        raise ValueError(f"server={algorithm.server!r} is not known. Use one of {', '.join(SERVERS)}.")
    if algorithm.weights not in ("equal", "rows"):
        raise ValueError(f"weights={algorithm.weights!r} is not known. Use 'equal' or 'rows'.")
    if algorithm.omega is not None and algorithm.omega <= 0:
        raise ValueError(f"omega={algorithm.omega} must be above 0.")


def _init_server(algorithm: AsynSD | AsynSSD, meta: Meta, at: Round) -> tuple[Server, Common]:
    V = first_common(algorithm.n_components, meta, at, algorithm.init)
    nothing = np.float64(np.nan)
    return Server(V, np.int64(0), np.int64(meta.n_clients), nothing, nothing), Common(V)


def _init_client(algorithm: AsynSD | AsynSSD, shard: Shard, meta: Meta, at: Round) -> Local:
    first = first_local(algorithm.n_components, shard, meta, at, algorithm.init)
    by_rows = algorithm.weights == "rows" and meta.n_rows
    weight = shard.n_rows * meta.n_clients / meta.n_rows if by_rows else 1.0
    # Nobody has sent anything, so the server's mean holds the common start in place of every party.
    return Local(first.U, first.V, np.int64(0), first.total, np.float64(weight))


def _client_step(
    algorithm: AsynSD | AsynSSD, shard: Shard, state: Local, down: Common, at: Round, ratio: float | None
) -> tuple[Local, Tree]:
    inner, X = Inner(algorithm.solver, algorithm.rule, algorithm.start, algorithm.growth), shard.X
    common = as_like(down.V, X)
    U, V, first = state.U, common, int(state.steps)
    sse = squared_error(float(state.total), sums(U, X), gram(U), common)
    for t in range(first, first + algorithm.local_steps):
        rows = None
        if ratio is not None:
            rows = private_rows(algorithm.kind, shard.n_rows, ratio, algorithm.n_components, at, f"rows {t}")  # type: ignore[union-attr]
        V = inner.common(X, U, V, t, rows)
        U = inner.private(X, U, V, t)
    if algorithm.align:
        U, V = match_common(U, V, common, row_length(shard.n_features, algorithm.init))
    new = Local(U, V, state.steps + algorithm.local_steps, state.total, state.weight)
    figures = np.float64(sse), state.total
    if algorithm.server == "history":
        change = float(state.weight) * (V - as_like(state.sent, V))
        return new, Change(change, np.float64(1), *figures)
    return new, Own(float(state.weight) * V, state.weight, *figures)


def _server_step(algorithm: AsynSD | AsynSSD, state: Server, up: Tree, at: Round) -> tuple[Server, Common]:
    V = as_like(state.V, up.V)
    arrivals = int(state.arrivals) + len(at.participants)
    if isinstance(up, Change):
        V = V + up.V / int(state.parties)
    else:
        first = 1.0 if algorithm.omega is None else algorithm.omega
        if algorithm.server == "constant":
            omega = min(1.0, 1 / int(state.parties) if algorithm.omega is None else first)
        else:
            omega = first / (first + 1 + arrivals)  # the published counter begins at 2
        V = (1 - omega) * V + omega * up.V / float(up.n)
    V = V.clip(0, None)  # differences of non-negative numbers may miss zero by a rounding
    known = up.sse is not None and up.total is not None
    figures = (up.sse, up.total) if known else (np.float64(np.nan), np.float64(np.nan))
    return Server(V, np.int64(arrivals), state.parties, *figures), Common(V)


@dataclass(frozen=True, slots=True)
class AsynSD(Algorithm):
    r"""NMF of parties that hold parts of one matrix and never wait for each other.

    A party takes ``local_steps`` alternating proximal steps from the V it last received, matches its components to that
    V, and sends; the server merges at once and replies to that party alone. On an engine with rounds all uploads of a
    round are merged together.

    Parameters
    ----------
    n_components : int
        Rank k.
    local_steps : int
        Alternations between two exchanges.
    align : bool
        Match components before sending. Without it the merged V mixes unlike components and the run stalls.
    server : {"history", "harmonic", "constant"}
        ``history``: V is the mean of what every party sent last; parties send changes, so the server keeps no copies
        and needs no names. ``harmonic``: ``V ← (1 − ω) V + ω V_c`` with ``ω = omega / (omega + t)`` at arrival t, as
        published. ``constant``: ω is ``omega``, by default one over the number of parties.
    omega : float, optional
        See ``server``; 1 for ``harmonic``.
    weights : {"equal", "rows"}
        Whether parties count alike in the mean, as published, or by their rows.
    solver, rule, start, growth, init
        As in :class:`~fedfactor.algorithms.SynSD`.

    Notes
    -----
    Up and down per exchange: k m numbers. A party's changes add up to its V, so the server learns as much as if V were
    sent; sums over parties hide single ones only where several arrive together.

    References
    ----------
    .. [1] Y. Qian, C. Tan, D. Ding, H. Li, N. Mamoulis, "Fast and secure distributed nonnegative matrix factorization",
       IEEE TKDE 2020. doi:10.1109/TKDE.2020.2985964

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> from fedfactor.engines.local.virtual_clock import VirtualEngine
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((60, 3)) @ rng.random((3, 20))
    >>> owners = {"a": X[:50], "b": X[50:]}
    >>> run = fedfactor.run(AsynSD(3), owners, engine=VirtualEngine(), rounds=30, seed=0)
    >>> run.relative_error < 0.05
    True
    """

    n_components: int
    local_steps: int = 10
    align: bool = True
    server: Literal["history", "harmonic", "constant"] = "history"
    omega: float | None = None
    weights: Literal["equal", "rows"] = "equal"
    solver: Literal["proximal", "gradient"] = "proximal"
    rule: Literal["relative", "absolute"] = "relative"
    start: float | None = None
    growth: float | None = None
    init: Literal["scaled", "unit", "small"] = "scaled"

    default_rounds: ClassVar[int] = 100
    asynchronous: ClassVar[bool] = True

    @classmethod
    def published(cls, n_components: int, *, start: float = 100.0, growth: float = 10.0) -> AsynSD:
        """Return the settings of the published code: no alignment, ω = 1/(1 + t), ``μ_t = 100 + 10 t``.

        Examples
        --------
        >>> AsynSD.published(5).server
        'harmonic'
        """
        literal = {"rule": "absolute", "start": start, "growth": growth, "init": "small"}
        return cls(n_components, align=False, server="harmonic", omega=1.0, **literal)  # type: ignore[arg-type]

    def check(self, meta: Meta) -> None:
        """Refuse settings that cannot work."""
        _check(self, meta)

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """One V down, one V or its change up."""
        return _messages(self, meta)

    def init_server(self, meta: Meta, at: Round) -> tuple[Server, Common]:
        """Draw the V that all parties start from."""
        return _init_server(self, meta, at)

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Local:
        """Draw U."""
        return _init_client(self, shard, meta, at)

    def client_step(self, shard: Shard, state: Local, down: Common, at: Round) -> tuple[Local, Tree]:
        """Alternate on one's own rows, match, send."""
        return _client_step(self, shard, state, down, at, None)

    def server_step(self, state: Server, up: Tree, at: Round) -> tuple[Server, Common]:
        """Merge what arrived."""
        return _server_step(self, state, up, at)

    def report(self, state: Server) -> dict[str, float]:
        """Tell the relative error that the last senders saw on their own rows."""
        return {"senders_error": float(np.sqrt(state.sse / state.total))} if float(state.total) > 0 else {}

    def finish(self, shard: Shard, state: Local, down: Common) -> LocalFactors:
        """Solve U for the final V."""
        return refit(shard, state.U, down.V)

    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Solve U for new rows."""
        return refit_rows(None, X, as_like(factors.V, X), mask)

    def score(self, shard: Shard, state: Local | LocalFactors, down: Common) -> Score:
        """Measure the error over all cells."""
        return measure(shard, state if isinstance(state, LocalFactors) else self.finish(shard, state, down))


@dataclass(frozen=True, slots=True)
class AsynSSD(Algorithm):
    """Asyn-SD whose parties see their own rows through private sketches when they move V.

    Sketches of V itself cannot be exchanged without rounds: those of different moments do not add up. So what travels
    is what travels in :class:`AsynSD`, and only the work of a step is smaller.

    Parameters
    ----------
    n_components : int
        Rank k.
    kind : {"subsampling", "gaussian", "count", "srht"}
    ratio : float
        Share of a party's rows that a step looks at, at least three times the rank.
    local_steps, align, server, omega, weights, solver, rule, start, growth, init
        As in :class:`AsynSD`.

    References
    ----------
    .. [1] Y. Qian, C. Tan, D. Ding, H. Li, N. Mamoulis, "Fast and secure distributed nonnegative matrix factorization",
       IEEE TKDE 2020. doi:10.1109/TKDE.2020.2985964

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> from fedfactor.engines.local.virtual_clock import VirtualEngine
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((80, 3)) @ rng.random((3, 20))
    >>> owners = {"a": X[:50], "b": X[50:]}
    >>> run = fedfactor.run(AsynSSD(3, ratio=0.3), owners, engine=VirtualEngine(), rounds=30, seed=0)
    >>> run.relative_error < 0.05
    True
    """

    n_components: int
    kind: Literal["subsampling", "gaussian", "count", "srht"] = "subsampling"
    ratio: float = 0.1
    local_steps: int = 10
    align: bool = True
    server: Literal["history", "harmonic", "constant"] = "history"
    omega: float | None = None
    weights: Literal["equal", "rows"] = "equal"
    solver: Literal["proximal", "gradient"] = "proximal"
    rule: Literal["relative", "absolute"] = "relative"
    start: float | None = None
    growth: float | None = None
    init: Literal["scaled", "unit", "small"] = "scaled"

    default_rounds: ClassVar[int] = 100
    asynchronous: ClassVar[bool] = True

    @classmethod
    def published(cls, n_components: int, *, ratio: float = 0.1) -> AsynSSD:
        """Return the settings of the published code: no alignment, ω = 1/(1 + t), ``μ_t = 1 + 0.1 t``.

        Examples
        --------
        >>> AsynSSD.published(5).align
        False
        """
        literal = {"rule": "absolute", "start": 1.0, "growth": 0.1, "init": "small"}
        return cls(n_components, ratio=ratio, align=False, server="harmonic", omega=1.0, **literal)  # type: ignore[arg-type]

    def check(self, meta: Meta) -> None:
        """Refuse settings that cannot work."""
        _check(self, meta)

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """One V down, one V or its change up."""
        return _messages(self, meta)

    def init_server(self, meta: Meta, at: Round) -> tuple[Server, Common]:
        """Draw the V that all parties start from."""
        return _init_server(self, meta, at)

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Local:
        """Draw U."""
        return _init_client(self, shard, meta, at)

    def client_step(self, shard: Shard, state: Local, down: Common, at: Round) -> tuple[Local, Tree]:
        """Alternate on one's own rows, match, send."""
        return _client_step(self, shard, state, down, at, self.ratio)

    def server_step(self, state: Server, up: Tree, at: Round) -> tuple[Server, Common]:
        """Merge what arrived."""
        return _server_step(self, state, up, at)

    def report(self, state: Server) -> dict[str, float]:
        """Tell the relative error that the last senders saw on their own rows."""
        return {"senders_error": float(np.sqrt(state.sse / state.total))} if float(state.total) > 0 else {}

    def finish(self, shard: Shard, state: Local, down: Common) -> LocalFactors:
        """Solve U for the final V."""
        return refit(shard, state.U, down.V)

    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Solve U for new rows."""
        return refit_rows(None, X, as_like(factors.V, X), mask)

    def score(self, shard: Shard, state: Local | LocalFactors, down: Common) -> Score:
        """Measure the error over all cells."""
        return measure(shard, state if isinstance(state, LocalFactors) else self.finish(shard, state, down))
