"""Distributed NMF without sketches: multiplicative updates, HALS, and exact ANLS, over blocks of rows."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from fedfactor.core.algorithm import Meta, Round, Uplink
from fedfactor.core.client_data import Shard
from fedfactor.core.parameters import declares_settings, setting
from fedfactor.core.pytree import Array, is_numpy, record
from fedfactor.core.wire import Leaf, Spec
from fedfactor.linalg.block_pivoting import pivot_rows
from fedfactor.linalg.factors import odd_factor
from fedfactor.linalg.nnls import multiplicative_step, solve_rows, squared_error
from fedfactor.linalg.products import as_like, cross, gram, gram_rows, squared_norm, sums, total
from fedfactor.nmf.refit import RefitRows


@record("distributed_nmf.Factor")
class Factor:
    """Down: V."""

    V: Array


@record("distributed_nmf.Sums")
class Sums:
    """Up: ``UᵀU``, ``UᵀX`` and ``‖X‖²`` of the node's rows."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    G: Array
    A: Array
    total: Array


@record("distributed_nmf.Local")
class Local:
    """Stays at the node."""

    U: Array
    total: Array


@record("distributed_nmf.Server")
class Server:
    """V and its error, and how often it has hardly moved."""

    V: Array
    sse: Array
    total: Array
    flat: Array


def one_step(solver: str, W: Array, G: Array, B: Array) -> Array:
    """Take one step of a solver on ``½⟨W G, W⟩ − ⟨W, B⟩``: a sweep, a multiplicative update, or the exact solution.

    Examples
    --------
    >>> one_step("bpp", np.ones((1, 1)), np.eye(1), np.array([[3.0]]))
    array([[3.]])
    """
    if solver == "bpp":
        return pivot_rows(G, B, start=W)
    return solve_rows(W, G, B) if solver == "hals" else multiplicative_step(W, G, B)


@declares_settings
class DistributedNMF(RefitRows):
    r"""Distributed NMF of one matrix cut into blocks of rows: what sketched methods must be compared with.

    .. math:: \min_{U \ge 0,\, V \ge 0} \tfrac12 \|X - U V\|^2

    Nodes move their rows of U and send :math:`U_c^\top U_c` and :math:`U_c^\top X_c`; every node (or the server) moves
    V on the sums. :class:`~fedfactor.algorithms.PooledNMF` is this with several sweeps, extrapolation and restarts, and
    is what to use; this is the plain form of the published comparisons.

    Notes
    -----
    Up and down per node and round: k (m + k) and k m numbers, all-reduced on MPI. For a two-dimensional grid of blocks
    see :class:`~fedfactor.algorithms.GridNMF`.

    References
    ----------
    .. [1] R. Kannan, G. Ballard, H. Park, "MPI-FAUN: an MPI-based framework for alternating-updating nonnegative matrix
       factorization", IEEE TKDE 30 (2018). doi:10.1109/TKDE.2017.2767592

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> X = np.random.default_rng(0).random((30, 6))
    >>> fedfactor.run(DistributedNMF(2), {"a": X[:7], "b": X[7:]}, rounds=5, seed=0).V.shape
    (2, 6)
    """

    n_components: int = setting("Rank k.", at_least=1)
    solver: Literal["hals", "mu", "bpp"] = setting(
        "One sweep of coordinate descent, one multiplicative update, or the exact solution by block principal pivoting "
        "(ANLS) for either factor in each round.",
        default="hals",
    )
    tol: float = setting(
        "Converged when three rounds in a row lower the squared error by less than this share; 0 uses all rounds.",
        default=0.0,
        at_least=0,
    )

    default_rounds: ClassVar[int] = 100
    handles_tensors: ClassVar[bool] = True

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """V down, sums up."""
        k = self.n_components
        kind = meta.dtype
        wide = Leaf(kind, (k, meta.n_features))
        return {Factor: {"V": wide}, Sums: {"G": Leaf(kind, (k, k)), "A": wide, "total": Leaf(kind, ())}}

    def init_server(self, meta: Meta, at: Round) -> tuple[Server, Factor]:
        """Draw V."""
        V = at.shared_rng("V").random((self.n_components, meta.n_features)).astype(meta.dtype)
        nothing = np.float64(np.nan)
        return Server(V, nothing, nothing, np.int64(0)), Factor(V)

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Local:
        """Draw U at the scale that lets U V have the mean of the data."""
        k = self.n_components
        scale = 4 * total(shard.X) / max(1, shard.n_rows * shard.n_features) / k
        U = as_like(scale * at.rng("U").random((shard.n_rows, k)), shard.X)
        return Local(U, np.float64(squared_norm(shard.X)))

    def client_step(self, shard: Shard, state: Local, down: Factor, at: Round) -> tuple[Local, Sums]:
        """Move U, send the sums."""
        X = shard.X
        V = as_like(down.V, shard.X)
        U = one_step(self.solver, state.U, gram_rows(V), cross(X, V))
        return Local(U, state.total), Sums(gram(U), sums(U, X), as_like(state.total, X))

    def accepts(self, down: Factor, meta: Meta) -> str:
        """Expect a V without negative cells."""
        return odd_factor(down.V)

    def server_step(self, state: Server, up: Sums, at: Round) -> tuple[Server, Factor]:
        """Move V."""
        V = one_step(self.solver, as_like(state.V, up.A).T, up.G, up.A.T).T
        V = np.ascontiguousarray(V) if is_numpy(V) else V.contiguous()
        sse = squared_error(float(up.total), up.A, up.G, V)
        before = float(state.sse)
        hardly = np.isfinite(before) and before - sse <= self.tol * before
        flat = state.flat + 1 if hardly else np.int64(0)
        return Server(V, np.float64(sse), np.float64(up.total), flat), Factor(V)

    def converged(self, state: Server) -> bool:
        """Return whether the last rounds brought next to nothing."""
        return self.tol > 0 and int(state.flat) >= 3

    def report(self, state: Server) -> dict[str, float]:
        """Return the relative error of V with the U that the nodes have."""
        return {"relative_error": float(np.sqrt(state.sse / state.total))} if float(state.total) > 0 else {}
