"""What any recommender has to beat: the most popular items, and levels of users and items, both from sums alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from fedfactor.core.algorithm import Algorithm, Domain, LocalFactors, Meta, Round, Score, Uplink
from fedfactor.core.client_data import Shard
from fedfactor.core.download_validation import odd_numbers
from fedfactor.core.parameters import declares_settings, set_by_privacy, setting
from fedfactor.core.pytree import Array, record
from fedfactor.core.wire import Leaf, Spec
from fedfactor.linalg.factors import reconstruction
from fedfactor.linalg.products import stored_rows
from fedfactor.recommend.item_weights import balanced_rows, units
from fedfactor.recommend.local_cnmf import bilinear
from fedfactor.recommend.rating_model import item_counts, observed, user_counts


@record("baselines.Ask")
class Ask:
    """Down: the first question."""

    nothing: Array


@record("baselines.Touched")
class Touched:
    """Up: users of each item, and users."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    users: Array
    rows: Array | None = None


@record("baselines.Shares")
class Shares:
    """Down: the share of users who touched each item."""

    share: Array


@record("baselines.Levels")
class Levels:
    """Down: the mean rating, and what each item lies above it."""

    mu: Array
    item: Array


@record("baselines.Sums")
class Sums:
    """Up: ratings of each item, and what they add up to, less mean and users' levels where these are known."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    counts: Array
    off: Array


@record("baselines.Local")
class Local:
    """Stays home: nothing but the number of users."""

    n_rows: Array


@record("baselines.PopularityServer")
class PopularityServer:
    """The server's memory."""

    done: Array


@record("baselines.BiasServer")
class BiasServer:
    """The server's memory."""

    mu: Array
    item: Array
    moved: Array
    spread: Array
    steps: Array
    n_clients: Array


