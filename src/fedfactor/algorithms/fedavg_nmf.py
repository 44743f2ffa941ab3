"""FedAvgNMF: every client factors its own rows for a while, and the server averages V."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from fedfactor.core.checks import check_rank
from fedfactor.core.federation import Shard
from fedfactor.core.protocol import Algorithm, LocalFactors, Meta, Round, Score, Uplink
from fedfactor.core.tree import Array, public, record, telemetry
from fedfactor.core.wire import Leaf, Spec
from fedfactor.kernels.factors import odd_factor, reconstruction, refit_rows
from fedfactor.kernels.nmf.steps import gradient_step, multiplicative_step, solve_rows, squared_error
from fedfactor.kernels.products import as_like, cross, gram, gram_rows, squared_norm, sums

PATIENCE = 3
"""Rounds in a row in which V hardly moves before the run counts as converged."""


@record
class Factor:
    """Down: the averaged factor."""

    V: Array


@record
class Weighted:
    """Up: a client's factor times its weight, the weight, and the error of the factor that the client received."""

    uplink: ClassVar[Uplink] = "sum"

    V: Array
    weight: Array = public()
    sse: Array | None = telemetry(default=None)
    total: Array | None = telemetry(default=None)


@record
class Local:
    """Stays home."""

    U: Array
    total: Array


@record
class Server:
    """The average, how far it moved, and the error it had."""

    V: Array
    flat: Array
    sse: Array
    total: Array


@dataclass(frozen=True, slots=True)
class FedAvgNMF(Algorithm):
    r"""Federated averaging of NMF: the baseline that most systems offer.

    Each client takes ``local_steps`` alternating steps on ``½‖X_c − U_c V_c‖²`` from the average it received and sends
    ``V_c``; the server averages. Clients with different rows drift apart, and components that mean different things are
    averaged with each other: compare :class:`~fedfactor.algorithms.PooledNMF`.

    Parameters
    ----------
    n_components : int
        Rank k.
    local_steps : int
        Alternations (one sweep over U, one over V) between two exchanges.
    local_solver : {"hals", "gradient", "multiplicative"}
        Coordinate descent, projected gradient, or multiplicative updates.
    weights : {"rows", "equal"}
        Average clients by their number of rows, as FedAvg does, or all alike.
    tol : float
        The run has converged when V moves by less than this share of its norm in three rounds in a row; 0 uses all
        rounds.

    Notes
    -----
    Up and down per client and round: k m numbers. The relative error reported for a round is that of the average which
    the clients received in it.

    References
    ----------
    .. [1] H. B. McMahan et al., "Communication-efficient learning of deep networks from decentralized data", AISTATS
       2017.

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> X = np.random.default_rng(0).random((30, 6))
    >>> fedfactor.run(FedAvgNMF(2), {"a": X[:7], "b": X[7:]}, rounds=5, seed=0).V.shape
    (2, 6)
    """

    n_components: int
    local_steps: int = 10
    local_solver: Literal["hals", "gradient", "multiplicative"] = "hals"
    weights: Literal["rows", "equal"] = "rows"
    tol: float = 1e-4

    default_rounds: ClassVar[int] = 50

    def check(self, meta: Meta) -> None:
        """Refuse settings that cannot work."""
        check_rank(self.n_components, meta)
        if self.local_steps < 1:
            raise ValueError(f"local_steps={self.local_steps} must be at least 1.")
        if self.local_solver not in _STEPS:
            raise ValueError(f"local_solver={self.local_solver!r} is not known. Use one of {', '.join(_STEPS)}.")
        if self.weights not in ("rows", "equal"):
            raise ValueError(f"weights={self.weights!r} is not known. Use 'rows' or 'equal'.")

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """One factor down, one weighted factor up."""
        wide, number = Leaf(meta.dtype, (self.n_components, meta.n_features)), Leaf("float64", ())
        return {Factor: {"V": wide}, Weighted: {"V": wide, "weight": number, "sse": number, "total": number}}

    def init_server(self, meta: Meta, at: Round) -> tuple[Server, Factor]:
        """Draw the V that all clients start from."""
        V = at.shared_rng("V").random((self.n_components, meta.n_features)).astype(meta.dtype)
        nothing = np.float64(np.nan)
        return Server(V, np.int64(0), nothing, nothing), Factor(V)

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Local:
        """Draw U at the scale that lets U V have the mean of the data, V being uniform on [0, 1]."""
        mean = float(shard.X.sum()) / max(1, shard.n_rows * shard.n_features)
        scale = 4 * mean / self.n_components
        U = as_like(scale * at.rng("U").random((shard.n_rows, self.n_components)), shard.X)
        return Local(U, np.float64(squared_norm(shard.X)))

    def client_step(self, shard: Shard, state: Local, down: Factor, at: Round) -> tuple[Local, Weighted]:
        """Alternate between U and V; what is learned of the received V on the way is its error."""
        step, X, U, V = _STEPS[self.local_solver], shard.X, state.U, as_like(down.V, shard.X)
        sse = 0.0
        for t in range(self.local_steps):
            U = step(U, gram_rows(V), cross(X, V))
            G, A = gram(U), sums(U, X)
            if t == 0:
                sse = squared_error(float(state.total), A, G, V)
            V = step(V.T, G, A.T).T
        weight = float(shard.n_rows) if self.weights == "rows" else 1.0
        return Local(U, state.total), Weighted(weight * V, np.float64(weight), np.float64(sse), state.total)

    def accepts(self, down: Factor, meta: Meta) -> str:
        """Expect a V without negative cells."""
        return odd_factor(down.V)

    def server_step(self, state: Server, up: Weighted, at: Round) -> tuple[Server, Factor]:
        """Average."""
        V = up.V / float(up.weight)
        old = as_like(state.V, V)
        still = squared_norm(V - old) <= self.tol**2 * squared_norm(V)
        nothing = np.float64(np.nan)
        sse, total = (nothing if leaf is None else leaf for leaf in (up.sse, up.total))
        return Server(V, state.flat + 1 if still else np.int64(0), sse, total), Factor(V)

    def neutral(self, down: Factor) -> Weighted | None:
        """Send back what was received: clipping then bounds how far a client moves V, if all weigh the same."""
        return Weighted(down.V, np.float64(1.0)) if self.weights == "equal" else None

    def converged(self, state: Server) -> bool:
        """Tell whether the average stands still."""
        return self.tol > 0 and int(state.flat) >= PATIENCE

    def report(self, state: Server) -> dict[str, float]:
        """Tell the relative error of the V that the clients received."""
        return {"relative_error": float(np.sqrt(state.sse / state.total))} if float(state.total) > 0 else {}

    def finish(self, shard: Shard, state: Local, down: Factor) -> LocalFactors:
        """Solve U for the final V."""
        V = as_like(down.V, shard.X)
        return LocalFactors(refit_rows(state.U, shard.X, V), V)

    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Solve U for new rows."""
        return refit_rows(None, X, as_like(factors.V, X), mask)

    def score(self, shard: Shard, state: Local | LocalFactors, down: Factor) -> Score:
        """Measure the error over all cells."""
        factors = state if isinstance(state, LocalFactors) else self.finish(shard, state, down)
        return Score.of(*reconstruction(shard.X, factors.U, factors.V, shard.mask))


_STEPS = {"hals": solve_rows, "gradient": gradient_step, "multiplicative": multiplicative_step}
