"""FELB and FALB: clients take proximal steps towards Boolean factors, the server averages V and applies the prox."""

from __future__ import annotations

import logging
from abc import abstractmethod
from dataclasses import KW_ONLY, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from array_api_compat import array_namespace

from fedfactor.boolean.product import boolean_refit, count, round_half
from fedfactor.boolean.proximal_maps import Pull, elastic_prox, integrality_gap
from fedfactor.boolean.solvers.elbmf import relaxed_steps
from fedfactor.core.algorithm import Algorithm, Domain, LocalFactors, Meta, Round, Score, Uplink
from fedfactor.core.client_data import Shard
from fedfactor.core.input_validation import check_rank
from fedfactor.core.parameters import declares_settings, setting
from fedfactor.core.pytree import Array, public, record, telemetry
from fedfactor.core.wire import Leaf, Spec
from fedfactor.linalg.factors import fit_rows, odd_factor, unit_rows
from fedfactor.linalg.products import as_like, squared_norm, zeros
from fedfactor.nmf.pooled import initialization as least_squares
from fedfactor.nmf.pooled.initialization import Wide, WideSums

logger = logging.getLogger(__name__)

BINARY_GAP = 1e-4
"""Mean distance of V to {0, 1} below which it counts as Boolean."""

FAINT = 1e-3
"""A row of V that is nowhere larger than this is dead, and is not blown up to 1."""

MOST = 1e12
"""λ grows no further than this: it then snaps to {0, 1} within rounding."""

PAPER: dict[str, Any] = {
    "scale_prox": False,
    "prox": "printed",
    "step": "elbmf",
    "refit": "none",
    "init": "independent",
    "start": "uniform",
    "row_max": "free",
}
"""Algorithm 1 of the paper to the letter."""


@record("felb.Factor")
class Factor:
    """Down: the shared factor, in [0, 1]."""

    V: Array


