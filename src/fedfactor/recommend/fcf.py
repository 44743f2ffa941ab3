"""FCF: federated alternating least squares, with gradients of the item factors summed at the server."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from fedfactor.core.algorithm import Algorithm, LocalFactors, Meta, Round, Score, Uplink
from fedfactor.core.client_data import Shard
from fedfactor.core.download_validation import odd_numbers
from fedfactor.core.input_validation import check_rank
from fedfactor.core.parameters import declares_settings, setting
from fedfactor.core.pytree import Array, record, telemetry
from fedfactor.core.wire import Leaf, Spec
from fedfactor.linalg.factors import reconstruction
from fedfactor.linalg.products import sums
from fedfactor.recommend.implicit_feedback import confidence, implicit_gradient, ridge_rows, stored_residuals
from fedfactor.recommend.local_cnmf import bilinear
from fedfactor.recommend.rating_model import observed

BETAS = (0.9, 0.999)
"""How much of the mean gradient, and of its mean square, is kept from round to round (Adam)."""


@record("fcf.Begin")
class Begin:
    """Down: request the sums of ratings."""

    n_components: Array


@record("fcf.Items")
class Items:
    """Down: mean rating (0 for implicit feedback) and item factors."""

    mu: Array
    V: Array


@record("fcf.Level")
class Level:
    """Up, once: ratings summed and counted."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    total: Array
    n: Array


@record("fcf.Gradient")
class Gradient:
    """Up: half the negative gradient of the item factors, and the squared error of stored cells."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    F: Array
    sse: Array | None = telemetry(default=None)


@record("fcf.Local")
class Local:
    """Stays home: nothing but the number of users; U follows from V."""

    n_rows: Array


@record("fcf.Server")
class Server:
    """The server's memory: item factors, and the two moments of their gradient."""

    mu: Array
    V: Array
    mean: Array
    square: Array
    steps: Array
    sse: Array
    n: Array


