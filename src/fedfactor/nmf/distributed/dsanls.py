"""DSANLS: distributed NMF in which nodes exchange sketches of the factors instead of the factors."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import ClassVar, Literal, cast

import numpy as np

from fedfactor.core.algorithm import Algorithm, Layout, LocalFactors, Meta, Round, Score, Uplink
from fedfactor.core.client_data import Shard
from fedfactor.core.download_validation import NOT_NEGATIVE, odd_numbers
from fedfactor.core.errors import DataError, ExposureWarning, SketchLeakError
from fedfactor.core.grid import GridShard
from fedfactor.core.input_validation import check_rank
from fedfactor.core.parameters import declares_settings, setting
from fedfactor.core.pytree import Array, Tree, public, record, telemetry
from fedfactor.core.wire import Leaf, Spec
from fedfactor.linalg.factors import reconstruction, refit_rows
from fedfactor.linalg.products import as_like, cross, gram_rows, squared_norm, total
from fedfactor.nmf.distributed.proximal_descent import Rule, Solver, check_schedule, inexact_step, schedule
from fedfactor.nmf.distributed.sketch_exposure import Exposure, effective_support
from fedfactor.nmf.distributed.sketches import (
    Kind,
    Sketch,
    draw_sketch,
    sketch_block,
    sketch_columns,
    sketch_stream,
    sketch_width,
)


@record("dsanls.Start")
class Start:
    """Down, first: send the sketch of your columns of V."""

    nodes: Array = public()


@record("dsanls.SketchOfV")
class SketchOfV:
    """Up: the share of one node's columns in ``V S``, and an unbiased estimate of its squared error so far."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    B: Array
    sse: Array | None = telemetry(default=None)
    total: Array | None = telemetry(default=None)


@record("dsanls.SketchOfU")
class SketchOfU:
    """Up: the share of one node's rows in ``Uᵀ S'``, and an unbiased estimate of its squared error so far."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    B: Array
    sse: Array | None = telemetry(default=None)
    total: Array | None = telemetry(default=None)


@record("dsanls.Columns")
class Columns:
    """Up, last: the node's columns of V among zeros, so that the sum is V."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    V: Array


@record("dsanls.ForU")
class ForU:
    """Down: ``V S`` of all nodes, the round in which S was drawn, and the iterations so far."""

    B: Array
    drawn: Array = public()
    t: Array = public()


@record("dsanls.ForV")
class ForV:
    """Down: ``Uᵀ S'`` of all nodes, the round in which S' was drawn, the iterations so far, and whether to end."""

    B: Array
    drawn: Array = public()
    t: Array = public()
    ends: Array = public()


@record("dsanls.Whole")
class Whole:
    """Down, last: V."""

    V: Array


@record("dsanls.Local")
class Local:
    """Stays at the node: its rows of U, its columns of V, the error that the last sketch saw, whether it has warned."""

    U: Array
    V: Array
    total_rows: Array
    total_columns: Array
    sse: Array
    warned: Array


@record("dsanls.Server")
class Server:
    """What was sent last, in case a round must be repeated, and the error as the sketches saw it."""

    sent: Tree
    nodes: Array
    error: Array
    t: Array
    done: Array


