"""PooledNMF: the iterates of NMF on pooled rows, from sums alone."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from fedfactor.core.checks import check_rank
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.federation import Shard
from fedfactor.core.protocol import Algorithm, LocalFactors, Meta, Round, Score, Uplink, set_by_privacy
from fedfactor.core.tree import Array, record, telemetry, tree_map
from fedfactor.core.wire import Leaf, Spec
from fedfactor.kernels.clipping import ROW_CLIP, clipped_gradient, doubles, noisy_round, summation_error
from fedfactor.kernels.factors import extrapolate, fit_rows, reconstruction, refit_rows, row_norms, unit_rows
from fedfactor.kernels.majorise import masked_step
from fedfactor.kernels.masked import masked_sums, observed_squared_norm
from fedfactor.kernels.nmf import solve_rows, squared_error
from fedfactor.kernels.products import as_like, gram, squared_norm, sums

FIRST_STEPS = 20
"""Sweeps on U in its first round, when it starts from zero."""

PATIENCE = 3
"""Rounds in a row that must bring less than ``tol`` before the run counts as converged."""


@record
class Factor:
    """Down: the shared factor, rows of norm 1."""

    V: Array


@record
class Sums:
    """Up: all that the best V depends on, ``UᵀU`` and ``UᵀX``, and ``‖X‖²`` so that the server can tell the loss."""

    uplink: ClassVar[Uplink] = "sum"

    G: Array
    A: Array
    total: Array | None = telemetry(default=None)


@record
class MaskedSums:
    """Up, when cells are missing: ``UᵀU``, ``Uᵀ(M ∗ X)``, ``Uᵀ(M ∗ UV)``, squared error and norm of observed cells."""

    uplink: ClassVar[Uplink] = "sum"

    G: Array
    N: Array
    D: Array
    sse: Array | None = telemetry(default=None)
    total: Array | None = telemetry(default=None)


@record
class RowGradients:
    """Up, when each row's part is bounded: the sum over rows of the clipped gradients of V."""

    uplink: ClassVar[Uplink] = "sum"

    D: Array


Upload = Sums | MaskedSums | RowGradients


@record
class Local:
    """Stays home: U, ``‖X‖²`` over observed cells, and whether anybody in the federation has missing cells."""

    U: Array
    total: Array
    masked: Array


@record
class Server:
    """The server's memory: the last V, its momentum, the last sums, and what the loss was."""

    V: Array
    sent: Array
    up: Sums | MaskedSums | None
    cohort: Array
    n_clients: Array
    beta: Array
    beta_most: Array
    loss: Array
    total: Array
    flat: Array


