"""PooledRidge: taste for items that only others hold, by ridge regression on directions of the common items."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
import scipy.sparse

from fedfactor.core.algorithm import Algorithm, Domain, LocalFactors, Meta, Round, Score, Uplink
from fedfactor.core.client_data import Shard
from fedfactor.core.client_items import held_columns, open_columns
from fedfactor.core.download_validation import odd_columns, odd_numbers
from fedfactor.core.parameters import declares_settings, setting
from fedfactor.core.pytree import Array, record
from fedfactor.core.wire import Leaf, Spec
from fedfactor.recommend.alternating_least_squares import half_size
from fedfactor.recommend.item_weights import gram_half
from fedfactor.recommend.rating_model import observed


@record("pooled_ridge.Hello")
class Hello:
    """Down: which items do you share?"""

    nothing: Array


@record("pooled_ridge.Common")
class Common:
    """Down: the columns that all clients share."""

    columns: Array


@record("pooled_ridge.Directions")
class Directions:
    """Down: directions of the common items, a row for each."""

    columns: Array
    E: Array


@record("pooled_ridge.Catalogue")
class Catalogue:
    """Down: the same, and what was published: coefficients of items, and which items have them."""

    columns: Array
    E: Array
    W: Array
    known: Array


@record("pooled_ridge.Holdings")
class Holdings:
    """Up: one for each shared item."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    holders: Array


@record("pooled_ridge.Gram")
class Gram:
    """Up: half of the Gram matrix of the common items."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    half: Array


@record("pooled_ridge.Published")
class Published:
    """Up: ridge coefficients of the shared items, times its number of users, and that number."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    W: Array
    users: Array


@record("pooled_ridge.Local")
class Local:
    """Stays home: nothing but the number of users."""

    n_rows: Array


@record("pooled_ridge.Server")
class Server:
    """The server's memory."""

    n_clients: Array
    columns: Array | None
    E: Array | None
    done: Array


@record("pooled_ridge.RidgeFactors")
class RidgeFactors(LocalFactors):
    """Users along the directions (U), coefficients of items (V), which items have them, and the directions (m × d)."""

    E: Array | None = None
    known: Array | None = None


