"""Federated averaging of NMF, with or without a term that holds clients near the average: FedProxNMF, FedAvgNMF."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np

from fedfactor.core.algorithm import Meta, Round, Uplink
from fedfactor.core.client_data import Shard
from fedfactor.core.parameters import declares_settings, setting
from fedfactor.core.pytree import Array, public, record, telemetry
from fedfactor.core.wire import Leaf, Spec
from fedfactor.linalg.alignment.drift import agreement
from fedfactor.linalg.factors import RowNorm, odd_factor, rescale
from fedfactor.linalg.products import as_like, squared_norm, total
from fedfactor.nmf.local_nmf import Solver, alternate
from fedfactor.nmf.refit import RefitRows

PATIENCE = 3
"""Rounds in a row in which V hardly moves before the run counts as converged."""


@record("fedprox_nmf.Factor")
class Factor:
    """Down: the averaged factor."""

    V: Array


@record("fedprox_nmf.Weighted")
class Weighted:
    """Up: its factor times its weight, the weight, and the error of the factor that it received."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    V: Array
    weight: Array = public()
    sse: Array | None = telemetry(default=None)
    total: Array | None = telemetry(default=None)
    agreement: Array | None = telemetry(default=None)


@record("fedprox_nmf.Local")
class Local:
    """Stays home: U, the first V, ``‖X‖²``, and whether the client has worked at all."""

    U: Array
    V: Array | None
    total: Array


@record("fedprox_nmf.Server")
class Server:
    """The average, how long it has stood still, and figures of the round."""

    V: Array
    flat: Array
    sse: Array
    total: Array
    agreement: Array


class Hold(NamedTuple):
    """What FedProx adds to federated averaging; the defaults add nothing."""

    mu: float = 0.0
    relative: bool = False
    pull_from: int = 1
    inertia: float = 0.0
    start: str = "common"
    row_norm: RowNorm = "free"
    diagnostics: bool = False


class Averaging(RefitRows):
    """Clients factor their own rows for a while, and the server averages V: all that both methods do."""

    __slots__ = ()

    n_components: int
    local_steps: int
    local_solver: Solver
    weights: Literal["rows", "equal"]
    tol: float

    default_rounds: ClassVar[int] = 50
    handles_tensors: ClassVar[bool] = True

    @property
    def hold(self) -> Hold:
        """What is added to plain averaging."""
        return Hold()

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """One factor down, one weighted factor up."""
        wide = Leaf(meta.dtype, (self.n_components, meta.n_features))
        number = Leaf("float64", ())
        watched = {"agreement": Leaf(meta.dtype, (3,))} if self.hold.diagnostics else {}
        return {Factor: {"V": wide}, Weighted: {"V": wide, "weight": number, "sse": number, "total": number, **watched}}

    def init_server(self, meta: Meta, at: Round) -> tuple[Server, Factor]:
        """Draw the V that clients start from."""
        V = at.shared_rng("V").random((self.n_components, meta.n_features)).astype(meta.dtype)
        nothing = np.float64(np.nan)
        return Server(V, np.int64(0), nothing, nothing, np.full(3, np.nan, np.float32)), Factor(V)

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Local:
        """Draw U at the scale that lets U V have the mean of the data, V being uniform on [0, 1]."""
        k = self.n_components
        scale = 4 * total(shard.X) / max(1, shard.n_rows * shard.n_features) / k
        U = as_like(scale * at.rng("U").random((shard.n_rows, k)), shard.X)
        V = as_like(at.rng("V").random((k, shard.n_features)), shard.X) if self.hold.start == "own" else None
        return Local(U, V, np.float64(squared_norm(shard.X)))

    def client_step(self, shard: Shard, state: Local, down: Factor, at: Round) -> tuple[Local, Weighted]:
        """Alternate between U and V near the average."""
        X = shard.X
        average = as_like(down.V, shard.X)
        first = at.index == 0
        hold = self.hold
        U, V, sse = alternate(
            X,
            state.U,
            average if state.V is None or not first else state.V,
            steps=self.local_steps,
            solver=self.local_solver,
            inertia=hold.inertia,
            relative=hold.relative,
            mu=hold.mu if at.index >= hold.pull_from else 0.0,
            anchor=average,
            sq_norm=float(state.total),
        )
        U, V = rescale(U, V, hold.row_norm)
        weight = float(shard.n_rows) if self.weights == "rows" else 1.0
        watched: dict[str, Any] = {"sse": np.float64(sse), "total": state.total}
        if self.hold.diagnostics:
            watched["agreement"] = as_like(np.array(agreement(V, average)), X)
        return Local(U, None, state.total), Weighted(weight * V, np.float64(weight), **watched)

    def accepts(self, down: Factor, meta: Meta) -> str:
        """Expect a V without negative cells."""
        return odd_factor(down.V)

    def server_step(self, state: Server, up: Weighted, at: Round) -> tuple[Server, Factor]:
        """Average; with noise on the uploads cells may come out negative, which no client would take for a factor."""
        V = (up.V / float(up.weight)).clip(0)
        still = squared_norm(V - as_like(state.V, V)) <= self.tol**2 * squared_norm(V)
        nothing = np.float64(np.nan)
        sse, whole = (nothing if leaf is None else leaf for leaf in (up.sse, up.total))
        seen = np.full(3, np.nan, np.float32)
        if up.agreement is not None:
            seen = as_like(up.agreement, seen) / len(at.participants)
        return Server(V, state.flat + 1 if still else np.int64(0), sse, whole, seen), Factor(V)

    def neutral(self, down: Factor) -> Weighted | None:
        """Send back what was received: clipping then bounds how far a client moves V, if all weigh the same."""
        return Weighted(down.V, np.float64(1.0)) if self.weights == "equal" else None

    def converged(self, state: Server) -> bool:
        """Return whether the average stands still."""
        return self.tol > 0 and int(state.flat) >= PATIENCE

    def report(self, state: Server) -> dict[str, float]:
        """Return the relative error of the V that clients received, and the drift when it is watched."""
        found = {"relative_error": float(np.sqrt(state.sse / state.total))} if float(state.total) > 0 else {}
        names = ("drift", "plain_drift", "server_similarity")
        return found | {name: float(v) for name, v in zip(names, state.agreement, strict=True) if np.isfinite(v)}


