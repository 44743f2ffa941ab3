"""PooledNMF: the iterates of NMF on pooled rows, from sums alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

import numpy as np

from fedfactor.core.algorithm import Algorithm, LocalFactors, Meta, Round, Score, Uplink
from fedfactor.core.client_data import Shard
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.input_validation import check_rank
from fedfactor.core.parameters import declares_settings, set_by_privacy, set_by_run, setting
from fedfactor.core.pytree import Array, is_mapping, leaves, record, to_numpy, tree_map
from fedfactor.core.wire import Leaf, Spec
from fedfactor.linalg.factors import balance, odd_factor, row_norms, stacked, unit_rows
from fedfactor.linalg.products import as_like, zeros
from fedfactor.linalg.row_clipping import (
    CURVED_NORM,
    FIRST_CLIP,
    LEAST_CLIP,
    MOST_CLIP,
    ROW_CLIP,
    RowSums,
    clipped_gradient,
    clipped_sums,
    curved_error,
    curved_round,
    doubles,
    noisy_round,
    summation_error,
)
from fedfactor.linalg.single_pass import Pass, go_together, passes
from fedfactor.nmf.pooled import initialization as pooled_start
from fedfactor.nmf.pooled.extrapolation import (
    PATIENCE,
    Extrapolation,
    as_leaf,
    beside,
    cohort,
    is_zero,
    margin,
    more_rounds,
    stand_in,
)
from fedfactor.nmf.pooled.initialization import FIRST_STEPS, Alone, Wide, WideSums
from fedfactor.nmf.pooled.losses import find_loss
from fedfactor.nmf.pooled.losses.loss import Loss
from fedfactor.nmf.pooled.losses.squared_error import MaskedSums, Sums
from fedfactor.nmf.pooled.parameter_checks import able_to_start_wide, check_together
from fedfactor.nmf.pooled.private_components import fit_with_private, unexplained
from fedfactor.nmf.pooled.regularization import (
    FIRST_MISFIT,
    column_lengths,
    misfit_after,
    paid,
    pay_of_U,
    pay_of_V,
    weight_of,
)
from fedfactor.nmf.pooled.restarts import (
    MOST_RESTARTS,
    SAME_LOSS,
    Begun,
    first_begun,
    is_stuck,
    shares_of,
    split,
)
from fedfactor.nmf.pooled.warm_start import Begin, beside_held, in_units


@record("pooled_nmf.Factor")
class Factor:
    """Down: the shared factor; rows of norm 1 unless penalties set their length, of sum 1 for a divergence.

    ``misfit``: the unexplained share of the squares of all observed cells so far, where a ridge follows from it.
    ``units``: what rows of V have been divided by since the run began, where U of earlier rows is held. ``clip``: the
    bound on gradients of rows where noise protects rows and V moves by Newton steps.
    """

    V: Array
    misfit: Array | None = None
    units: Array | None = None
    clip: Array | None = None


@record("pooled_nmf.RowGradients")
class RowGradients:
    """Up, when each row's part is bounded: the sum over rows of the clipped gradients of V."""

    uplink: ClassVar[Uplink] = Uplink.SUM

    D: Array


@record("pooled_nmf.RowSteps")
class RowSteps:
    """Up, with Newton steps, each row's part bounded: gradients of V in units of the clip, half of the weighted
    ``UᵀU``, and the weighted number of rows whose gradient is within the clip.
    """

    uplink: ClassVar[Uplink] = Uplink.SUM

    D: Array
    half: Array
    within: Array


@record("pooled_nmf.Local")
class Local:
    """Stays home: U, the client's own components, what relative errors divide by, and what a row counts."""

    U: Array
    total: Array
    masked: Array
    weight: Array
    Q: Array | None = None


@record("pooled_nmf.Server")
class Server:
    """The server's memory: the last V, its momentum, the last sums (those of a loss), and what the loss was."""

    V: Array
    sent: Array
    up: Any
    cohort: Array
    n_clients: Array
    n_rows: Array
    stream: Array
    beta: Array
    beta_most: Array
    loss: Array
    sse: Array
    total: Array
    flat: Array
    mean: Array
    count: Array
    misfit: Array | None = None
    units: Array | None = None
    begun: Begun | None = None
    clip: Array | None = None


