"""PooledEASE: lists of items from what pooled users touched together, by one exchange of a Gram matrix."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from fedfactor.core.algorithm import Algorithm, LocalFactors, Meta, Round, Score, Uplink
from fedfactor.core.client_data import Shard
from fedfactor.core.download_validation import odd_columns, odd_numbers
from fedfactor.core.errors import DataError
from fedfactor.core.parameters import declares_settings, set_by_privacy, set_by_run, setting
from fedfactor.core.pytree import Array, record, to_numpy
from fedfactor.core.totals import Held
from fedfactor.core.wire import Leaf, Spec
from fedfactor.linalg.memoize import once
from fedfactor.recommend.alternating_least_squares import half_size
from fedfactor.recommend.holdout_cells import only_cells
from fedfactor.recommend.item_weights import (
    balanced_rows,
    chosen_ridge,
    common_pairs,
    gram_half,
    gram_pairs,
    item_weights,
    likely_pairs,
    pair_weights,
    pairs_within,
    units,
    unlikely_pairs,
)
from fedfactor.recommend.rating_model import observed

logger = logging.getLogger(__name__)

BLOCK = 256
"""Users whose scores of all items exist at one time."""

USUAL_RIDGE = 40.0
"""The regularization where none is chosen from the data."""

TENTH = 0.1
"""Share of the whole upload that ``low_rank="auto"`` sends."""


@record("pooled_ease.Count")
class Count:
    """Down: count the users of each item."""

    nothing: Array


@record("pooled_ease.AskGram")
class AskGram:
    """Down: which columns to take into the Gram matrix."""

    columns: Array


@record("pooled_ease.AskDiagonal")
class AskDiagonal:
    """Down: columns whose weight is wanted, the diagonal of the Gram matrix."""

    columns: Array


@record("pooled_ease.AskPairs")
class AskPairs:
    """Down: some columns, the order of their weight, and with how many of the first each is to be paired."""

    columns: Array
    order: Array
    depth: Array


@record("pooled_ease.Counts")
class Counts:
    """Up: users who touched each item, and users."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    users: Array
    rows: Array


@record("pooled_ease.Diagonal")
class Diagonal:
    """Up: the diagonal of ``XᵀX``."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    diagonal: Array


@record("pooled_ease.Gram")
class Gram:
    """Up: half of ``XᵀX`` and, where pairs of few users are to be found, half of how many users share two items.

    ``users``, ``rows``: users of each item, and in all, where these rows come to others or leave them.
    """

    uplink: ClassVar[Uplink] = Uplink.SUM

    half: Array
    pairs: Array | None = None
    users: Array | None = None
    rows: Array | None = None


@record("pooled_ease.Pairs")
class Pairs:
    """Up: some entries of ``XᵀX``."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    entries: Array


@record("pooled_ease.Weights")
class Weights:
    """Down: the columns with weights, and the weights, whole or as a product ``F B``, with the pairs behind them."""

    columns: Array
    B: Array
    F: Array | None = None
    order: Array | None = None
    depth: Array | None = None


@record("pooled_ease.Local")
class Local:
    """Stays home: nothing but the number of users."""

    n_rows: Array


@record("pooled_ease.Totals")
class Totals:
    """Sums over all rows, and the columns that they are of."""

    columns: Array
    sums: Gram


@record("pooled_ease.Server")
class Server:
    """The server's memory."""

    columns: Array
    counted: Array
    users: Array
    rows: Array
    diagonal: Array
    order: Array
    depth: Array
    ridge: Array
    done: Array
    totals: Totals | None = None


@record("pooled_ease.ItemFactors")
class ItemFactors(LocalFactors):
    """Rows U and weights V; of the low-rank form also F (m × d), with which new rows become rows of U."""

    F: Array | None = None