@record("felb.Weighted")
class Weighted:
    """Up: its relaxed factor times its weight, the weight, and its relaxed squared error."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    V: Array
    weight: Array = public()
    sse: Array | None = telemetry(default=None)
    total: Array | None = telemetry(default=None)


@record("felb.Local")
class Local:
    """Stays home: U now and one step ago, ``‖X‖²``, and the V that the client drew for itself until it is used.

    After a wide start there is no U before the first V has come, for which it is solved.
    """

    U: Array | None
    U_prev: Array | None
    total: Array
    V: Array | None


@record("felb.Server")
class Server:
    """The last V sent, how far it moved, how far it is from Boolean, and the clients' error.

    At a wide start also the last sums, and a number from which the server draws when it folds them.
    """

    V: Array
    moved: Array
    gap: Array
    sse: Array
    total: Array
    up: WideSums | None = None
    stream: Array | None = None


@declares_settings
class ProximalAveraging(Algorithm):
    """What FELB and FALB do alike; they differ in how strongly a cell is drawn to 0 or 1."""

    domain: ClassVar[Domain] = Domain.BINARY
    default_rounds: ClassVar[int] = 100
    handles_tensors: ClassVar[bool] = True

    n_components: int = setting("Number of components k.", at_least=1)
    local_steps: int = setting("Alternating steps between two exchanges.", default=10, at_least=1)
    _: KW_ONLY
    kappa: float = setting("Weight κ of the regulariser that draws cells to 0 and 1.", default=0.01, at_least=0)
    lam: float = setting("Weight λ of the same.", default=0.01, at_least=0)
    rate: float = setting("Growth of λ in each step.", default=1.005, at_least=1)
    beta: float = setting(
        "Inertia.", default=0.01, at_least=0, below=0.5, because="the step size would not be positive"
    )
    scale_prox: bool = setting(
        "Weigh the regulariser by the step size. Without it, as printed, it outweighs the data by orders of magnitude.",
        default=True,
    )
    prox: Literal["exact", "printed"] = setting(
        "The minimiser, or the formula of the paper, which shrinks past 0 and past 1.", default="exact"
    )
    step: Literal["safe", "elbmf", "falling"] = setting(
        "``(1−2β)/(1+2β)/L``, which descends for a regulariser that is not convex; ``2(1−β)/(1+2β)/L``, as in the "
        "ELBMF code; or the first one times ``λ/λ_t``, for which the paper shows that V comes to rest.",
        default="safe",
    )
    norm: Literal["frobenius", "spectral"] = setting(
        "The norm of the Gram matrix that bounds the step, L.", default="frobenius"
    )
    schedule: Literal["steps", "rounds"] = setting("What the growth of λ counts.", default="steps")
    server_prox: bool = setting("Draw the average to 0 and 1, too.", default=True)
    init: Literal["independent", "shared"] = setting(
        "Owners start from a V of their own, or from a common one.", default="shared"
    )
    start: Literal["auto", "wide", "random", "uniform"] = setting(
        '``"wide"``: two rounds of least squares with 3 k components, which the server folds into k from their sums '
        "``UᵀU`` and ``UᵀX`` alone; each owner then solves its U for that V. "
        '``"random"``: V uniform on [0, 1], and U times ``min(1, 4 p/k)``, p the share of ones among the '
        "owner's own cells, so that UV has the mean of its data; nothing is sent for that. "
        '``"uniform"``: both uniform, as printed. ``"auto"``: wide where owners have a common V and there are columns '
        "enough, else random; random also under noise and robust rules, which spoil sums.",
        default="auto",
    )
    row_max: Literal["one", "free"] = setting(
        "Before V is sent the largest cell of each row becomes 1, and U takes the factor; or rows are sent as they "
        "are. Many components that each explain a little of dense data otherwise stay below ½, and all fall to zero.",
        default="one",
    )
    weights: Literal["equal", "rows"] = setting(
        "Average owners all alike, or by their number of rows.", default="equal"
    )
    refit: Literal["boolean", "none"] = setting("Choose U for the final V, or round the relaxed U.", default="boolean")
    tol: float = setting(
        "Converged when no cell of V moves by more than this and V is Boolean; 0 uses all rounds.",
        default=1e-6,
        at_least=0,
    )

    @abstractmethod
    def pull(self, t: int) -> Pull:
        """Return the pull towards {0, 1} in step t."""

    @classmethod
    def paper(cls, n_components: int, **changes: Any) -> Self:
        """Return the method as printed: unscaled prox without soft threshold, larger steps, uniform start, no refit."""
        return cls(n_components, **{**PAPER, **changes})

    def check(self, meta: Meta) -> None:
        """Refuse settings that cannot work."""
        check_rank(self.n_components, meta)
        if self.start == "wide" and self.init == "independent":
            raise ValueError(
                "start='wide' gives all owners one V, init='independent' each its own. Use start='random'."
            )

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """One factor down, one weighted factor up; at a wide start more components and their sums."""
        V = Leaf(meta.dtype, (self.n_components, meta.n_features))
        number = Leaf("float64", ())
        first = least_squares.messages("wide", self.n_components, meta) if self.starts_wide(meta) else {}
        return {**first, Factor: {"V": V}, Weighted: {"V": V, "weight": number, "sse": number, "total": number}}

    def starts_wide(self, meta: Meta) -> bool:
        """Return whether the first two rounds are least squares."""
        if self.start != "auto":
            return self.start == "wide"
        room = least_squares.width("wide", self.n_components, meta) >= 1.5 * self.n_components
        return self.init == "shared" and room

    def init_server(self, meta: Meta, at: Round) -> tuple[Server, Wide | Factor]:
        """Draw a V for those who start from a common one."""
        far = np.float64(np.inf)
        half = np.float64(0.5)
        nothing = np.float64(np.nan)
        if self.starts_wide(meta):
            first = Wide(least_squares.first_download("wide", self.n_components, meta, at).V)
            stream = np.uint64(at.shared_rng("fold").integers(2**63))
            return Server(first.V, far, half, nothing, nothing, None, stream), first
        V = at.shared_rng("V").random((self.n_components, meta.n_features)).astype(meta.dtype)
        return Server(V, far, half, nothing, nothing), Factor(V)

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Local:
        """Draw U, and a V of one's own. Uniform factors give UV a mean of k/4, and the first steps would crush them."""
        total = np.float64(squared_norm(shard.X))
        if self.starts_wide(meta):
            return Local(None, None, total, None)
        U = as_like(self.first_scale(shard, total) * at.rng("U").random((shard.n_rows, self.n_components)), shard.X)
        own = None
        if self.init == "independent":
            own = as_like(at.rng("V").random((self.n_components, shard.n_features)), shard.X)
        return Local(U, U, total, own)

    def first_scale(self, shard: Shard, ones: float) -> float:
        """Return what U is multiplied by, so that UV has the mean of the client's cells."""
        cells = max(1, shard.n_rows * shard.n_features)
        return min(1.0, 4 * float(ones) / cells / self.n_components) if self.start != "uniform" else 1.0

    def client_step(
        self, shard: Shard, state: Local, down: Wide | Factor, at: Round
    ) -> tuple[Local, WideSums | Weighted]:
        """Alternate between U and V. The inertia of V starts again from what was received; that of U goes on."""
        X = shard.X
        U = state.U
        U_prev = state.U_prev
        total = float(state.total)
        V = as_like(down.V, X) if state.V is None or at.index > 0 else state.V
        if isinstance(down, Wide):
            return state, least_squares.wide_sums(X, V, state.total)
        if U is None or U_prev is None:
            # All clients solve the same V, so that components mean the same to each of them; a draw would not ensure
            # it.
            U = fit_rows(zeros((shard.n_rows, self.n_components), X), X, V, sweeps=least_squares.FIRST_STEPS)
            U = U_prev = array_namespace(U).clip(U, 0, 1)
        V_prev = V
        error = 0.0
        for s in range(self.local_steps):
            known = total if s == self.local_steps - 1 else None  # the error is sent once per round
            pull = self.pull(self._time(at.index, s))
            U, U_prev, V, V_prev, error = relaxed_steps(X, U, U_prev, V, V_prev, pull, known)
        if self.row_max == "one":
            U, U_prev, V = to_maximum_one(U, U_prev, V)
        weight = float(shard.n_rows if self.weights == "rows" else shard.n_rows > 0)
        up = Weighted(weight * V, np.float64(weight), np.float64(error), state.total)
        return Local(U, U_prev, state.total, None), up

    def _time(self, index: int, step: int) -> int:
        return index * self.local_steps + step if self.schedule == "steps" else index

    def accepts(self, down: Wide | Factor, meta: Meta) -> str:
        """Expect a V whose cells lie between 0 and 1."""
        return odd_factor(down.V, most=1.0)

    def server_step(self, state: Server, up: WideSums | Weighted, at: Round) -> tuple[Server, Wide | Factor]:
        """Average, then draw the average to {0, 1} with the next step's weights, not scaled: no gradient was taken."""
        if isinstance(up, WideSums):
            return self._widen(state, up)
        weight = float(up.weight)
        V = up.V / weight if weight > 0 else as_like(state.V, up.V)
        if self.server_prox:
            p = self.pull(self._time(at.index + 1, 0))
            V = elastic_prox(V, p.kappa, p.lam, gamma=p.gamma, eps=p.eps, printed=p.printed)
        moved = float(abs(V - as_like(state.V, V)).max())
        nothing = np.float64(np.nan)
        sse, total = (nothing if leaf is None else leaf for leaf in (up.sse, up.total))
        return Server(V, np.float64(moved), np.float64(integrality_gap(V)), sse, total), Factor(V)

    def _widen(self, state: Server, up: WideSums) -> tuple[Server, Wide | Factor]:
        """Take one step on the wide components; at their second sums, fold them into k."""
        if state.up is not None:
            V = self._folded(state, up)
            return replace(state, V=V, gap=np.float64(integrality_gap(V)), up=None), Factor(V)
        V = unit_rows(least_squares.wide_step(as_like(state.V, up.A), up, self.local_steps))
        return replace(state, V=V, up=up), Wide(V)

    def _folded(self, state: Server, up: WideSums) -> Array:
        """Fold wide components into k, on the scale of zeros and ones."""
        assert state.stream is not None
        V = least_squares.wide_step(as_like(state.V, up.A), up, self.local_steps)
        V = as_like(least_squares.fold(up, V, self.n_components, state.stream), up.A)
        return to_unit_level(V)

    def neutral(self, down: Wide | Factor) -> Weighted | None:
        """Send back what was received: clipping then bounds how far a client moves V, if all weigh the same."""
        moves = isinstance(down, Factor) and self.weights == "equal"
        return Weighted(down.V, np.float64(1.0)) if moves else None

    def converged(self, state: Server) -> bool:
        """Return whether V is Boolean and stands still."""
        return float(state.moved) < self.tol and float(state.gap) < BINARY_GAP

    def report(self, state: Server) -> dict[str, float]:
        """Return how far V is from Boolean, and the relative error of the clients' relaxed factors."""
        found = {"integrality_gap": float(state.gap)}
        if float(state.total) > 0:
            found["relative_error"] = float(np.sqrt(state.sse / state.total))
        return found

    def settle(self, state: Server, down: Wide | Factor) -> Factor:
        """Fold the result of a run of one round; warn when no cell of V will be rounded to one."""
        if isinstance(down, Wide):
            down = Factor(down.V if state.up is None else self._folded(state, state.up))
        if not bool((down.V > 0.5).any()):
            logger.warning(
                "%s ends with an empty V: with few rows at each client, or many ones in the data, its averages fall to "
                "zero. PooledBMF and BooleanVotes have no such averages.",
                type(self).__name__,
            )
        return down

    def finish(self, shard: Shard, state: Local, down: Factor) -> LocalFactors:
        """Round V; choose U for it, or round U as well."""
        V = round_half(as_like(down.V, shard.X))
        refit = self.refit == "boolean" or state.U is None
        return LocalFactors(boolean_refit(shard.X, V) if refit else round_half(state.U), V)

    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Choose components for new rows."""
        return boolean_refit(X, round_half(as_like(factors.V, X)))

    def score(self, shard: Shard, state: Local | LocalFactors, down: Factor) -> Score:
        """Count wrong cells, cells, and ones."""
        factors = state if isinstance(state, LocalFactors) else self.finish(shard, state, down)
        return boolean_score(shard.X, factors)


@declares_settings
class FELB(ProximalAveraging):
    r"""Federated Boolean factorization with an elastic-net regulariser around 0 and 1.

    .. math:: \min_{U_c \in \{0,1\},\, V \in \{0,1\}} \sum_c |X_c \oplus (U_c \circ V)|

    relaxed to :math:`\sum_c \tfrac12\|X_c - U_cV_c\|^2 + R_t(U_c) + R_t(V_c)` with

    .. math:: R_t(z) = \min\{\kappa|z| + \tfrac{\lambda_t}{2} z^2,\ \kappa|z-1| + \tfrac{\lambda_t}{2}(z-1)^2\}, \quad
              \lambda_t = \lambda \cdot \text{rate}^t.

    Clients take inertial proximal steps on both factors and send V; the server averages, applies the prox, and sends
    the result back. At the end V is rounded, and every client chooses its Boolean U for it.

    Notes
    -----
    The defaults are sound; ``FELB.paper(k)`` is Algorithm 1 as printed, which recovers planted tiles less often.
    Failures of the sound form are local optima (merged tiles): use restarts (``n_init`` of the estimator).

    Clients start from a common V, and solve U for it: averages of V mix components that do not mean the same to all
    clients. That V comes from two rounds of least squares with three times the components (`start`), so that components
    have learnt from the data before they are drawn to 0 and 1. :class:`~fedfactor.algorithms.PooledBMF` has nothing to
    average.

    Up and down per client and round: k m numbers (twice 3k(3k + m) up and 3k m down at a wide start). All uploads are
    sums, so that secure aggregation can hide single clients. Time per step: two products with X.

    References
    ----------
    .. [1] S. Dalleiger, J. Vreeken, M. Kamp, "Federated binary matrix factorization using proximal optimization",
       AAAI 2025. arXiv:2407.01776

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> X = np.kron(np.eye(2), np.ones((10, 4)))
    >>> run = fedfactor.run(FELB(2), {"a": X[::2], "b": X[1::2]}, rounds=60, seed=0)
    >>> bool(np.isin(run.V, (0, 1)).all()), float(run.score.sse)
    (True, 0.0)
    """

    def pull(self, t: int) -> Pull:
        """Return the pull towards {0, 1} in step t."""
        return pull_at(self, t)


@declares_settings
class FALB(ProximalAveraging):
    r"""FELB with a rate of its own for each cell: the closer to 0 or 1, the stronger the pull.

    λ is replaced by :math:`\lambda_t / (1 - e^{-\Gamma d})`, d the distance of the cell to the nearest of {0, 1}, not
    taken below ``eps`` (as printed it is infinite at 0, and negative below unless cells are first cut to [0, 1]).

    Notes
    -----
    All notes of :class:`FELB` apply.

    References
    ----------
    .. [1] S. Dalleiger, J. Vreeken, M. Kamp, "Federated binary matrix factorization using proximal optimization",
       AAAI 2025. arXiv:2407.01776

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> X = np.kron(np.eye(2), np.ones((10, 4)))
    >>> run = fedfactor.run(FALB(2), {"a": X[::2], "b": X[1::2]}, rounds=60, seed=0)
    >>> float(run.score.sse)
    0.0
    """

    gamma: float = setting("Γ of the adaptive rate.", default=10.0, above=0)
    eps: float = setting(
        "Smallest distance to 0 or 1 that enters the rate; 0, as printed: the rate is infinite at 0 and 1, and cells "
        "beyond them count as lying there.",
        default=1e-2,
        at_least=0,
        below=0.5,
    )

    @classmethod
    def paper(cls, n_components: int, **changes: Any) -> Self:
        """Return FALB as printed: FELB's Algorithm 1 with eq. 10 on the unit interval."""
        literal: dict[str, Any] = {**PAPER, "eps": 0.0, **changes}
        return cls(n_components, **literal)

    def pull(self, t: int) -> Pull:
        """Return the pull towards {0, 1} in step t."""
        return pull_at(self, t, self.gamma, self.eps)


