"""OneShotNMF: clients factor their own rows to the end, and the server combines the results once."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np

from fedfactor.core.algorithm import LocalFactors, Meta, Round, Uplink
from fedfactor.core.client_data import Shard
from fedfactor.core.parameters import declares_settings, setting
from fedfactor.core.pytree import Array, public, record
from fedfactor.core.wire import Leaf, Spec
from fedfactor.linalg.alignment.barycenter import Barycenter, barycenter
from fedfactor.linalg.factors import odd_factor, refit_rows
from fedfactor.linalg.products import as_like, squared_norm, total
from fedfactor.nmf.local_nmf import Solver, alternate
from fedfactor.nmf.refit import RefitRows


@record("one_shot_nmf.Factor")
class Factor:
    """Down: the first V, and after one round the combined one."""

    V: Array


@record("one_shot_nmf.Own")
class Own:
    """Up, for a barycenter: its factor and its weight."""

    uplink: ClassVar[Uplink] = Uplink.GATHER

    V: Array
    weight: Array


@record("one_shot_nmf.Weighted")
class Weighted:
    """Up, for a plain average: its factor times its weight, and the weight."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    V: Array
    weight: Array = public()


@record("one_shot_nmf.Local")
class Local:
    """Stays home."""

    U: Array
    V: Array
    total: Array


@record("one_shot_nmf.Server")
class Server:
    """The combined factor, and whether it has been combined yet."""

    V: Array
    done: Array


@declares_settings
class OneShotNMF(RefitRows):
    r"""Factor everywhere, combine once.

    Each client solves :math:`\min_{U_c, V_c \ge 0} \tfrac12\|X_c - U_c V_c\|^2` alone. The server then takes the mean
    of the :math:`V_c`, which mixes components that have nothing to do with each other, or their barycenter.

    Notes
    -----
    One exchange of k m numbers; further rounds are not used. With the mean and gradient or multiplicative clients these
    are the baselines "iPALM" and "MUR" of the paper.

    References
    ----------
    .. [1] S. Dalleiger, A. Gionis, "Creating coherence in federated non-negative matrix factorization", AAAI 2025.

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> X = np.random.default_rng(0).random((30, 6))
    >>> run = fedfactor.run(OneShotNMF(2), {"a": X[:7], "b": X[7:]}, seed=0)
    >>> run.V.shape, run.rounds
    ((2, 6), 1)
    """

    n_components: int = setting("Rank k.", at_least=1)
    combine: Barycenter | Literal["mean"] = setting(
        "A barycenter of the owners' V, see :func:`~fedfactor.linalg.alignment.barycenter.barycenter`, or their plain "
        "mean (a sum).",
        default="fixed_point",
    )
    alignment: Literal["lap", "sinkhorn", "knn"] = setting(
        "How components are aligned for the barycenter.",
        default="lap",
        because="one exchange has only common ones, FNMF takes the others",
    )
    local_steps: int = setting("Most alternations of an owner.", default=500, at_least=1)
    local_solver: Solver = setting(
        "Coordinate descent, projected gradient steps, or multiplicative updates.",
        default="hals",
    )
    local_tol: float = setting(
        "An owner stops when ten steps lower its loss by less than this share; 0 takes all steps.",
        default=1e-6,
        at_least=0,
    )
    start: Literal["own", "common"] = setting("Each owner draws its first V, or all take the server's.", default="own")
    weights: Literal["equal", "rows"] = setting("Owners count alike, or by their number of rows.", default="equal")

    default_rounds: ClassVar[int] = 1
    handles_tensors: ClassVar[bool] = True

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """One factor down, one factor up."""
        wide = Leaf(meta.dtype, (self.n_components, meta.n_features))
        number = Leaf("float64", ())
        return {Factor: {"V": wide}, Weighted if self.combine == "mean" else Own: {"V": wide, "weight": number}}

    def init_server(self, meta: Meta, at: Round) -> tuple[Server, Factor]:
        """Draw a V for those who want a common start."""
        V = at.shared_rng("V").random((self.n_components, meta.n_features)).astype(meta.dtype)
        return Server(V, np.bool_(False)), Factor(V)

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Local:
        """Draw U at the scale that lets U V have the mean of the data, V being uniform on [0, 1]."""
        k = self.n_components
        scale = 4 * total(shard.X) / max(1, shard.n_rows * shard.n_features) / k
        U = as_like(scale * at.rng("U").random((shard.n_rows, k)), shard.X)
        V = as_like(at.rng("V").random((k, shard.n_features)), shard.X)
        return Local(U, V, np.float64(squared_norm(shard.X)))

    def client_step(self, shard: Shard, state: Local, down: Factor, at: Round) -> tuple[Local, Own | Weighted]:
        """Factor one's own rows to the end."""
        X = shard.X
        U, V, _ = alternate(
            X,
            state.U,
            as_like(down.V, X) if self.start == "common" and at.index == 0 else state.V,
            steps=self.local_steps,
            solver=self.local_solver,
            sq_norm=float(state.total),
            tol=self.local_tol,
        )
        weight = float(shard.n_rows) if self.weights == "rows" else 1.0
        kept = Local(U, V, state.total)
        if self.combine == "mean":
            return kept, Weighted(weight * V, np.float64(weight))
        return kept, Own(V, np.float64(weight))

    def accepts(self, down: Factor, meta: Meta) -> str:
        """Expect a V without negative cells."""
        return odd_factor(down.V)

    def server_step(self, state: Server, up: Any, at: Round) -> tuple[Server, Factor]:
        """Combine."""
        if isinstance(up, Weighted):
            V = up.V / float(up.weight)
        else:
            ups = [up[name] for name in sorted(up)]
            weights = [float(one.weight) for one in ups]
            V = barycenter([one.V for one in ups], self.combine, self.alignment, weights=weights)[0]
        return Server(V, np.bool_(True)), Factor(V)

    def converged(self, state: Server) -> bool:
        """Return that there is one exchange only."""
        return bool(state.done)

    def finish(self, shard: Shard, state: Local, down: Factor) -> LocalFactors:
        """Solve U for the combined V, from zero: the client's own U belongs to other components."""
        V = as_like(down.V, shard.X)
        return LocalFactors(refit_rows(None, shard.X, V), V)