@declares_settings
class PooledEASE(Algorithm):
    r"""Lists of items, each item predicted from the others that a user touched, as if all users were in one place.

    .. math:: \min_B \|X - X B\|^2 + \lambda\|B\|^2 \quad \text{with} \quad \mathrm{diag}(B) = 0

    whose solution :math:`B = I - P\,\mathrm{diag}(P)^{-1}`, :math:`P = (X^\top X + \lambda I)^{-1}`, depends on the
    data through one Gram matrix: a sum over users, independent of their clients.

    Notes
    -----
    Federated = pooled: the sums are those of pooled rows. Two exchanges: numbers of users (m), then m'(m' + 1) / 2
    numbers for the m' items of enough users; low rank: three, the diagonal and some pairs in place of the last. The
    server solves once, O(m'³) or O(d² m'), and sends B to all, whole or as two factors. Memory at home: U of the whole
    form is as large as users × items; a face never makes scores of more than a few users at a time.

    A Gram matrix of zeros and ones counts users who touched both of two items, and most pairs of rare items have one.
    Such a count shows every client that sees B, or the sum, that some user touched both. ``min_pairs=3`` closes this
    for those who receive B; a server that must not see the counts either needs noise (``dp``).

    The low-rank form sends some entries of that matrix and its diagonal, nothing that the whole form would not send:
    pairs that chance alone would make frequent, which are the pairs among the d heaviest items, and pairs of a lighter
    item with fewer of them. Other pairs are taken to have in common what these explain (an incomplete Cholesky factor).

    References
    ----------
    .. [1] H. Steck, "Embarrassingly shallow autoencoders for sparse data", WWW 2019. doi:10.1145/3308558.3313710

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> X = (np.random.default_rng(0).random((60, 8)) < 0.4) * 1.0
    >>> one = fedfactor.run(PooledEASE(), {"a": X}, seed=0)
    >>> two = fedfactor.run(PooledEASE(), {"a": X[:20], "b": X[20:]}, seed=0)
    >>> bool(np.allclose(one.V, two.V)), two.rounds
    (True, 2)
    """

    low_rank: int | Literal["auto"] | None = setting(
        "None: the whole Gram matrix travels. A number d: pairs of the d heaviest items and others as frequent by "
        'chance; the weights then have rank d off their diagonal. ``"auto"``: as many as make the upload a tenth of '
        "the whole one. Good for catalogues of a thousand items or more.",
        default=None,
        at_least=1,
    )
    ridge: float | Literal["auto"] = setting(
        'Regularization λ of the weights. ``"auto"``: the value with the least generalized cross-validation error, '
        "which follows from the Gram matrix and the number of users that are aggregated anyway; 40 for the low-rank "
        "form and where noise protects rows.",
        default="auto",
        above=0,
    )
    counts: Literal["log", "binary", "raw"] = setting(
        "What a stored number r stands for: :math:`\\log_2(1 + r)`, 1, or r itself.", default="log"
    )
    balance: float = setting(
        "Rows are divided by their norm to this power: 0 counts users by what they touched, 1 all alike.",
        default=0.5,
        at_least=0,
        at_most=1,
    )
    min_users: int = setting(
        "Items that fewer users touched, over all owners, are left out, and never recommended.", default=3, at_least=1
    )
    min_pairs: int = setting(
        "Pairs of items that fewer users share are replaced by what chance would make them before the weights are made "
        "and sent to all. 1 replaces none; above 1, numbers of common users travel beside the Gram matrix. Whole form "
        "only.",
        default=1,
        at_least=1,
    )
    row_clip: float | None = set_by_privacy(
        "Rows are shortened to this norm. There is then no counting of users, so ``min_users`` and ``min_pairs`` must "
        "be 1, and the whole form needs one exchange, the low-rank form two: give ``rounds=1`` or ``rounds=2``, so "
        "that the budget is not spread over exchanges that do not take place.",
        default=None,
    )
    row_count: float | None = set_by_privacy("As in :class:`~fedfactor.algorithms.PooledNMF`.", default=None)
    held: Held[Totals] | None = set_by_run("Totals of earlier rows, which those of the run change.", default=None)

    handles_missing: ClassVar[bool] = True
    pooled: ClassVar[bool] = True
    default_rounds: ClassVar[int] = 10

    def check(self, meta: Meta) -> None:
        """Refuse settings that cannot work."""
        if isinstance(self.low_rank, int) and not 1 <= self.low_rank <= meta.n_features:
            raise ValueError(
                f"low_rank={self.low_rank} must lie between 1 and {meta.n_features}, or be 'auto' or None."
            )
        if self.low_rank is not None and self.min_pairs > 1:
            raise ValueError("min_pairs needs the whole Gram matrix. Leave low_rank out, or min_pairs at 1.")
        if self.held is not None and (self.low_rank is not None or self.row_clip is not None):
            raise ValueError("Totals that change are those of a whole Gram matrix without noise. Set low_rank=None.")
        if self.row_clip is not None and (self.min_users > 1 or self.min_pairs > 1):
            raise ValueError(
                "min_users and min_pairs look at exact counts, which noise does not protect. Set both to 1 with dp."
            )

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """Count users, then a Gram matrix or some of its entries; down the columns, and weights."""
        m, kind, whole = meta.n_features, meta.dtype, Leaf("int64", ())
        columns, row = Leaf("int64", (m,), exact=False), Leaf(kind, (m,))
        found: dict[type, Spec] = {}
        counts: Spec = {"users": row, "rows": Leaf("float64", ())}
        if self.row_clip is None and self.held is None:
            found |= {Count: {"nothing": whole}, Counts: counts}
        if self.low_rank is None:
            half = Leaf(kind, (half_size(m),), exact=False)
            pairs: Spec = {"pairs": half} if self.min_pairs > 1 else {}
            found |= {AskGram: {"columns": columns}, Gram: {"half": half, **pairs}}
            if self.held is not None:
                found[Gram] = {**found[Gram], "users": Leaf(kind, (m,), exact=False), "rows": counts["rows"]}
            return found | {Weights: {"columns": columns, "B": Leaf(kind, (m, m), exact=False)}}
        found |= {AskDiagonal: {"columns": columns}, Diagonal: {"diagonal": Leaf(kind, (m,), exact=False)}}
        asked = {"columns": columns, "order": columns, "depth": columns}
        found |= {AskPairs: asked, Pairs: {"entries": Leaf(kind, (half_size(m),), exact=False)}}
        d = self.low_rank if isinstance(self.low_rank, int) else m
        wide = Leaf(kind, (d, m), exact=False)
        high = Leaf(kind, (m, d), exact=False)
        return found | {Weights: {**asked, "B": wide, "F": high}}

    def init_server(self, meta: Meta, at: Round) -> tuple[Server, Any]:
        """Ask for counts; where noise protects rows, for the matrix or its diagonal at once."""
        m, none = meta.n_features, np.int64(0)
        every = np.arange(m)
        zeros = np.zeros(m, meta.dtype)
        ridge = np.float64(self._fixed_ridge)
        server = Server(every, none, zeros, np.float64(0), zeros, every[:0], every[:0], ridge, none)
        if self.ridge == "auto" and self.row_clip is not None:
            logger.warning(
                "PooledEASE cannot choose ridge from sums with noise; it is fixed at %g. Set ridge to another value if "
                "you know a better one from public data.",
                self._fixed_ridge,
            )
        if self.held is not None:
            return server, AskGram(np.asarray(self.held.totals.columns))
        return server, Count(none) if self.row_clip is None else self._ask(every)

    @property
    def _fixed_ridge(self) -> float:
        return USUAL_RIDGE if self.ridge == "auto" else float(self.ridge)

    def _ask(self, columns: Array) -> AskGram | AskDiagonal:
        return AskGram(columns) if self.low_rank is None else AskDiagonal(columns)

    def _ask_pairs(self, state: Server, diagonal: Array) -> tuple[Server, AskPairs]:
        m, counted = len(diagonal), int(state.counted)
        d = self.low_rank if isinstance(self.low_rank, int) else 0
        if self.low_rank == "auto":
            d = pairs_within(diagonal, TENTH * (counted + half_size(m)) - counted - m)
        order, depth = likely_pairs(diagonal, min(d, m))
        return replace(state, diagonal=diagonal, order=order, depth=depth), AskPairs(state.columns, order, depth)

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Local:
        """Keep nothing."""
        return Local(np.int64(shard.n_rows))

    def client_step(self, shard: Shard, state: Local, down: Any, at: Round) -> tuple[Local, Any]:
        """Count, or multiply."""
        R = self._touched(shard.X, shard.mask)
        if isinstance(down, Count):
            users = np.bincount(R.indices, minlength=R.shape[1]).astype(R.dtype)
            return state, Counts(users, np.float64(R.shape[0]))
        columns = np.asarray(down.columns)
        # A row weighs the same whichever items are left out, so that its part of the sums can be taken off again.
        Z = _some(balanced_rows(units(R, self.counts), self.balance, self.row_clip), columns)
        if isinstance(down, AskDiagonal):
            return state, Diagonal(np.asarray(Z.multiply(Z).sum(axis=0)).ravel().astype(R.dtype))
        if self.low_rank is not None:
            return state, Pairs(gram_pairs(Z, np.asarray(down.order), np.asarray(down.depth)).astype(R.dtype))
        pairs = common_pairs(_some(R, columns)).astype(R.dtype) if self.min_pairs > 1 else None
        up = Gram(gram_half(Z).astype(R.dtype), pairs)
        if self.held is None:
            return state, up
        users = np.bincount(R.indices, minlength=R.shape[1])[columns].astype(R.dtype)
        return state, replace(up, users=users, rows=np.float64(R.shape[0]))

    def _touched(self, X: Array, mask: Any) -> Any:
        R = observed(X, mask)
        if R.nnz and not (R.data != 0).all():
            R = only_cells(R, R.data != 0)
        if (R.data < 0).any():
            raise DataError("Signs of interest cannot be negative. Leave out what users disliked.")
        return R

    def accepts(self, down: Any, meta: Meta) -> str:
        """Expect columns in order, and pairs among them."""
        odd = odd_numbers(down)
        if odd or not hasattr(down, "columns"):
            return odd
        m, order = len(down.columns), getattr(down, "order", None)
        if order is not None and not np.array_equal(np.sort(to_numpy(order)), np.arange(m)):
            return "the order of the columns leaves some out"
        if order is not None and not _falls(to_numpy(down.depth), m):
            return "the pairs that are asked for are none, or not in order"
        return odd_columns(down.columns, meta.n_features, *([(down.B, 1)] if isinstance(down, Weights) else []))

    def server_step(self, state: Server, up: Any, at: Round) -> tuple[Server, Any]:
        """Choose the columns, or solve; those who stayed away are like those who came."""
        if isinstance(up, Counts):
            keep = np.flatnonzero(np.asarray(up.users) >= self.min_users)
            counted = np.int64(len(up.users))
            state = replace(state, columns=keep, counted=counted, users=up.users[keep], rows=np.float64(up.rows))
            return state, self._ask(keep)
        if isinstance(up, Diagonal):
            return self._ask_pairs(state, up.diagonal)
        if isinstance(up, Gram):
            return self._solved(state, up)
        noisy = self.row_clip is not None
        F, H = pair_weights(up.entries, state.diagonal, state.order, state.depth, self._fixed_ridge, noisy=noisy)
        kind, done = up.entries.dtype, replace(state, done=np.int64(1))
        return done, Weights(state.columns, H.astype(kind), F.astype(kind), state.order, state.depth)

    def _solved(self, state: Server, up: Gram) -> tuple[Server, Weights]:
        columns = np.asarray(state.columns)
        sums = up
        if self.held is not None:
            columns = np.asarray(self.held.totals.columns)
            sums = self.held.changed(self.held.totals.sums, up)
        elif self.row_clip is None:
            sums = replace(up, users=state.users, rows=state.rows)
        # Items that are no longer of enough users have no weights, but their sums are kept: users may come back.
        enough = slice(None) if self.held is None else np.flatnonzero(np.asarray(sums.users) >= self.min_users)
        G = _symmetric(sums.half, len(columns))[enough][:, enough]
        if sums.pairs is not None:
            pairs = np.rint(_symmetric(sums.pairs, len(columns)))[enough][:, enough]
            G = unlikely_pairs(G, pairs, self.min_pairs, float(0 if sums.rows is None else sums.rows))
        users = 0.0 if sums.rows is None else float(sums.rows)
        chosen = chosen_ridge(G, users) if self.ridge == "auto" and self.row_clip is None else None
        B, ridge = item_weights(G, self._fixed_ridge if chosen is None else chosen)
        totals = Totals(columns, sums) if self.row_clip is None else None
        state = replace(state, columns=columns[enough], ridge=np.float64(ridge), done=np.int64(1), totals=totals)
        return state, Weights(state.columns, B.astype(up.half.dtype))

    def totals(self, state: Server) -> Totals | None:
        """Return the sums that stand for all rows: further rows add to them, and others leave."""
        return state.totals

    def learned(self, down: Any) -> Algorithm:
        """Let go of earlier totals, which the run has changed."""
        return self if self.held is None else replace(self, held=None)

    def converged(self, state: Server) -> bool:
        """Return whether the weights are made."""
        return bool(int(state.done))

    def report(self, state: Server) -> dict[str, float]:
        """Return how many items have weights, and the regularisation that was used."""
        return {"items": float(len(state.columns)), "ridge": float(state.ridge)} if int(state.done) else {}

    def sensitivity(self, meta: Meta) -> tuple[str, float] | None:
        """Bound what one row adds: the squared norm of a shortened row, the norm of its outer product."""
        if self.row_clip is None:
            return None
        # What travels are entries of an outer product, each at most once.
        return "row", float(self.row_clip) ** (2 * (1 - self.balance))

    def finish(self, shard: Shard, state: Local, down: Any) -> ItemFactors:
        """Keep the weights, and what the rows become before they meet them."""
        R = self._touched(shard.X, shard.mask)
        m = shard.n_features
        kind = R.dtype
        if not isinstance(down, Weights):
            d = self.low_rank if isinstance(self.low_rank, int) else m
            return self._kept(R, np.zeros((d, m), kind), None if self.low_rank is None else np.zeros((m, d), kind))
        columns = np.asarray(down.columns)
        if down.F is None:

            def spread(B: np.ndarray) -> np.ndarray:
                out = np.zeros((m, m), kind)
                out[np.ix_(columns, columns)] = B
                return out

            # The clients of a simulation share one such matrix: it is by far the largest thing they keep.
            return self._kept(R, down.B if len(columns) == m else once(spread, down.B), None)
        F = np.zeros((m, down.F.shape[1]), kind)
        H = np.zeros((len(down.B), m), kind)
        F[columns] = down.F
        H[:, columns] = down.B
        return self._kept(R, H, F)

    def _kept(self, R: Any, V: np.ndarray, F: np.ndarray | None) -> ItemFactors:
        return ItemFactors(self._rows(R, F), V, F=F)

    def _rows(self, R: Any, F: Array | None) -> np.ndarray:
        Z = units(R, self.counts)
        return Z.toarray() if F is None else np.asarray(Z @ F).astype(R.dtype)

    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Turn new rows into rows of U: nothing is solved for."""
        R = self._touched(X, mask)
        F = factors.F if isinstance(factors, ItemFactors) else None
        return self._rows(R.astype(factors.V.dtype), F)

    def score(self, shard: Shard, state: Local | LocalFactors, down: Any) -> Score:
        """Measure the squared error over touched cells, each of which wishes for what it stands for."""
        factors = state if isinstance(state, LocalFactors) else self.finish(shard, state, down)
        R = units(self._touched(*shard.scored), self.counts)
        sse = 0.0
        for start in range(0, R.shape[0], BLOCK):  # scores of a few users at a time
            part = R[start : start + BLOCK].tocoo()
            fitted = (factors.U[start : start + BLOCK] @ factors.V)[part.row, part.col]
            sse += float(np.square(part.data - fitted, dtype=np.float64).sum())
        return Score.of(sse, R.nnz, float(np.square(R.data, dtype=np.float64).sum()))


def _symmetric(half: Array, m: int) -> np.ndarray:
    """Return the matrix, in double precision, whose upper half is given row by row."""
    one, two = np.triu_indices(m)
    G = np.empty((m, m))
    G[one, two] = G[two, one] = half
    return G


def _some(R: Any, columns: np.ndarray) -> Any:
    """Return some columns, numbered again."""
    if len(columns) == R.shape[1]:
        return R
    place = np.full(R.shape[1], -1, np.int64)
    place[columns] = np.arange(len(columns))
    part = only_cells(R, place[R.indices] >= 0)
    indices = place[part.indices].astype(R.indices.dtype)
    return type(R)((part.data, indices, part.indptr), shape=(R.shape[0], len(columns)))


def _falls(depth: np.ndarray, m: int) -> bool:
    """Return whether depths fall along the order, from the number of items that are paired with each other."""
    if len(depth) != m:
        return False
    d = int(depth.max(initial=0))
    return d <= m and bool((np.diff(depth) <= 0).all() and (depth[:d] == d).all() and (depth >= 0).all())