@declares_settings
class PooledRidge(Algorithm):
    r"""What users would like of items that their own shop does not hold, from what all shops hold.

    With E the d leading eigenvectors of the common items' Gram matrix :math:`\sum_c X_c^\top X_c` (a sum over shops),
    every shop describes its users by :math:`P = X_{\text{common}} E` and publishes, for each item of its own,

    .. math:: w = (P^\top P + \lambda I)^{-1} P^\top x_{\text{item}}

    Any party can then score that item for users of its own: :math:`P w`.

    Notes
    -----
    The same task and face as :class:`~fedfactor.algorithms.FedDMF`, without training. After a count of holders (m
    numbers) two exchanges: c (c + 1) / 2 numbers for c common items, then (d + 1) m. All are sums, so secure
    aggregation apply; items marked as withheld never leave. Common items are those that all clients share; an item that
    some of them hold gets the mean of their coefficients, by users. Scores are linear; faces cut them to 0..1.

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> X = (np.random.default_rng(0).random((40, 9)) < 0.4) * 1.0
    >>> result = fedfactor.run(PooledRidge(4), {"a": X[:15], "b": X[15:]}, seed=0)
    >>> result.rounds, result.factors["a"].U.shape, result.V.shape
    (3, (15, 4), (4, 9))
    """

    n_components: int = setting(
        "Directions d; fewer where there are fewer common items. The ridge shrinks those that explain little: a large "
        "d costs traffic, d numbers for each item, rather than accuracy.",
        default=128,
        at_least=1,
    )
    ridge: float = setting("Regularisation λ of the coefficients.", default=30.0, above=0)
    min_users: int = setting(
        "Items that fewer of an owner's users touched are not published: coefficients of an item of one user are that "
        "user's description.",
        default=3,
        at_least=1,
    )

    domain: ClassVar[Domain] = Domain.BINARY
    default_rounds: ClassVar[int] = 3

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """Holdings, a Gram matrix, coefficients; down the common columns, directions, and the catalogue."""
        m = meta.n_features
        kind = meta.dtype
        d = self.n_components
        columns = Leaf("int64", (m,), exact=False)
        row = Leaf(kind, (m,))
        E = Leaf(kind, (m, d), exact=False)
        W = Leaf(kind, (d, m))
        return {
            Hello: {"nothing": Leaf("int64", ())},
            Holdings: {"holders": row},
            Common: {"columns": columns},
            Gram: {"half": Leaf(kind, (half_size(m),), exact=False)},
            Directions: {"columns": columns, "E": E},
            Published: {"W": W, "users": row},
            Catalogue: {"columns": columns, "E": E, "W": W, "known": Leaf("bool", (m,))},
        }

    def init_server(self, meta: Meta, at: Round) -> tuple[Server, Hello]:
        """Ask who shares what."""
        return Server(np.int64(meta.n_clients), None, None, np.int64(0)), Hello(np.int64(0))

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Local:
        """Keep nothing."""
        return Local(np.int64(shard.n_rows))

    def client_step(self, shard: Shard, state: Local, down: Any, at: Round) -> tuple[Local, Any]:
        """Return what one shares, add to the Gram matrix, or publish coefficients."""
        X = _ones(shard)
        if isinstance(down, Hello):
            holders = np.zeros(shard.n_features, X.dtype)
            holders[open_columns(shard)] = 1
            return state, Holdings(holders)
        columns = np.asarray(down.columns)
        if isinstance(down, Common):
            return state, Gram(gram_half(X[:, columns]).astype(X.dtype))
        return state, self._publish(shard, X, X[:, columns] @ np.asarray(down.E))

    def _publish(self, shard: Shard, X: Any, P: np.ndarray) -> Published:
        P = np.asarray(P, np.float64)
        mine = open_columns(shard)
        touched = np.bincount(X.indices, minlength=X.shape[1])
        mine = mine[touched[mine] >= self.min_users]
        W = np.zeros((self.n_components, X.shape[1]))
        users = np.zeros(X.shape[1])
        if len(mine) and P.shape[1]:
            right = np.asarray(X[:, mine].T @ P).T
            W[: P.shape[1], mine] = scipy.linalg.solve(P.T @ P + self.ridge * np.eye(P.shape[1]), right, assume_a="pos")
        users[mine] = X.shape[0]
        return Published((W * X.shape[0]).astype(X.dtype), users.astype(X.dtype))

    def accepts(self, down: Hello | Common | Directions | Catalogue, meta: Meta) -> str:
        """Expect columns in order, with a direction of unit length for each."""
        odd = odd_numbers(down, {"E": (-1.001, 1.0)})
        if odd or isinstance(down, Hello):
            return odd
        return odd_columns(down.columns, meta.n_features, *([] if isinstance(down, Common) else [(down.E, 0)]))

    def server_step(self, state: Server, up: Any, at: Round) -> tuple[Server, Any]:
        """Find the common items, their directions, and the mean of what was published."""
        if isinstance(up, Holdings):
            # Those who stayed away are taken to hold what all others do.
            columns = np.flatnonzero(np.rint(up.holders) >= len(at.participants))
            return replace(state, columns=columns), Common(columns)
        if isinstance(up, Gram):
            assert state.columns is not None  # known since the first round
            E = self._directions(up.half, len(state.columns))
            return replace(state, E=E), Directions(state.columns, E)
        users = np.asarray(up.users)
        W = (up.W / np.maximum(users, 1)).astype(up.W.dtype)
        return replace(state, done=np.int64(1)), Catalogue(state.columns, state.E, W, users > 0)

    def _directions(self, half: Array, c: int) -> np.ndarray:
        """Return the leading eigenvectors, each with its largest entry positive; zeros where there are too few."""
        E = np.zeros((c, self.n_components), half.dtype)
        d = min(self.n_components, c)
        if d:
            one, two = np.triu_indices(c)
            G = np.empty((c, c))
            G[one, two] = G[two, one] = half
            found = scipy.linalg.eigh(G, subset_by_index=(c - d, c - 1))[1][:, ::-1]
            E[:, :d] = found * np.sign(found[np.abs(found).argmax(axis=0), np.arange(d)])
        return E

    def converged(self, state: Server) -> bool:
        """Return whether everything has been published."""
        return bool(int(state.done))

    def finish(self, shard: Shard, state: Local, down: Any) -> RidgeFactors:
        """Describe one's users, and keep what was published."""
        X = _ones(shard)
        m = shard.n_features
        d = self.n_components
        E = np.zeros((m, d), X.dtype)
        W = np.zeros((d, m), X.dtype)
        known = np.zeros(m, bool)
        if isinstance(down, (Directions, Catalogue)):
            E[np.asarray(down.columns)] = down.E
        if isinstance(down, Catalogue):
            W = np.asarray(down.W, X.dtype)
            known = np.asarray(down.known)
        return RidgeFactors(np.asarray(X @ E), W, E=E, known=known)

    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Describe new users by the directions."""
        R = observed(X, mask)
        ones = scipy.sparse.csr_array((np.ones(R.nnz, factors.V.dtype), R.indices, R.indptr), shape=R.shape)
        return np.asarray(ones @ factors.E)  # type: ignore[attr-defined]

    def score(self, shard: Shard, state: Local | LocalFactors, down: Any) -> Score:
        """Measure the squared error over all cells of the items that the client holds."""
        factors = state if isinstance(state, LocalFactors) else self.finish(shard, state, down)
        X = _ones(shard)
        held = held_columns(shard)
        G = factors.U.T.astype(np.float64) @ factors.U
        V = np.asarray(factors.V[:, held], np.float64)
        inner = np.sum((X[:, held].T @ factors.U) * V.T)
        total = float(X[:, held].sum())
        sse = max(total - 2 * float(inner) + float(np.sum((G @ V) * V)), 0.0)
        return Score.of(sse, shard.n_rows * len(held), total)


def _ones(shard: Shard) -> scipy.sparse.csr_array:
    """Return who touched what, as zeros and ones."""
    R = observed(shard.X)
    kind = R.dtype if R.dtype in map(np.dtype, ("float32", "float64")) else np.float64
    return scipy.sparse.csr_array((np.ones(R.nnz, kind), R.indices, R.indptr), shape=R.shape)
