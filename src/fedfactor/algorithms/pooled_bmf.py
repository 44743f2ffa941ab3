"""PooledBMF: the Boolean factorization that pooled rows would give, from sums alone."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from fedfactor.algorithms.felb import BINARY_GAP, boolean_score, check_pull, pull_at
from fedfactor.core.checks import check_rank
from fedfactor.core.federation import Shard
from fedfactor.core.protocol import Algorithm, Domain, LocalFactors, Meta, Round, Score, Uplink, set_by_privacy
from fedfactor.core.tree import Array, record, telemetry, tree_map
from fedfactor.core.wire import Leaf, Spec
from fedfactor.kernels.boolean.product import boolean_refit, hashed_rows, round_half
from fedfactor.kernels.boolean.prox import Pull, integrality_gap, prox_step
from fedfactor.kernels.clipping import ROW_CLIP, clipped_gradient, doubles, noisy_round, split_rows, summation_error
from fedfactor.kernels.factors import odd_factor, unit_rows
from fedfactor.kernels.nmf.steps import squared_error
from fedfactor.kernels.products import as_like, cross, gram, gram_rows, squared_norm, sums


@record
class Factor:
    """Down: the shared factor, in [0, 1]."""

    V: Array


@record
class Sums:
    """Up: all that the step on V depends on, ``UᵀU`` and ``UᵀX``, and ``‖X‖²`` so that the server can tell the loss."""

    uplink: ClassVar[Uplink] = "sum"

    G: Array
    A: Array
    total: Array | None = telemetry(default=None)


@record
class RowGradients:
    """Up, when each row's part is bounded: the sum over rows of the clipped gradients of V."""

    uplink: ClassVar[Uplink] = "sum"

    D: Array


@record
class Local:
    """Stays home: U now and one step ago, and ``‖X‖²``."""

    U: Array
    U_prev: Array
    total: Array


@record
class Server:
    """V now and one step ago, the last sums of the whole federation, and how the last round went."""

    V: Array
    V_prev: Array
    up: Sums | None
    n_clients: Array
    moved: Array
    gap: Array
    sse: Array
    total: Array