def pull_at(a: Any, t: int, gamma: float = 0.0, eps: float = 1e-2) -> Pull:
    """Return the pull of an algorithm's settings in step t; λ stops growing before it overflows."""
    lam = min(a.lam * float(np.exp(min(t * np.log(a.rate), 60.0))), MOST) if a.lam else 0.0
    slow = lam / a.lam if a.step == "falling" and a.lam > 0 else 1.0
    bound: Any = "safe" if a.step == "falling" else a.step
    return Pull(a.kappa, lam, a.beta, gamma, eps, a.scale_prox, bound, a.norm, a.prox == "printed", slow)


def to_maximum_one(U: Array, U_prev: Array, V: Array) -> tuple[Array, Array, Array]:
    """Divide each row of V by its largest cell, and multiply the column of U by it: UV stays, both stay in [0, 1].

    Examples
    --------
    >>> import numpy as np
    >>> U = np.full((2, 2), 0.8)
    >>> to_maximum_one(U, U, np.array([[0.5, 0.25], [0.0, 0.0]]))[2]
    array([[1. , 0.5],
           [0. , 0. ]])
    """
    xp = array_namespace(V)
    most = xp.max(V, axis=1, keepdims=True)
    most = xp.where(most > FAINT, most, xp.ones_like(most))
    along = most[:, 0][None, :]
    return U * along, U_prev * along, V / most


def to_unit_level(V: Array) -> Array:
    """Divide each row by the mean of its cells, weighted by themselves, and cut at 1.

    Multiples of zeros and ones become these. Where cells differ, as in parts of images, the largest one alone would
    leave most of a component below ½.

    Examples
    --------
    >>> import numpy as np
    >>> to_unit_level(np.array([[0.0, 0.2, 0.2], [0.0, 1.0, 3.0]]))
    array([[0. , 1. , 1. ],
           [0. , 0.4, 1. ]])
    """
    xp = array_namespace(V)
    level = xp.sum(V * V, axis=1, keepdims=True) / xp.clip(xp.sum(V, axis=1, keepdims=True), FAINT**2, None)
    return xp.clip(V / xp.where(level > FAINT**2, level, xp.ones_like(level)), 0, 1)


def boolean_score(X: Array, factors: LocalFactors) -> Score:
    """Count wrong cells, cells, and ones: for zeros and ones that is the squared error, n, and ``‖X‖²``."""
    cells = count(X, factors.U, factors.V)
    return Score.of(cells.wrong, cells.n, cells.ones)
