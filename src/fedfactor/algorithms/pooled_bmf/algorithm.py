"""PooledBMF: the Boolean factorization that pooled rows would give, from sums alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from fedfactor.algorithms.felb import BINARY_GAP, check_pull
from fedfactor.algorithms.pooled_bmf import home, proximal, search
from fedfactor.algorithms.pooled_bmf.messages import Factor
from fedfactor.core.checks import check_rank
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.federation import Shard
from fedfactor.core.protocol import Algorithm, Domain, LocalFactors, Meta, Round, Score, set_by_privacy
from fedfactor.core.tree import Array
from fedfactor.core.wire import Leaf, Spec
from fedfactor.kernels.boolean import bits
from fedfactor.kernels.boolean.home import choose, observed
from fedfactor.kernels.boolean.product import boolean_refit, round_half
from fedfactor.kernels.clipping import ROW_CLIP, split_rows, summation_error
from fedfactor.kernels.factors import odd_factor
from fedfactor.kernels.products import as_like


@dataclass(frozen=True, slots=True)
class PooledBMF(Algorithm):
    r"""Boolean factorization as if all rows lay in one place.

    .. math:: \min_{U_c \in \{0,1\},\, V \in \{0,1\}} \sum_c |X_c \oplus (U_c \circ V)|

    A search that needs nothing but sums of whole numbers over all rows:

    1. *Candidates.* Counts of rows that have two columns (or three) at once add up over owners. From them everybody's
       candidates are the same: for each column, and each of the most promising pairs, all columns that at least a share
       `thresholds` of its rows have.
    2. *Greedy choice.* For every candidate, the gains of the rows that would take it add up too, so that the owners
       choose what ASSO [1]_ would choose on pooled rows, from several thresholds and `penalties` side by side.
    3. *Descent.* Rows choose their components at home. For each cell of V the summed gain of changing it says whether
       to change it. Columns do not touch each other; changes in one column are made together only as far as the number
       of rows with both components allows, so that the loss never rises.
    4. *Exchanges.* Components of all starts form a pool. Summed gains say which of them should take the place of which
       component of the best V; the most promising exchanges descend side by side, and the best is kept if it is better.

    Parameters
    ----------
    n_components : int
        Number of components k.
    solver : {"counts", "proximal"}
        The search above; or the proximal steps of :class:`~fedfactor.algorithms.FELB`, with the steps on V taken from
        the sums :math:`\sum_c U_c^\top U_c` and :math:`\sum_c U_c^\top X_c`. Only the latter can be made private by
        :func:`fedfactor.dp`.
    thresholds : tuple of float
        For ``"counts"``: shares of rows from which on a column belongs to a candidate, in (0, 1]. Each is a start of
        its own. Dense data need high ones, sparse data low ones.
    penalties : tuple of int
        For ``"counts"``: what a wrongly covered zero costs while components are chosen and in the first steps
        of the descent, in units of a one that is not covered. Each is a start of its own; then all go on with 1.
    pairs : bool
        For ``"counts"``: whether pairs of columns propose candidates, too. Helps most with sparse data; one exchange.
    candidates : int
        For ``"counts"``: most candidates for each threshold. With more columns than this, only the most frequent of
        them are counted together with all others, so that a pattern is missed that has none of them.
    trials : int
        For ``"counts"``: exchanges of components that are tried side by side.
    patience : int
        For ``"counts"``: how often all of these may fail before the search ends; 0: none are tried.
    search_rounds : int
        For ``"counts"``: rounds after which no more exchanges are tried, so that the last descent, of up to 12 rounds,
        ends in time.
    sample : int
        For ``"counts"``: of more rows than this, about so many take part in the search, chosen by a hash of their own
        cells; all rows take part in the last descent.
    local_steps : int
        For ``"proximal"``: steps on U in each round.
    server_steps : int
        For ``"proximal"``: steps on V in each round.
    kappa : float
        For ``"proximal"``: weight κ of the regulariser that draws cells to 0 and 1.
    lam : float
        For ``"proximal"``: weight λ of the same.
    rate : float
        For ``"proximal"``: growth of λ in each step; t counts local steps.
    beta : float
        For ``"proximal"``: inertia, below ½.
    gamma : float
        For ``"proximal"``: above 0, the adaptive rate of :class:`~fedfactor.algorithms.FALB`.
    scale_prox : bool
        For ``"proximal"``: weigh the regulariser by the step size.
    prox : {"exact", "printed"}
        For ``"proximal"``: the minimiser, or the formula of the FELB paper.
    step : {"safe", "elbmf"}
        For ``"proximal"``: the step that descends, or the larger one of the ELBMF code.
    norm : {"frobenius", "spectral"}
        For ``"proximal"``: what bounds the step.
    refit : {"boolean", "none"}
        For ``"proximal"``: choose U for the final V, or round the relaxed U.
    tol : float
        For ``"proximal"``: converged when no cell of V moves by more than this and V is Boolean; 0 uses all rounds.
    row_clip, row_count : float, optional
        As in :class:`~fedfactor.algorithms.PooledNMF`, set by :func:`fedfactor.dp` for ``solver="proximal"``: V is then
        found as a non-negative factor from clipped row gradients, and split into zeros and ones at the end.

    Notes
    -----
    Federated = pooled: the sums of ``"counts"`` are whole numbers, so any split of the same rows gives the same V to
    the last bit, and a secure sum rounds nothing. The search draws no random numbers: all seeds give the same V. With
    ``"proximal"`` U starts from a hash of each row, and any split gives the same V up to rounding. In both, owners may
    stay away from a round.

    Missing cells count for nothing with ``"counts"``, and are refused with ``"proximal"``.

    Rounds of ``"counts"``: three before the choice, one for each component (several components at a time beyond 25), 9
    to 21 of descent, and up to 5 for each exchange of components. The largest uploads are of q × m (q the smaller of m
    and `candidates`) and of starts × k × m whole numbers, four bytes each; with a great many columns and components
    fewer starts run side by side. Time: rows × candidates × m / 64 word operations for each component and start.

    What the counts show: a column, a pair of columns or a component that only one row has shows that row's cells. A
    secure sum with its minimums hides single owners, not single rows; noise for rows is refused here, since one row
    with r ones changes r² of the counts, and each of many exchanges would need such noise.

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

    n_components: int
    solver: Literal["counts", "proximal"] = "counts"
    thresholds: tuple[float, ...] = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
    penalties: tuple[int, ...] = (1, 2, 4)
    pairs: bool = True
    candidates: int = 1000
    trials: int = 8
    patience: int = 2
    search_rounds: int = 80
    sample: int = 5000
    local_steps: int = 10
    server_steps: int = 10
    kappa: float = 0.01
    lam: float = 0.01
    rate: float = 1.005
    beta: float = 0.01
    gamma: float = 0.0
    scale_prox: bool = True
    prox: Literal["exact", "printed"] = "exact"
    step: Literal["safe", "elbmf"] = "safe"
    norm: Literal["frobenius", "spectral"] = "frobenius"
    refit: Literal["boolean", "none"] = "boolean"
    tol: float = 1e-6
    row_clip: float | None = set_by_privacy()
    row_count: float | None = set_by_privacy()

    domain: ClassVar[Domain] = "binary"
    default_rounds: ClassVar[int] = 100
    pooled: ClassVar[bool] = True
    handles_missing: ClassVar[bool] = True

    def check(self, meta: Meta) -> None:
        """Refuse settings that cannot work."""
        check_rank(self.n_components, meta)
        check_pull(self)
        if self.server_steps < 1:
            raise ValueError(f"server_steps={self.server_steps} must be at least 1.")
        if self.gamma < 0:
            raise ValueError(f"gamma={self.gamma} must not be negative; 0 is one rate for all cells.")
        if self.solver not in ("counts", "proximal"):
            raise ValueError(f"solver={self.solver!r} is not known. Use 'counts' or 'proximal'.")
        if not self.thresholds or not all(0 < share <= 1 for share in self.thresholds):
            raise ValueError(f"thresholds={self.thresholds} must be at least one share of rows, in (0, 1].")
        if not self.penalties or not all(cost == int(cost) and cost >= 1 for cost in self.penalties):
            raise ValueError(f"penalties={self.penalties} must be at least one whole number from 1.")
        for name, least in (("candidates", 1), ("trials", 1), ("patience", 0), ("search_rounds", 0), ("sample", 1)):
            if getattr(self, name) < least:
                raise ValueError(f"{name}={getattr(self, name)} must be at least {least}.")
        if self._counts and self.row_clip is not None:
            raise IncompatibleError(
                "The search of PooledBMF sends exact counts in each of many exchanges, and one row with r ones changes "
                "r² of them: noise that hides a row would drown them. Use solver='proximal' with dp(...), or search "
                "under a secure sum."
            )
        if meta.masked and not self._counts:
            raise IncompatibleError(
                "PooledBMF(solver='proximal') needs complete rows, but some cells are missing. Use solver='counts', or "
                "fill them."
            )

    @property
    def _counts(self) -> bool:
        return self.solver == "counts"

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """List the questions and counts of the search; or one factor down, the sums up."""
        if not self._counts:
            return proximal.proximal_messages(self, meta)
        last: dict[type, Spec] = {Factor: {"V": Leaf(meta.dtype, (self.n_components, meta.n_features))}}
        return {**search.search_messages(search.sizes_of(self, meta.n_features)), **last}

    def init_server(self, meta: Meta, at: Round) -> tuple[Any, Any]:
        """Begin the search, or draw V."""
        if not self._counts:
            return proximal.start(self, meta, at)
        return search.begin(search.sizes_of(self, meta.n_features), meta.dtype)

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Any:
        """Know nothing yet; or start each row of U at numbers that depend on that row of X alone."""
        return home.Home() if self._counts else proximal.start_rows(self, shard, at)

    def client_step(self, shard: Shard, state: Any, down: Any, at: Round) -> tuple[Any, Any]:
        """Count what the server asks for; or step on U with V fixed, and send what the steps on V depend on."""
        if not self._counts:
            return proximal.step_rows(self, shard, state, down, at)
        return home.answer(tuple(self.penalties), shard, state, down)

    def accepts(self, down: Any, meta: Meta) -> str:
        """Expect a V whose cells lie between 0 and 1, where one is sent."""
        return odd_factor(down.V, most=1.0) if isinstance(down, Factor) else ""

    def server_step(self, state: Any, up: Any, at: Round) -> tuple[Any, Any]:
        """Take in the sums and ask the next question; or step on V with the sums fixed."""
        if not self._counts:
            return proximal.step_factor(self, state, up, at)
        return search.advance(self, search.sizes_of(self, len(state.ones)), state, up, at.index)

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
        """Tell whether the search is over; or whether V is Boolean and stands still."""
        if self._counts:
            return int(state.stage) == search.DONE
        return float(state.moved) < self.tol and float(state.gap) < BINARY_GAP

    def report(self, state: Any) -> dict[str, float]:
        """Tell the loss of the best V so far, and of simple fits; or how far V is from Boolean, and its error."""
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
        return as_like(choose(observed(X, mask), bits.pack(V))[0], X)

    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Choose components for new rows."""
        return self._rows(X, round_half(as_like(factors.V, X)), mask)

    def score(self, shard: Shard, state: Any, down: Any) -> Score:
        """Count wrong cells, cells, and ones: of the cells held out, if any, else of those observed."""
        factors = state if isinstance(state, LocalFactors) else self.finish(shard, state, down)
        X, mask = shard.scored
        rows = observed(X, mask)
        made = bits.product(as_like(factors.U, np.empty(0)), bits.pack(factors.V))
        ones, zeros = (int(bits.ones_of(part).sum()) for part in (rows.ones, rows.zeros))
        wrong = bits.ones_of(rows.ones & ~made).sum() + bits.ones_of(rows.zeros & made).sum()
        return Score.of(float(wrong), ones + zeros, ones)
