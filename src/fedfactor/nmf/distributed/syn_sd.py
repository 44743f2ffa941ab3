"""Syn-SD and Syn-SSD: parties of one matrix take local steps and average the common factor, or sketches of it."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np

from fedfactor.core.algorithm import Meta, Round, Uplink
from fedfactor.core.client_data import Shard
from fedfactor.core.parameters import declares_settings, setting
from fedfactor.core.pytree import Array, Tree, public, record, telemetry
from fedfactor.core.wire import Leaf, Spec
from fedfactor.linalg.factors import match_common
from fedfactor.linalg.nnls import squared_error
from fedfactor.linalg.products import as_like, gram, sums
from fedfactor.nmf.distributed.secure_steps import (
    Local,
    PartySteps,
    first_common,
    first_local,
    private_rows,
    row_length,
)
from fedfactor.nmf.distributed.sketches import (
    Kind,
    Sketch,
    draw_sketch,
    sketch_block,
    sketch_columns,
    sketch_stream,
    sketch_width,
)


@record("secure_nmf.Common")
class Common:
    """Down: the mean V of all parties."""

    V: Array


@record("secure_nmf.Own")
class Own:
    """Up: its V, one for the count, and the error of the V that it received."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    V: Array
    n: Array = public()
    sse: Array | None = telemetry(default=None)
    total: Array | None = telemetry(default=None)


@record("secure_nmf.Stepped")
class Stepped:
    """Down: the mean V of all parties, and how many inner steps they have taken."""

    V: Array
    step: Array = public()


@record("secure_nmf.OwnSketch")
class OwnSketch:
    """Up: its V seen through the sketch that all share, and one for the count."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    B: Array
    n: Array = public()


@record("secure_nmf.CommonSketch")
class CommonSketch:
    """Down: the mean of the sketched V, the inner steps so far, and the round in which the sketch was drawn."""

    B: Array
    step: Array = public()
    drawn: Array = public()


@record("secure_nmf.Between")
class Between:
    """Stays home: private U, the party's own V, the last common one, and ‖X‖²."""

    U: Array
    V: Array
    common: Array
    total: Array


@record("secure_nmf.Server")
class Server:
    """The last mean, how many inner steps the parties have taken, and the error of that mean."""

    V: Array
    step: Array
    sse: Array
    total: Array


def _error(up: Own) -> tuple[Array, Array]:
    known = up.sse is not None and up.total is not None
    return (up.sse, up.total) if known else (np.float64(np.nan), np.float64(np.nan))


def _report(state: Server) -> dict[str, float]:
    return {"relative_error": float(np.sqrt(state.sse / state.total))} if float(state.total) > 0 else {}


@declares_settings
class SynSD(PartySteps):
    r"""Synchronous NMF of parties that hold parts of one matrix and average the common factor.

    .. math:: \min_{U_c \ge 0,\, V \ge 0} \sum_c \tfrac12\|X_c - U_c V\|^2

    Each party takes ``local_steps`` alternating proximal steps on its own part, puts its components into the order of
    the common ones and to one length, and sends its V; the mean goes back. The published method is stated for parties
    that hold *columns* of M and share U: with :math:`X_c = M_{:J_c}^\top` it is this one.

    Notes
    -----
    Up and down per party and round: k m numbers. Rows and U are not sent; V is a function of them and reveals something
    about them. With two parties each can subtract its own V from the mean and has the other's.

    References
    ----------
    .. [1] Y. Qian, C. Tan, D. Ding, H. Li, N. Mamoulis, "Fast and secure distributed nonnegative matrix factorization",
       IEEE TKDE 2020. doi:10.1109/TKDE.2020.2985964

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((60, 3)) @ rng.random((3, 20))
    >>> run = fedfactor.run(SynSD(3), {"a": X[:20], "b": X[20:]}, rounds=8, seed=0)
    >>> run.V.shape, run.relative_error < 0.05
    ((3, 20), True)
    """

    default_rounds: ClassVar[int] = 100

    @classmethod
    def published(cls, n_components: int, *, schedule_start: float = 100.0, growth: float = 10.0) -> SynSD:
        """Return the settings of the published code: no alignment, ``μ_t = 100 + 10 t``, factors in [0, 0.01].

        Examples
        --------
        >>> SynSD.published(5).align
        False
        """
        return cls(
            n_components, align=False, rule="absolute", schedule_start=schedule_start, growth=growth, init="small"
        )

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """One V each way."""
        wide = Leaf(meta.dtype, (self.n_components, meta.n_features))
        number = Leaf("float64", ())
        return {Common: {"V": wide}, Own: {"V": wide, "n": number, "sse": number, "total": number}}

    def init_server(self, meta: Meta, at: Round) -> tuple[Server, Common]:
        """Draw the V that all parties start from."""
        V = first_common(self.n_components, meta, at, self.init)
        nothing = np.float64(np.nan)
        return Server(V, np.int64(0), nothing, nothing), Common(V)

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Local:
        """Draw U."""
        return first_local(self.n_components, shard, meta, at, self.init)

    def client_step(self, shard: Shard, state: Local, down: Common, at: Round) -> tuple[Local, Own]:
        """Alternate on one's own rows, match, send V."""
        U, V, sse = self.alternated(shard, state, down.V)
        state = Local(U, V, state.steps + self.local_steps, state.total)
        return state, Own(V, np.float64(1), sse, state.total)

    def server_step(self, state: Server, up: Own, at: Round) -> tuple[Server, Common]:
        """Average."""
        V = self.tamed(up.V / float(up.n))
        return Server(V, state.step + self.local_steps, *_error(up)), Common(V)

    def report(self, state: Server) -> dict[str, float]:
        """Return the relative error of the V that the parties received, with the U they had."""
        return _report(state)