@dataclass(frozen=True, slots=True)
class PooledBMF(Algorithm):
    r"""Boolean factorization as if all rows lay in one place.

    The problem and the proximal steps are those of :class:`~fedfactor.algorithms.FELB`. But clients do not step on V:
    for fixed U the step depends on the data only through :math:`G = \sum_c U_c^\top U_c` and :math:`A = \sum_c
    U_c^\top X_c`, which add up, so that the server takes the steps on V that pooled rows would take. Nothing drifts
    apart, and tiles that only some clients hold are found.

    Parameters
    ----------
    n_components : int
        Number of components k.
    local_steps : int
        Steps on U in each round.
    server_steps : int
        Steps on V in each round.
    kappa, lam : float
        Weights κ and λ of the regulariser.
    rate : float
        Growth of λ in each step; t counts local steps.
    beta : float
        Inertia, below ½.
    gamma : float
        Above 0: the adaptive rate of :class:`~fedfactor.algorithms.FALB`.
    scale_prox, prox, step, norm, refit
        As in FELB.
    tol : float
        Converged when no cell of V moves by more than this and V is Boolean; 0 uses all rounds.
    row_clip, row_count : float, optional
        As in :class:`~fedfactor.algorithms.PooledNMF`, set by :func:`fedfactor.dp`: V is then found as a non-negative
        factor from clipped row gradients, and split into zeros and ones at the end.

    Notes
    -----
    Federated = pooled: U starts from a hash of each row, so every row of U is a function of its own row of X and of
    the V's so far, and any split of the same rows gives the same V up to rounding whenever every client takes part.
    (A constant start would do for that, but all components then begin alike and tiles merge more often.) Those who
    stay away speak through the last sums.

    Up per client and round: k(k + m) numbers; down: k m. Time per round: two products with X, whatever
    ``local_steps`` is. The sums hide no row by themselves: a column with one non-zero cell shows that row's u.

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> X = np.kron(np.eye(2), np.ones((10, 4)))
    >>> one = fedfactor.run(PooledBMF(2), {"a": X}, rounds=60, seed=0)
    >>> two = fedfactor.run(PooledBMF(2), {"a": X[:10], "b": X[10:]}, rounds=60, seed=0)
    >>> bool((one.V == two.V).all()), float(two.score.sse)
    (True, 0.0)
    """

    n_components: int
    local_steps: int = 10
    server_steps: int = 10
    kappa: float = 0.01
    lam: float = 0.01
    rate: float = 1.005
    beta: float = 0.01
    gamma: float = 0.0
    scale_prox: bool = True
    prox: Literal["exact", "printed"] = "exact"
    step: Literal["safe", "elbmf"] = "safe"
    norm: Literal["frobenius", "spectral"] = "frobenius"
    refit: Literal["boolean", "none"] = "boolean"
    tol: float = 1e-6
    row_clip: float | None = set_by_privacy()
    row_count: float | None = set_by_privacy()

    domain: ClassVar[Domain] = "binary"
    default_rounds: ClassVar[int] = 100
    pooled: ClassVar[bool] = True

    def check(self, meta: Meta) -> None:
        """Refuse settings that cannot work."""
        check_rank(self.n_components, meta)
        check_pull(self)
        if self.server_steps < 1:
            raise ValueError(f"server_steps={self.server_steps} must be at least 1.")
        if self.gamma < 0:
            raise ValueError(f"gamma={self.gamma} must not be negative; 0 is one rate for all cells.")

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """One factor down, the sums up."""
        k, m = self.n_components, meta.n_features
        wide, square = Leaf(meta.dtype, (k, m)), Leaf(meta.dtype, (k, k))
        if self.row_clip is not None:
            return {Factor: {"V": wide}, RowGradients: {"D": Leaf("float64", (k, m))}}
        return {Factor: {"V": wide}, Sums: {"G": square, "A": wide, "total": Leaf("float64", ())}}

    def init_server(self, meta: Meta, at: Round) -> tuple[Server, Factor]:
        """Draw V."""
        V = at.shared_rng("V").random((self.n_components, meta.n_features)).astype(meta.dtype)
        if self.row_clip is not None:
            V = unit_rows(V)
        nothing = np.float64(np.nan)
        half, far = np.float64(0.5), np.float64(np.inf)
        return Server(V, V, None, np.int64(meta.n_clients), far, half, nothing, nothing), Factor(V)

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Local:
        """Start each row of U at numbers that look random but depend on that row of X alone."""
        salt = at.shared_rng("salt").integers(0, 256, size=(self.n_components, shard.n_features))
        U = hashed_rows(shard.X, salt)
        return Local(U, U, np.float64(squared_norm(shard.X)))

    def _pull(self, index: int, step: int) -> Pull:
        return pull_at(self, index * self.local_steps + step, self.gamma)

    def client_step(self, shard: Shard, state: Local, down: Factor, at: Round) -> tuple[Local, Sums | RowGradients]:
        """Step on U with V fixed, then send what the steps on V depend on."""
        X, U, U_prev = shard.X, state.U, state.U_prev
        if self.row_clip is not None:
            start = np.zeros(U.shape) if at.index == 0 else U
            U, D = clipped_gradient(start, doubles(X), down.V, bound=self.row_clip, sweeps=self.local_steps)
            return Local(U, U, state.total), RowGradients(D)
        V = as_like(down.V, X)
        G, B = gram_rows(V), cross(X, V)
        for s in range(self.local_steps):
            U, U_prev = prox_step(U, U_prev, G, B, self._pull(at.index, s)), U
        return Local(U, U_prev, state.total), Sums(gram(U), sums(U, X), state.total)

    def accepts(self, down: Factor, meta: Meta) -> str:
        """Expect a V whose cells lie between 0 and 1."""
        return odd_factor(down.V, most=1.0)

    def server_step(self, state: Server, up: Sums | RowGradients, at: Round) -> tuple[Server, Factor]:
        """Step on V with the sums fixed."""
        if isinstance(up, RowGradients):
            rows = float(self.row_count or 1) * len(at.participants) / int(state.n_clients)
            sent, mean = noisy_round(state.V_prev, state.V, up.D, index=at.index, rows=rows)
            return replace(state, V=mean, V_prev=sent), Factor(sent)
        share = len(at.participants) / int(state.n_clients)
        pooled = stand_in(up, share, state.up)
        V, V_prev = as_like(state.V, up.A), as_like(state.V_prev, up.A)
        G, B, start = pooled.G, pooled.A.T, V
        for s in range(self.server_steps):
            V, V_prev = prox_step(V.T, V_prev.T, G, B, self._pull(at.index, s)).T, V
        sse = np.nan if up.total is None else squared_error(float(up.total), up.A, up.G, V)
        total = np.nan if up.total is None else float(up.total)
        server = Server(
            V=V,
            V_prev=V_prev,
            up=Sums(pooled.G, pooled.A),
            n_clients=state.n_clients,
            moved=np.float64(abs(V - start).max()),
            gap=np.float64(integrality_gap(V)),
            sse=np.float64(sse),
            total=np.float64(total),
        )
        return server, Factor(V)

    def settle(self, state: Server, down: Factor) -> Factor:
        """Split a V that noise has blurred into zeros and ones."""
        return down if self.row_clip is None else Factor(split_rows(state.V))

    def sensitivity(self, meta: Meta) -> tuple[str, float] | None:
        """Bound what one row can change in the sum of all uploads: the clip, and the rounding of the sum."""
        if self.row_clip is None:
            return None
        return "row", ROW_CLIP + summation_error(2 * float(self.row_count or 1), self.n_components, meta.n_features)

    def converged(self, state: Server) -> bool:
        """Tell whether V is Boolean and stands still."""
        return float(state.moved) < self.tol and float(state.gap) < BINARY_GAP

    def report(self, state: Server) -> dict[str, float]:
        """Tell how far V is from Boolean, and the relative error of the relaxed factors of those who took part."""
        found = {"integrality_gap": float(state.gap)}
        if float(state.total) > 0:
            found["relative_error"] = float(np.sqrt(state.sse / state.total))
        return found

    def finish(self, shard: Shard, state: Local, down: Factor) -> LocalFactors:
        """Round V; choose U for it, or round U as well."""
        V = round_half(as_like(down.V, shard.X))
        return LocalFactors(boolean_refit(shard.X, V) if self.refit == "boolean" else round_half(state.U), V)

    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Choose components for new rows."""
        return boolean_refit(X, round_half(as_like(factors.V, X)))

    def score(self, shard: Shard, state: Local | LocalFactors, down: Factor) -> Score:
        """Count wrong cells, cells, and ones."""
        factors = state if isinstance(state, LocalFactors) else self.finish(shard, state, down)
        return boolean_score(shard.X, factors)


def stand_in(up: Sums, share: float, last: Sums | None) -> Sums:
    """Scale the sums of those who came to the whole federation; those who stayed away speak through the last sums."""
    now = Sums(up.G, up.A)
    if share >= 1:
        return now
    if last is None:
        return tree_map(lambda part: part / share, now)
    return tree_map(lambda old, part: (1 - share) * old + part, last, now)