@declares_settings
class DSANLS(Algorithm):
    r"""Distributed sketched alternating non-negative least squares, for nodes of one cluster.

    .. math:: \min_{U \ge 0,\, V \ge 0} \tfrac12 \|M - U V\|^2

    Node r holds the rows :math:`M_{I_r}` *and* the columns :math:`M_{:J_r}` of one matrix and works on :math:`U_{I_r}`
    and :math:`V_{:J_r}`. All nodes draw the same sketch S; the sum of :math:`V_{:J_r} S_{J_r}` is all that a node needs
    from the others to take a step on :math:`\|M_{I_r}S - U_{I_r}(VS)\|^2`. This is a method for *speed*: what is sent
    lets others compute the factors, see ``leak``.

    Notes
    -----
    One iteration is two rounds; with the start, T iterations are 2 T + 1 rounds, which is also the default.
    Up per node and iteration: k (d + d') numbers for sketches of width d and d', and four more that estimate the error,
    instead of k (n + m). The estimate is
    unbiased, because a sketch is drawn after the factors it is applied to. A round in which a node is missing is
    repeated, as the sum would lack its block.

    References
    ----------
    .. [1] Y. Qian, C. Tan, D. Ding, H. Li, N. Mamoulis, "Fast and secure distributed nonnegative matrix factorization",
       IEEE TKDE 2020. doi:10.1109/TKDE.2020.2985964

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> from fedfactor.core.grid import grid_federation
    >>> rng = np.random.default_rng(0)
    >>> M = rng.random((60, 3)) @ rng.random((3, 40))
    >>> run = fedfactor.run(DSANLS(3, ratio=0.5, iterations=40, leak="ignore"), grid_federation(M, 2), seed=0)
    >>> run.V.shape, run.relative_error < 0.05
    ((3, 40), True)
    """

    n_components: int = setting("Rank k.", at_least=1)
    sketch: Kind = setting(
        "How sketches are drawn. Subsampling is the cheapest and keeps sparse data sparse; the others see every cell "
        "in each step.",
        default="subsampling",
    )
    ratio: float = setting(
        "Width of a sketch as a share of what it replaces, at least three times the rank.",
        default=0.1,
        above=0,
        at_most=1,
        because="it is the width of a sketch as a share",
    )
    solver: Solver = setting(
        "Proximal coordinate descent, or projected gradient steps that shrink.", default="proximal"
    )
    rule: Rule = setting(
        "Whether the schedule is measured against the data, or is in their units as in the published code.",
        default="relative",
    )
    schedule_start: float | None = setting(
        "Proximal weight, or gradient step, to begin with.", default=None, at_least=0
    )
    growth: float | None = setting(
        "Proximal weight ``schedule_start + growth t``, or gradient step ``schedule_start / (1 + growth t)``.",
        default=None,
        at_least=0,
    )
    init: Literal["scaled", "unit"] = setting(
        "Factors drawn so that U V has the mean of the data, or uniform on [0, 1] as in the published code.",
        default="scaled",
    )
    leak: Literal["warn", "refuse", "ignore"] = setting(
        "What to do before an upload that completes enough sketches to solve for U: as many columns as U has rows, and "
        "fewer the more of its entries are small.",
        default="warn",
    )
    iterations: int = setting(
        "Iterations until the run ends by itself; its last round then brings all of V to every node (k m numbers, "
        "once).",
        default=100,
        at_least=1,
    )
    collect: bool = setting(
        "False: nodes keep their columns of V, as in a run that was ended earlier, and the error is measured on the "
        "cells where a node knows both factors.",
        default=True,
    )

    cap: float | None = setting(
        "No cell of a factor may exceed this after a step. The paper's proof of convergence assumes factors that are "
        "bounded; ``sqrt(2 ‖M‖)`` bounds them without excluding the best ones.",
        default=None,
        above=0,
    )

    layout: ClassVar[Layout] = Layout.GRID

    @property
    def default_rounds(self) -> int:  # type: ignore[override]
        """Rounds of all iterations, and the first one."""
        return 2 * self.iterations + 1

    @classmethod
    def published(cls, n_components: int, *, sketch: str = "gaussian", ratio: float = 0.1) -> DSANLS:
        """Return the schedule and start of the published code: ``μ_t = t``, factors uniform on [0, 1].

        Examples
        --------
        >>> DSANLS.published(8).growth
        1.0
        """
        return cls(n_components, sketch, ratio, rule="absolute", schedule_start=0.0, growth=1.0, init="unit")  # type: ignore[arg-type]

    def check(self, meta: Meta) -> None:
        """Refuse settings that cannot work."""
        check_rank(self.n_components, meta)
        check_schedule(self.solver, self.schedule_start, self.growth)

    def _widths(self, m: int, n: int | None) -> tuple[int, int]:
        """Return the widths d of sketches of columns, and d' of sketches of rows."""
        width = sketch_width(m, self.ratio, self.n_components)
        return width, width if n is None else sketch_width(n, self.ratio, self.n_components)

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """Sketches both ways; at the end V, if it is collected."""
        k = self.n_components
        kind = meta.dtype
        d, d_rows = self._widths(meta.n_features, meta.n_rows)
        number = Leaf(kind, ())
        drawn = Leaf("int64", ())
        found: dict[type, Spec] = {
            Start: {"nodes": drawn},
            SketchOfV: {"B": Leaf(kind, (k, d)), "sse": number, "total": number},
            SketchOfU: {"B": Leaf(kind, (k, d_rows)), "sse": number, "total": number},
            ForU: {"B": Leaf(kind, (k, d)), "drawn": drawn, "t": drawn},
            ForV: {"B": Leaf(kind, (k, d_rows)), "drawn": drawn, "t": drawn, "ends": drawn},
        }
        if self.collect:
            whole = Leaf(kind, (k, meta.n_features))
            found |= {Columns: {"V": whole}, Whole: {"V": whole}}
        return found

    def init_server(self, meta: Meta, at: Round) -> tuple[Server, Start]:
        """Ask for the first sketches; the server never holds a factor."""
        start = Start(np.int64(meta.n_clients))
        nothing = np.int64(0)
        return Server(start, np.int64(meta.n_clients), np.float64(np.nan), nothing, nothing), start

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Local:
        """Draw the node's rows of U and columns of V."""
        if not isinstance(shard, GridShard):
            raise DataError(
                f"DSANLS needs nodes that hold a block of rows and a block of columns, but {at.client!r} holds rows "
                "alone. Use fedfactor.core.grid.grid_federation, or fedfactor split --grid. For owners who keep their "
                "rows to themselves take PooledNMF or SynSD."
            )
        k = self.n_components
        X = shard.X
        mean = total(X) / max(1, X.shape[0] * X.shape[1])
        scale = 4 * mean / k if self.init == "scaled" else 1.0
        U = as_like(scale * at.rng("U").random((shard.n_rows, k)), X)
        V = as_like(at.rng("V").random((k, shard.columns.shape[1])), X)
        norms = np.float64(squared_norm(X)), np.float64(squared_norm(shard.columns))
        # Before any step the model is nothing, and its squared error is that of zero.
        return Local(U, V, *norms, norms[1], np.int64(0))

    def client_step(self, shard: Shard, state: Local, down: Tree, at: Round) -> tuple[Local, Tree]:
        """Use the sketch that came to improve one factor, then sketch that factor for the others."""
        shard = cast("GridShard", shard)  # init_client refuses others
        if isinstance(down, ForU):
            S = self._sketch(shard.n_features, "columns", at.seed, int(down.drawn))
            U, sse = self._improve(sketch_columns(shard.X, S), state.U, down.B, int(down.t))
            state = replace(state, U=U, sse=np.float64(sse))
        elif isinstance(down, ForV):
            S = self._sketch(int(shard.columns.shape[0]), "rows", at.seed, int(down.drawn))
            # The transpose of a block of columns is a view whose columns lie together.
            W, sse = self._improve(sketch_columns(shard.columns.T, S), state.V.T, down.B, int(down.t))
            state = replace(state, V=np.ascontiguousarray(W.T), sse=np.float64(sse))
        if isinstance(down, Whole) or (isinstance(down, ForV) and int(down.ends)):
            V = np.zeros((self.n_components, shard.n_features), shard.X.dtype)
            V[:, shard.bounds[2] : shard.bounds[3]] = state.V
            return state, Columns(V)
        return self._share(shard, state, down, at)

    def _share(self, shard: GridShard, state: Local, down: Tree, at: Round) -> tuple[Local, Tree]:
        kind = shard.X.dtype.type
        if isinstance(down, ForU):
            n = int(shard.columns.shape[0])
            S = self._sketch(n, "rows", at.seed, at.index)
            if shard.n_rows < n:  # a single node does not report it
                state = self._account(state, S, int(down.t) + 1)
            figures = kind(state.sse), kind(state.total_rows)
            return state, SketchOfU(sketch_block(state.U.T, S, shard.bounds[0]), *figures)
        S = self._sketch(shard.n_features, "columns", at.seed, at.index)
        figures = kind(state.sse), kind(state.total_columns)
        return state, SketchOfV(sketch_block(state.V, S, shard.bounds[2]), *figures)

    def _sketch(self, size: int, name: str, seed: int, drawn: int) -> Sketch:
        width = sketch_width(size, self.ratio, self.n_components)
        return draw_sketch(self.sketch, size, width, sketch_stream(seed, name, drawn))

    def _improve(self, A: Array, W: Array, B: Array, t: int) -> tuple[Array, float]:
        """Take one step on ``‖A − W B‖²`` and return the error before the step, which no step has seen yet."""
        B = as_like(B, W)
        G = gram_rows(B)
        C = cross(A, B)
        error = _sketched_error(squared_norm(A), C, W, G)
        amount = schedule(self.solver, self.schedule_start, self.growth, t)
        W = inexact_step(W, G, C, solver=self.solver, rule=self.rule, amount=amount)
        return W if self.cap is None else np.minimum(W, W.dtype.type(self.cap)), error

    def _account(self, state: Local, S: Sketch, iterations: int) -> Local:
        """Speak up before the upload that lets others solve for U, which its zeros and small entries make easier."""
        if self.leak == "ignore" or int(state.warned):
            return state
        support = effective_support(state.U) * S.size / state.U.shape[0]  # as if the other nodes' rows were like these
        exposure = Exposure(S.size, S.width, iterations, support)
        if not exposure.solvable:
            return state
        message = f"DSANLS, iteration {iterations}: {exposure.told('the row factor U of all nodes')}"
        if self.leak == "refuse":
            raise SketchLeakError(f"{message} Stop earlier, or say leak='warn' in a cluster where nothing is secret.")
        warnings.warn(message, ExposureWarning, stacklevel=2)
        return replace(state, warned=np.int64(1))

    def accepts(self, down: Start | ForU | ForV | Whole, meta: Meta) -> str:
        """Expect as many nodes as were agreed on, rounds that were, and a V without negative cells at the end."""
        n = meta.n_clients
        whole = {"nodes": (n, n), "drawn": NOT_NEGATIVE, "t": (0.0, self.iterations), "ends": (0.0, 1.0)}
        return odd_numbers(down, {**whole, "V": NOT_NEGATIVE})

    def server_step(self, state: Server, up: Tree, at: Round) -> tuple[Server, Tree]:
        """Return the sum; ask again when a client was missing."""
        if len(at.participants) < int(state.nodes):
            return state, state.sent
        if isinstance(up, Columns):
            return replace(state, sent=Whole(up.V), done=np.int64(1)), Whole(up.V)
        drawn = np.int64(at.index)
        t = state.t
        if isinstance(up, SketchOfV):
            sent: Tree = ForU(up.B, drawn, t)
        else:
            sent = ForV(up.B, drawn, t, np.int64(self.collect and int(t) + 1 >= self.iterations))
            t = t + 1
        error = np.float64(np.nan)
        if up.sse is not None and up.total is not None and float(up.total) > 0:
            error = np.float64(np.sqrt(max(float(up.sse), 0.0) / float(up.total)))
        return Server(sent, state.nodes, error, t, state.done), sent

    def converged(self, state: Server) -> bool:
        """Return whether V was collected: the run is over."""
        return bool(state.done)

    def report(self, state: Server) -> dict[str, float]:
        """Return the relative error as the last sketch estimates it."""
        return {"estimated_error": float(state.error)} if np.isfinite(state.error) else {}

    def finish(self, shard: Shard, state: Local, down: Tree) -> LocalFactors:
        """Keep the rows of U, and V: all of it when it was collected, else the node's columns."""
        if isinstance(down, Whole):
            return LocalFactors(state.U, as_like(down.V, state.U))
        return LocalFactors(state.U, state.V, np.arange(*cast("GridShard", shard).bounds[2:], dtype=np.int64))

    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Solve U for new rows, on the columns of the factors."""
        known = X if factors.columns is None or factors.V.shape[1] == X.shape[1] else X[:, factors.columns]
        return refit_rows(None, known, as_like(factors.V, X), mask)

    def score(self, shard: Shard, state: Local | LocalFactors, down: Tree) -> Score:
        """Measure the error over the node's rows, on the columns whose V is at hand."""
        factors = state if isinstance(state, LocalFactors) else self.finish(shard, state, down)
        X = shard.X
        if factors.columns is not None:
            _, _, begin, end = cast("GridShard", shard).bounds
            X = X[:, begin:end]
        return Score.of(*reconstruction(X, factors.U, factors.V))


def _sketched_error(norm: float, C: Array, W: Array, G: Array) -> float:
    """Return ``‖A − W B‖²`` from ``‖A‖²``, ``C = A Bᵀ`` and ``G = B Bᵀ``, in double precision."""
    W, C, G = (np.asarray(x, dtype=np.float64) for x in (W, C, G))
    return max(norm - 2 * float(np.sum(C * W)) + float(np.sum((W.T @ W) * G)), 0.0)
