"""PooledCNMF: non-negative factors of ratings with biases, as pooled ratings would give them, from sums alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from fedfactor.core.algorithm import LocalFactors, Meta, Round, Score, Uplink
from fedfactor.core.client_data import Shard
from fedfactor.core.download_validation import NOT_NEGATIVE, odd_numbers
from fedfactor.core.input_validation import check_rank
from fedfactor.core.parameters import declares_settings, setting
from fedfactor.core.pytree import Array, record, telemetry
from fedfactor.core.wire import Leaf, Spec
from fedfactor.linalg.factors import reconstruction
from fedfactor.recommend.implicit_feedback import confidence, implicit_step
from fedfactor.recommend.local_cnmf import bilinear, fold_bilinear, fold_users
from fedfactor.recommend.rating_model import (
    FLOOR,
    bias_step,
    factor_step,
    item_counts,
    move_item_biases,
    move_items,
    observed,
)
from fedfactor.recommend.rating_parameters import RatingParts

PATIENCE = 3
"""Iterations in a row that must bring less than ``tol`` before the run counts as converged."""


@record("pooled_cnmf.Begin")
class Begin:
    """Down: count your ratings."""

    n_components: Array


@record("pooled_cnmf.AskErrors")
class AskErrors:
    """Down: update the user biases, then send the residual sums of items."""

    mu: Array
    item: Array
    V: Array


@record("pooled_cnmf.AskSums")
class AskSums:
    """Down: update U, then send the sums that V depends on."""

    mu: Array
    item: Array
    V: Array


@record("pooled_cnmf.Counts")
class Counts:
    """Up, once: ratings summed, and counted for each item."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    total: Array
    counts: Array


@record("pooled_cnmf.Errors")
class Errors:
    """Up: what the ratings of each item are off by, summed."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    errors: Array


@record("pooled_cnmf.Sums")
class Sums:
    """Up: numerator and denominator of V; for implicit feedback also ``UᵀU``; the squared error."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    N: Array
    D: Array
    G: Array | None = None
    sse: Array | None = telemetry(default=None)


@record("pooled_cnmf.Local")
class Local:
    """Stays home: U and user biases."""

    U: Array
    user: Array


@record("pooled_cnmf.Server")
class Server:
    """The server's memory."""

    mu: Array
    item: Array
    V: Array
    counts: Array
    n: Array
    sse: Array
    flat: Array
    n_clients: Array


