"""PooledBMF: the Boolean factorization that pooled rows would give, from sums alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from fedfactor.boolean import bit_matrix as bits
from fedfactor.boolean.counting import choose, merged, observed
from fedfactor.boolean.felb import BINARY_GAP
from fedfactor.boolean.pooled import client_counts as home
from fedfactor.boolean.pooled import proximal
from fedfactor.boolean.pooled import server_search as search
from fedfactor.boolean.pooled.messages import Factor
from fedfactor.boolean.product import boolean_refit, count, round_half
from fedfactor.core.algorithm import Algorithm, Domain, LocalFactors, Meta, Round, Score
from fedfactor.core.client_data import Shard
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.input_validation import check_rank
from fedfactor.core.parameters import declares_settings, set_by_privacy, set_by_run, setting
from fedfactor.core.pytree import Array
from fedfactor.core.wire import Leaf, Spec
from fedfactor.linalg.factors import odd_factor
from fedfactor.linalg.products import as_like
from fedfactor.linalg.row_clipping import ROW_CLIP, split_rows, summation_error
from fedfactor.nmf.pooled.warm_start import Begin


@declares_settings
class PooledBMF(Algorithm):
    r"""Boolean factorization as if all rows lay in one place.

    .. math:: \min_{U_c \in \{0,1\},\, V \in \{0,1\}} \sum_c |X_c \oplus (U_c \circ V)|

    A search that needs nothing but sums of whole numbers over all rows:

    1. *Candidates.* Counts of rows that have two columns (or three) at once add up over clients. From them every
       client's candidates are the same: for each column, and each of the most promising pairs, all columns that at
       least a share `thresholds` of its rows have.
    2. *Greedy choice.* For every candidate, the gains of the rows that would take it add up too, so that the clients
       choose what ASSO [1]_ would choose on pooled rows, from several thresholds and `penalties` side by side.
    3. *Descent.* Rows choose their components at their client. For each cell of V the summed gain of changing it
       decides whether to change it. Columns do not touch each other; changes in one column are made together only as
       far as the number of rows with both components allows, so that the loss never rises.
    4. *Exchanges.* Components of all starts form a pool. Summed gains decide which of them should replace which
       component of the best V; the most promising exchanges descend side by side, and the best is kept if it is better.

    Notes
    -----
    Federated = pooled: the sums of ``"counts"`` are whole numbers, so any split of the same rows gives the same V to
    the last bit, and secure aggregation rounds nothing. The search draws no random numbers: all seeds give the same V.
    With ``"proximal"`` U starts from a hash of each row, and any split gives the same V up to rounding. Clients may
    stay away from a round: the search then asks again, up to three times, before it goes on with the counts of fewer.

    Missing cells count for nothing with ``"counts"``, and are refused with ``"proximal"``.

    Rounds of ``"counts"``: three before the choice (four with more rows than `sample`), one for each component (several
    components at a time beyond 25), 9 to 21 of descent, and up to 5 for each exchange of components. The largest
    uploads are of q × m (q the smaller of m and `candidates`) and of starts × k × m whole numbers, four bytes each;
    with a great many columns and components fewer starts run side by side. Time: distinct rows × candidates × m / 64
    word operations for each component and start.

    Each client merges its equal rows into one with a multiplicity, which changes no sum. With more rows than `sample`
    the clients also send 64 sums over their rows of random signs, equal signs for equal rows: the server estimates
    from them how often rows repeat, and learns as much of the rows as from the counts of 64 more columns.

    What the counts show: a column, a pair of columns or a component that only one row has shows that row's cells, to
    the server, and as a candidate to all clients; ``min_rows=3`` closes the latter.
    Secure aggregation with its minimums hides single clients, not single rows; noise for rows is refused here, since
    one row with r ones changes r² of the counts, and each of many exchanges would need such noise.

    References
    ----------
    .. [1] P. Miettinen, T. Mielikäinen, A. Gionis, G. Das, H. Mannila, "The discrete basis problem", IEEE TKDE 20
       (2008). doi:10.1109/TKDE.2008.53

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> X = np.kron(np.eye(2), np.ones((10, 4)))
    >>> one = fedfactor.run(PooledBMF(2), {"a": X}, seed=0)
    >>> two = fedfactor.run(PooledBMF(2), {"a": X[:10], "b": X[10:]}, seed=0)
    >>> bool((one.V == two.V).all()), float(two.score.sse)
    (True, 0.0)
    """

    n_components: int = setting("Number of components k.", at_least=1)
    solver: Literal["counts", "proximal"] = setting(
        "The search by summed counts; or the proximal steps of :class:`~fedfactor.algorithms.FELB`, with the steps on "
        "V taken from the sums :math:`\\sum_c U_c^\\top U_c` and :math:`\\sum_c U_c^\\top X_c`. Only the latter can be "
        "made private by :func:`fedfactor.dp`.",
        default="counts",
    )
    thresholds: tuple[float, ...] = setting(
        'For ``"counts"``: shares of rows from which on a column belongs to a candidate, in (0, 1]. Each is a start of '
        "its own. Dense data need high ones, sparse data low ones.",
        default=(0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    )
    penalties: tuple[int, ...] = setting(
        'For ``"counts"``: what a wrongly covered zero costs while components are chosen and in the first steps of the '
        "descent, in units of a one that is not covered. Each is a start of its own; then all go on with 1.",
        default=(1, 2, 4),
    )
    pairs: bool = setting(
        'For ``"counts"``: whether pairs of columns propose candidates, too. Helps most with sparse data; one '
        "exchange. Only for tables whose columns are all counted at once, see ``candidates``.",
        default=True,
    )
    candidates: int = setting(
        'For ``"counts"``: most candidates for each threshold, and most columns that are counted together with all '
        "others at a time (fewer beyond 4,000 columns: 400 of 10,000). With more columns than that the most frequent "
        "ones are counted, then up to three times the most frequent of those that do not go along with any counted so "
        "far. What is lost is a pattern all of whose columns are left out, and pairs.",
        default=1000,
        at_least=1,
    )
    min_rows: int = setting(
        'For ``"counts"``: columns and pairs of columns that fewer rows share propose nothing, and components that '
        "fewer rows take are given up, so that no owner receives one single row as a candidate or a component. 1 keeps "
        "all. The server sees the counts all the same.",
        default=1,
        at_least=1,
    )
    trials: int = setting(
        'For ``"counts"``: exchanges of components that are tried side by side.', default=8, at_least=1
    )
    patience: int = setting(
        'For ``"counts"``: how often all of these may fail before the search ends; 0: none are tried.',
        default=2,
        at_least=0,
    )
    search_rounds: int = setting(
        'For ``"counts"``: rounds after which no more exchanges are tried, so that the last descent, of up to 12 '
        "rounds, ends in time.",
        default=80,
        at_least=0,
    )
    sample: int = setting(
        'For ``"counts"``: of more distinct rows than this, about so many take part in the search, chosen by a hash of '
        "their own cells. Equal rows take part together, each with its multiplicity; a larger share is taken where "
        "rows repeat (up to 20 times as large), so that the counts vary no more than those of so many distinct rows. "
        "All rows take part in the last descent.",
        default=5000,
        at_least=1,
    )
    local_steps: int = setting('For ``"proximal"``: steps on U in each round.', default=10, at_least=1)
    server_steps: int = setting('For ``"proximal"``: steps on V in each round.', default=10, at_least=1)
    kappa: float = setting(
        'For ``"proximal"``: weight κ of the regulariser that draws cells to 0 and 1.', default=0.01, at_least=0
    )
    lam: float = setting('For ``"proximal"``: weight λ of the same.', default=0.01, at_least=0)
    rate: float = setting(
        'For ``"proximal"``: growth of λ in each step; t counts local steps.', default=1.005, at_least=1
    )
    beta: float = setting(
        'For ``"proximal"``: inertia.',
        default=0.01,
        at_least=0,
        below=0.5,
        because="the step size would not be positive",
    )
    gamma: float = setting(
        'For ``"proximal"``: above 0, the adaptive rate of :class:`~fedfactor.algorithms.FALB`.',
        default=0.0,
        at_least=0,
        because="0 is one rate for all cells",
    )
    scale_prox: bool = setting('For ``"proximal"``: weigh the regulariser by the step size.', default=True)
    prox: Literal["exact", "printed"] = setting(
        'For ``"proximal"``: the minimiser, or the formula of the FELB paper.', default="exact"
    )
    step: Literal["safe", "elbmf"] = setting(
        'For ``"proximal"``: the step that descends, or the larger one of the ELBMF code.', default="safe"
    )
    norm: Literal["frobenius", "spectral"] = setting('For ``"proximal"``: what bounds the step.', default="frobenius")
    refit: Literal["boolean", "none"] = setting(
        'For ``"proximal"``: choose U for the final V, or round the relaxed U.', default="boolean"
    )
    tol: float = setting(
        'For ``"proximal"``: converged when no cell of V moves by more than this and V is Boolean; 0 uses all rounds.',
        default=1e-6,
        at_least=0,
    )
    row_clip: float | None = set_by_privacy(
        'As in :class:`~fedfactor.algorithms.PooledNMF`, for ``solver="proximal"``: V is then found as a non-negative '
        "factor from clipped row gradients, and split into zeros and ones at the end.",
        default=None,
    )
    row_count: float | None = set_by_privacy("As in :class:`~fedfactor.algorithms.PooledNMF`.", default=None)

    begin: Begin | None = set_by_run("V of an earlier run to start at.", default=None)

    domain: ClassVar[Domain] = Domain.BINARY
    default_rounds: ClassVar[int] = 100
    handles_tensors: ClassVar[bool] = True
    pooled: ClassVar[bool] = True

    def check(self, meta: Meta) -> None:
        """Refuse settings that cannot work."""
        check_rank(self.n_components, meta)
        if self.begin is not None:
            self.begin.check(self, meta)
        if not len(self.thresholds) or not all(0 < share <= 1 for share in self.thresholds):
            raise ValueError(f"thresholds={self.thresholds} must be at least one share of rows, in (0, 1].")
        if not len(self.penalties) or not all(cost == int(cost) and cost >= 1 for cost in self.penalties):
            raise ValueError(f"penalties={self.penalties} must be at least one whole number from 1.")
        if self._counts and self.row_clip is not None:
            raise IncompatibleError(
                "The search of PooledBMF sends exact counts in each of many exchanges, and one row with r ones changes "
                "r² of them: noise that hides a row would drown them. Use solver='proximal' with dp(...), or search "
                "under secure aggregation."
            )

    def warm_started(self, V: Array) -> PooledBMF:
        """Start at the V of an earlier run, from which the search by counts descends, and exchanges components."""
        return replace(self, begin=Begin(V))

    @property
    def handles_missing(self) -> bool:  # type: ignore[reportIncompatibleVariableOverride]
        """Counts of observed cells add up; the sums of proximal steps need complete rows."""
        return self.solver == "counts"

    @property
    def _counts(self) -> bool:
        return self.solver == "counts"

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """List the questions and counts of the search; or one factor down, the sums up."""
        if not self._counts:
            return proximal.proximal_messages(self, meta)
        last: dict[type, Spec] = {Factor: {"V": Leaf(meta.dtype, (self.n_components, meta.n_features))}}
        sampled = not meta.n_rows or meta.n_rows > self.sample
        return {**search.search_messages(search.sizes_of(self, meta.n_features), sampled), **last}

    def init_server(self, meta: Meta, at: Round) -> tuple[Any, Any]:
        """Begin the search, or draw V."""
        if not self._counts:
            return proximal.start(self, meta, at)
        return search.begin(search.sizes_of(self, meta.n_features), meta.dtype)

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Any:
        """Know nothing yet; or start each row of U at numbers that depend on that row of X alone."""
        return home.begin(shard) if self._counts else proximal.start_rows(self, shard, at)

    def client_step(self, shard: Shard, state: Any, down: Any, at: Round) -> tuple[Any, Any]:
        """Count what the server asks for; or step on U with V fixed, and send what the steps on V depend on."""
        if not self._counts:
            return proximal.step_rows(self, shard, state, down, at)
        return home.answer(tuple(self.penalties), shard, state, down)

    def accepts(self, down: Any, meta: Meta) -> str:
        """Expect a V whose cells lie between 0 and 1; in the search, columns that exist, and enough rows to look at."""
        if isinstance(down, Factor):
            return odd_factor(down.V, most=1.0)
        return search.odd_question(self, down, meta)

    def server_step(self, state: Any, up: Any, at: Round) -> tuple[Any, Any]:
        """Take in the sums and ask the next question; or step on V with the sums fixed."""
        if not self._counts:
            return proximal.step_factor(self, state, up, at)
        return search.advance(self, search.sizes_of(self, len(state.ones)), state, up, at)

    def settle(self, state: Any, down: Any) -> Factor:
        """Return the best V so far; or split a V that noise has blurred into zeros and ones."""
        if self._counts:
            return search.settled(search.sizes_of(self, len(state.ones)), state)
        return down if self.row_clip is None else Factor(split_rows(state.V))

    def sensitivity(self, meta: Meta) -> tuple[str, float] | None:
        """Bound what one row can change in the sum of all uploads: the clip, and the rounding of the sum."""
        if self.row_clip is None:
            return None
        return "row", ROW_CLIP + summation_error(2 * float(self.row_count or 1), self.n_components, meta.n_features)

    def converged(self, state: Any) -> bool:
        """Return whether the search is over; or whether V is Boolean and stands still."""
        if self._counts:
            return int(state.stage) == search.DONE
        return float(state.moved) < self.tol and float(state.gap) < BINARY_GAP

    def report(self, state: Any) -> dict[str, float]:
        """Return the loss of the best V so far, and of simple fits; or how far V is from Boolean, and its error."""
        if self._counts:
            return search.figures(search.sizes_of(self, len(state.ones)), state)
        found = {"integrality_gap": float(state.gap)}
        if float(state.total) > 0:
            found["relative_error"] = float(np.sqrt(state.sse / state.total))
        return found

    def finish(self, shard: Shard, state: Any, down: Any) -> LocalFactors:
        """Round V; choose U for it, or round U as well."""
        blank = np.zeros((self.n_components, shard.n_features))  # a run that was broken off before there was a V
        V = round_half(as_like(getattr(down, "V", blank) if isinstance(down, Factor) else blank, shard.X))
        if not self._counts and self.refit == "none":
            return LocalFactors(round_half(state.U), V)
        return LocalFactors(self._rows(shard.X, V, shard.mask), V)

    def _rows(self, X: Array, V: Array, mask: Array | str | None) -> Array:
        if not self._counts:
            return boolean_refit(X, V)
        rows, place = merged(observed(X, mask))
        U = choose(rows, bits.pack(V))[0]
        return as_like(U if place is None else U[place], X)

    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Choose components for new rows."""
        return self._rows(X, round_half(as_like(factors.V, X)), mask)

    def score(self, shard: Shard, state: Any, down: Any) -> Score:
        """Count wrong cells, cells, and ones: of the cells held out, if any, else of those observed."""
        factors = state if isinstance(state, LocalFactors) else self.finish(shard, state, down)
        X, mask = shard.scored
        cells = count(X, factors.U, factors.V, mask)
        return Score.of(cells.wrong, cells.n, cells.ones)
