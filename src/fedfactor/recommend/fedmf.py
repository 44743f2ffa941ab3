"""FedMF: federated matrix factorization with biases, by gradient descent."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from fedfactor.core.algorithm import Algorithm, LocalFactors, Meta, Round, Score, Uplink
from fedfactor.core.client_data import Shard
from fedfactor.core.download_validation import odd_numbers
from fedfactor.core.input_validation import check_rank
from fedfactor.core.parameters import declares_settings, setting
from fedfactor.core.pytree import Array, record, telemetry
from fedfactor.core.wire import Leaf, Spec
from fedfactor.linalg.factors import reconstruction
from fedfactor.linalg.products import cross, stored_rows, sums
from fedfactor.recommend.implicit_feedback import stored_residuals
from fedfactor.recommend.local_cnmf import bilinear
from fedfactor.recommend.rating_model import item_counts, observed, user_counts


@record("fedmf.Begin")
class Begin:
    """Down: count your ratings."""

    n_components: Array


@record("fedmf.Items")
class Items:
    """Down: mean rating, item biases and item factors."""

    mu: Array
    item: Array
    V: Array


@record("fedmf.Counts")
class Counts:
    """Up, once: ratings summed, and counted for each item."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    total: Array
    counts: Array


@record("fedmf.Gradient")
class Gradient:
    """Up: what moves item factors and item biases, summed over users, and the squared error."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    V: Array
    item: Array
    sse: Array | None = telemetry(default=None)


@record("fedmf.Local")
class Local:
    """Stays home: user factors and user biases."""

    U: Array
    user: Array


@record("fedmf.Server")
class Server:
    """The server's memory: the items' side of the model, its last moves, and the numbers of ratings."""

    mu: Array
    item: Array
    V: Array
    moved_item: Array
    moved_V: Array
    counts: Array
    sse: Array
    n_clients: Array


@declares_settings
class FedMF(Algorithm):
    r"""Matrix factorization by federated gradient descent: users keep their factors, item gradients are summed.

    .. math:: \min \sum_{ij \text{ rated}} (x_{ij} - \mu - b_i - c_j - u_i^\top v_j)^2
              + \lambda \sum_{ij \text{ rated}} (\|u_i\|^2 + \|v_j\|^2 + b_i^2 + c_j^2)

    Notes
    -----
    FedMF (with secure aggregation in place of its homomorphic encryption) and FedRec's batch form: gradients of an item
    are divided by its number of ratings, which travels once and inside a sum. Up: (k + 1) m numbers a round, down the
    same.

    References
    ----------
    .. [1] D. Chai, L. Wang, K. Chen, Q. Yang, "Secure federated matrix factorization", IEEE Intelligent Systems 36
       (2021). doi:10.1109/MIS.2020.3014880
    .. [2] G. Lin, F. Liang, W. Pan, Z. Ming, "FedRec: federated recommendation with explicit feedback", IEEE
       Intelligent Systems 36 (2021). doi:10.1109/MIS.2020.3017205

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> X = np.random.default_rng(0).integers(0, 6, (40, 12)).astype(float)
    >>> run = fedfactor.run(FedMF(2), {"a": X[:20], "b": X[20:]}, rounds=30, seed=0)
    >>> run.V.shape
    (4, 12)
    """

    n_components: int = setting("Rank k.", at_least=1)
    lam: float = setting("Regularisation, for each rating.", default=0.1, at_least=0)
    learning_rate: float = setting("Of user and item steps; gradients are means over ratings.", default=0.5, above=0)
    momentum: float = setting("Share of the last item step that is taken again.", default=0.5, at_least=0, below=1)
    local_steps: int = setting("Steps on user factors before item gradients are taken.", default=2, at_least=1)

    handles_missing: ClassVar[bool] = True
    default_rounds: ClassVar[int] = 101

    def check(self, meta: Meta) -> None:
        """Refuse settings that cannot work."""
        check_rank(self.n_components, meta)

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """Counts once, then gradients for the items' side of the model."""
        kind = meta.dtype
        number = Leaf("float64", ())
        row = Leaf(kind, (meta.n_features,))
        wide = Leaf(kind, (self.n_components, meta.n_features))
        return {
            Begin: {"n_components": Leaf("int64", ())},
            Counts: {"total": number, "counts": row},
            Items: {"mu": number, "item": row, "V": wide},
            Gradient: {"V": wide, "item": row, "sse": number},
        }

    def init_server(self, meta: Meta, at: Round) -> tuple[Server, Begin]:
        """Draw V."""
        m = meta.n_features
        kind = meta.dtype
        V = (0.1 * at.shared_rng("V").standard_normal((self.n_components, m))).astype(kind)
        row = np.zeros(m, kind)
        server = Server(np.float64(0), row, V, row, np.zeros_like(V), row, np.float64(np.nan), np.int64(meta.n_clients))
        return server, Begin(np.int64(self.n_components))

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Local:
        """Draw U."""
        U = (0.1 * at.rng("U").standard_normal((shard.n_rows, self.n_components))).astype(meta.dtype)
        return Local(U, np.zeros(shard.n_rows, meta.dtype))

    def client_step(self, shard: Shard, state: Local, down: Any, at: Round) -> tuple[Local, Any]:
        """Step on the users' side, then send the gradient of the items' side."""
        R = observed(shard.X, shard.mask)
        if isinstance(down, Begin):
            return state, Counts(np.float64(R.data.sum(dtype=np.float64)), item_counts(R).astype(state.U.dtype))
        V = np.asarray(down.V, state.U.dtype)
        item = np.asarray(down.item, state.U.dtype)
        mu = float(down.mu)
        U, user = self._users(R, state.U, state.user, V, item, mu, self.local_steps)
        off = stored_residuals(R, U, V, user, item, mu)
        per_item = np.bincount(R.indices, weights=off.data, minlength=R.shape[1]).astype(U.dtype)
        sse = np.float64(np.square(off.data, dtype=np.float64).sum())
        return Local(U, user), Gradient(sums(U, off), per_item, sse)

    def accepts(self, down: Begin | Items, meta: Meta) -> str:
        """Expect numbers, and the rank that was agreed on; item factors have any sign and size."""
        return odd_numbers(down, {"n_components": (self.n_components, self.n_components)})

    def server_step(self, state: Server, up: Any, at: Round) -> tuple[Server, Items]:
        """Move items by the mean of their gradients."""
        share = len(at.participants) / int(state.n_clients)
        if isinstance(up, Counts):
            n = float(up.counts.sum(dtype=np.float64))
            mu = np.float64(float(up.total) / n if n > 0 else 0.0)
            V = state.V * (up.counts > 0)
            server = replace(state, mu=mu, counts=up.counts / share, V=V)
            return server, Items(mu, server.item, V)
        per = np.maximum(state.counts, 1) * share
        known = state.counts > 0
        step_V = self.learning_rate * (up.V / per - self.lam * state.V) + self.momentum * state.moved_V
        step_item = self.learning_rate * (up.item / per - self.lam * state.item) + self.momentum * state.moved_item
        step_V, step_item = ((step * known).astype(state.V.dtype) for step in (step_V, step_item))
        sse = np.float64(np.nan if up.sse is None else up.sse / share)
        V = state.V + step_V
        item = state.item + step_item
        server = replace(state, V=V, item=item, moved_V=step_V, moved_item=step_item, sse=sse)
        return server, Items(state.mu, item, V)

    def report(self, state: Server) -> dict[str, float]:
        """Return the root mean square error of the ratings before the last step."""
        n = float(state.counts.sum(dtype=np.float64))
        return {"rmse": float(np.sqrt(state.sse / n))} if np.isfinite(state.sse) and n > 0 else {}

    def finish(self, shard: Shard, state: Local, down: Any) -> LocalFactors:
        """Step on the users' side for the final items."""
        R = observed(shard.X, shard.mask)
        kind = state.U.dtype
        if isinstance(down, Begin):
            down = Items(np.float64(0), np.zeros(R.shape[1]), np.zeros((self.n_components, R.shape[1])))
        V = np.asarray(down.V, kind)
        item = np.asarray(down.item, kind)
        mu = float(down.mu)
        U, user = self._users(R, state.U, state.user, V, item, mu, self.local_steps)
        return LocalFactors(*bilinear(U, V, user, item, mu))

    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Descend on U and the bias of new users for fixed items."""
        V = np.ascontiguousarray(factors.V[:-2])
        level = factors.V[-1]
        R = observed(X, mask).astype(V.dtype)
        U = np.zeros((R.shape[0], len(V)), V.dtype)
        user = np.zeros(R.shape[0], V.dtype)
        U, user = self._users(R, U, user, V, level, 0.0, 100)
        return bilinear(U, V, user, level, 0.0)[0]

    def score(self, shard: Shard, state: Local | LocalFactors, down: Any) -> Score:
        """Measure the error over the ratings."""
        factors = state if isinstance(state, LocalFactors) else self.finish(shard, state, down)
        return Score.of(*reconstruction(observed(shard.X, shard.mask), factors.U, factors.V, "stored"))

    def _users(self, R: Array, U: Array, user: Array, V: Array, item: Array, mu: float, steps: int) -> tuple[Any, Any]:
        """Descend on the users' side; a user's step is the mean over the user's ratings."""
        counts = np.maximum(user_counts(R), 1)
        rows = stored_rows(R)
        for _ in range(steps):
            off = stored_residuals(R, U, V, user, item, mu)
            per_user = np.bincount(rows, weights=off.data, minlength=R.shape[0])
            U = (U + self.learning_rate * (cross(off, V) / counts[:, None] - self.lam * U)).astype(V.dtype)
            user = (user + self.learning_rate * (per_user / counts - self.lam * user)).astype(V.dtype)
        return U, user