@declares_settings
class PooledNMF(Algorithm):
    r"""Non-negative factorization as if all rows lay in one place.

    .. math:: \min_{U_c \ge 0,\, V \ge 0} \sum_c w_c \Big(\tfrac12 \|X_c - U_c V\|^2
        + \alpha_U m \,\mathrm{pay}(U_c)\Big) + \alpha_V n \,\mathrm{pay}(V),
        \quad \mathrm{pay}(F) = \rho \textstyle\sum F + \tfrac{1 - \rho}{2} \|F\|^2

    For a fixed V each client's :math:`U_c` is its own business; for fixed :math:`U_c` the best V depends on the data
    only through :math:`G = \sum_c U_c^\top U_c` and :math:`A = \sum_c U_c^\top X_c`. The server sees those sums, takes
    the coordinate-descent step on V that pooled data would take, and extrapolates; when the loss rises it drops the
    extrapolation. With missing cells the sums are those of a gradient, see
    :func:`~fedfactor.linalg.missing_values.masked_step`; for a divergence those of a multiplicative step.

    Notes
    -----
    Federated = pooled: U starts at zero, so every row of U is a function of its own row of X and of the V's so far, and
    any split of the same rows gives the same V up to rounding whenever every client takes part (not with
    ``start="stacked"``, ``n_private``, ``weights="equal"`` or ``"mean"``, which depend on who owns what). When the
    participants change, the loss test is skipped, the extrapolation reset, and the sums blended with the last ones.

    Up per client and round: k(k + m) numbers (k(k + 2m) with missing cells, k(1 + m) for Kullback-Leibler, 2 k m for
    other divergences; 3k(3k + m) in the rounds of a wide start, two or, for β-divergences, eight); down: k m. Time
    per round: two products with X.
    The sums hide no row by themselves: a column with one non-zero cell shows that row's u.

    With a divergence, scores of hidden cells mix one per cent of a flat row into what is predicted, so that a cell that
    was held to be impossible costs much, not infinitely much.

    References
    ----------
    .. [1] A. M. S. Ang, N. Gillis, "Accelerating nonnegative matrix factorization algorithms using extrapolation",
       Neural Computation 31 (2019). doi:10.1162/neco_a_01157
    .. [2] Z. Yang, G. Michailidis, "A non-negative matrix factorization method for detecting modules in heterogeneous
       omics multi-modal data", Bioinformatics 32 (2016). doi:10.1093/bioinformatics/btv544

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> X = np.random.default_rng(0).random((30, 6))
    >>> one = fedfactor.run(PooledNMF(2), {"a": X}, rounds=5, seed=0)
    >>> two = fedfactor.run(PooledNMF(2), {"a": X[:7], "b": X[7:]}, rounds=5, seed=0)
    >>> bool(np.allclose(one.V, two.V))
    True
    """

    n_components: int = setting("Rank k.", at_least=1)
    local_steps: int = setting("Sweeps over U in each round.", default=5, at_least=1)
    server_steps: int = setting("Sweeps over V in each round (a divergence takes one step).", default=10, at_least=1)
    momentum: bool = setting("Extrapolate V, with restarts.", default=True)
    tol: float = setting(
        "The run has converged when three rounds in a row lower the loss by less than this share of it, and all "
        "further rounds are expected to lower it by less than 50 times this share; 0 uses all rounds.",
        default=1e-4,
        at_least=0,
    )
    loss: float | str = setting(
        "What is minimised, by name or by the β of a β-divergence, as scikit-learn's ``beta_loss``: "
        '``"frobenius"`` (2), the squared error; ``"kullback-leibler"`` (1), :math:`\\sum x \\log(x / uv) - x + uv`, '
        'which suits counts; ``"itakura-saito"`` (0), :math:`\\sum x / uv - \\log(x / uv) - 1`, for positive data '
        "such as powers of a spectrum; any other number, such as 0.5: large cells count the less the smaller it is. "
        "From 0 down, zeros cost infinitely much and are refused.",
        default="frobenius",
    )
    start: Literal["auto", "wide", "random", "stacked"] = setting(
        '``"wide"``: two rounds (eight for β-divergences) with 3 k components, folded into k by the server from their '
        "sums alone. "
        '``"random"``: V is drawn. ``"stacked"``: each owner factors its rows alone, and the server **sees each '
        'owner\'s sums** (a gather). ``"auto"``: wide for all losses (divergences take powers of cells), but '
        "random for the squared loss with missing cells, and where 3 k components have no room.",
        default="auto",
    )
    alpha_U: float = setting(
        "Weight of the penalty on U, times the number of features m, as in scikit-learn.", default=0.0, at_least=0
    )
    alpha_V: float | Literal["same"] = setting(
        "Weight of the penalty on V, times the number of rows n. With 0 the rows of V have norm 1 (scikit-learn lets "
        "them grow).",
        default="same",
        at_least=0,
    )
    l1_ratio: float = setting("The share ρ of L1 in the penalties; the rest is L2.", default=0.0, at_least=0, at_most=1)
    n_private: int = setting(
        "Components that each owner has for itself: :math:`X_c \\approx U_c V + P_c Q_c`; P and Q never leave it.",
        default=0,
        at_least=0,
    )
    private_penalty: float = setting(
        "λ in ``½ λ ‖P_c‖²`` (rows of Q have norm 1), for Kullback-Leibler in ``λ ΣP_c`` (rows of sum 1): what all "
        "owners share shall go into V. A large one drives strong components of one owner into V, too.",
        default=0.01,
        at_least=0,
    )
    weights: Literal["rows", "equal", "mean"] | Mapping[str, float] = setting(
        "What a row of each owner counts: 1; so that all owners count alike; one over the owner's rows, which makes "
        "them count alike too, but needs no other party's number of rows (:func:`fedfactor.dp` sets it for privacy of "
        "whole owners); or as given.",
        default="rows",
        check=False,
    )
    ridge: float | Literal["auto"] = setting(
        "For rows with missing cells and squared loss: a penalty on squares of U, as a share of the mean of "
        ":math:`\\sum_j V_{tj}^2` over the row's observed cells. Without it, rows with few cells fit them and blow up "
        'elsewhere. ``"auto"``: :math:`4 e^2 k / p + 0.01 (k / p)^2` for a row of p observed cells, where :math:`e^2` '
        "is the share of the squares of all observed cells that is not explained so far; sums contain it, and it never "
        "rises.",
        default="auto",
        at_least=0,
    )
    noisy_step: Literal["auto", "gradient", "newton"] = setting(
        'How V moves where noise protects rows (:func:`fedfactor.dp` with ``unit="row"`` or ``"subject"``). '
        '``"gradient"``: along summed gradients, by public lengths. ``"newton"``: clients send ``UᵀU`` and how many '
        "rows were clipped as well, under 2.1 % more noise; the step goes as far as each direction allows, and the "
        'clip follows the rows. ``"auto"``: Newton steps; as many rounds as rows, rank, columns and budget suggest.',
        default="auto",
    )
    row_clip: float | None = set_by_privacy(
        "Public bound on the norm of a row. When given, owners send sums of row-wise clipped gradients instead, which "
        "noise can protect, and the server takes projected gradient steps of public length; set by "
        ':func:`fedfactor.dp` with ``unit="row"``, and of no privacy without its noise.',
        default=None,
    )
    row_count: float | None = set_by_privacy(
        "Public (or privately estimated) number of rows of all owners, from which that step is taken.",
        default=None,
    )
    row_noise: float | None = set_by_privacy(
        "Standard deviation of the noise in the sums, in units of what one row can change: Newton steps are damped by "
        "it.",
        default=None,
    )

    misfit: float | None = set_by_run(
        'The :math:`e^2` that a run with ``ridge="auto"`` ended with, for new rows.', default=None
    )
    begin: Begin | None = set_by_run(
        "The V of an earlier run to start at, and the sums of its rows where they shall count with their U as it is.",
        default=None,
    )

    handles_missing: ClassVar[bool] = True
    handles_tensors: ClassVar[bool] = True
    weighs_means: ClassVar[bool] = True
    default_rounds: ClassVar[int] = 2000

    @property
    def handles_half(self) -> bool:
        """Return whether rows may be of half precision, or come block by block: where only products touch them."""
        return find_loss(self.loss).squared and not self.n_private and self.row_clip is None

    def check(self, meta: Meta) -> None:
        """Refuse a rank that the data cannot carry, and settings that do not go together."""
        check_rank(self.n_components, meta)
        check_together(self, meta)
        if self.begin is not None:
            self.begin.check(self, meta)

    def starting_at(self, V: Array) -> PooledNMF:
        """Begin at these components, as the server of a federation does whose parties agreed on them."""
        return replace(self, begin=Begin(V))

    def for_columns(self) -> PooledNMF:
        """Return this algorithm for clients that hold columns: the transposed problem is of the same kind."""
        if self.n_private:
            raise IncompatibleError("Clients that hold columns have no rows of their own. Set n_private=0.")
        return self

    def messages(self, meta: Meta) -> dict[type, Spec]:
        """One download, one upload that depends on loss and missing cells, and those of the start."""
        k = self.n_components
        m = meta.n_features
        number = Leaf("float64", ())
        beside = {"misfit": number} if self._tells_misfit(meta) else {}
        if self._held is not None:
            beside["units"] = Leaf(meta.dtype, (k,))
        down: dict[type, Spec] = {Factor: {"V": Leaf(meta.dtype, (k, m)), **beside}}
        if self.row_clip is not None:
            sums: Spec = {"D": Leaf("float64", (k, m))}
            if not self._newton:
                return {**down, RowGradients: sums}
            down = {Factor: {**down[Factor], "clip": number}}
            return {**down, RowSteps: {**sums, "half": Leaf("float64", (k * (k + 1) // 2,)), "within": number}}
        loss = find_loss(self.loss, masked=meta.masked)
        upload, spec = loss.messages(k, meta)
        told = {"total": number} | ({"extra": number} if self._pays(loss) else {})
        if self._balanced:
            told["lengths"] = Leaf(meta.dtype, (2, k))
        if self.n_private and upload is Sums:
            told["rest"] = number
        # A divergence may restart by wide rounds, however it began.
        start = self._start(meta) if loss.squared else "wide"
        return {**down, upload: {**spec, **told}, **pooled_start.messages(start, k, meta)}

    def init_server(self, meta: Meta, at: Round) -> tuple[Server, Factor | Wide | Alone]:
        """Draw V, or take that of an earlier run."""
        k = self.n_components
        start = self._start(meta)
        kind = find_loss(self.loss)
        V = kind.first_V(at.shared_rng("V"), (k, meta.n_features)) if self.begin is None else to_numpy(self.begin.V)
        lengths = kind.lengths(V)
        if self.begin is not None and np.allclose(lengths, 1.0, atol=1e-5):
            # As an earlier run left it, to the bit: parties know it by its fingerprint.
            lengths = np.ones_like(lengths)
        units = None if self._held is None else lengths[:, 0].astype(meta.dtype)
        V = (V / lengths).astype(meta.dtype)
        misfit = np.float64(FIRST_MISFIT if self.misfit is None else self.misfit) if self._tells_misfit(meta) else None
        clip = np.float64(FIRST_CLIP) if self.row_clip is not None and self._newton else None
        down = Factor(V, misfit, units, clip) if start == "random" else pooled_start.first_download(start, k, meta, at)
        server = Server(
            V=V,
            sent=down.V,
            up=None,
            cohort=np.uint64(0),
            n_clients=np.int64(meta.n_clients),
            n_rows=np.float64(np.nan if meta.n_rows is None else meta.n_rows),
            stream=at.shared_rng("fold").integers(2**63, dtype=np.uint64),
            beta=np.float64(0.5),
            beta_most=np.float64(1.0),
            loss=np.float64(np.inf),
            sse=np.float64(np.nan),
            total=np.float64(np.nan),
            flat=np.float64(0),
            mean=np.float64(0),
            count=np.float64(0),
            misfit=misfit,
            units=units,
            begun=None if kind.squared and self._held is not None else first_begun(),
            clip=clip,
        )
        return server, down

    def init_client(self, shard: Shard, meta: Meta, at: Round) -> Local:
        """Start U at zero: anything random per client would break the equality with pooled rows."""
        U = self._zeros(shard)
        loss = find_loss(self.loss, masked=meta.masked)
        loss.check(shard.X, shard.mask, at.client)
        total = loss.total(shard.X, shard.mask) - shard.lost
        weight = np.float64(weight_of(self.weights, at.client, shard.n_rows, meta))
        own = at.rng("private").exponential(size=(self.n_private, meta.n_features)) if self.n_private else None
        Q = None if own is None else as_like(unit_rows(own), shard.X)
        if self._start(meta) != "random":
            U = U[:, :0]  # nothing yet: the first round after the start then sweeps from zero
        return Local(U, np.float64(total), np.bool_(meta.masked), weight, Q)

    def client_steps(
        self, shards: Sequence[Shard], states: Sequence[Local], down: Any, ats: Sequence[Round]
    ) -> Iterable[tuple[Local, Any]] | None:
        """Sweep over the U of all clients, and sum, in one go; see :func:`~fedfactor.linalg.single_pass.passes`."""
        Xs = [shard.X for shard in shards]
        fresh = {self._fresh(*pair) for pair in zip(states, ats, strict=True)}
        plain = isinstance(down, Factor) and not (self.n_private or any(state.masked for state in states))
        if not (plain and self.handles_half and len(fresh) == 1 and go_together(Xs, self.n_components)):
            return None
        new = fresh.pop()
        V = as_like(down.V, Xs[0])
        Us = [
            self._zeros(shard) if new else as_like(state.U, shard.X)
            for shard, state in zip(shards, states, strict=True)
        ]
        pay = pay_of_U(self, shards[0].n_features)
        found = passes(Xs, V, Us, sweeps=self._sweeps(new), l1=pay.l1, l2=pay.l2)
        each = zip(shards, states, ats, found, strict=True)
        return (self._step(shard, state, down, at, done) for shard, state, at, done in each)

    def client_step(self, shard: Shard, state: Local, down: Factor | Wide | Alone, at: Round) -> tuple[Local, Any]:
        """Sweep over U, then send what the best V depends on."""
        return self._step(shard, state, down, at)

    def _step(self, shard: Shard, state: Local, down: Any, at: Round, done: Pass | None = None) -> tuple[Local, Any]:
        """Take a step, with the pass over complete rows where that is done."""
        V = as_like(down.V, shard.X)
        weight = float(state.weight)
        if self.row_clip is not None:
            return self._clipped_step(self.row_clip, shard, state, down, at)
        if isinstance(down, Alone):
            return state, _times(weight, pooled_start.own_components(shard.X, V))
        if isinstance(down, Wide):
            kind = find_loss(self.loss)
            if kind.squared:
                return state, _times(weight, pooled_start.filled_sums(shard.X, shard.mask, V, state.total))
            # After a restart U begins again: steps that multiply do not bring back what is zero.
            up = pooled_start.turned_sums(shard.X, shard.mask, V, state.total, kind)
            return replace(state, U=state.U[:, :0]), _times(weight, up)
        X = shard.X
        mask = shard.mask
        loss = find_loss(self.loss, masked=bool(state.masked))
        fresh = self._fresh(state, at)
        U = self._zeros(shard) if fresh else as_like(state.U, X)
        Q = None if state.Q is None else as_like(state.Q, X)
        whole = float(state.total)
        pay = loss.penalty(pay_of_U(self, shard.n_features, misfit=down.misfit), V, mask, own=Q is not None)
        sweeps = self._sweeps(fresh)
        if done is not None:
            U = done.U
            up = Sums(done.G, done.A)
        elif Q is None:
            U, up = loss.rows_and_sums(U, X, V, mask, sweeps=sweeps, pay=pay, total=whole)
        else:
            if fresh and not isinstance(mask, str) and shard.n_rows:
                Q = loss.first_private(unexplained(X, V, self.n_private, at.rng("private"), mask))
            U, Q = fit_with_private(loss, U, X, V, Q, mask, sweeps=sweeps, penalty=pay)
            up = loss.sums(U, X, V, mask, total=whole, own=Q)
        told: dict[str, Any] = {"total": state.total, "extra": None}
        if self._pays(loss):
            told["extra"] = paid(U, pay, X, mask, stacked(V, Q), up.extra)
        if self._balanced:
            told["lengths"] = column_lengths(U[:, : self.n_components])
        return replace(state, U=U, Q=Q), _times(weight, replace(up, **told))

    def _clipped_step(
        self, bound: float, shard: Shard, state: Local, down: Factor, at: Round
    ) -> tuple[Local, RowGradients | RowSteps]:
        """Sweep over U, and sum what noise can protect: parts of rows whose norm is bounded."""
        sweeps = self._sweeps(at.index == 0)
        if down.clip is None:
            U, D = clipped_gradient(state.U, doubles(shard.X), down.V, bound=bound, sweeps=sweeps)
            return replace(state, U=U), RowGradients(D)
        # The share that is not explained is in no upload here: rows with missing values pay the least ridge.
        pay = pay_of_U(self, shard.n_features)
        clip = float(down.clip)
        U, found = clipped_sums(
            state.U, shard.X, down.V, shard.mask, clip=clip, bound=bound, sweeps=sweeps, penalty=pay
        )
        return replace(state, U=U), RowSteps(*found)

    def accepts(self, down: Factor | Wide | Alone, meta: Meta) -> str:
        """Expect non-negative rows of the length that the loss gives them, unless penalties set it."""
        if isinstance(down, Factor) and down.clip is not None and not LEAST_CLIP <= float(down.clip) <= MOST_CLIP:
            return "the clip is not between its bounds"
        if self._balanced and isinstance(down, Factor):
            return odd_factor(down.V)
        whole = find_loss(self.loss, masked=meta.masked).lengths if isinstance(down, Factor) else row_norms
        return odd_factor(down.V, lengths=whole)

    def server_step(self, state: Server, up: Any, at: Round) -> tuple[Server, Factor | Wide]:
        """Take the step on V that pooled rows would take, and extrapolate unless the loss rose."""
        if is_mapping(up):
            state = replace(state, cohort=np.uint64(cohort(at.participants)))
            return self._begin(state, pooled_start.fold_stack(up, self.n_components, state.stream))
        if isinstance(up, RowGradients | RowSteps):
            return self._noisy_step(state, up, at)
        same = cohort(at.participants) == int(state.cohort)
        share = len(at.participants) / int(state.n_clients)
        pooled = stand_in(up, share, None if same else state.up)
        if isinstance(pooled, WideSums):
            return self._widen(state, pooled, at)
        pay = pay_of_V(self, float(state.n_rows))
        kind = find_loss(self.loss, masked=isinstance(up, MaskedSums))
        matrix = next(leaf for _, leaf in leaves(up) if leaf.ndim == 2)  # of the type and library of the data
        last = pooled
        held = self._held
        if held is not None and state.units is not None:
            held = in_units(held, state.units)
            up = beside_held(up, held)
            pooled = beside_held(pooled, held)
        V, loss, sse = kind.step(as_like(state.sent, matrix), up, pooled, share, self.server_steps, pay)
        whole = np.nan if up.total is None else float(up.total)
        # On a GPU the loss decides there, without synchronization.
        known = (state.beta, state.beta_most, state.flat, state.mean, state.count)
        *numbers, before = beside(loss, *known, state.loss if same else np.inf)
        beta = numbers[0]
        pace = Extrapolation(*numbers).after(loss, before, self.tol, margin(whole, loss))
        since = at.index - (0 if state.begun is None else int(state.begun.index))
        if since < kind.least_rounds:
            pace = replace(pace, flat=0)
        bold = beta * pace.good if same and self.momentum and since >= kind.quiet_rounds else 0.0
        # One scale for V and for what is sent, so that their difference keeps its meaning.
        if pooled.lengths is None:
            V, sent, divide = kind.ahead_in_units(V, as_like(state.V, V), bold)
        else:
            sent = V if is_zero(bold) else kind.ahead(V, as_like(state.V, V), bold)
            divide = balance(sent, pooled.lengths[1], pooled.lengths[0], pay_of_U(self, V.shape[1])[:2], pay)
            V = V / divide
            sent = sent / divide
        server = replace(
            state,
            V=V,
            sent=sent,
            up=last,
            cohort=np.uint64(cohort(at.participants)),
            beta=as_leaf(pace.beta),
            beta_most=as_leaf(pace.most),
            loss=as_leaf(np.inf if loss is None else loss),
            sse=as_leaf(np.nan if sse is None else sse),
            total=np.float64(whole),
            flat=as_leaf(pace.flat),
            mean=as_leaf(pace.mean),
            count=as_leaf(pace.count),
            misfit=None if state.misfit is None else misfit_after(state.misfit, up),
            units=None if state.units is None else state.units * as_like(divide[:, 0], state.units),
        )
        # On a GPU the squared loss decides there, and no round waits for it.
        if server.begun is not None and not hasattr(loss, "is_cuda") and self._stands(server):
            return self._leave_if_stuck(server, server.begun, pooled, at)
        return server, Factor(server.sent, server.misfit, server.units)

    def _leave_if_stuck(self, state: Server, begun: Begun, pooled: Any, at: Round) -> tuple[Server, Factor | Wide]:
        """Restart where steps stand still at collinear, dead or locked components.

        The squared error restarts from a V whose stuck components are split, which needs no further message. Others do
        by wide rounds, since multiplicative steps do not bring back what is zero.
        """
        down = Factor(state.sent, state.misfit, state.units)
        if int(begun.restarts) > 0 and float(state.loss) >= SAME_LOSS * float(begun.loss):
            return state, down
        restarts = int(begun.restarts) + 1
        rng = np.random.default_rng([int(state.stream), restarts])
        squared = find_loss(self.loss).squared
        parted = split(state.V, shares_of(state.V, pooled), rng) if squared else None
        if parted is None and (squared or not is_stuck(state.V, pooled.N, pooled.D, state.loss)):
            return state, down
        if restarts > MOST_RESTARTS:
            return replace(state, flat=np.float64(0)), down
        state = replace(state, flat=np.float64(0), beta=np.float64(0.5), beta_most=np.float64(1.0))
        if parted is not None:
            begun = replace(begun, index=np.int64(at.index), restarts=np.int64(restarts), loss=state.loss)
            V = parted / find_loss(self.loss).lengths(parted)
            state = replace(state, V=V, sent=V, begun=begun, loss=np.float64(np.inf))
            return state, replace(down, V=V)
        k, m = state.V.shape
        wide = Wide(as_like(unit_rows(rng.exponential(size=(pooled_start.wide_width(k, m), m))), state.V))
        begun = Begun(np.int64(0), np.int64(at.index), np.int64(restarts), state.loss)
        stream = rng.integers(2**63, dtype=np.uint64)
        fresh = replace(state, sent=wide.V, up=None, begun=begun, stream=stream, loss=np.float64(np.inf))
        return fresh, wide

    def _noisy_step(self, state: Server, up: RowGradients | RowSteps, at: Round) -> tuple[Server, Factor]:
        """Take a public or damped step along summed gradients, and keep a running mean of the iterates to end with."""
        rows = float(self.row_count or 1) * len(at.participants) / int(state.n_clients)
        if isinstance(up, RowGradients) or state.clip is None:
            sent, mean = noisy_round(state.sent, state.V, up.D, index=at.index, rows=rows)
            return replace(state, V=mean, sent=sent), Factor(sent)
        sums = RowSums(up.D, up.half, up.within)
        noise = float(self.row_noise or 0) * CURVED_NORM
        clip = float(state.clip)
        sent, mean, clip = curved_round(
            state.sent, state.V, sums, clip=clip, index=at.index, noise=noise, rows=rows, sweeps=self.server_steps
        )
        return replace(state, V=mean, sent=sent, clip=np.float64(clip)), Factor(sent, clip=np.float64(clip))

    def sensitivity(self, meta: Meta) -> tuple[str, float] | None:
        """Bound what one row can change in the sum of all uploads: the clip, and the rounding of the sum."""
        if self.row_clip is None:
            return None
        rows = 2 * float(self.row_count or 1)
        if self._newton:
            return "row", CURVED_NORM + curved_error(rows, self.n_components, meta.n_features)
        return "row", ROW_CLIP + summation_error(rows, self.n_components, meta.n_features)

    @property
    def _newton(self) -> bool:
        """Whether noisy sums are those of Newton steps."""
        return self.noisy_step == "newton" or (self.noisy_step == "auto" and self.row_noise is not None)

    def _widen(self, state: Server, pooled: WideSums, at: Round) -> tuple[Server, Factor | Wide]:
        """Take one step on the wide components; at their second sums, fold them."""
        here = np.uint64(cohort(at.participants))
        begun = state.begun
        done = int(state.up is not None) + 1 if begun is None else int(begun.wide) + 1
        if done >= find_loss(self.loss).wide_rounds:
            return self._begin(replace(state, cohort=here), self._folded(state, pooled))
        V, columns = self._wide_step(state, pooled)
        down = Wide(unit_rows(V if columns is None else V * columns))
        begun = None if begun is None else replace(begun, wide=np.int64(done))
        return replace(state, sent=down.V, up=pooled, cohort=here, begun=begun), down

    def _wide_step(self, state: Server, pooled: WideSums) -> tuple[Array, Array | None]:
        """Return the next wide components in units of the sums, and the levels of columns that these divide by."""
        sent = as_like(state.sent, pooled.A)
        columns = pooled_start.column_levels(sent, find_loss(self.loss))
        return pooled_start.wide_step(sent if columns is None else sent / columns, pooled, self.server_steps), columns

    def _folded(self, state: Server, pooled: WideSums) -> np.ndarray:
        """Fold wide components into those to begin with."""
        V, columns = self._wide_step(state, pooled)
        V = pooled_start.fold(pooled, V, self.n_components, state.stream)
        return find_loss(self.loss).first_from(V, None if columns is None else to_numpy(columns))

    def _begin(self, state: Server, V: np.ndarray) -> tuple[Server, Factor]:
        """Begin with the components that the first sums gave."""
        V = as_like(self._scaled(V), state.sent)
        return replace(state, V=V, sent=V, up=None), Factor(V, state.misfit)

    def settle(self, state: Server, down: Factor | Wide | Alone) -> Factor:
        """Take the V that was reached, not the bold guess beyond it that was to go out."""
        if isinstance(down, Wide) and isinstance(state.up, WideSums):
            return self._begin(state, self._folded(state, state.up))[1]
        lengths = find_loss(self.loss).lengths(state.V)
        units = None if state.units is None else state.units * as_like(lengths[:, 0], state.units)
        return Factor(state.V if self._balanced else state.V / lengths, state.misfit, units, state.clip)

    def learned(self, down: Factor) -> PooledNMF:
        """Keep the share that was not explained, from which the ridge of new rows follows, and held sums as V ended."""
        begin = None
        if self._held is not None and down.units is not None:
            begin = Begin(down.V, in_units(self._held, down.units))
        misfit = self.misfit if down.misfit is None else float(down.misfit)
        return replace(self, misfit=misfit, begin=begin)

    def steady(self, state: Server, down: Factor | Wide | Alone) -> bool:
        """Return whether rounds depend on sums of complete rows on a GPU alone, and one such round has been taken."""
        free = self.alpha_U == 0 and self.alpha_V in (0, "same") and self.handles_half and self._held is None
        return free and isinstance(down, Factor) and isinstance(state.up, Sums) and hasattr(state.loss, "is_cuda")

    def converged(self, state: Server) -> bool:
        """Return whether the last rounds brought next to nothing."""
        return self.tol > 0 and int(state.flat) >= PATIENCE

    def _stands(self, state: Server) -> bool:
        """Whether steps are so small that a restart may be due: multiplicative ones leave a saddle slowly."""
        return self.tol > 0 and int(state.flat) >= (PATIENCE if find_loss(self.loss).squared else PATIENCE - 1)

    def report(self, state: Server) -> dict[str, float]:
        """Return the relative error of those who took part, as far as sums say it, and the rounds still expected."""
        sse = float(state.sse)
        total = float(state.total)
        if not (total > 0 and np.isfinite(sse)):
            return {}
        found = {"relative_error": float(np.sqrt(sse / total))}
        if self.tol > 0:
            found["more_rounds"] = more_rounds(float(state.mean), float(state.count), float(state.loss), self.tol)
        return found

    def finish(self, shard: Shard, state: Local, down: Factor | Wide | Alone) -> LocalFactors:
        """Solve U for the final V."""
        k = self.n_components
        V = as_like(down.V, shard.X)
        # With a clip, U is in units of scaled rows and no start for these.
        whole = state.U.shape[1] == k + self.n_private and self.row_clip is None
        start = as_like(state.U, V) if whole else None
        Q = None if state.Q is None else as_like(state.Q, V)
        both = stacked(V, Q)
        loss = find_loss(self.loss, masked=bool(state.masked))
        misfit = down.misfit if isinstance(down, Factor) else None
        pay = pay_of_U(self, shard.n_features, None if Q is None else both.shape[0], misfit)
        pay = loss.penalty(pay, V, shard.mask, own=state.Q is not None)
        U = loss.solve(start, shard.X, both, shard.mask, pay)
        return LocalFactors(U, V) if state.Q is None else LocalFactors(U[:, :k], V, None, state.Q, U[:, k:])

    def fold_in(self, X: Array, factors: LocalFactors, mask: Array | str | None = None) -> Array:
        """Solve U for new rows: of the shared components, and after them of the client's own when they are given."""
        V = as_like(stacked(factors.V, factors.V_private), X)
        loss = find_loss(self.loss)
        return loss.solve(None, X, V, mask, loss.penalty(pay_of_U(self, X.shape[1], V.shape[0]), V, mask))

    def score(self, shard: Shard, state: Local | LocalFactors, down: Factor) -> Score:
        """Measure the error over all observed cells, or over those that were held out."""
        kept = state if isinstance(state, LocalFactors) else self.finish(shard, state, down)
        U = kept.U if kept.U_private is None else stacked(kept.U.T, kept.U_private.T).T
        X, mask = shard.scored
        V = stacked(kept.V, kept.V_private)
        loss = find_loss(self.loss)
        sse, n, total = loss.error(X, U, V, mask, hidden=shard.holdout is not None)
        return Score.of(max(sse - shard.lost, 0.0), n, total - shard.lost)

    @property
    def _balanced(self) -> bool:
        """Whether penalties on both sides decide how long the rows of V are."""
        return self.alpha_U > 0 and self.alpha_V != 0

    def _pays(self, loss: Loss) -> bool:
        return loss.pays(self.alpha_U, self.n_private, self.ridge)

    def _tells_misfit(self, meta: Meta) -> bool:
        return self.ridge == "auto" and meta.masked and find_loss(self.loss).squared and self.row_clip is None

    @property
    def _held(self) -> Sums | None:
        return None if self.begin is None else self.begin.held

    def _start(self, meta: Meta) -> str:
        if self.row_clip is not None or self.begin is not None:  # a start from the data would have to be paid for
            return "random"
        if self.start != "auto":
            return self.start
        room = pooled_start.width("wide", self.n_components, meta) >= 1.5 * self.n_components
        return "wide" if room and able_to_start_wide(self, meta) else "random"

    def _scaled(self, V: Array) -> Array:
        return V / find_loss(self.loss).lengths(V)

    def _fresh(self, state: Local, at: Round) -> bool:
        """Whether U has yet to begin."""
        return at.index == 0 or state.U.shape[1] != self.n_components + self.n_private

    def _sweeps(self, fresh: bool) -> int:
        return max(self.local_steps, FIRST_STEPS) if fresh else self.local_steps

    def _zeros(self, shard: Shard) -> Array:
        return zeros((shard.n_rows, self.n_components + self.n_private), shard.X)


def _times(weight: float, up: Any) -> Any:
    return up if weight == 1 else tree_map(lambda leaf: weight * leaf, up)
