"""NMF of one matrix on a two-dimensional grid of blocks: sums along the lines of the grid are all that travels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np

from fedfactor.core.algorithm import Algorithm, Layout, LocalFactors, Meta, Round, Scatter, Score, Uplink
from fedfactor.core.client_data import Shard
from fedfactor.core.download_validation import NOT_NEGATIVE, odd_numbers
from fedfactor.core.input_validation import check_rank
from fedfactor.core.parameters import declares_settings, setting
from fedfactor.core.pytree import Array, Tree, public, record
from fedfactor.core.wire import Leaf, Spec
from fedfactor.linalg.factors import reconstruction, refit_from, refit_rows
from fedfactor.linalg.nnls import squared_error
from fedfactor.linalg.products import as_like, cross, gram, gram_rows, squared_norm, sums
from fedfactor.nmf.distributed.distributed_nmf import one_step

CHUNK = 4096
"""Columns of the first V that are drawn together, so that it is the same on every grid and no node draws all of it."""


@record("grid_nmf.Start")
class Start:
    """Down, first: send the products of your block with V as you drew it."""

    nodes: Array = public()


@record("grid_nmf.RowSums")
class RowSums:
    """Up: ``X Vᵀ`` and ``V Vᵀ`` of one block, and the squared error and norm of its columns so far."""

    uplink: ClassVar[Uplink] = Uplink.GROUP

    Y: Array
    G: Array
    sse: Array
    total: Array


@record("grid_nmf.ColumnSums")
class ColumnSums:
    """Up: ``Uᵀ X`` and ``Uᵀ U`` of one block, and its squared norm."""

    uplink: ClassVar[Uplink] = Uplink.GROUP

    Z: Array
    H: Array
    total: Array


@record("grid_nmf.ForU")
class ForU:
    """Down: the sums over a row of the grid, and how many sums came before."""

    Y: Array
    G: Array
    t: Array = public()


@record("grid_nmf.ForV")
class ForV:
    """Down: the sums over a column of the grid, and how many sums came before."""

    Z: Array
    H: Array
    total: Array
    t: Array = public()


@record("grid_nmf.Local")
class Local:
    """Stays at the node: U of its rows, V of its columns, its norm, the error of its columns, and the sums it used."""

    U: Array
    V: Array
    own: Array
    sse: Array
    total: Array
    t: Array


@record("grid_nmf.Server")
class Server:
    """The error of the whole matrix, how often it hardly moved, and the number of sums."""

    sse: Array
    total: Array
    flat: Array
    t: Array


@declares_settings
class GridNMF(Algorithm):
    r"""NMF of one matrix that lies in blocks on a p × q grid of nodes, each cell at one node.

    .. math:: \min_{U \ge 0,\, V \ge 0} \tfrac12 \|X - U V\|^2

    Node (i, j) holds :math:`X_{ij}` and works on :math:`U_i` and :math:`V_j`. The sum of
    :math:`X_{ij} V_j^\top` and :math:`V_j V_j^\top` over a row of the grid is all that :math:`U_i` needs, the sum of
    :math:`U_i^\top X_{ij}` and :math:`U_i^\top U_i` over a column all that :math:`V_j` needs: no node has, or sends,
    the whole of either factor. The iterates are those of the same method on the whole matrix, whatever the grid. This
    is a method for the cluster of *one* organisation: nodes of a row work on the same rows.

    Notes
    -----
    One iteration is two rounds; the round after the last one fits U to the final V. A node sends
    ``k (n / p + m / q + 2 k) + 3`` numbers an iteration, where methods over rows send ``k (m + k)``; a sum over a
    single node is not sent. Clients of whole rows are a grid of one column.

    References
    ----------
    .. [1] R. Kannan, G. Ballard, H. Park, "MPI-FAUN: an MPI-based framework for alternating-updating nonnegative matrix
       factorization", IEEE TKDE 30 (2018). doi:10.1109/TKDE.2017.2767592

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> from fedfactor.core.grid import block_federation
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((60, 3)) @ rng.random((3, 40))
    >>> run = fedfactor.run(GridNMF(3), block_federation(X, (2, 3)), rounds=40, seed=0)
    >>> run.V.shape, run.factors["1-2"].V.shape, run.relative_error < 0.06
    ((3, 40), (3, 13), True)
    """

    n_components: int = setting("Rank k.", at_least=1)
    solver: Literal["hals", "mu", "bpp"] = setting(
        "A sweep of coordinate descent, a multiplicative update, or the exact solution by block principal pivoting "
        "(ANLS) for either factor in each iteration.",
        default="hals",
    )
    local_steps: int = setting(
        "Sweeps or updates of a factor between two sums. More of them need fewer sums, and no more traffic for each.",
        default=1,
        at_least=1,
    )
    tol: float = setting(
        "Converged when three iterations in a row lower the squared error by less than this share; 0 uses all rounds.",
        default=0.0,
        at_least=0,
    )

    default_rounds: ClassVar[int] = 201
    layout: ClassVar[Layout] = Layout.BLOCKS

    @property
    def against_noise(self) -> str:
        """Describe what noise would have to hide, and from which participant."""
        return "its nodes hold blocks of the same rows, so that there is nothing to hide. Take PooledNMF."

    def check(self, meta: Meta) -> None:
        """Refuse settings that cannot work."""
        check_rank(self.n_components, meta)

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """Sums along a line of the grid, up and down; lines differ in length."""
        k = self.n_components
        kind = meta.dtype
        sizes = [
            (b - a, d - c) for _, _, a, b, c, d in meta.blocks or ((0, 0, 0, meta.n_rows or 0, 0, meta.n_features),)
        ]
        n, m = (max(along) for along in zip(*sizes, strict=True))
        tall = Leaf(kind, (n, k), exact=False)
        wide = Leaf(kind, (k, m), exact=False)
        square = Leaf(kind, (k, k))
        number = Leaf(kind, ())
        counted = Leaf("int64", ())
        return {
            Start: {"nodes": counted},
            RowSums: {"Y": tall, "G": square, "sse": number, "total": number},
            ColumnSums: {"Z": wide, "H": square, "total": number},
            ForU: {"Y": tall, "G": square, "t": counted},
            ForV: {"Z": wide, "H": square, "total": number, "t": counted},
        }

    def groups(self, down: Tree, meta: Meta) -> Mapping[str, str]:
        """Sum for U along rows of the grid, for V along columns."""
        axis = int(isinstance(down, ForU))
        places = meta.blocks or [(i, 0) for i in range(meta.n_clients)]
        return {
            name: f"{('row', 'column')[axis]} {place[axis]}" for name, place in zip(meta.clients, places, strict=True)
        }

    def init_server(self, meta: Meta, at: Round) -> tuple[Server, Start]:
        """Ask for the first sums; the server never holds a factor."""
        nothing = np.float64(np.nan)
        return Server(nothing, nothing, np.int64(0), np.int64(0)), Start(np.int64(meta.n_clients))

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Local:
        """Draw the node's columns of V; U begins at nothing, or flat where steps multiply."""
        k = self.n_components
        X = shard.X
        first, last = (0, shard.n_features) if shard.place is None or shard.bounds is None else shard.bounds[2:]
        drawn = [at.shared_rng(f"V {c}").random((CHUNK, k)) for c in range(first // CHUNK, -(-last // CHUNK))]
        V = np.concatenate([np.zeros((0, k)), *drawn])[first % CHUNK :][: last - first].T
        U = np.full((shard.n_rows, k), float(self.solver == "mu"))
        norm = np.float64(squared_norm(X))
        nothing = np.float64(0)
        return Local(as_like(U, X), np.ascontiguousarray(as_like(V, X)), norm, nothing, nothing, np.int64(0))

    def client_step(self, shard: Shard, state: Local, down: Tree, at: Round) -> tuple[Local, Tree]:
        """Move one factor on the sums that came, then multiply the block with it for the other."""
        state = self._moved(state, down)
        X = shard.X
        if isinstance(down, ForU):
            return state, ColumnSums(sums(state.U, X), gram(state.U), as_like(state.own, X))
        return state, RowSums(cross(X, state.V), gram_rows(state.V), as_like(state.sse, X), as_like(state.total, X))

    def _moved(self, state: Local, down: Tree) -> Local:
        """Take the step that a download allows; one that came again was used before."""
        if isinstance(down, Start) or int(down.t) <= int(state.t):
            return state
        if isinstance(down, ForU):
            return replace(state, U=self._steps(state.U, down.G, down.Y), t=down.t)
        V = np.ascontiguousarray(self._steps(state.V.T, down.H, down.Z.T).T)
        sse = np.float64(squared_error(float(down.total), down.Z, down.H, V))
        return replace(state, V=V, sse=sse, total=np.float64(down.total), t=down.t)

    def _steps(self, W: Array, G: Array, B: Array) -> Array:
        for _ in range(self.local_steps):
            W = one_step(self.solver, W, G, B)
        return W

    def accepts(self, down: Start | ForU | ForV, meta: Meta) -> str:
        """Expect sums of products of what is not negative."""
        return odd_numbers(down, dict.fromkeys(("Y", "G", "Z", "H", "total", "t"), NOT_NEGATIVE))

    def server_step(self, state: Server, up: Mapping[str, Tree], at: Round) -> tuple[Server, Scatter]:
        """Hand every node the sum over its line; every line's sum for U has the error of the whole matrix in it."""
        t = state.t + 1
        first = next(iter(up.values()))
        if isinstance(first, ColumnSums):
            down = {name: ForV(each.Z, each.H, each.total, t) for name, each in up.items()}
            return replace(state, t=t), Scatter(down)
        before = float(state.sse)
        sse = float(first.sse)
        hardly = before - sse <= self.tol * before  # not so while nothing is known
        flat = state.flat + 1 if hardly else np.int64(0)
        known = t > 1  # before any step of V there is no error
        told = (np.float64(sse), np.float64(first.total)) if known else (state.sse, state.total)
        return Server(*told, flat, t), Scatter({name: ForU(each.Y, each.G, t) for name, each in up.items()})

    def converged(self, state: Server) -> bool:
        """Return whether the last iterations brought next to nothing."""
        return self.tol > 0 and int(state.flat) >= 3

    def report(self, state: Server) -> dict[str, float]:
        """Return the relative error of both factors as they were before the last sums."""
        return {"relative_error": float(np.sqrt(state.sse / state.total))} if float(state.total) > 0 else {}

    def finish(self, shard: Shard, state: Local, down: Tree) -> LocalFactors:
        """Keep U of the node's rows, fitted to the final V where its sums are there, and V of the node's columns."""
        if isinstance(down, ForU):
            state = replace(state, U=refit_from(state.U, down.G, down.Y))
        else:
            state = self._moved(state, down)
        if shard.place is None or shard.bounds is None:
            return LocalFactors(state.U, state.V)
        rows, columns = (np.arange(*along, dtype=np.int64) for along in (shard.bounds[:2], shard.bounds[2:]))
        return LocalFactors(state.U, state.V, columns, rows=rows)

    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Solve U for new rows, on the columns of the factors."""
        known = X if factors.columns is None or factors.V.shape[1] == X.shape[1] else X[:, factors.columns]
        return refit_rows(None, known, as_like(factors.V, X), mask)

    def score(self, shard: Shard, state: Local | LocalFactors, down: Tree) -> Score:
        """Measure the error over the cells of the block."""
        factors = state if isinstance(state, LocalFactors) else self.finish(shard, state, down)
        return Score.of(*reconstruction(shard.X, factors.U, factors.V))
