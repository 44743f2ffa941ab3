"""PooledPCA and PooledSVD: principal components and singular vectors of pooled rows, from sums alone."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np
import scipy.sparse

from fedfactor.core.algorithm import Algorithm, Domain, LocalFactors, Meta, Round, Score
from fedfactor.core.client_data import Shard
from fedfactor.core.download_validation import odd_numbers
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.input_validation import check_rank
from fedfactor.core.parameters import declares_settings, set_by_privacy, set_by_run, setting
from fedfactor.core.pytree import Array
from fedfactor.core.totals import Held
from fedfactor.core.wire import Leaf, Spec
from fedfactor.decomposition.coordinates import coordinates, odd_directions, score_of_cells
from fedfactor.decomposition.krylov import eigenvectors_within, next_directions, orthonormal_rows
from fedfactor.decomposition.messages import (
    AskMoments,
    AskProducts,
    Components,
    Local,
    Moments,
    PCAFactors,
    Products,
    Server,
    Totals,
)
from fedfactor.decomposition.second_moments import (
    ROW_NORM,
    clipped_moments,
    column_sums,
    diagonal,
    gram_half,
    half_size,
    leading_eigenvectors,
    rounding_of_sums,
    scatter_product,
    symmetric,
    unclipped_moments,
)
from fedfactor.linalg.products import squared_norm

GRAM_COLUMNS = 2048
"""Up to so many columns ``solver="auto"`` sends the Gram matrix: 16.8 MB of float64 from each client, once."""

Solver = Literal["auto", "gram", "subspace"]


@declares_settings
class _SecondMoments(Algorithm):
    """What PCA and SVD have in common: settings, messages and sums."""

    n_components: int = setting(
        "Number of components k; 0 keeps as many as there are, or as ``variance_share`` needs.", default=0, at_least=0
    )
    variance_share: float = setting(
        "With ``n_components=0``: keep as many components as explain more than this share of the variance. Needs the "
        "Gram matrix.",
        default=1.0,
        above=0,
        at_most=1,
    )
    solver: Solver = setting(
        '``"gram"``: one exchange of m(m + 1)/2 numbers, exact. ``"subspace"``: in each of a few exchanges '
        "(k + oversampling) m numbers; needs n_components. "
        f'``"auto"``: the Gram matrix up to {GRAM_COLUMNS} columns.',
        default="auto",
    )
    oversampling: int = setting(
        "Directions beyond n_components in each exchange of the subspace solver.", default=20, at_least=0
    )
    row_clip: float | None = set_by_privacy(
        "Rows are shortened to this norm, and one noisy Gram matrix is sent.", default=None
    )
    row_count: float | None = set_by_privacy("Public number of rows of all clients.", default=None)
    # Column means, singular values, variances, and the variance and number of all rows.
    fitted: tuple[tuple[float, ...], ...] | None = set_by_run(
        "Column means, singular values, variances, and the variance and number of all rows.", default=None
    )
    held: Held[Totals] | None = set_by_run("Totals of earlier rows, which those of the run change.", default=None)
    split: Literal["rows", "columns"] = set_by_run(
        "What clients hold; with columns, what arrives as a row is a column of X, and U is what is shared.",
        default="rows",
    )

    domain: ClassVar[Domain] = Domain.REAL
    pooled: ClassVar[bool] = True
    default_rounds: ClassVar[int] = 4
    noisy_rounds: ClassVar[int] = 1
    centered: ClassVar[bool] = True

    def check(self, meta: Meta) -> None:
        """Refuse settings that cannot serve such data."""
        if self.n_components and self.held is None:
            check_rank(self.n_components, meta)
        if self._by_gram(meta):
            return
        if self.held is not None:
            raise ValueError("Totals that change are those of a Gram matrix. Set solver='gram'.")
        if not self.n_components:
            raise ValueError(
                f"The subspace solver must know how many components to look for, and {meta.n_features} columns are "
                f"more than {GRAM_COLUMNS}. Give n_components as a whole number, or solver='gram'."
            )
        if self.row_clip is not None:
            raise ValueError(
                f"Noise that protects rows needs the Gram matrix in one exchange, and {meta.n_features} columns are "
                f"more than {GRAM_COLUMNS}. Keep fewer columns, chosen without looking at the rows, or set "
                "solver='gram': noise then lies on every pair of columns."
            )

    def _by_gram(self, meta: Meta) -> bool:
        return self.solver == "gram" or (self.solver == "auto" and meta.n_features <= GRAM_COLUMNS)

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """List a Gram matrix, or products with directions; down the components."""
        m = meta.n_features
        kind = meta.dtype
        number = Leaf("float64", ())
        row = Leaf(kind, (m,))
        few = Leaf(kind, (m,), exact=False)
        V = Leaf(kind, (self.n_components or m, m), exact=False)
        found: dict[type, Spec] = {
            Components: {
                "V": V,
                "mean": row,
                "singular": few,
                "variances": few,
                "variance": number,
                "rows": number,
            }
        }
        if not self._by_gram(meta):
            wide = Leaf(kind, (self._block(m), m), exact=False)
            up: Spec = {"Y": wide, "total": row, "squares": number, "rows": number}
            return found | {AskProducts: {"Q": wide}, Products: up}
        found[AskMoments] = {"nothing": Leaf("int64", ())}
        size = half_size(m)
        if self.row_clip is None:
            return found | {Moments: {"half": Leaf(kind, (size,)), "total": row, "rows": number}}
        return found | {Moments: {"half": Leaf("float64", (size,)), "total": Leaf("float64", (m,))}}

    def _block(self, m: int) -> int:
        return min(self.n_components + self.oversampling, m)

    def init_server(self, meta: Meta, at: Round) -> tuple[Server, Any]:
        """Ask for the Gram matrix, or for products with random directions."""
        m = meta.n_features
        zero = np.float64(0)
        empty = np.zeros(m, meta.dtype)
        none = np.zeros(0, np.uint8)
        server = Server(zero, empty, None, zero, None, None, None, none, zero, np.int64(0))
        if self._by_gram(meta):
            return server, AskMoments(np.int64(0))
        drawn = at.rng("directions").standard_normal((self._block(m), m))
        Q = orthonormal_rows(drawn).astype(meta.dtype)
        return replace(server, asked=Q), AskProducts(Q)

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Local:
        """Keep nothing."""
        return Local(np.int64(shard.n_rows))

    def client_step(self, shard: Shard, state: Local, down: Any, at: Round) -> tuple[Local, Any]:
        """Add up one's own rows."""
        X = self._cells(shard)
        if isinstance(down, AskMoments):
            if self.row_clip is not None:
                return state, Moments(*clipped_moments(X, self.row_clip))
            return state, Moments(gram_half(X), column_sums(X), np.float64(X.shape[0]))
        Y = scatter_product(X, np.asarray(down.Q))
        return state, Products(Y, column_sums(X), np.float64(squared_norm(X)), np.float64(X.shape[0]))

    def accepts(self, down: Any, meta: Meta) -> str:
        """Expect orthonormal directions."""
        odd = odd_numbers(down, {"Q": (-1.001, 1.0), "V": (-1.001, 1.0), "singular": (0.0, np.inf)})
        if odd or not isinstance(down, AskProducts | Components):
            return odd
        return odd_directions(down.Q if isinstance(down, AskProducts) else down.V)

    def doubt(self, up: Any) -> str:
        """Doubt negative counts and sums of squares."""
        counts = [("number of rows", up.rows), ("sum of squares", getattr(up, "squares", None))]
        return next((f"The {what} is negative." for what, n in counts if n is not None and float(n) < 0), "")

    def server_step(self, state: Server, up: Any, at: Round) -> tuple[Server, Any]:
        """Keep the sums; of products, choose the next directions."""
        if isinstance(up, Moments):
            rows = np.float64(self.row_count or 1) if up.rows is None else np.float64(up.rows)
            half, total = (up.half, up.total) if self.row_clip is None else self._unclipped(up, state.total.dtype)
            if self.held is not None:
                now = self.held.changed(self.held.totals, Totals(half, total, rows))
                half, total, rows = now.half, now.total, np.float64(now.rows)
            return replace(state, rows=rows, total=total, half=half, done=np.int64(1)), AskMoments(np.int64(0))
        assert state.asked is not None  # products follow directions
        cohort = np.frombuffer(hashlib.sha256("\0".join(at.participants).encode()).digest(), np.uint8)
        Q = state.asked
        Y = self._centered(up, state.asked)
        block = len(state.asked)
        # Sums of other clients are products with another matrix: what was known of the former one is left out.
        if state.Q is not None and state.Y is not None and np.array_equal(cohort, state.cohort):
            if block:
                Q = np.concatenate([state.Q, Q])
                Y = np.concatenate([state.Y, Y])
            else:
                Q = state.Q
                Y = state.Y
                block = len(state.Q)
        asked = next_directions(Q, Y, block).astype(Q.dtype)
        state = replace(state, rows=up.rows, total=up.total, squares=up.squares, Q=Q, Y=Y, asked=asked, cohort=cohort)
        values, _ = self._spectrum(state)
        explained = float(values.sum()) / max(self._scatter(state), 1e-300)
        done = np.int64(0 if len(asked) else 1)
        return replace(state, explained=np.float64(explained), done=done), AskProducts(asked)

    def _unclipped(self, up: Moments, kind: Any) -> tuple[np.ndarray, np.ndarray]:
        half, total = unclipped_moments(up.half, up.total, float(self.row_clip or 1))
        return half.astype(kind), total.astype(kind)

    def for_columns(self) -> Algorithm:
        """Return this algorithm for clients that hold columns."""
        return replace(self, split="columns")

    def for_rows(self, means: Sequence[float], n_rows: int) -> Algorithm:
        """Return this algorithm after a run on columns, as a fit of rows leaves it: new rows can be transformed."""
        assert self.fitted is not None  # a run has ended
        variance = (self.fitted[3][0], float(n_rows))
        return replace(self, split="rows", fitted=(tuple(map(float, means)), *self.fitted[1:3], variance))

    @property
    def _sums_center(self) -> bool:
        """Whether the mean over all rows is subtracted, in the sums; that of a column is known where the column is."""
        return self.centered and self.split == "rows"

    def _cells(self, shard: Shard) -> Array:
        """Return the rows; where these are columns of X, each without its mean if that is asked for."""
        X = shard.X
        if self.split == "rows" or not self.centered:
            return X
        if scipy.sparse.issparse(X):
            raise IncompatibleError(
                "Columns that are centered are not sparse. Use PooledSVD, or pass dense columns where they fit into "
                "memory."
            )
        return X - X.mean(axis=1, keepdims=True)

    def _mean(self, state: Server) -> np.ndarray:
        """Return the column means, or zeros where rows are not centered."""
        total = np.asarray(state.total, np.float64)
        return total / max(float(state.rows), 1.0) if self._sums_center else np.zeros_like(total)

    def _centered(self, up: Products, Q: Array) -> np.ndarray:
        """Return the products with the centered rows: only sums are needed for that."""
        if not self._sums_center:
            return up.Y
        mean = np.asarray(up.total, np.float64) / max(float(up.rows), 1.0)
        return (up.Y - np.outer(np.asarray(Q, np.float64) @ mean, np.asarray(up.total, np.float64))).astype(Q.dtype)

    def _scatter(self, state: Server) -> float:
        """Return the sum of squares of all (centered) rows."""
        mean = self._mean(state)
        if state.half is not None:
            return max(float(diagonal(state.half).sum() - state.rows * (mean @ mean)), 0.0)
        return max(float(state.squares - state.rows * (mean @ mean)), 0.0)

    def _spectrum(self, state: Server) -> tuple[np.ndarray, np.ndarray]:
        """Return the largest eigenvalues and eigenvectors of the scatter matrix, as far as the sums contain them."""
        m = len(state.total)
        k = self.n_components or int(min(m, max(float(state.rows), 1.0)))
        if state.half is not None:
            mean = self._mean(state)
            return leading_eigenvectors(symmetric(state.half) - state.rows * np.outer(mean, mean), k)
        if state.Q is None or state.Y is None:
            return np.zeros(k), np.zeros((k, m))
        precision = float(np.finfo(state.Q.dtype).eps)
        values, V = eigenvectors_within(state.Q, state.Y, k, precision)
        if len(values) < k:  # the rows span fewer directions than components were asked for
            values = np.pad(values, (0, k - len(values)))
            V = np.pad(V, ((0, k - len(V)), (0, 0)))
        return values, V

    def settle(self, state: Server, down: Any) -> Components:
        """Return the components that the sums so far give."""
        values, V = self._spectrum(state)
        rows = float(state.rows)
        kind = state.total.dtype
        mean = np.asarray(state.total, np.float64) / max(rows, 1.0)
        scatter = self._scatter(state)
        if self.split == "columns" and self.centered:
            variances = values / max(len(mean) - 1, 1)
            variance = scatter / max(len(mean) - 1, 1)
        elif self.centered:
            variances = values / max(rows - 1, 1.0)
            variance = scatter / max(rows - 1, 1.0)
        else:  # as scikit-learn's TruncatedSVD has it: the variance of each column of U
            variances = np.maximum(values / max(rows, 1.0) - (V @ mean) ** 2, 0.0)
            variance = scatter / max(rows, 1.0) - float(mean @ mean)
        if not self.n_components and self.variance_share < 1 and variance > 0:
            share = np.cumsum(variances) / variance
            k = min(int(np.searchsorted(share, self.variance_share, side="right")) + 1, len(values))
            values = values[:k]
            V = V[:k]
            variances = variances[:k]
        return Components(
            V.astype(kind),
            mean.astype(kind),
            np.sqrt(values).astype(kind),
            variances.astype(kind),
            np.float64(variance),
            np.float64(rows),
        )

    def converged(self, state: Server) -> bool:
        """Return whether another exchange would add nothing."""
        return bool(int(state.done))

    def report(self, state: Server) -> dict[str, float]:
        """Report the share of the variance that the components explain, which grows with each exchange."""
        return {} if state.Q is None else {"explained": float(state.explained)}

    def sensitivity(self, meta: Meta) -> tuple[str, float] | None:
        """Bound what one row adds: the norm of its outer product and of its part of the sums, and rounding."""
        if self.row_clip is None:
            return None
        return "row", ROW_NORM + rounding_of_sums(2 * float(self.row_count or 1))

    def learned(self, down: Any) -> Algorithm:
        """Keep what new rows need beside the components."""
        if not isinstance(down, Components):
            return self
        parts = (down.mean, down.singular, down.variances, np.array([down.variance, down.rows]))
        return replace(self, fitted=tuple(tuple(map(float, part)) for part in parts), held=None)

    def totals(self, state: Server) -> Totals | None:
        """Return the sums that stand for all rows, if there are such: further rows add to them, and others leave."""
        return None if state.half is None else Totals(state.half, state.total, state.rows)

    def _scale_of(self, variances: Array) -> np.ndarray | None:
        """Return what coordinates are divided by; None: by nothing."""
        return None

    def finish(self, shard: Shard, state: Local, down: Any) -> PCAFactors:
        """Write the rows in the coordinates of the components; of columns, return their part of V, and U."""
        X = self._cells(shard)
        m = shard.n_features
        if isinstance(down, Components):
            V = np.asarray(down.V)
            mean = np.asarray(down.mean)
            scale = self._scale_of(down.variances)
        else:
            V = np.zeros((self.n_components or m, m), X.dtype)
            mean = np.zeros(m, X.dtype)
            scale = None
        if self.split == "columns":
            singular = np.asarray(down.singular) if isinstance(down, Components) else np.zeros(len(V), X.dtype)
            safe = np.where(singular > 0, singular, 1).astype(X.dtype)
            return PCAFactors(coordinates(X, V, None, safe), self.common(V, singular), mean=None, scale=singular)
        mean = mean if self.centered else None
        return PCAFactors(coordinates(X, V, mean, scale), V, mean=mean, scale=scale)

    def common(self, V: Array, singular: Array) -> np.ndarray:
        """Return U of rows whose columns lie with several clients, a row for each component.

        Parameters
        ----------
        V : array of shape (k, n)
            Left singular vectors of X.
        singular : array of shape (k,)

        Returns
        -------
        array of shape (k, n)
        """
        whole = np.asarray(V) * np.asarray(singular)[:, None]
        scale = self._scale_of(np.asarray(singular) ** 2 / max(np.shape(V)[1] - 1, 1))
        return whole if scale is None else whole / scale[:, None]

    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Write new rows in the coordinates of the components."""
        V = np.asarray(factors.V)
        return coordinates(X.astype(V.dtype, copy=False), V, *self._affine(factors))

    def _affine(self, factors: LocalFactors) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return the column means and the scale of U: those kept with factors, or those of a run that was read back."""
        if isinstance(factors, PCAFactors):
            return factors.mean, factors.scale
        if self.fitted is None:
            return None, None
        kind = factors.V.dtype
        mean = np.asarray(self.fitted[0], kind)
        variances = np.asarray(self.fitted[2], kind)
        return (mean if self.centered else None), self._scale_of(variances)

    def score(self, shard: Shard, state: Local | LocalFactors, down: Any) -> Score:
        """Measure the squared error of the rows, from their squared norm and that of their coordinates."""
        factors = state if isinstance(state, LocalFactors) else self.finish(shard, state, down)
        mean, scale = self._affine(factors)
        X, mask = shard.scored
        if self.split == "columns":
            scale = np.asarray(factors.scale if isinstance(factors, PCAFactors) else 1.0)
            U = np.asarray(factors.U, np.float64) * np.asarray(scale, np.float64)
            left = squared_norm(self._cells(shard)) - float(np.sum(U * U))
            return Score.of(max(left, 0.0), X.shape[0] * X.shape[1], squared_norm(X))
        U = np.asarray(factors.U, np.float64) * (1.0 if scale is None else np.asarray(scale, np.float64))
        if mask is not None:
            return score_of_cells(X, mask, U @ np.asarray(factors.V, np.float64), mean)
        total = squared_norm(X)
        sse = total
        if mean is not None:
            wide = np.asarray(mean, np.float64)
            sse += X.shape[0] * float(wide @ wide) - 2 * float(column_sums(X) @ wide)
        return Score.of(max(sse - float(np.sum(U * U)), 0.0), X.shape[0] * X.shape[1], total)