@declares_settings
class FedProxNMF(Averaging):
    r"""Federated averaging of NMF with a proximal term at the clients.

    .. math:: \min_{U_c, V_c \ge 0} \tfrac12 \|X_c - U_c V_c\|^2 + \tfrac{\mu}{2} \|V_c - \bar V\|^2

    at each client, :math:`\bar V` being the average of all :math:`V_c`. The term holds components in place but does not
    see that clients may have the same ones in another order: compare :class:`~fedfactor.algorithms.FNMF`. With ``mu=0``
    and the other defaults it is :class:`~fedfactor.algorithms.FedAvgNMF`, bit for bit: the same code.

    Notes
    -----
    Up and down per client and round: k m numbers, a sum.

    References
    ----------
    .. [1] T. Li et al., "Federated optimization in heterogeneous networks", MLSys 2020.

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> X = np.random.default_rng(0).random((30, 6))
    >>> fedfactor.run(FedProxNMF(2), {"a": X[:7], "b": X[7:]}, rounds=5, seed=0).V.shape
    (2, 6)
    """

    n_components: int = setting("Rank k.", at_least=1)
    mu: float = setting(
        "Weight of the proximal term, in the units of ``UᵀU``; 0 is federated averaging.", default=1.0, at_least=0
    )
    relative: bool = setting(
        "Take mu as a share of the mean squared norm of the columns of an owner's U, so that what it means does not "
        "depend on the scale of the data: with values in the hundreds ``mu=1`` alone is next to nothing.",
        default=False,
    )
    pull_from: int = setting(
        "First round with that term. In round 0 nothing has been averaged yet.",
        default=1,
        at_least=0,
        because="rounds are counted from 0",
    )
    local_steps: int = setting("Alternations between two exchanges.", default=10, at_least=1)
    local_solver: Solver = setting(
        "Coordinate descent, projected gradient steps, or multiplicative updates.",
        default="hals",
    )
    inertia: float = setting(
        "Share of the last move that is added before a gradient step (iPALM).", default=0.0, at_least=0, below=0.5
    )
    start: Literal["common", "own"] = setting(
        "All owners begin with the server's V, or each with its own.", default="common"
    )
    weights: Literal["rows", "equal"] = setting("Average owners by their number of rows, or all alike.", default="rows")
    row_norm: RowNorm = setting(
        "V is sent with rows of norm 1; with the norm of their column of U; or as it is.",
        default="free",
    )
    tol: float = setting(
        "The run has converged when V moves by less than this share of its norm in three rounds in a row; 0 uses all "
        "rounds.",
        default=1e-4,
        at_least=0,
    )
    diagnostics: bool = setting(
        "Report in each round how far owners have drifted from the average they received, with and without "
        "alignment, and how alike they are to it.",
        default=False,
    )

    @property
    def hold(self) -> Hold:
        """What is added to plain averaging."""
        return Hold(self.mu, self.relative, self.pull_from, self.inertia, self.start, self.row_norm, self.diagnostics)
