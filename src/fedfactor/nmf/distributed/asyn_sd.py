"""Asyn-SD and Asyn-SSD: parties of one matrix work at their own pace, and the server merges what arrives."""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import ClassVar, Literal

import numpy as np

from fedfactor.core.algorithm import Meta, Round, Uplink
from fedfactor.core.client_data import Shard
from fedfactor.core.parameters import declares_settings, setting
from fedfactor.core.pytree import Array, Tree, public, record, telemetry
from fedfactor.core.wire import Leaf, Spec
from fedfactor.linalg.products import as_like
from fedfactor.nmf.distributed.secure_steps import PartySteps, first_common, first_local, private_rows
from fedfactor.nmf.distributed.sketches import Kind, Sketch


@record("async_nmf.Common")
class Common:
    """Down: the V that the server has now."""

    V: Array


@record("async_nmf.Change")
class Change:
    """Up, to a server that keeps a history: how its V changed since it last sent one."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    V: Array
    n: Array = public()
    sse: Array | None = telemetry(default=None)
    total: Array | None = telemetry(default=None)


@record("async_nmf.Own")
class Own:
    """Up, to a server that forgets: its V."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    V: Array
    n: Array = public()
    sse: Array | None = telemetry(default=None)
    total: Array | None = telemetry(default=None)


@record("async_nmf.Local")
class Local:
    """Stays home: private U, the V sent last, steps so far, ‖X‖², and the weight of this party."""

    U: Array
    sent: Array
    steps: Array
    total: Array
    weight: Array


@record("async_nmf.Server")
class Server:
    """V, arrivals so far, parties, and the error that the last sender saw."""

    V: Array
    arrivals: Array
    parties: Array
    sse: Array
    total: Array


@declares_settings
class MergedArrivals(PartySteps):
    """What the two asynchronous methods share: the server merges whatever arrives, and replies to its sender."""

    _: KW_ONLY
    server: Literal["history", "harmonic", "constant"] = setting(
        "``history``: V is the mean of what every party sent last; parties send changes, so the server keeps no copies "
        "and needs no names. ``harmonic``: ``V ← (1 − ω) V + ω V_c`` with ``ω = omega / (omega + t)`` at arrival t, "
        "counted from 1, as printed. ``constant``: ω is ``omega``, by default one over the number of parties.",
        default="history",
    )
    omega: float | None = setting("See ``server``; 1 for ``harmonic``.", default=None, above=0)
    weights: Literal["equal", "rows"] = setting(
        "Whether parties count alike in the mean, as published, or by their rows.", default="equal"
    )

    default_rounds: ClassVar[int] = 100
    asynchronous: ClassVar[bool] = True

    def rows_seen(self, shard: Shard, at: Round, t: int) -> Sketch | None:
        """Draw the rows that a step looks at; None: all of them."""
        return None

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """One V down, one V or its change up."""
        wide = Leaf(meta.dtype, (self.n_components, meta.n_features))
        number = Leaf("float64", ())
        up = Change if self.server == "history" else Own
        return {Common: {"V": wide}, up: {"V": wide, "n": number, "sse": number, "total": number}}

    def init_server(self, meta: Meta, at: Round) -> tuple[Server, Common]:
        """Draw the V that all parties start from."""
        V = first_common(self.n_components, meta, at, self.init)
        nothing = np.float64(np.nan)
        return Server(V, np.int64(0), np.int64(meta.n_clients), nothing, nothing), Common(V)

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Local:
        """Draw U."""
        first = first_local(self.n_components, shard, meta, at, self.init)
        n = meta.n_rows
        weight = shard.n_rows * meta.n_clients / n if self.weights == "rows" and n else 1.0
        # Nothing was sent yet, so the server's mean holds the common initialization for every client.
        return Local(first.U, first.V, np.int64(0), first.total, np.float64(weight))

    def client_step(self, shard: Shard, state: Local, down: Common, at: Round) -> tuple[Local, Tree]:
        """Alternate on one's own rows, match, send."""
        U, V, sse = self.alternated(shard, state, down.V, lambda t: self.rows_seen(shard, at, t))
        new = Local(U, V, state.steps + self.local_steps, state.total, state.weight)
        figures = sse, state.total
        if self.server == "history":
            change = float(state.weight) * (V - as_like(state.sent, V))
            return new, Change(change, np.float64(1), *figures)
        return new, Own(float(state.weight) * V, state.weight, *figures)

    def server_step(self, state: Server, up: Tree, at: Round) -> tuple[Server, Common]:
        """Merge what arrived."""
        V = as_like(state.V, up.V)
        arrivals = int(state.arrivals) + len(at.participants)
        if isinstance(up, Change):
            V = V + up.V / int(state.parties)
        else:
            first = 1.0 if self.omega is None else self.omega
            if self.server == "constant":
                omega = min(1.0, 1 / int(state.parties) if self.omega is None else first)
            else:
                omega = first / (first + arrivals)
            V = (1 - omega) * V + omega * up.V / float(up.n)
        V = self.tamed(V)  # differences of non-negative numbers may miss zero by a rounding
        known = up.sse is not None and up.total is not None
        figures = (up.sse, up.total) if known else (np.float64(np.nan), np.float64(np.nan))
        return Server(V, np.int64(arrivals), state.parties, *figures), Common(V)

    def report(self, state: Server) -> dict[str, float]:
        """Return the relative error that the last senders saw on their own rows."""
        return {"senders_error": float(np.sqrt(state.sse / state.total))} if float(state.total) > 0 else {}


