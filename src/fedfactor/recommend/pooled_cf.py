"""PooledCF: the recommender that pooled ratings would give, by alternating least squares on sums alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from fedfactor.core.algorithm import Algorithm, Domain, LocalFactors, Meta, Round, Score, Uplink
from fedfactor.core.client_data import Shard
from fedfactor.core.download_validation import NOT_NEGATIVE, odd_columns, odd_numbers
from fedfactor.core.errors import DataError
from fedfactor.core.input_validation import check_rank
from fedfactor.core.parameters import declares_settings, set_by_run, setting
from fedfactor.core.pytree import Array, record, telemetry, to_numpy
from fedfactor.core.wire import Leaf, Spec
from fedfactor.linalg.factors import reconstruction
from fedfactor.linalg.products import stored_rows
from fedfactor.nmf.pooled.warm_start import Begin as WarmStart
from fedfactor.recommend.alternating_least_squares import half_size, item_sums, ridge_solve, solve_users
from fedfactor.recommend.holdout_cells import cells_aside, only_cells
from fedfactor.recommend.local_cnmf import bilinear
from fedfactor.recommend.rating_model import item_counts, observed, user_counts

START_SCALE = 0.1
"""Standard deviation of item factors at the start: small, so that the first step is one of biases."""
START_DAMPING = 5.0
"""Ratings at the mean that every item is given beside its own for its first bias."""
PATIENCE = 3
"""Exchanges in a row that must bring less than ``tol`` on the ratings held out."""
LAST = 2
"""Exchanges with all ratings after that."""
STRENGTHS = np.array([1.0, 0.5, 2.0])
"""What the regularisation is multiplied by where users try others than the one that holds; the first is that one."""
WORTH = 0.005
"""Share by which another strength must lower the error on the ratings held out before all go over to it."""
MOST_FACTOR = 1e4
"""Largest item factor at unit spread of the ratings that clients accept: huge ones would silence who rated the item."""
PAUSE = 2
"""Exchanges after such a change before the next: the items must have answered first."""


@record("pooled_cf.Begin")
class Begin:
    """Down: count your ratings; which share of them to hold out, and the key that chooses them."""

    aside: Array
    key: Array


@record("pooled_cf.Items")
class Items:
    """Down: the items' side of the model, with factors for some columns only; what to hold out, as before."""

    mu: Array
    scale: Array
    item: Array
    columns: Array
    V: Array
    strength: Array
    aside: Array
    key: Array


@record("pooled_cf.Levels")
class Levels:
    """Up, once: ratings and their squares summed; ratings counted and summed for each item."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    total: Array
    square: Array
    counts: Array
    levels: Array


@record("pooled_cf.Sums")
class Sums:
    """Up: what the items depend on.

    Half a Gram matrix and a right-hand side for each item with factors; numbers of ratings and what they are off by for
    the others; ``UᵀU`` (implicit feedback); the error on the cells held out.
    """

    uplink: ClassVar[Uplink] = Uplink.SUM

    items: Array
    others: Array | None = None
    G: Array | None = None
    aside_sse: Array | None = telemetry(default=None)
    aside_n: Array | None = telemetry(default=None)


@record("pooled_cf.Local")
class Local:
    """Stays home: nothing but the number of users; their side of the model follows from the items'."""

    n_rows: Array


@record("pooled_cf.Server")
class Server:
    """The server's memory."""

    mu: Array
    scale: Array
    item: Array
    columns: Array
    counts: Array
    V: Array
    key: Array
    strength: Array
    moved: Array
    turn: Array
    error: Array
    flat: Array
    steps: Array
    full: Array
    n_clients: Array


