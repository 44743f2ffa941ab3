"""What the synchronous and the asynchronous methods for parties of one matrix share: start, inner steps, measures."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np

from fedfactor.core.algorithm import Meta, Round
from fedfactor.core.client_data import Shard
from fedfactor.core.download_validation import NOT_NEGATIVE, odd_numbers
from fedfactor.core.parameters import declares_settings, setting
from fedfactor.core.pytree import Array, Tree, record, to_numpy
from fedfactor.linalg.factors import match_common
from fedfactor.linalg.nnls import squared_error
from fedfactor.linalg.products import as_like, cross, gram, gram_rows, squared_norm, sums, total
from fedfactor.nmf.distributed.proximal_descent import Rule, Solver, check_schedule, inexact_step, schedule
from fedfactor.nmf.distributed.sketches import Kind, Sketch, draw_sketch, sketch_columns, sketch_width
from fedfactor.nmf.refit import RefitRows

Start = Literal["scaled", "unit", "small"]
SPREAD = {"scaled": 1.0, "unit": 1.0, "small": 0.01}
"""Upper end of the uniform draw of V; U takes the mean of the data with "scaled", and the same end otherwise."""


@record("secure_nmf.Local")
class Local:
    """Stays home: private U, the party's own V between two exchanges, steps so far, ‖X‖²."""

    U: Array
    V: Array
    steps: Array
    total: Array


def first_common(k: int, meta: Meta, at: Round, init: Start) -> Array:
    """Draw the V that all parties start from; every party can draw it for itself."""
    return (SPREAD[init] * at.shared_rng("V").random((k, meta.n_features))).astype(meta.dtype)


def row_length(n_features: int, init: Start) -> float:
    """Return the length that rows of V have at the start, and that parties give theirs before they send them."""
    return SPREAD[init] * math.sqrt(n_features / 3)  # the mean square of uniform numbers on [0, 1] is 1/3


def first_local(k: int, shard: Shard, meta: Meta, at: Round, init: Start) -> Local:
    """Draw U, at the scale that lets U V have the mean of the rows."""
    mean = total(shard.X) / max(1, shard.n_rows * shard.n_features)
    spread = 4 * mean / k if init == "scaled" else SPREAD[init]
    U = as_like(spread * at.rng("U").random((shard.n_rows, k)), shard.X)
    V = as_like(first_common(k, meta, at, init), shard.X)
    return Local(U, V, np.int64(0), np.float64(squared_norm(shard.X)))


@dataclass(frozen=True, slots=True)
class Inner:
    """Inner steps on one party's rows: how each factor moves, and through which sketch."""

    solver: Solver
    rule: Rule
    start: float | None
    growth: float | None

    def _step(self, W: Array, G: Array, B: Array, t: int) -> Array:
        amount = schedule(self.solver, self.start, self.growth, t)
        return inexact_step(W, G, B, solver=self.solver, rule=self.rule, amount=amount)

    def common(self, X: Array, U: Array, V: Array, t: int, rows: Sketch | None = None) -> Array:
        """Move V; with a sketch, as seen through ``Sᵀ X`` and ``Sᵀ U``, which no other party needs to know."""
        if rows is not None:
            X = sketch_columns(X.T, rows).T
            U = sketch_columns(U.T, rows).T
        return self._step(V.T, gram(U), sums(U, _plain(X)).T, t).T

    def private(self, X: Array, U: Array, V: Array, t: int) -> Array:
        """Move U; ``X`` and ``V`` may both be sketched."""
        return self._step(U, gram_rows(V), cross(_plain(X), V), t)


def _plain(X: Array) -> Array:
    """Bring a sketched matrix into a layout that the products know."""
    return X.tocsr() if hasattr(X, "tocsr") and X.format not in ("csr", "csc") else X


def private_rows(kind: Kind, n_rows: int, ratio: float, rank: int, at: Round, name: str) -> Sketch | None:
    """Draw a sketch of one party's rows from its own stream; None when it has too few of them."""
    width = sketch_width(n_rows, ratio, rank)
    return None if width >= n_rows else draw_sketch(kind, n_rows, width, at.rng(name))


@declares_settings
class PartySteps(RefitRows):
    """What the methods for parties of one matrix share: their inner steps, and how a run ends."""

    n_components: int = setting("Rank k.", at_least=1)
    _: KW_ONLY
    local_steps: int = setting(
        "Alternations between two exchanges of the whole V (T₂ of the paper).", default=10, at_least=1
    )
    align: bool = setting(
        "Match components before averaging. Without it the mean mixes unlike components and the run stalls.",
        default=True,
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
        "Proximal weight ``schedule_start + growth t``, or gradient step ``schedule_start / (1 + growth t)``, t "
        "counting alternations.",
        default=None,
        at_least=0,
    )
    init: Start = setting(
        "Factors drawn so that U V has the mean of the data, or uniform on [0, 1] or [0, 0.01] as in the published "
        "code.",
        default="scaled",
    )

    def check(self, meta: Meta) -> None:
        """Refuse a rank that the data cannot carry, and a schedule of no use."""
        RefitRows.check(self, meta)
        check_schedule(self.solver, self.schedule_start, self.growth)

    def accepts(self, down: Tree, meta: Meta) -> str:
        """Expect a V without negative cells, whose rows are no longer than means of agreed lengths can be."""
        odd = odd_numbers(down, {"V": NOT_NEGATIVE, "step": NOT_NEGATIVE, "drawn": NOT_NEGATIVE})
        V = getattr(down, "V", None)
        if odd or V is None or not self.align:
            return odd
        longest = float(np.linalg.norm(np.asarray(to_numpy(V), np.float64), axis=1).max(initial=0.0))
        return "a row of V is longer than any party makes it" if longest > self._longest(meta.n_features) else ""

    def _longest(self, n_features: int) -> float:
        """Rows of the start reach √3 times their usual length; means are shorter. A little is left for rounding."""
        return 1.001 * math.sqrt(3) * row_length(n_features, self.init)

    def tamed(self, V: Array) -> Array:
        """Bring a mean to what parties accept: one of them could otherwise make it useless for all the others."""
        V = V.clip(0)
        if not self.align:
            return V
        lengths = (V * V).sum(1) ** 0.5
        most = self._longest(V.shape[1]) / 1.0005  # cells are rounded after it
        return V if float(lengths.max()) <= most else V * (most / lengths.clip(most)).reshape(-1, 1)

    @property
    def inner(self) -> Inner:
        """The steps that these settings ask for."""
        return Inner(self.solver, self.rule, self.schedule_start, self.growth)

    def alternated(
        self, shard: Shard, state: Any, down: Array, rows_seen: Callable[[int], Sketch | None] = lambda t: None
    ) -> tuple[Array, Array, np.float64]:
        """Alternate on one's own rows from the common V, and match; return U, V and the error of the common V."""
        inner = self.inner
        X = shard.X
        common = as_like(down, X)
        U = state.U
        V = common
        first = int(state.steps)
        sse = squared_error(float(state.total), sums(U, X), gram(U), common)
        for t in range(first, first + self.local_steps):
            V = inner.common(X, U, V, t, rows_seen(t))
            U = inner.private(X, U, V, t)
        if self.align:
            U, V = match_common(U, V, common, row_length(shard.n_features, self.init))
        return U, V, np.float64(sse)