@declares_settings
class PooledPCA(_SecondMoments):
    r"""Principal components of rows that lie with several clients, as if they were in one place.

    .. math:: \sum_c (X_c - 1\mu^\top)^\top (X_c - 1\mu^\top) = \sum_c X_c^\top X_c - n \mu\mu^\top
        = V^\top \Lambda V + \ldots

    The scatter matrix of all rows is made of sums over rows: each client adds up its own, and the components V, the k
    leading eigenvectors, follow from the totals. :math:`U_c = (X_c - 1\mu^\top) V^\top` stays with the client.

    Notes
    -----
    ``solver="gram"`` sends the Gram matrix and the sums of columns once, m(m + 3)/2 + 1 numbers, and the result is that
    of pooled rows up to rounding; the server takes O(m³). ``solver="subspace"`` sends, in each exchange, (k +
    oversampling)(m) + m + 2 numbers up and as many down: products with directions that the server orthonormalizes and
    keeps, so that the components are the best that the block Krylov space of all exchanges holds. A run of `rounds`
    exchanges reports the share of the variance that they explain. Rows are centered in the sums: sparse rows are never
    made dense. A client takes O(n_c m²) or O(nnz k) and stores one m × m matrix, or none.

    With noise for rows, rows are shortened to a public norm, and noise lies on one Gram matrix and on the column sums
    beside it, which pay for the mean: one exchange.

    References
    ----------
    .. [1] N. Halko, P.-G. Martinsson, J. A. Tropp, "Finding structure with randomness", SIAM Review 2011.
       doi:10.1137/090771806
    .. [2] C. Musco, C. Musco, "Randomized block Krylov methods for stronger and faster approximate singular value
       decomposition", NeurIPS 2015. arXiv:1504.05477
    .. [3] C. Dwork, K. Talwar, A. Thakurta, L. Zhang, "Analyze Gauss: optimal bounds for privacy-preserving principal
       component analysis", STOC 2014. doi:10.1145/2591796.2591883

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> X = np.random.default_rng(0).standard_normal((60, 8))
    >>> one = fedfactor.run(PooledPCA(3), {"a": X}, seed=0)
    >>> two = fedfactor.run(PooledPCA(3), {"a": X[:20], "b": X[20:]}, seed=0)
    >>> bool(np.allclose(one.V, two.V)), two.rounds
    (True, 1)
    """

    whiten: bool = setting("Divide the columns of U by their standard deviation.", default=False)

    def _scale_of(self, variances: Array) -> np.ndarray | None:
        if not self.whiten:
            return None
        variances = np.asarray(variances)
        return np.maximum(np.sqrt(variances), np.finfo(variances.dtype).eps)


@declares_settings
class PooledSVD(_SecondMoments):
    r"""Leading singular vectors of rows that lie with several clients, without centering.

    .. math:: \sum_c X_c^\top X_c = V^\top \Sigma^2 V + \ldots

    Messages, cost and solvers are those of :class:`PooledPCA`; :math:`U_c = X_c V^\top`.

    Notes
    -----
    For sparse counts and word frequencies, where zero means zero: latent semantic analysis.

    References
    ----------
    .. [1] S. Deerwester, S. Dumais, G. Furnas, T. Landauer, R. Harshman, "Indexing by latent semantic analysis", JASIS
       1990. doi:10.1002/(SICI)1097-4571(199009)41:6<391::AID-ASI1>3.0.CO;2-9

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> X = np.random.default_rng(0).random((60, 8))
    >>> run = fedfactor.run(PooledSVD(2), {"a": X[:20], "b": X[20:]}, seed=0)
    >>> bool(np.allclose(run.algorithm.fitted[1], np.linalg.svd(X, compute_uv=False)[:2]))
    True
    """

    centered: ClassVar[bool] = False
