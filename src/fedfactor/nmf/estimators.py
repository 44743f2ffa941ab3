"""Estimators of non-negative factorization whose clients may have components of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from fedfactor import algorithms
from fedfactor.core.algorithm import LocalFactors
from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.pytree import Array
from fedfactor.core.run import Run
from fedfactor.engines.engine import Engine
from fedfactor.estimators.base import FederatedTransformer
from fedfactor.estimators.columns import ColumnSplitEstimator
from fedfactor.estimators.parameter_names import accept_other_names
from fedfactor.nmf.incremental_fit import IncrementalFit


class PrivateComponents(FederatedTransformer):
    """An estimator whose clients may have components of their own.

    Attributes
    ----------
    components_private_ : dict of str to array of shape (p, n_features)
        Components of single clients; empty unless the parameters ask for some.
    """

    def _adopt(self, result: Run, federation: Federation) -> None:
        super()._adopt(result, federation)
        private = {name: kept.V_private for name, kept in result.factors.items()}
        self.components_private_ = {name: V for name, V in private.items() if V is not None}


@accept_other_names(max_iter="rounds")
class PooledNMF(ColumnSplitEstimator, IncrementalFit, PrivateComponents):
    r"""Non-negative matrix factorization with the result of pooled rows, from sums over clients.

    .. math:: \min_{U_c \ge 0,\, V \ge 0} \sum_c w_c \Big(\tfrac12 \|X_c - U_c V\|^2
        + \alpha_U m \,R(U_c)\Big) + \alpha_V n \,R(V),
        \quad R(F) = \rho \textstyle\sum F + \tfrac{1 - \rho}{2} \|F\|^2

    Each client keeps its rows and its U. A client sends sums from which the server computes V exactly as it would
    from all rows in one place.

    Parameters
    ----------
    n_components : int, at least 1, default=2
        Number of components (the rank k).
    local_steps : int, at least 1, default=5
        Sweeps over U in each round.
    server_steps : int, at least 1, default=10
        Sweeps over V in each round (a divergence takes one step).
    momentum : bool, default=True
        Extrapolate V between rounds, with restarts.
    tol : float, at least 0, default=0.0001
        The run has converged when three rounds in a row lower the loss by less than this share of it, and all further
        rounds are expected to lower it by less than 50 times this share; 0 uses all rounds.
    loss : float or str, default="frobenius"
        Loss to be minimized: a name or the β of a β-divergence, as ``beta_loss`` of scikit-learn. ``"frobenius"``
        (2): squared error; ``"kullback-leibler"`` (1): :math:`\sum x \log(x / uv) - x + uv`, for counts;
        ``"itakura-saito"`` (0): :math:`\sum x / uv - \log(x / uv) - 1`, for positive data such as power spectra;
        any other number. For 0 and below, zeros in the data are rejected.
    start : {"auto", "wide", "random", "stacked"}, default="auto"
        Initialization. ``"wide"``: two rounds with 3 k components, which the server combines into k from sums
        alone. ``"random"``: V is drawn. ``"stacked"``: each client factorizes its rows, and the server **sees the
        sums of each client** (gather). ``"auto"``: wide for complete rows under the squared or the Kullback-Leibler
        loss, else random.
    alpha_U : float, at least 0, default=0.0
        Weight of the regularization of U, times the number of features, as ``alpha_W`` of scikit-learn.
    alpha_V : float, at least 0 or "same", default="same"
        Weight of the regularization of V, times the number of rows, as ``alpha_H`` of scikit-learn. With 0 the rows
        of V have norm 1.
    l1_ratio : float in [0, 1], default=0.0
        Share ρ of L1 in the regularization; the rest is L2.
    n_private : int, at least 0, default=0
        Components of each client in addition to the shared ones: :math:`X_c \approx U_c V + P_c Q_c`; P and Q stay
        at the client.
    private_penalty : float, at least 0, default=0.01
        λ in ``½ λ ‖P_c‖²`` (rows of Q have norm 1), for Kullback-Leibler in ``λ ΣP_c`` (rows of sum 1). A larger
        value moves strong components of a single client into V.
    weights : {"rows", "equal", "mean"} or mapping of str to float, default="rows"
        Weight of a row: 1 (``"rows"``); such that all clients count alike (``"equal"``); one over the number of
        rows of the client (``"mean"``), which needs no number of rows of other clients and is used by
        :func:`fedfactor.dp` for privacy of clients; or as given.
    ridge : float, at least 0 or "auto", default="auto"
        For rows with missing values and the squared loss: L2 regularization of U relative to the mean of
        :math:`\sum_j V_{tj}^2` over the observed cells of the row, which keeps rows with few cells from
        overfitting. ``"auto"``: :math:`4 e^2 k / p + 0.01 (k / p)^2` for p observed cells, :math:`e^2` being the
        unexplained share of the sum of squares; it never increases.
    noisy_step : {"auto", "gradient", "newton"}, default="auto"
        Step on V under differential privacy of rows or subjects. ``"gradient"``: along summed gradients, with
        public step lengths. ``"newton"``: clients also send ``UᵀU`` and the number of rows that were clipped, under
        2.1 % more noise, and the clip follows the rows. ``"auto"``: Newton steps.
    split : {"rows", "columns"}, default="rows"
        What clients hold: rows with the same columns, or columns of the same rows, which are matched by their ids.
        The weights of penalties on U and V then change places.
    n_init : int, optional
        Number of initializations; the run with the smallest error is kept. 1 by default, 6 with ``n_private``. With
        :func:`fedfactor.dp` only 1 is accepted, because the budget is that of one run.
    warm_start : bool, default=False
        Initialize ``fit`` with the ``components_`` of the last fit (one initialization only); see also
        ``partial_fit``.
    rounds : int, optional
        Maximum number of rounds; default 2000. ``max_iter`` is an alias.
    n_clients : int, default=1
        Number of clients among which rows are split at random when the data name no clients and ``groups`` is not
        given.
    random_state : int, RandomState, Generator or None, optional
        Seed of every random stream; the seed that was used is ``run_.seed``.
    missing_values : nan, number or "unstored", optional
        Marker of missing values. None: NaN is an error, unstored sparse cells are zero. ``"unstored"``: only the
        stored cells of sparse matrices are observed.
    verbose : int, default=0
        1 or more: show progress.
    engine, privacy, device, storage, callbacks, checkpoint
        As in :func:`fedfactor.run`.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        V, shared by all clients; rows have norm 1 (for a divergence: sum 1; with regularization of both factors: the
        length of least cost).
    client_factors_ : dict of str to array of shape (n_c, n_components)
        U of each client (in a simulation, where one process has them all).
    reconstruction_err_, relative_error_ : float
        ``‖X − UV‖`` and ``‖X − UV‖ / ‖X‖`` over observed cells; for a divergence the root of twice the divergence,
        and that relative to a model of constant rows. Absent after a run with noise.
    n_iter_ : int
        Number of rounds.
    run_ : Run
        History, traffic, time, errors by client, and the seed.
    components_private_ : dict of str to array of shape (n_private, n_features)
        Components of single clients; empty unless ``n_private`` is above 0.

    Notes
    -----
    A round costs O(n m k) time, and sends ``U^T U`` and ``U^T X``, k (k + m) numbers, from each client and V, k m
    numbers, to it.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import PooledNMF
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((30, 2)) @ rng.random((2, 6))
    >>> model = PooledNMF(n_components=2, random_state=0).fit(X, groups=["north"] * 10 + ["south"] * 20)
    >>> model.components_.shape, model.client_factors_["north"].shape
    ((2, 6), (10, 2))
    >>> model.relative_error_ < 0.01
    True
    """

    _method = algorithms.PooledNMF

    def __init__(
        self,
        n_components: int = 2,
        *,
        local_steps: int = 5,
        server_steps: int = 10,
        momentum: bool = True,
        tol: float = 0.0001,
        loss: float | str = "frobenius",
        start: Literal["auto", "wide", "random", "stacked"] = "auto",
        alpha_U: float = 0.0,
        alpha_V: float | Literal["same"] = "same",
        l1_ratio: float = 0.0,
        n_private: int = 0,
        private_penalty: float = 0.01,
        weights: Literal["rows", "equal", "mean"] | Mapping[str, float] = "rows",
        ridge: float | Literal["auto"] = "auto",
        noisy_step: Literal["auto", "gradient", "newton"] = "auto",
        split: Literal["rows", "columns"] = "rows",
        n_init: int | None = None,
        warm_start: bool = False,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        device: str | None = None,
        storage: Literal["float64", "float32", "bfloat16"] | None = None,
        missing_values: float | str | None = None,
        verbose: int | bool = 0,
        callbacks: Any = (),
        checkpoint: Any = None,
    ) -> None:
        super().__init__(rounds, n_clients, engine, privacy, random_state, verbose, callbacks, checkpoint)
        self.n_components = n_components
        self.local_steps = local_steps
        self.server_steps = server_steps
        self.momentum = momentum
        self.tol = tol
        self.loss = loss
        self.start = start
        self.alpha_U = alpha_U
        self.alpha_V = alpha_V
        self.l1_ratio = l1_ratio
        self.n_private = n_private
        self.private_penalty = private_penalty
        self.weights = weights
        self.ridge = ridge
        self.noisy_step = noisy_step
        self.split = split
        self.n_init = n_init
        self.warm_start = warm_start
        self.device = device
        self.storage = storage
        self.missing_values = missing_values

    def _error(self, shard: Shard, U: Array, V: Array) -> tuple[float, int, float]:
        score = self.run_.algorithm.score(shard, LocalFactors(U, V), self.run_.down)
        return float(score.sse), int(score.n), float(score.total)


@accept_other_names(max_iter="rounds")
class FNMF(PrivateComponents):
    r"""Coherent federated NMF: components are aligned before they are averaged.

    .. math:: \min_{U_c, V_c \ge 0} \tfrac12 \|X_c - U_c V_c\|^2 + \gamma D(V_c, \bar V), \qquad
       D(V, W) = \min_P \tfrac12 \|V - P W\|^2

    With ``alignment="lap_rho"`` or ``"sinkhorn_rho"`` clients may have components of their own.

    Parameters
    ----------
    n_components : int, at least 1, default=2
        Number of components (the rank k) of each client and of the consensus.
    alignment : {"lap", "lap_rho", "sinkhorn", "sinkhorn_rho", "knn", "simplex"}, default="lap"
        How components are matched, see :func:`~fedfactor.linalg.alignment.assignment.plan`. ``lap_rho`` and
        ``sinkhorn_rho`` match significantly correlated components only: a component of a client that correlates
        with no component of the others stays at the client. ``knn`` lets components collapse into each other and is
        for study only. ``simplex``: each component takes the best convex combination of those of the other side.
    barycenter : {"fixed_point", "progressive", "hierarchical", "printed", "client"}, default="fixed_point"
        Barycenter by which the server computes the consensus, seeing every upload; with ``"client"`` each client
        aligns its factor with the last consensus and the server needs only sums. ``"printed"``: Algorithm 1 of the
        paper.
    gamma : float, at least 0, default=0.01
        Relative weight of the last consensus in each local step: ``V ← (V + γ P V̄) / (1 + γ P1)``.
    scale_gamma : bool, default=False
        Multiply gamma by the length of the step, as a proximal operator would.
    pull_from : int, at least 0, default=1
        First round with that weight. The paper uses 0; the consensus of round 0 is noise.
    local_steps : int, at least 1, default=10
        Alternations between two exchanges.
    local_solver : {"gradient", "hals", "printed"}, default="gradient"
        Projected gradient steps as in the paper, or coordinate descent, which is faster on clients with many rows
        but lets small clients drift further between two exchanges. ``"printed"``: gradient steps of the lengths
        printed in the paper, which diverge.
    inertia : float in [0, 0.5), default=0.0
        Share of the last move that is added before a gradient step.
    align_every : int, at least 1, default=10
        Number of local steps between two alignments.
    significance : float in (0, 1), default=0.001
        Significance level of the test of correlations (``*_rho``); lower it to leave more components to single
        clients. Every client is tested, therefore the default is below 0.05.
    correction : {"bonferroni", "none"}, default="bonferroni"
        Divide ``significance`` by the number of pairs of components that are tested, or test each pair at the full
        level (a plain z-test).
    epsilon : float, above 0, default=0.05
        Entropic regularization of the transport plan (``sinkhorn*``).
    neighbours : int, at least 1, default=1
        Number of neighbours (``knn``).
    start : {"own", "common"}, default="own"
        Initialization of V: drawn by each client, or common.
    weights : {"equal", "rows"}, default="equal"
        Clients count alike, as in the paper, or by their number of rows.
    row_norm : {"unit", "usage", "free"}, default="unit"
        Rows of V are sent with norm 1; with the norm of their column of U; or unchanged, as in the paper. Unchanged
        rows of a component that a client hardly uses can have any norm and dominate distances and averages.
    tol : float, at least 0, default=0.0001
        Converged when the consensus moves by less than this share of its norm in ``patience`` rounds in a row; 0
        uses all rounds.
    patience : int, at least 1, default=3
        Number of such rounds. With a small ``gamma`` the consensus moves slowly: a larger value then avoids
        stopping early.
    synchronisation : {"reorder", "replace"}, default="reorder"
        ``reorder``: U follows when V is put into the order of the consensus, and private components survive.
        ``replace``: as printed in the paper; see :meth:`fedfactor.algorithms.FNMF.paper`.
    diagnostics : bool, default=False
        Record in each round the distance of the clients from the consensus, with and without alignment, their
        similarity to it and, for a barycenter at the server, to each other.
    rounds : int, optional
        Maximum number of rounds; default 50. ``max_iter`` is an alias.
    missing_values : None
        Only None: this method requires complete rows.
    n_clients, random_state, verbose, engine, privacy, device, storage, callbacks, checkpoint
        As in :class:`~fedfactor.PooledNMF`.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        V, shared by all clients.
    reconstruction_err_, relative_error_ : float
        ``‖X − UV‖`` and ``‖X − UV‖ / ‖X‖`` over observed cells. Absent after a run with noise.
    components_private_ : dict of str to array of shape (p, n_features)
        Components of single clients; empty unless ``alignment`` is one of ``*_rho``.
    client_factors_, n_iter_, run_
        As in :class:`~fedfactor.PooledNMF`.

    Notes
    -----
    A round sends V, k m numbers, in each direction; the server sees every V unless ``barycenter="client"``.
    With ``*_rho`` only components that at least two clients support are in ``components_``: ``n_components_`` may
    be smaller than ``n_components``. ``transform(X, client=name)`` returns a column for each shared component, then
    one for each private component of that client.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import FNMF
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((30, 2)) @ rng.random((2, 6))
    >>> model = FNMF(n_components=2, n_clients=3, tol=0, random_state=0).fit(X)
    >>> model.transform(X).shape, sorted(model.client_factors_)
    ((30, 2), ['0', '1', '2'])
    """

    _method = algorithms.FNMF

    def __init__(
        self,
        n_components: int = 2,
        *,
        alignment: Literal["lap", "lap_rho", "sinkhorn", "sinkhorn_rho", "knn", "simplex"] = "lap",
        barycenter: Literal["fixed_point", "progressive", "hierarchical"] | Literal["printed", "client"] = (
            "fixed_point"
        ),
        gamma: float = 0.01,
        scale_gamma: bool = False,
        pull_from: int = 1,
        local_steps: int = 10,
        local_solver: Literal["gradient", "hals", "printed"] = "gradient",
        inertia: float = 0.0,
        align_every: int = 10,
        significance: float = 0.001,
        correction: Literal["bonferroni", "none"] = "bonferroni",
        epsilon: float = 0.05,
        neighbours: int = 1,
        start: Literal["own", "common"] = "own",
        weights: Literal["equal", "rows"] = "equal",
        row_norm: Literal["unit", "usage", "free"] = "unit",
        tol: float = 0.0001,
        patience: int = 3,
        synchronisation: Literal["reorder", "replace"] = "reorder",
        diagnostics: bool = False,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        device: str | None = None,
        storage: Literal["float64", "float32", "bfloat16"] | None = None,
        missing_values: float | str | None = None,
        verbose: int | bool = 0,
        callbacks: Any = (),
        checkpoint: Any = None,
    ) -> None:
        super().__init__(rounds, n_clients, engine, privacy, random_state, verbose, callbacks, checkpoint)
        self.n_components = n_components
        self.alignment = alignment
        self.barycenter = barycenter
        self.gamma = gamma
        self.scale_gamma = scale_gamma
        self.pull_from = pull_from
        self.local_steps = local_steps
        self.local_solver = local_solver
        self.inertia = inertia
        self.align_every = align_every
        self.significance = significance
        self.correction = correction
        self.epsilon = epsilon
        self.neighbours = neighbours
        self.start = start
        self.weights = weights
        self.row_norm = row_norm
        self.tol = tol
        self.patience = patience
        self.synchronisation = synchronisation
        self.diagnostics = diagnostics
        self.device = device
        self.storage = storage
        self.missing_values = missing_values