@declares_settings
class SynSSD(PartySteps):
    r"""Syn-SD with sketches: parties exchange in every inner step, but little.

    Notes
    -----
    A round is one inner step. Sent up per party in T₂ rounds: ``"u"`` and ``"uv"`` k (m + T₂ d), ``"v"`` k m T₂.

    References
    ----------
    .. [1] Y. Qian, C. Tan, D. Ding, H. Li, N. Mamoulis, "Fast and secure distributed nonnegative matrix factorization",
       IEEE TKDE 2020. doi:10.1109/TKDE.2020.2985964

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((60, 3)) @ rng.random((3, 40))
    >>> run = fedfactor.run(SynSSD(3, ratio=0.3), {"a": X[:20], "b": X[20:]}, rounds=40, seed=0)
    >>> run.V.shape, run.relative_error < 0.05
    ((3, 40), True)
    """

    sketch: Literal["uv", "u", "v"] = setting(
        "Which factor is sketched, in the letters of the paper: its U is the common factor (V here), its V is private "
        '(U here). ``"u"``: the private factor is updated through a sketch of the common one; its mean (k d numbers) '
        'travels in every inner step and the whole V once in ``local_steps``. ``"v"``: the common factor is updated '
        "through a private sketch of each party's rows; the whole V travels in every inner step, as in the published "
        'code. ``"uv"``: both, with two streams.',
        default="uv",
    )
    kind: Kind = setting("How sketches are drawn.", default="subsampling")
    ratio: float = setting(
        "Width of a sketch as a share of what it replaces, at least three times the rank.",
        default=0.1,
        above=0,
        at_most=1,
        because="it is the width of a sketch as a share",
    )

    default_rounds: ClassVar[int] = 1000

    @classmethod
    def published(cls, n_components: int, sketch: Literal["uv", "u", "v"] = "uv", *, ratio: float = 0.1) -> SynSSD:
        """Return the settings of the published code: no alignment, ``μ_t = 1 + 0.1 t``, factors in [0, 0.01].

        Examples
        --------
        >>> SynSSD.published(5, "v").sketch
        'v'
        """
        return cls(
            n_components,
            sketch=sketch,
            ratio=ratio,
            align=False,
            rule="absolute",
            schedule_start=1.0,
            growth=0.1,
            init="small",
        )

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """V each way, and sketches of it."""
        k = self.n_components
        number = Leaf("float64", ())
        wide = Leaf(meta.dtype, (k, meta.n_features))
        found: dict[type, Spec] = {
            Stepped: {"V": wide, "step": Leaf("int64", ())},
            Own: {"V": wide, "n": number, "sse": number, "total": number},
        }
        if self.sketch != "v":
            whole = Leaf("int64", ())
            thin = Leaf(meta.dtype, (k, sketch_width(meta.n_features, self.ratio, k)))
            found |= {OwnSketch: {"B": thin, "n": number}, CommonSketch: {"B": thin, "step": whole, "drawn": whole}}
        return found

    def init_server(self, meta: Meta, at: Round) -> tuple[Server, Stepped]:
        """Draw the V that all parties start from."""
        V = first_common(self.n_components, meta, at, self.init)
        nothing = np.float64(np.nan)
        return Server(V, np.int64(0), nothing, nothing), Stepped(V, np.int64(0))

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Between:
        """Draw U."""
        first = first_local(self.n_components, shard, meta, at, self.init)
        return Between(first.U, first.V, first.V, first.total)

    def client_step(self, shard: Shard, state: Between, down: Tree, at: Round) -> tuple[Between, Tree]:
        """Take in what came, move V, and send it: sketched, or whole when the inner steps are done."""
        inner = self.inner
        X = shard.X
        t = int(down.step)
        U = state.U
        V = state.V
        common = state.common
        if isinstance(down, CommonSketch):
            S = self._shared(shard.n_features, at, int(down.drawn))
            U = inner.private(sketch_columns(X, S), U, as_like(down.B, X), t)
        else:
            V = common = as_like(down.V, X)
            U = inner.private(X, U, V, t) if t else U
        moved = inner.common(X, U, V, t, self._private(shard.n_rows, at))
        if self.sketch == "v" or (t + 1) % self.local_steps == 0:
            sse = squared_error(float(state.total), sums(U, X), gram(U), V)
            length = row_length(shard.n_features, self.init)
            U, V = match_common(U, moved, common, length) if self.align else (U, moved)
            return Between(U, V, common, state.total), Own(V, np.float64(1), np.float64(sse), state.total)
        B = sketch_block(moved, self._shared(shard.n_features, at, at.index))
        return Between(U, moved, common, state.total), OwnSketch(B, np.float64(1))

    def _shared(self, m: int, at: Round, drawn: int) -> Sketch:
        width = sketch_width(m, self.ratio, self.n_components)
        return draw_sketch(self.kind, m, width, sketch_stream(at.seed, "common", drawn))

    def _private(self, n_rows: int, at: Round) -> Sketch | None:
        if "v" not in self.sketch:
            return None
        return private_rows(self.kind, n_rows, self.ratio, self.n_components, at, "rows")

    def server_step(self, state: Server, up: Tree, at: Round) -> tuple[Server, Tree]:
        """Average what came."""
        step = state.step + 1
        if isinstance(up, OwnSketch):
            return replace(state, step=step), CommonSketch(up.B / float(up.n), step, np.int64(at.index))
        V = self.tamed(up.V / float(up.n))
        return Server(V, step, *_error(up)), Stepped(V, step)

    def settle(self, state: Server, down: Tree) -> Stepped:
        """Let parties finish with the last whole mean."""
        return Stepped(state.V, state.step)

    def report(self, state: Server) -> dict[str, float]:
        """Return the relative error when a whole V was sent last."""
        return _report(state)