@declares_settings
class AsynSD(MergedArrivals):
    r"""NMF of parties that hold parts of one matrix and never wait for each other.

    A party takes ``local_steps`` alternating proximal steps from the V it last received, matches its components to that
    V, and sends; the server merges at once and replies to that party alone. On an engine with rounds all uploads of a
    round are merged together.

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
    >>> run = fedfactor.run(AsynSD(3), owners, engine=VirtualEngine(), rounds=10, seed=0)
    >>> run.relative_error < 0.05
    True
    """

    @classmethod
    def published(cls, n_components: int, *, schedule_start: float = 100.0, growth: float = 10.0) -> AsynSD:
        """Return the settings of the published code: no alignment, ω = 1/(1 + t), ``μ_t = 100 + 10 t``.

        Examples
        --------
        >>> AsynSD.published(5).server
        'harmonic'
        """
        literal = {"rule": "absolute", "schedule_start": schedule_start, "growth": growth, "init": "small"}
        return cls(n_components, align=False, server="harmonic", omega=1.0, **literal)  # type: ignore[arg-type]


@declares_settings
class AsynSSD(MergedArrivals):
    """Asyn-SD whose parties see their own rows through private sketches when they move V.

    Sketches of V itself cannot be exchanged without rounds: those of different moments do not add up. So what travels
    is what travels in :class:`AsynSD`, and only the work of a step is smaller.

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
    >>> run = fedfactor.run(AsynSSD(3, ratio=0.3), owners, engine=VirtualEngine(), rounds=10, seed=0)
    >>> run.relative_error < 0.05
    True
    """

    kind: Kind = setting("How sketches are drawn.", default="subsampling")
    ratio: float = setting(
        "Share of a party's rows that a step looks at, at least three times the rank.",
        default=0.1,
        above=0,
        at_most=1,
        because="it is the width of a sketch as a share",
    )

    @classmethod
    def published(cls, n_components: int, *, ratio: float = 0.1) -> AsynSSD:
        """Return the settings of the published code: no alignment, ω = 1/(1 + t), ``μ_t = 1 + 0.1 t``.

        Examples
        --------
        >>> AsynSSD.published(5).align
        False
        """
        literal = {"rule": "absolute", "schedule_start": 1.0, "growth": 0.1, "init": "small"}
        return cls(n_components, ratio=ratio, align=False, server="harmonic", omega=1.0, **literal)  # type: ignore[arg-type]

    def rows_seen(self, shard: Shard, at: Round, t: int) -> Sketch | None:
        """Draw a part of one's own rows."""
        return private_rows(self.kind, shard.n_rows, self.ratio, self.n_components, at, f"rows {t}")