@declares_settings
class Popularity(Algorithm):
    r"""The same list for every user: items by the number of users who touched them, over all clients.

    .. math:: \hat x_{ij} = \frac{1}{n} \sum_c |\{i \in c : x_{ij} \text{ is stored}\}|

    Notes
    -----
    Federated = pooled: counts add up. One exchange of m + 1 numbers. With :func:`fedfactor.dp` rows are shortened to a
    norm, so that users of many items count less in each, and the number of users is not asked for.

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> X = np.array([[1.0, 0, 1], [0, 0, 1], [0, 1, 1], [0, 0, 1]])
    >>> run = fedfactor.run(Popularity(), {"a": X[:2], "b": X[2:]}, seed=0)
    >>> run.V.tolist(), run.rounds
    ([[0.25, 0.25, 1.0]], 1)
    """

    min_users: int = setting(
        "Items that fewer users touched, over all owners, are left out, and never recommended.", default=1, at_least=1
    )
    row_clip: float | None = set_by_privacy(
        "Rows are shortened to this norm. ``min_users`` must then be 1: it looks at exact counts.", default=None
    )
    row_count: float | None = set_by_privacy("As in :class:`~fedfactor.algorithms.PooledNMF`.", default=None)

    handles_missing: ClassVar[bool] = True
    pooled: ClassVar[bool] = True
    default_rounds: ClassVar[int] = 1

    def check(self, meta: Meta) -> None:
        """Refuse settings that cannot work."""
        if self.row_clip is not None and self.min_users > 1:
            raise ValueError("min_users looks at exact counts, which noise does not protect. Set it to 1 with dp.")

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """Counts up, shares down."""
        row = Leaf(meta.dtype, (meta.n_features,))
        up: Spec = {"users": row} if self.row_clip is not None else {"users": row, "rows": Leaf("float64", ())}
        return {Ask: {"nothing": Leaf("int64", ())}, Touched: up, Shares: {"share": row}}

    def init_server(self, meta: Meta, at: Round) -> tuple[PopularityServer, Ask]:
        """Ask for counts."""
        return PopularityServer(np.int64(0)), Ask(np.int64(0))

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Local:
        """Keep nothing."""
        return Local(np.int64(shard.n_rows))

    def client_step(self, shard: Shard, state: Local, down: Any, at: Round) -> tuple[Local, Touched]:
        """Count."""
        R = observed(shard.X, shard.mask)
        if self.row_clip is None:
            return state, Touched(item_counts(R), np.float64(R.shape[0]))
        Z = balanced_rows(units(R, "binary"), 0.0, self.row_clip)
        return state, Touched(np.asarray(Z.sum(axis=0)).ravel().astype(R.dtype))

    def doubt(self, up: Touched) -> str:
        """Find impossible counts."""
        return "Numbers of users are negative." if self.row_clip is None and (up.users < 0).any() else ""

    def accepts(self, down: Ask | Shares, meta: Meta) -> str:
        """Expect shares; with noise on them they may lie outside of 0 to 1."""
        return odd_numbers(down, {"share": (0.0, 1.0)} if self.row_clip is None else None)

    def server_step(self, state: PopularityServer, up: Touched, at: Round) -> tuple[PopularityServer, Shares]:
        """Divide; those who stayed away are like those who came. Noise may leave an item below zero."""
        rows = float(self.row_count or 1) if up.rows is None else float(up.rows)
        users = np.asarray(up.users)
        kept = np.where(users > 0 if self.row_clip is not None else np.rint(users) >= self.min_users, users, 0)
        return replace(state, done=np.int64(1)), Shares((kept / max(rows, 1.0)).astype(users.dtype))

    def converged(self, state: PopularityServer) -> bool:
        """Return whether the counts are in."""
        return bool(int(state.done))

    def sensitivity(self, meta: Meta) -> tuple[str, float] | None:
        """Bound what one row adds to the sum: its norm."""
        return None if self.row_clip is None else ("row", float(self.row_clip))

    def finish(self, shard: Shard, state: Local, down: Any) -> LocalFactors:
        """Give every user the same list."""
        kind = observed(shard.X, shard.mask).dtype
        share = np.asarray(down.share, kind) if isinstance(down, Shares) else np.zeros(shard.n_features, kind)
        return LocalFactors(np.ones((shard.n_rows, 1), kind), share[None, :])

    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Give new users that list, too."""
        return np.ones((X.shape[0], 1), factors.V.dtype)

    def score(self, shard: Shard, state: Local | LocalFactors, down: Any) -> Score:
        """Measure the squared error over touched cells, each of which wishes for 1."""
        factors = state if isinstance(state, LocalFactors) else self.finish(shard, state, down)
        R = units(observed(*shard.scored), "binary")
        return Score.of(*reconstruction(R, factors.U, factors.V, "stored"))


@declares_settings
class Biases(Algorithm):
    r"""Ratings from a mean, a level of each user and a level of each item, as if all ratings lay in one place.

    .. math:: \min_{b, c} \sum_{ij \text{ rated}} (x_{ij} - \mu - b_i - c_j)^2 + \beta_u \|b\|^2 + \beta_v \|c\|^2

    Notes
    -----
    Federated = pooled: users solve their own level at home, and what items need are sums over users. Up: 2m numbers per
    exchange. A sum of one user's rating shows it: ``privacy="secure-sum"`` keeps items of few users out.

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> X = np.random.default_rng(0).integers(0, 6, (40, 12)).astype(float)
    >>> one = fedfactor.run(Biases(), {"a": X}, seed=0)
    >>> two = fedfactor.run(Biases(), {"a": X[:20], "b": X[20:]}, seed=0)
    >>> bool(np.allclose(one.V, two.V)), one.V.shape
    (True, (2, 12))
    """

    user_ridge: float = setting("β_u: regularisation of users' levels, in ratings.", default=5.0, above=0)
    item_ridge: float = setting("β_v: regularisation of items' levels, in ratings.", default=5.0, above=0)
    tol: float = setting(
        "Ends when no item's level moves by more than this share of the largest; 0 uses all rounds.",
        default=1e-3,
        at_least=0,
    )

    domain: ClassVar[Domain] = Domain.REAL
    handles_missing: ClassVar[bool] = True
    pooled: ClassVar[bool] = True
    default_rounds: ClassVar[int] = 20

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """Sums up, levels down."""
        row = Leaf(meta.dtype, (meta.n_features,))
        return {
            Ask: {"nothing": Leaf("int64", ())},
            Sums: {"counts": row, "off": row},
            Levels: {"mu": Leaf("float64", ()), "item": row},
        }

    def init_server(self, meta: Meta, at: Round) -> tuple[BiasServer, Ask]:
        """Ask for means."""
        none = np.int64(0)
        zero = np.float64(0)
        item = np.zeros(meta.n_features, meta.dtype)
        return BiasServer(zero, item, np.float64(np.inf), zero, none, np.int64(meta.n_clients)), Ask(none)

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Local:
        """Keep nothing: users are solved again from what comes."""
        return Local(np.int64(shard.n_rows))

    def client_step(self, shard: Shard, state: Local, down: Any, at: Round) -> tuple[Local, Sums]:
        """Solve the users, then add up what the items depend on."""
        R = observed(shard.X, shard.mask)
        off = np.asarray(R.data, np.float64)
        if isinstance(down, Levels):
            level = np.asarray(down.item, np.float64) + float(down.mu)
            off = off - float(down.mu) - np.repeat(self._users(R, level), np.diff(R.indptr))
        sums = np.bincount(R.indices, weights=off, minlength=R.shape[1])
        return state, Sums(item_counts(R), sums.astype(R.dtype))

    def _users(self, R: Any, level: np.ndarray) -> np.ndarray:
        """Solve users' levels for fixed items."""
        off = np.asarray(R.data, np.float64) - level[R.indices]
        rows = stored_rows(R)
        return np.bincount(rows, weights=off, minlength=R.shape[0]) / (user_counts(R) + self.user_ridge)

    def doubt(self, up: Sums) -> str:
        """Find impossible numbers of ratings."""
        return "Numbers of ratings are negative." if (up.counts < 0).any() else ""

    def accepts(self, down: Ask | Levels, meta: Meta) -> str:
        """Expect numbers; levels have any sign and size."""
        return odd_numbers(down)

    def server_step(self, state: BiasServer, up: Sums, at: Round) -> tuple[BiasServer, Levels]:
        """Solve the items; those who stayed away are taken to wish for what there was."""
        counts = np.maximum(np.asarray(up.counts, np.float64), 0)
        off = np.asarray(up.off, np.float64)
        mu = float(state.mu)
        share = len(at.participants) / int(state.n_clients)
        if int(state.steps) == 0:
            mu = float(off.sum() / max(counts.sum(), 1.0))
            share = 1.0
            off = off - counts * mu
        before = np.asarray(state.item, np.float64)
        item = before + share * (off / (counts + self.item_ridge) - before)
        moved = np.abs(item - before).max()
        spread = np.abs(item).max()
        item = item.astype(state.item.dtype)
        # A step of some clients does not inform about the others.
        moved = np.float64(moved if share == 1 and int(state.steps) else np.inf)
        state = replace(
            state, mu=np.float64(mu), item=item, moved=moved, spread=np.float64(spread), steps=state.steps + 1
        )
        return state, Levels(state.mu, item)

    def converged(self, state: BiasServer) -> bool:
        """Return whether the items stand still."""
        return self.tol > 0 and float(state.moved) <= self.tol * float(state.spread)

    def finish(self, shard: Shard, state: Local, down: Any) -> LocalFactors:
        """Solve the users once more."""
        R = observed(shard.X, shard.mask)
        m = shard.n_features
        kind = R.dtype
        known = isinstance(down, Levels)
        mu, item = (float(down.mu), np.asarray(down.item, np.float64)) if known else (0.0, np.zeros(m))
        none = np.zeros((R.shape[0], 0), kind), np.zeros((0, m), kind)
        user = self._users(R, item + mu) if known else np.zeros(R.shape[0])
        return LocalFactors(*bilinear(*none, user, item, mu))

    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Solve the levels of new users."""
        R = observed(X, mask)
        V = factors.V
        users = self._users(R, np.asarray(V[-1], np.float64))
        return np.stack([users, np.ones_like(users)], axis=1).astype(V.dtype)

    def score(self, shard: Shard, state: Local | LocalFactors, down: Any) -> Score:
        """Measure the squared error over the rated cells."""
        factors = state if isinstance(state, LocalFactors) else self.finish(shard, state, down)
        return Score.of(*reconstruction(observed(*shard.scored), factors.U, factors.V, "stored"))