@dataclass(frozen=True, slots=True)
class PooledNMF(Algorithm):
    r"""Non-negative factorization as if all rows lay in one place.

    .. math:: \min_{U_c \ge 0,\, V \ge 0} \sum_c \tfrac12 \|X_c - U_c V\|^2

    For a fixed V each client's :math:`U_c` is its own business; for fixed :math:`U_c` the best V depends on the data
    only through :math:`G = \sum_c U_c^\top U_c` and :math:`A = \sum_c U_c^\top X_c`. The server sees those sums, takes
    the coordinate-descent step on V that pooled data would take, and extrapolates; when the loss rises it drops the
    extrapolation. With missing cells the sums are those of a gradient, see
    :func:`~fedfactor.kernels.majorise.masked_step`.

    Parameters
    ----------
    n_components : int
        Rank k.
    local_steps : int
        Sweeps of coordinate descent over U in each round.
    server_steps : int
        Sweeps over V in each round.
    momentum : bool
        Extrapolate V, with restarts.
    tol : float
        The run has converged when three rounds in a row lower the loss by less than this share of it; 0 uses all
        rounds.
    row_clip : float, optional
        Public bound on the norm of a row. When given, clients send sums of row-wise clipped gradients instead, which
        noise can protect, and the server takes projected gradient steps of public length; set by
        :func:`fedfactor.dp` with ``unit="row"``, and of no privacy without its noise.
    row_count : float, optional
        Public (or privately estimated) number of rows of all clients, from which that step is taken.

    Notes
    -----
    Federated = pooled: U starts at zero, so every row of U is a function of its own row of X and of the V's so far, and
    any split of the same rows gives the same V up to rounding whenever every client takes part. When the participants
    change, the loss test is skipped, the extrapolation reset, and the sums blended with the last ones.

    Up per client and round: k(k + m) numbers (k(k + 2m) with missing cells); down: k m. Time per round: two products
    with X. The sums hide no row by themselves: a column with one non-zero cell shows that row's u.

    References
    ----------
    .. [1] A. M. S. Ang, N. Gillis, "Accelerating nonnegative matrix factorization algorithms using extrapolation",
       Neural Computation 31 (2019). doi:10.1162/neco_a_01157

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> X = np.random.default_rng(0).random((30, 6))
    >>> one = fedfactor.run(PooledNMF(2), {"a": X}, rounds=5, seed=0)
    >>> two = fedfactor.run(PooledNMF(2), {"a": X[:7], "b": X[7:]}, rounds=5, seed=0)
    >>> bool(np.allclose(one.V, two.V))
    True
    """

    n_components: int
    local_steps: int = 5
    server_steps: int = 10
    momentum: bool = True
    tol: float = 1e-4
    row_clip: float | None = set_by_privacy()
    row_count: float | None = set_by_privacy()

    handles_missing: ClassVar[bool] = True

    def check(self, meta: Meta) -> None:
        """Refuse a rank that the data cannot carry."""
        check_rank(self.n_components, meta)
        if self.local_steps < 1 or self.server_steps < 1:
            raise ValueError(f"local_steps={self.local_steps} and server_steps={self.server_steps} must be at least 1.")
        if self.row_clip is not None:
            _check_row_clip(self.row_clip, self.row_count, meta)

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """One download, and one upload that depends on whether cells are missing."""
        k, m, kind = self.n_components, meta.n_features, meta.dtype
        wide, square, number = Leaf(kind, (k, m)), Leaf(kind, (k, k)), Leaf("float64", ())
        if self.row_clip is not None:
            return {Factor: {"V": wide}, RowGradients: {"D": Leaf("float64", (k, m))}}
        if meta.masked:
            return {
                Factor: {"V": wide},
                MaskedSums: {"G": square, "N": wide, "D": wide, "sse": number, "total": number},
            }
        return {Factor: {"V": wide}, Sums: {"G": square, "A": wide, "total": number}}

    def init_server(self, meta: Meta, at: Round) -> tuple[Server, Factor]:
        """Draw V; its scale does not matter, because U starts from zero."""
        V = unit_rows(at.shared_rng("V").exponential(size=(self.n_components, meta.n_features))).astype(meta.dtype)
        server = Server(
            V=V,
            sent=V,
            up=None,
            cohort=np.uint64(0),
            n_clients=np.int64(meta.n_clients),
            beta=np.float64(0.5),
            beta_most=np.float64(1.0),
            loss=np.float64(np.inf),
            total=np.float64(np.nan),
            flat=np.int64(0),
        )
        return server, Factor(V)

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Local:
        """Start U at zero: anything random per client would break the equality with pooled rows."""
        total = squared_norm(shard.X) if shard.mask is None else observed_squared_norm(shard.X, shard.mask)
        U = as_like(np.zeros((shard.n_rows, self.n_components)), shard.X)
        return Local(U, total=np.float64(total), masked=np.bool_(meta.masked))

    def client_step(self, shard: Shard, state: Local, down: Factor, at: Round) -> tuple[Local, Upload]:
        """Sweep over U, then send what the best V depends on."""
        sweeps = max(self.local_steps, FIRST_STEPS) if at.index == 0 else self.local_steps
        if self.row_clip is not None:
            U, D = clipped_gradient(state.U, doubles(shard.X), down.V, bound=self.row_clip, sweeps=sweeps)
            return Local(U, state.total, state.masked), RowGradients(D)
        V = as_like(down.V, shard.X)
        U, total = fit_rows(state.U, shard.X, V, shard.mask, sweeps=sweeps), state.total
        G = gram(U)
        if shard.mask is not None:
            N, D, sse = masked_sums(U, shard.X, shard.mask, V)
            up = MaskedSums(G, N, D, np.float64(sse), total)
        elif bool(state.masked):  # this owner has every cell, another has not
            A = sums(U, shard.X)
            up = MaskedSums(G, A, G @ V, np.float64(squared_error(float(total), A, G, V)), total)
        else:
            up = Sums(G, sums(U, shard.X), total)
        return Local(U, total, state.masked), up

    def server_step(self, state: Server, up: Upload, at: Round) -> tuple[Server, Factor]:
        """Take the step on V that pooled rows would take, and extrapolate unless the loss rose."""
        if isinstance(up, RowGradients):
            return self._noisy_step(state, up, at)
        same = cohort(at.participants) == int(state.cohort)
        share = len(at.participants) / int(state.n_clients)
        pooled = stand_in(up, share, None if same else state.up)
        V, loss = self._descend(as_like(state.sent, up.G), up, pooled, share)
        before = float(state.loss) if same else np.inf
        pace = Pace(float(state.beta), float(state.beta_most), int(state.flat)).after(loss, before, self.tol)
        still = not (same and self.momentum and pace.good)
        sent = V if still else extrapolate(V, as_like(state.V, V), float(state.beta))
        norms = row_norms(sent)  # one scale for V and for what is sent, so that their difference keeps its meaning
        server = Server(
            V=V / norms,
            sent=sent / norms,
            up=pooled,
            cohort=np.uint64(cohort(at.participants)),
            n_clients=state.n_clients,
            beta=np.float64(pace.beta),
            beta_most=np.float64(pace.most),
            loss=np.float64(np.inf if loss is None else loss),
            total=np.float64(np.nan if up.total is None else up.total),
            flat=np.int64(pace.flat),
        )
        return server, Factor(server.sent)

    def _noisy_step(self, state: Server, up: RowGradients, at: Round) -> tuple[Server, Factor]:
        """Take a public step along summed gradients, and keep a running mean of the iterates to end with."""
        rows = float(self.row_count or 1) * len(at.participants) / int(state.n_clients)
        sent, mean = noisy_round(state.sent, state.V, up.D, index=at.index, rows=rows)
        return replace(state, V=mean, sent=sent), Factor(sent)

    def sensitivity(self, meta: Meta) -> tuple[str, float] | None:
        """Bound what one row can change in the sum of all uploads: the clip, and the rounding of the sum."""
        if self.row_clip is None:
            return None
        rounding = summation_error(2 * float(self.row_count or 1), self.n_components, meta.n_features)
        return "row", ROW_CLIP + rounding

    def _descend(
        self, V: Array, up: Sums | MaskedSums, pooled: Sums | MaskedSums, share: float
    ) -> tuple[Array, float | None]:
        """Improve V on the pooled sums; tell the loss of those who took part (a bound of it, if cells are missing)."""
        if isinstance(pooled, MaskedSums):
            V, gain = masked_step(V, pooled.G, pooled.N, pooled.D, sweeps=self.server_steps)
            return V, None if up.sse is None else max(float(up.sse) - 2 * share * gain, 0.0)
        V = solve_rows(V.T, pooled.G, pooled.A.T, sweeps=self.server_steps).T
        return V, None if up.total is None else squared_error(float(up.total), up.A, up.G, V)

    def settle(self, state: Server, down: Factor) -> Factor:
        """Take the V that was reached, not the bold guess beyond it that was to go out."""
        return Factor(unit_rows(state.V))

    def converged(self, state: Server) -> bool:
        """Tell whether the last rounds brought next to nothing."""
        return self.tol > 0 and int(state.flat) >= PATIENCE

    def report(self, state: Server) -> dict[str, float]:
        """Tell the relative error of those who took part, as far as the sums say it."""
        loss, total = float(state.loss), float(state.total)
        return {"relative_error": float(np.sqrt(loss / total))} if total > 0 and np.isfinite(loss) else {}

    def finish(self, shard: Shard, state: Local, down: Factor) -> LocalFactors:
        """Solve U for the final V."""
        V = as_like(down.V, shard.X)
        start = state.U if self.row_clip is None else None  # with a clip, U is in units of scaled rows
        return LocalFactors(refit_rows(start, shard.X, V, shard.mask), V)

    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Solve U for new rows."""
        return refit_rows(None, X, as_like(factors.V, X), mask)

    def score(self, shard: Shard, state: Local | LocalFactors, down: Factor) -> Score:
        """Measure the error over all observed cells."""
        factors = state if isinstance(state, LocalFactors) else self.finish(shard, state, down)
        return Score.of(*reconstruction(shard.X, factors.U, factors.V, shard.mask))


def _check_row_clip(bound: float, count: float | None, meta: Meta) -> None:
    if meta.masked:
        raise IncompatibleError(
            "row_clip bounds the gradient of whole rows, but some cells are missing. Fill them, or leave row_clip out."
        )
    if not 0 < bound < np.inf or count is None or not 0 < count < np.inf:
        raise ValueError(f"row_clip={bound} and row_count={count} must both be given, positive and finite.")


@dataclass(frozen=True, slots=True)
class Pace:
    """How boldly V is extrapolated, and for how many rounds the loss has hardly moved."""

    beta: float
    most: float
    flat: int
    good: bool = True

    def after(self, loss: float | None, before: float, tol: float) -> Pace:
        """Speed up while the loss falls; slow down, and take that pace for the most, when it rises (Ang and Gillis)."""
        if loss is None:
            return Pace(self.beta, self.most, 0, good=False)  # without a loss nothing would notice an overshoot
        if loss > before:
            return Pace(self.beta / 1.5, self.beta, 0, good=False)
        hardly = np.isfinite(before) and before - loss <= tol * before
        most = min(1.0, 1.05 * self.most)
        return Pace(min(most, 1.05 * self.beta), most, self.flat + 1 if hardly else 0)


def stand_in(up: Sums | MaskedSums, share: float, last: Sums | MaskedSums | None) -> Sums | MaskedSums:
    """Scale the sums of those who came to the whole federation; those who stayed away speak through the last sums."""
    if share == 1:
        return up
    if last is None:
        return tree_map(lambda now: now / share, up)
    return tree_map(lambda old, now: (1 - share) * old + now, last, up)


def cohort(participants: tuple[str, ...]) -> int:
    """Name a set of participants by a number."""
    return int.from_bytes(hashlib.sha256("\0".join(participants).encode()).digest()[:8], "little")