@declares_settings
class PooledCF(Algorithm):
    r"""Collaborative filtering as if all ratings lay in one place.

    .. math:: \min \sum_{ij \text{ rated}} (x_{ij} - \mu - b_i - c_j - u_i^\top v_j)^2
              + \sum_i \rho(n_i) \|u_i\|^2 + \sum_j \rho(n_j) \|v_j\|^2 + \beta (\|b\|^2 + \|c\|^2),
              \qquad \rho(n) = \lambda n + \lambda_0

    Users solve their own :math:`(u_i, b_i)` at home. The normal equations of an item are sums over the users who rated
    it, so the server needs only those sums to solve :math:`(v_j, c_j)` exactly. With ``feedback="implicit"`` every cell
    counts, :math:`\sum_{ij} w_{ij}(p_{ij} - u_i^\top v_j)^2`, with a wish of 1 where something is stored and of 0
    elsewhere, and there are no biases; :math:`U^\top U` accounts for the cells that are not stored.

    Notes
    -----
    Federated = pooled: a user's factors follow from its own ratings and the items' side alone, and which ratings are
    held out from the ratings themselves, so any split of the users gives the same V up to rounding. Implicit feedback
    holds nothing out and uses all iterations.

    Up: once 2m numbers, then per exchange (k + 1)(k + 4) / 2 numbers for each item; down (k + 1) m. Time: O(k²) per
    rating and k³ per user and item. The sums hide no user by themselves: an item that one user rated shows that
    user's factors and rating. ``privacy="secure-sum"`` keeps items of few users out.

    References
    ----------
    .. [1] Y. Zhou, D. Wilkinson, R. Schreiber, R. Pan, "Large-scale parallel collaborative filtering for the Netflix
       prize", AAIM 2008. doi:10.1007/978-3-540-68880-8_32
    .. [2] Y. Hu, Y. Koren, C. Volinsky, "Collaborative filtering for implicit feedback datasets", ICDM 2008.
       doi:10.1109/ICDM.2008.22

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> X = np.random.default_rng(0).integers(0, 6, (40, 12)).astype(float)
    >>> one = fedfactor.run(PooledCF(2), {"a": X}, seed=0)
    >>> two = fedfactor.run(PooledCF(2), {"a": X[:20], "b": X[20:]}, seed=0)
    >>> bool(np.allclose(one.V, two.V)), one.rounds <= 20
    (True, True)
    """

    n_components: int = setting("Rank k.", at_least=1)
    feedback: Literal["explicit", "implicit"] = setting(
        "Ratings, or signs of interest (clicks, plays, counts).", default="explicit"
    )
    ridge: float = setting(
        "λ: regularisation of factors for each rating that a user or an item has (implicit feedback: for each unit of "
        "weight). Ratings are brought to unit variance first, so that one value serves every scale.",
        default=0.05,
        at_least=0,
    )
    ridge_floor: float = setting(
        "λ₀: regularisation of factors whatever the number of ratings: few ratings then say little.",
        default=6.0,
        above=0,
    )
    bias_ridge: float = setting("β: regularisation of biases, in ratings at the mean.", default=3.0, above=0)
    weight: float = setting(
        "Implicit feedback: how much more a stored 1 weighs than a cell that is not stored.", default=3.0, above=0
    )
    counts: Literal["log", "binary", "raw"] = setting(
        "Implicit feedback: what a stored number r stands for: :math:`\\log_2(1 + r)`, 1, or r itself. Raw counts span "
        "orders of magnitude, and a few of them then outweigh everything else.",
        default="log",
    )
    iterations: int = setting("Exchanges at most before the last two.", default=17, at_least=1)
    validation: float = setting(
        "Share of the ratings that stays out of these exchanges, to judge by: when to stop, and whether λ and λ₀ "
        "should both be halved or doubled (users try either at home; one direction only). The last two exchanges use "
        "all ratings. 0 keeps none aside.",
        default=0.05,
        at_least=0,
        below=1,
    )
    tol: float = setting(
        "Go on to the last two exchanges when three in a row lower the error on the ratings held out by less than "
        "this share; 0 uses all iterations, and λ and λ₀ as they are.",
        default=2e-4,
        at_least=0,
    )
    min_ratings: int = setting(
        "Items with fewer ratings in all have a bias and no factors (implicit feedback: nothing): what travels for "
        "them is their number of ratings and a sum.",
        default=3,
        at_least=1,
    )

    begin: WarmStart | None = set_by_run("Items' factors of an earlier run to start at.", default=None)

    handles_missing: ClassVar[bool] = True
    pooled: ClassVar[bool] = True
    default_rounds: ClassVar[int] = 20

    @property
    def domain(self) -> Domain:  # type: ignore[override]
        """Ratings may be negative; signs of interest may not."""
        return Domain.REAL if self._explicit else Domain.NONNEGATIVE

    @property
    def _explicit(self) -> bool:
        return self.feedback == "explicit"

    @property
    def _aside(self) -> float:
        return self.validation if self._explicit else 0.0

    @property
    def _width(self) -> int:
        return self.n_components + 1 if self._explicit else self.n_components

    def check(self, meta: Meta) -> None:
        """Refuse settings that cannot work."""
        check_rank(self.n_components, meta)
        if self.begin is not None:
            self.begin.check(self, meta)

    def warm_started(self, V: Array) -> PooledCF:
        """Start at the items' factors of an earlier run: users are solved from them in the first exchange.

        Of a run with biases V has two further rows, which a run finds by itself.
        """
        return replace(self, begin=WarmStart(V[: self.n_components]))

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """Levels once, then sums; down always the items' side of the model."""
        k = self.n_components
        m = meta.n_features
        kind = meta.dtype
        t = self._width
        number = Leaf("float64", ())
        row = Leaf(kind, (m,))
        sums = {"items": Leaf(kind, (m, half_size(t) + t), exact=False)}
        if self._explicit:
            sums |= {
                "others": Leaf(kind, (m, 2), exact=False),
                "aside_sse": Leaf(kind, (len(STRENGTHS),)),
                "aside_n": number,
            }
        else:
            sums |= {"G": Leaf(kind, (k, k))}
        held = {"aside": number, "key": Leaf("int64", ())}
        columns = Leaf("int64", (m,), exact=False)
        wide = Leaf(kind, (k, m), exact=False)
        return {
            Begin: held,
            Levels: {"total": number, "square": number, "counts": row, "levels": row},
            Items: {"mu": number, "scale": number, "item": row, "columns": columns, "V": wide, "strength": number}
            | held,
            Sums: sums,
        }

    def init_server(self, meta: Meta, at: Round) -> tuple[Server, Begin]:
        """Draw V, and the key by which ratings are held out."""
        k = self.n_components
        m = meta.n_features
        kind = meta.dtype
        V = at.shared_rng("V").normal(0, START_SCALE, (k, m)) if self.begin is None else to_numpy(self.begin.V)
        V = V.astype(kind)
        key = np.int64(at.shared_rng("aside").integers(2**62))
        zero = np.float64(0)
        one = np.float64(1)
        none = np.int64(0)
        row = np.zeros(m, kind)
        server = Server(
            mu=zero,
            scale=one,
            item=row,
            columns=np.arange(m),
            counts=row,
            V=V,
            key=key,
            strength=one,
            moved=none,
            turn=zero,
            error=np.float64(np.inf),
            flat=none,
            steps=none,
            full=none,
            n_clients=np.int64(meta.n_clients),
        )
        return server, Begin(np.float64(self._aside), key)

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Local:
        """Keep nothing: users are solved again from what comes."""
        return Local(np.int64(shard.n_rows))

    def client_step(self, shard: Shard, state: Local, down: Any, at: Round) -> tuple[Local, Any]:
        """Solve the users, then add up what the items depend on."""
        R = observed(shard.X, shard.mask)
        held = cells_aside(R, float(down.aside), int(down.key))
        kept = only_cells(R, ~held) if held.any() else R
        if isinstance(down, Begin):
            return state, _levels(R, kept)
        if not self._explicit:
            extra, wished = self._wishes(R, down.columns)
            U = self._implicit_users(extra, wished, down.V)
            sums = item_sums(extra, wished, U)
            return state, Sums(sums.astype(R.dtype), None, (U.T @ U).astype(R.dtype))
        tried = self._users(kept, down, STRENGTHS if held.any() else STRENGTHS[:1])
        users = tried[0]
        # Item biases are solved again, so only the users' are taken off here.
        off = (kept.data - float(down.mu)) / float(down.scale) - np.repeat(users[:, -1], np.diff(kept.indptr))
        place = _places(down.columns, R.shape[1])
        wide = place[kept.indices] >= 0
        few = np.setdiff1d(np.arange(R.shape[1]), down.columns)
        others = np.stack(
            [
                np.bincount(kept.indices[~wide], minlength=R.shape[1]),
                np.bincount(kept.indices[~wide], off[~wide], R.shape[1]),
            ],
            axis=1,
        )[few]
        W = _ones(_narrow(kept, wide, place, len(down.columns)))
        sums = item_sums(W, off[wide], _with_ones(users[:, :-1]))
        rest = only_cells(R, held)
        sse = np.zeros(len(STRENGTHS), R.dtype)
        sse[: len(tried)] = [np.square(self._off(rest, down) - _fitted(rest, each, down)).sum() for each in tried]
        return state, Sums(sums.astype(R.dtype), others.astype(R.dtype), None, sse, np.float64(rest.nnz))

    def _off(self, R: Array, down: Items) -> np.ndarray:
        """Return what ratings exceed the mean and the item biases by, in units of their spread."""
        return (R.data - float(down.mu)) / float(down.scale) - np.asarray(down.item, np.float64)[R.indices]

    def _users(self, R: Array, down: Items, strengths: Array) -> np.ndarray:
        """Return, for each strength of the regularisation, the users' factors and, in the last column, their biases."""
        items = _with_ones(_spread(down.V, down.columns, R.shape[1]).T)
        ridge = np.stack([self._ridge(user_counts(R), each * float(down.strength)) for each in strengths])
        return solve_users(_ones(R), self._off(R, down), items, ridge)

    def _ridge(self, counts: Array, strength: float = 1.0) -> np.ndarray:
        """Return the regularisation of every factor, and of the bias behind them, for numbers of ratings."""
        counts = np.asarray(counts, np.float64)
        each = self.ridge if self._explicit else self.ridge * (1 + self.weight)
        rows = np.repeat((strength * (each * counts + self.ridge_floor))[:, None], self._width, axis=1)
        if self._explicit:
            rows[:, -1] = self.bias_ridge
        return rows

    def _wishes(self, R: Array, columns: Array | None = None) -> tuple[Any, np.ndarray]:
        """Return what stored cells of some columns weigh more than others, and their weights times the wish of 1."""
        if (R.data < 0).any():
            raise DataError("Signs of interest cannot be negative. For ratings use feedback='explicit'.")
        if columns is not None and len(columns) < R.shape[1]:
            place = _places(columns, R.shape[1])
            R = _narrow(R, place[R.indices] >= 0, place, len(columns))
        r = np.asarray(R.data, np.float64)
        units = {"log": lambda: np.log2(1 + r), "binary": lambda: np.ones_like(r), "raw": lambda: r}[self.counts]()
        extra = type(R)((self.weight * units, R.indices, R.indptr), shape=R.shape)
        return extra, 1 + extra.data

    def _implicit_users(self, extra: Any, wished: np.ndarray, V: Array) -> np.ndarray:
        items = np.asarray(V, np.float64).T
        return solve_users(extra, wished, items, self._ridge(user_counts(extra)), base=items.T @ items)

    def doubt(self, up: Any) -> str:
        """Find signs that no ratings can give; what is merely too large cannot be distinguished from a large client."""
        if isinstance(up, Levels):
            return "Numbers of ratings are negative." if (up.counts < 0).any() else ""
        diagonal = np.cumsum(np.concatenate([[0], np.arange(self._width, 1, -1)]))
        return "Sums of squares are negative." if (up.items[:, diagonal] < 0).any() else ""

    def accepts(self, down: Begin | Items, meta: Meta) -> str:
        """Expect columns in order with a factor each, the agreed share of hold-out ratings, and a strength above
        zero.
        """
        if float(down.aside) not in (0.0, self._aside):
            return "another share of ratings is to be held out than the agreed one"
        ranges = {"scale": NOT_NEGATIVE, "strength": (1e-12, 1e12), "V": (-MOST_FACTOR, MOST_FACTOR)}
        odd = odd_numbers(down, ranges)
        if odd or isinstance(down, Begin):
            return odd
        return odd_columns(down.columns, meta.n_features, (down.V, 1))

    def server_step(self, state: Server, up: Any, at: Round) -> tuple[Server, Items]:
        """Solve the items; those who stayed away are taken to wish for what there was."""
        if isinstance(up, Levels):
            state = self._levelled(state, up)
            return state, self._ask(state)
        share = len(at.participants) / int(state.n_clients)
        V, item = self._items(state, up)
        V = state.V + share * (V - state.V)
        item = state.item + share * (item - state.item)
        kind = state.V.dtype
        state = replace(state, V=V.astype(kind), item=item.astype(kind), steps=state.steps + 1)
        if int(state.full):
            state = replace(state, full=state.full + 1)
        else:
            state = self._judged(state, up, share)
            over = int(state.steps) >= self.iterations or (self.tol > 0 and int(state.flat) >= PATIENCE)
            state = replace(state, full=np.int64(over))
        return state, self._ask(state)

    def _judged(self, state: Server, up: Sums, share: float) -> Server:
        """Remember the error on the ratings held out, and for how long it has hardly fallen."""
        n = 0.0 if up.aside_n is None or up.aside_sse is None else float(up.aside_n)
        if n <= 0:
            return state
        errors = np.sqrt(np.maximum(np.asarray(up.aside_sse, np.float64), 0.0) / n)
        state = self._strength(state, errors, share)
        still = int(state.moved) == int(state.steps)
        hardly = np.isfinite(state.error) and float(state.error) - errors[0] <= self.tol * errors[0] and not still
        flat = np.int64(int(state.flat) + 1 if hardly and share == 1 else 0)
        return replace(state, error=np.float64(errors[0]), flat=flat)

    def _strength(self, state: Server, errors: np.ndarray, share: float) -> Server:
        """Go over to another strength of the regularisation where that pays, in one direction only."""
        best = int(errors.argmin())
        step = float(np.log2(STRENGTHS[best]))
        early = int(state.steps) - int(state.moved) < PAUSE
        if share < 1 or self.tol == 0 or early or step * float(state.turn) < 0:
            return state
        if errors[0] - errors[best] <= WORTH * errors[0]:
            return state
        strength = float(state.strength) * float(STRENGTHS[best])
        return replace(state, strength=np.float64(strength), moved=np.int64(state.steps), turn=np.float64(step))

    def _levelled(self, state: Server, up: Levels) -> Server:
        """Set mean and spread of the ratings, and first item biases; items without ratings have no factors."""
        counts = np.maximum(np.asarray(up.counts, np.float64), 0)
        columns = np.flatnonzero(counts >= self.min_ratings)
        state = replace(state, columns=columns, counts=up.counts[columns], V=state.V[:, columns])
        n = counts.sum()
        if not self._explicit or n <= 0:
            return state
        mu = float(up.total) / n
        spread = float(np.sqrt(max(float(up.square) / n - mu**2, 0.0)))
        scale = spread if spread > 0 else 1.0
        item = (np.asarray(up.levels, np.float64) - counts * mu) / scale / (counts + START_DAMPING)
        return replace(state, mu=np.float64(mu), scale=np.float64(scale), item=item.astype(state.item.dtype))

    def _items(self, state: Server, up: Sums) -> tuple[np.ndarray, np.ndarray]:
        """Solve the items' least squares; an item without contributions has factors and a bias of zero."""
        t = self._width
        halves = np.asarray(up.items, np.float64)[:, : half_size(t)]
        right = np.asarray(up.items, np.float64)[:, half_size(t) :]
        if self._explicit:
            found = ridge_solve(halves, right, self._ridge(np.maximum(halves[:, -1], 0), float(state.strength)))
            few = np.setdiff1d(np.arange(len(state.item)), state.columns)
            n, off = np.asarray(up.others, np.float64).T
            item = np.zeros(len(state.item))
            item[few], item[state.columns] = off / (np.maximum(n, 0) + self.bias_ridge), found[:, -1]
            return found[:, :-1].T, item
        base = np.asarray(up.G, np.float64)[np.triu_indices(t)]
        # The numbers of ratings, known from the first exchange, do not travel again.
        return ridge_solve(halves + base, right, self._ridge(state.counts)).T, state.item

    def _ask(self, state: Server) -> Items:
        aside = 0.0 if int(state.full) else self._aside
        return Items(
            state.mu, state.scale, state.item, state.columns, state.V, state.strength, np.float64(aside), state.key
        )

    def converged(self, state: Server) -> bool:
        """Return whether the last exchanges, with all ratings, are done."""
        return int(state.full) > LAST if self._aside > 0 else int(state.full) > 0

    def report(self, state: Server) -> dict[str, float]:
        """Return the root mean square error of the ratings held out."""
        fine = np.isfinite(state.error)
        found = {"held_out_rmse": float(state.error) * float(state.scale), "ridge_strength": float(state.strength)}
        return found if fine else {}

    def finish(self, shard: Shard, state: Local, down: Any) -> LocalFactors:
        """Solve the users once more, from all their ratings."""
        R = observed(shard.X, shard.mask)
        kind = R.dtype
        if isinstance(down, Begin):
            V = np.zeros((self.n_components, shard.n_features), kind)
            U = np.zeros((shard.n_rows, self.n_components), kind)
            return LocalFactors(*bilinear(U, V, U[:, 0], V[0], 0.0)) if self._explicit else LocalFactors(U, V)
        V = _spread(down.V, down.columns, shard.n_features).astype(kind)
        if not self._explicit:
            return LocalFactors(self._implicit_users(*self._wishes(R), V).astype(kind), V)
        # Both sides are stretched so that the settings themselves, at strength 1, fold in users that come later.
        stretch = float(down.strength) ** 0.5
        scale = float(down.scale)
        users = self._users(R, down, STRENGTHS[:1])[0] * scale
        level = np.asarray(down.item, np.float64) * scale
        U = (users[:, :-1] * stretch).astype(kind)
        V = (V / stretch).astype(kind)
        return LocalFactors(*bilinear(U, V, users[:, -1], level, float(down.mu)))

    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Solve factors and bias of new users for fixed items."""
        R = observed(X, mask)
        V = factors.V
        if not self._explicit:
            return self._implicit_users(*self._wishes(R), V).astype(V.dtype)
        # The items' factors are those of ratings at unit spread; the users' side carries the spread of the ratings.
        off = R.data - np.asarray(V[-1], np.float64)[R.indices]
        users = solve_users(_ones(R), off, _with_ones(V[:-2].T), self._ridge(user_counts(R)))
        return np.concatenate([users, np.ones((len(users), 1))], axis=1).astype(V.dtype)

    def score(self, shard: Shard, state: Local | LocalFactors, down: Any) -> Score:
        """Measure the error over the stored cells; in implicit feedback each of them wishes for 1."""
        factors = state if isinstance(state, LocalFactors) else self.finish(shard, state, down)
        R = observed(*shard.scored)
        if not self._explicit:
            R = type(R)((np.ones_like(R.data), R.indices, R.indptr), shape=R.shape)
        return Score.of(*reconstruction(R, factors.U, factors.V, "stored"))


def _levels(R: Array, kept: Array) -> Levels:
    """Sum what is kept; the mean of all ratings is that of these."""
    per_item = np.bincount(kept.indices, weights=kept.data, minlength=R.shape[1])
    square = np.square(kept.data, dtype=np.float64).sum()
    counts = item_counts(kept)
    return Levels(np.float64(per_item.sum()), np.float64(square), counts, per_item.astype(R.dtype))


def _places(columns: Array, m: int) -> np.ndarray:
    """Return where each of m columns stands in a list of some, −1 for the others."""
    place = np.full(m, -1, np.int64)
    place[np.asarray(columns)] = np.arange(len(columns))
    return place


def _narrow(R: Array, cells: np.ndarray, place: np.ndarray, width: int) -> Any:
    """Return some cells of a matrix, in columns of their own."""
    part = only_cells(R, cells)
    return type(R)((part.data, place[part.indices].astype(part.indices.dtype), part.indptr), shape=(R.shape[0], width))


def _spread(V: Array, columns: Array, m: int) -> np.ndarray:
    """Return factors of all m columns: zero for those that have none."""
    out = np.zeros((len(V), m))
    out[:, np.asarray(columns)] = V
    return out


def _ones(R: Array) -> Any:
    return type(R)((np.ones(R.nnz), R.indices, R.indptr), shape=R.shape)


def _with_ones(F: Array) -> np.ndarray:
    return np.concatenate([np.asarray(F, np.float64), np.ones((len(F), 1))], axis=1)


def _fitted(R: Array, users: np.ndarray, down: Items) -> np.ndarray:
    """Return bias and product of factors for the stored cells."""
    rows = stored_rows(R)
    V = _spread(down.V, down.columns, R.shape[1])
    return users[rows, -1] + np.einsum("pk,kp->p", users[rows, :-1], V[:, R.indices])