@declares_settings
class FCF(Algorithm):
    r"""Federated collaborative filtering: users solve their own factors, gradients of item factors are summed.

    .. math:: \min \sum_{ij} c_{ij} (p_{ij} - u_i^\top v_j)^2 + \lambda (\|U\|^2 + \|V\|^2)

    Notes
    -----
    The iterative baseline that defines the field. Unlike the original the gradients of one client's users are added
    before they travel. Up and down: km numbers a round. Time: O(k²) per stored cell and k³ per user.

    References
    ----------
    .. [1] M. Ammad-ud-din et al., "Federated collaborative filtering for privacy-preserving personalized recommendation
       system" (2019). arXiv:1901.09888

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> X = np.random.default_rng(0).integers(0, 6, (40, 12)).astype(float)
    >>> run = fedfactor.run(FCF(2), {"a": X[:20], "b": X[20:]}, rounds=30, seed=0)
    >>> run.V.shape
    (4, 12)
    """

    n_components: int = setting("Rank k.", at_least=1)
    feedback: Literal["explicit", "implicit"] = setting(
        '``"explicit"``: only rated cells count, p is the rating less the mean. ``"implicit"``: every cell counts, '
        "p = 1 with weight :math:`1 + w r` where something is stored, else p = 0 with weight 1.",
        default="explicit",
    )
    weight: float = setting("Of one unit of implicit feedback.", default=10.0, above=0)
    lam: float = setting(
        "Regularisation; in explicit feedback of U, where a user's sum has few terms, as of V.", default=5.0, above=0
    )
    learning_rate: float = setting("Of the server's Adam steps.", default=0.05, above=0)

    handles_missing: ClassVar[bool] = True
    default_rounds: ClassVar[int] = 100

    @property
    def _explicit(self) -> bool:
        return self.feedback == "explicit"

    def check(self, meta: Meta) -> None:
        """Refuse settings that cannot work."""
        check_rank(self.n_components, meta)

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """One sum of gradients for one set of item factors."""
        number = Leaf("float64", ())
        wide = Leaf(meta.dtype, (self.n_components, meta.n_features))
        return {
            Begin: {"n_components": Leaf("int64", ())},
            Level: {"total": number, "n": number},
            Items: {"mu": number, "V": wide},
            Gradient: {"F": wide, "sse": number},
        }

    def init_server(self, meta: Meta, at: Round) -> tuple[Server, Begin]:
        """Draw V."""
        V = 0.1 * at.shared_rng("V").standard_normal((self.n_components, meta.n_features)).astype(meta.dtype)
        zero = np.float64(0)
        still = np.zeros_like(V)
        return Server(zero, V, still, still, np.int64(0), zero, zero), Begin(np.int64(self.n_components))

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Local:
        """Keep nothing."""
        return Local(np.int64(shard.n_rows))

    def client_step(self, shard: Shard, state: Local, down: Any, at: Round) -> tuple[Local, Any]:
        """Solve U, send the gradient of V."""
        R = observed(shard.X, shard.mask)
        if isinstance(down, Begin):
            return state, Level(np.float64(R.data.sum(dtype=np.float64)), np.float64(R.nnz))
        V = np.asarray(down.V, R.dtype)
        U = self._users(R, V, float(down.mu))
        if self._explicit:
            off = stored_residuals(R, U, V, mu=float(down.mu))
            F = sums(U, off)
            error = off.data
        else:
            C = confidence(R, self.weight)
            F = implicit_gradient(C, U, V)
            error = stored_residuals(_ones(R), U, V).data
        return state, Gradient(F, np.float64(np.square(error, dtype=np.float64).sum()))

    def accepts(self, down: Begin | Items, meta: Meta) -> str:
        """Expect numbers, and the rank that was agreed on; item factors have any sign and size."""
        return odd_numbers(down, {"n_components": (self.n_components, self.n_components)})

    def server_step(self, state: Server, up: Any, at: Round) -> tuple[Server, Items]:
        """Take one Adam step on V."""
        if isinstance(up, Level):
            mu = float(up.total) / float(up.n) if float(up.n) > 0 and self._explicit else 0.0
            state = replace(state, mu=np.float64(mu), n=np.float64(up.n))
            return state, Items(state.mu, state.V)
        slope = self.lam * state.V - up.F
        steps = int(state.steps) + 1
        mean = BETAS[0] * state.mean + (1 - BETAS[0]) * slope
        square = BETAS[1] * state.square + (1 - BETAS[1]) * slope * slope
        size = np.sqrt(square / (1 - BETAS[1] ** steps)) + 1e-8
        V = (state.V - self.learning_rate * mean / (1 - BETAS[0] ** steps) / size).astype(state.V.dtype)
        sse = np.float64(np.nan if up.sse is None else up.sse)
        kind = V.dtype
        server = replace(state, V=V, mean=mean.astype(kind), square=square.astype(kind), steps=np.int64(steps), sse=sse)
        return server, Items(state.mu, V)

    def report(self, state: Server) -> dict[str, float]:
        """Return the root mean square error of stored cells before the last step."""
        fine = int(state.steps) and np.isfinite(state.sse) and state.n > 0
        return {"rmse": float(np.sqrt(state.sse / state.n))} if fine else {}

    def finish(self, shard: Shard, state: Local, down: Any) -> LocalFactors:
        """Solve U for the final V."""
        R = observed(shard.X, shard.mask)
        if isinstance(down, Begin):
            down = Items(np.float64(0), np.zeros((self.n_components, shard.n_features), R.dtype))
        V = np.asarray(down.V, R.dtype)
        return self._factors(self._users(R, V, float(down.mu)), V, float(down.mu))

    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Solve U for new users."""
        R = observed(X, mask)
        V = factors.V
        if not self._explicit:
            return self._users(R.astype(V.dtype), V, 0.0)
        mu = float(V[-1].mean())
        V = V[:-2]
        return self._factors(self._users(R.astype(V.dtype), V, mu), V, mu).U

    def score(self, shard: Shard, state: Local | LocalFactors, down: Any) -> Score:
        """Measure the error over the stored cells; in implicit feedback each of them wishes for 1."""
        factors = state if isinstance(state, LocalFactors) else self.finish(shard, state, down)
        R = observed(shard.X, shard.mask)
        return Score.of(*reconstruction(R if self._explicit else _ones(R), factors.U, factors.V, "stored"))

    def _users(self, R: Array, V: Array, mu: float) -> np.ndarray:
        if not R.shape[0]:
            return np.zeros((0, len(V)), V.dtype)
        if self._explicit:
            wishes = type(R)((R.data - R.dtype.type(mu), R.indices, R.indptr), shape=R.shape)
            return ridge_rows(_ones(R), wishes, V, lam=self.lam)
        C = confidence(R, self.weight)
        extra = type(C)((C.data - 1, C.indices, C.indptr), shape=C.shape)
        return ridge_rows(extra, C, V, lam=self.lam, G=V @ V.T)

    def _factors(self, U: Array, V: Array, mu: float) -> LocalFactors:
        if not self._explicit:
            return LocalFactors(U, V)
        return LocalFactors(*bilinear(U, V, np.zeros(len(U)), np.zeros(V.shape[1]), mu))


def _ones(R: Array) -> Any:
    return type(R)((np.ones_like(R.data), R.indices, R.indptr), shape=R.shape)