@declares_settings
class PooledCNMF(RatingParts):
    r"""Ratings as non-negative parts, as if all of them lay in one place.

    .. math:: \min_{U, V \ge 0} \sum_{ij \text{ rated}} (x_{ij} - \mu - b_i - c_j - U_i V_j)^2
              + \text{regularisation}

    The updates of item factors and item biases are ratios of sums over all users, so the server needs only those sums.
    With ``feedback="implicit"`` every cell counts, :math:`\sum_{ij} c_{ij}(p_{ij} - U_i V_j)^2`, with weight
    :math:`1 + w r` and wish 1 where something is stored, weight 1 and wish 0 elsewhere, and there are no biases.

    Notes
    -----
    Federated = pooled: U starts at one constant, so any split of the users gives the same V up to rounding when
    every client takes part. An iteration takes two exchanges (item biases, then V; implicit feedback: one); ``rounds``
    counts exchanges. Up: m, then 2km numbers; down: (k + 1) m twice. Item counts travel once, inside a sum. The sums
    hide no user by themselves: an item that one user rated shows that user's rating.

    Items without ratings have factors of zero: they are predicted by biases alone.

    References
    ----------
    .. [1] Y. Hu, Y. Koren, C. Volinsky, "Collaborative filtering for implicit feedback datasets", ICDM 2008.
       doi:10.1109/ICDM.2008.22

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> X = np.random.default_rng(0).integers(0, 6, (40, 12)).astype(float)
    >>> one = fedfactor.run(PooledCNMF(2), {"a": X}, rounds=21, seed=0)
    >>> two = fedfactor.run(PooledCNMF(2), {"a": X[:20], "b": X[20:]}, rounds=21, seed=0)
    >>> bool(np.allclose(one.V, two.V))
    True
    """

    feedback: Literal["explicit", "implicit"] = setting("Ratings, or signs of interest.", default="explicit")
    weight: float = setting("Of one unit of implicit feedback.", default=10.0, above=0)
    tol: float = setting(
        "Converged when three iterations in a row lower the squared error by less than this share; 0 uses all rounds.",
        default=0.0,
        at_least=0,
    )

    handles_missing: ClassVar[bool] = True
    pooled: ClassVar[bool] = True
    default_rounds: ClassVar[int] = 121

    @property
    def _explicit(self) -> bool:
        return self.feedback == "explicit"

    def check(self, meta: Meta) -> None:
        """Refuse a rank that the data cannot carry."""
        check_rank(self.n_components, meta)

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """Counts once, then sums; down always the whole model of the items."""
        k = self.n_components
        m = meta.n_features
        kind = meta.dtype
        number = Leaf("float64", ())
        row = Leaf(kind, (m,))
        wide = Leaf(kind, (k, m))
        model = {"mu": number, "item": row, "V": wide}
        sums = {"N": wide, "D": wide, "sse": number}
        found: dict[type, Spec] = {
            Begin: {"n_components": Leaf("int64", ())},
            Counts: {"total": number, "counts": row},
            AskSums: model,
        }
        if not self._explicit:
            return found | {Sums: sums | {"G": Leaf(kind, (k, k))}}
        return found | {Sums: sums, AskErrors: model, Errors: {"errors": row}}

    def init_server(self, meta: Meta, at: Round) -> tuple[Server, Begin]:
        """Draw V."""
        k = self.n_components
        m = meta.n_features
        kind = meta.dtype
        V = (self.start_scale * at.shared_rng("V").random((k, m))).astype(kind)
        empty = np.zeros(m, kind)
        server = Server(
            np.float64(0), empty, V, empty, np.float64(0), np.float64(np.inf), np.int64(0), np.int64(meta.n_clients)
        )
        return server, Begin(np.int64(k))

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Local:
        """Start all users alike: anything random per client would break the equality with pooled ratings."""
        U = np.full((shard.n_rows, self.n_components), self.start_scale / 2, meta.dtype)
        return Local(U, np.zeros(shard.n_rows, meta.dtype))

    def client_step(self, shard: Shard, state: Local, down: Any, at: Round) -> tuple[Local, Any]:
        """Take the users' part of the step that was asked for."""
        R = observed(shard.X, shard.mask)
        if isinstance(down, Begin):
            return state, Counts(np.float64(R.data.sum(dtype=np.float64)), item_counts(R).astype(state.U.dtype))
        V = np.asarray(down.V, state.U.dtype)
        item = np.asarray(down.item, state.U.dtype)
        if not self._explicit:
            U, N, D, loss = implicit_step(confidence(R, self.weight), state.U, V, alpha=self.alpha)
            return replace(state, U=U), Sums(N, D, U.T @ U, np.float64(loss))
        if isinstance(down, AskErrors):
            user, errors = bias_step(
                R, state.U, V, state.user, item, float(down.mu), eta=self.eta_user, decay=self.gamma
            )
            return replace(state, user=user), Errors(errors)
        U, N, D, sse = factor_step(
            R, state.U, V, state.user, item, float(down.mu), alpha=self.alpha, by_count=self.by_count
        )
        return replace(state, U=U), Sums(N, D, None, np.float64(sse))

    def doubt(self, up: Any) -> str:
        """Find signs that no ratings can give; what is merely too large cannot be distinguished from a large client."""
        parts = [up.N, up.D] if isinstance(up, Sums) else [up.counts] if isinstance(up, Counts) else []
        return "Sums over ratings and factors, all positive, are negative." if any((p < 0).any() for p in parts) else ""

    def accepts(self, down: Begin | AskErrors | AskSums, meta: Meta) -> str:
        """Expect a V without negative cells, and the rank that was agreed on."""
        return odd_numbers(down, {"V": NOT_NEGATIVE, "n_components": (self.n_components, self.n_components)})

    def server_step(self, state: Server, up: Any, at: Round) -> tuple[Server, Any]:
        """Take the items' part; those who stayed away are taken to be like those who came."""
        share = len(at.participants) / int(state.n_clients)
        if isinstance(up, Counts):
            n = float(up.counts.sum(dtype=np.float64))
            mu = float(up.total) / n if n > 0 and self._explicit else 0.0
            known = (up.counts > 0).astype(state.V.dtype)
            state = replace(
                state, mu=np.float64(mu), V=state.V * known, counts=up.counts / share, n=np.float64(n / share)
            )
            return state, self._ask(state, first=True)
        if isinstance(up, Errors):
            errors = up.errors / share
            item = move_item_biases(state.item, errors, state.counts, eta=self.eta_item, decay=self.delta)
            return (server := replace(state, item=item)), self._ask(server, first=False)
        sse = np.inf if up.sse is None else float(up.sse) / share
        hardly = np.isfinite(state.sse) and float(state.sse) - sse <= self.tol * sse
        V = self._items(state, up, share)
        flat = np.int64(int(state.flat) + 1 if hardly and share == 1 else 0)
        server = replace(state, V=V, sse=np.float64(sse), flat=flat)
        return server, self._ask(server, first=True)

    def _items(self, state: Server, up: Sums, share: float) -> np.ndarray:
        if self._explicit:
            return move_items(state.V, up.N / share, up.D / share, state.counts, beta=self.beta, by_count=self.by_count)
        bottom = up.G @ state.V + up.D + self.beta * share * state.V
        ratio = np.divide(up.N, bottom, out=np.zeros_like(bottom), where=bottom > 0)
        moved: np.ndarray = np.maximum(state.V * ratio, FLOOR)
        return np.where(state.counts > 0, moved, np.asarray(state.V)).astype(moved.dtype)

    def _ask(self, state: Server, *, first: bool) -> Any:
        kind = AskErrors if first and self._explicit else AskSums
        return kind(state.mu, state.item, state.V)

    def converged(self, state: Server) -> bool:
        """Return whether the last iterations brought next to nothing."""
        return self.tol > 0 and int(state.flat) >= PATIENCE

    def report(self, state: Server) -> dict[str, float]:
        """Return the root mean square error of the ratings, as far as the sums say it."""
        fine = np.isfinite(state.sse) and state.n > 0 and self._explicit
        return {"rmse": float(np.sqrt(max(float(state.sse), 0.0) / float(state.n)))} if fine else {}

    def finish(self, shard: Shard, state: Local, down: Any) -> LocalFactors:
        """Take one more step on U for the final V."""
        if isinstance(down, Begin):
            V = np.zeros((self.n_components, shard.n_features), state.U.dtype)
            return (
                LocalFactors(*bilinear(state.U, V, state.user, V[0], 0.0))
                if self._explicit
                else LocalFactors(state.U, V)
            )
        R = observed(shard.X, shard.mask)
        V = np.asarray(down.V, state.U.dtype)
        if not self._explicit:
            return LocalFactors(self._fold(R, V, state.U, 5), V)
        item = np.asarray(down.item, state.U.dtype)
        mu = float(down.mu)
        U, user = fold_users(R, V, item, mu, U=state.U, user=state.user, penalty=self.penalty, iterations=1)
        return LocalFactors(*bilinear(U, V, user, item, mu))

    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Solve U (and the bias) of new users for fixed item factors."""
        R = observed(X, mask)
        if self._explicit:
            return fold_bilinear(R, factors.V, self.penalty)
        return self._fold(R, factors.V, np.full((R.shape[0], len(factors.V)), 0.1, factors.V.dtype), 50)

    def _fold(self, R: Array, V: Array, U: Array, steps: int) -> np.ndarray:
        C = confidence(R.astype(V.dtype), self.weight)
        for _ in range(steps):
            U = implicit_step(C, U, V, alpha=self.alpha)[0]
        return U

    def score(self, shard: Shard, state: Local | LocalFactors, down: Any) -> Score:
        """Measure the error over the stored cells; in implicit feedback each of them wishes for 1."""
        factors = state if isinstance(state, LocalFactors) else self.finish(shard, state, down)
        R = observed(shard.X, shard.mask)
        if not self._explicit:
            R = type(R)((np.ones_like(R.data), R.indices, R.indptr), shape=R.shape)
        return Score.of(*reconstruction(R, factors.U, factors.V, "stored"))
