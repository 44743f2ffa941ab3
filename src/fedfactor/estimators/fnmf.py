"""FNMF and its rivals with scikit-learn's manners."""

from __future__ import annotations

from typing import Any, Literal

from fedfactor import algorithms
from fedfactor.core.federation import Federation, Missing
from fedfactor.core.run import Run
from fedfactor.engines.base import Engine
from fedfactor.estimators._base import FederatedTransformer


class FNMF(FederatedTransformer):
    r"""Coherent federated NMF: components are aligned before they are averaged.

    .. math:: \min_{U_c, V_c \ge 0} \tfrac12 \|X_c - U_c V_c\|^2 + \gamma \min_P \tfrac12 \|V_c - P \bar V\|^2

    The face of :class:`fedfactor.algorithms.FNMF`, which says how it works and what travels. With
    ``alignment="lap_rho"`` or ``"sinkhorn_rho"`` owners may have components of their own. Needs complete rows.

    Parameters
    ----------
    n_components : int, default=2
        Rank k. No rule can choose it without a look at the data, so the default is the smallest that tells rows apart.
    alignment : {"lap", "lap_rho", "sinkhorn", "sinkhorn_rho", "knn"}, default="lap"
        How components find their partners; with ``*_rho`` only significantly correlated ones do.
    barycenter : {"fixed_point", "progressive", "hierarchical", "client"}, default="fixed_point"
        How the server finds the middle, seeing every upload; ``"client"``: owners align, the server needs only sums.
    gamma : float, default=0.01
        Pull of the last middle in each local step.
    scale_gamma : bool, default=False
        Multiply gamma by the length of the step.
    pull_from : int, default=1
        First round with a pull; in round 0 the middle is noise.
    local_steps : int, default=10
        Alternations between two exchanges.
    local_solver : {"ipalm", "hals"}, default="ipalm"
        Projected gradient steps, or coordinate descent: faster, but small clients then drift more.
    inertia : float, default=0
        Share of the last move that iPALM adds before a step.
    align_every : int, default=10
        Local steps between two plans for the pull.
    alpha : float, default=1e-3
        Level of the test of correlations (``*_rho``); lower it to leave more components to single owners.
    epsilon : float, default=0.05
        Softness of the transport (``sinkhorn*``).
    neighbours : int, default=1
        Components taken by each (``knn``).
    start : {"own", "common"}, default="own"
        Each owner draws its first V, or all take the server's.
    weights : {"equal", "rows"}, default="equal"
        Owners count alike, or by their number of rows.
    scale : {"unit", "usage", "free"}, default="unit"
        Norm of the rows of V before they are sent: 1, the norm of their column of U, or as they are.
    tol : float, default=1e-4
        Converged when V moves by less than this share of its norm in three rounds in a row; 0 uses all rounds.
    diagnostics : bool, default=False
        Keep the drift of owners in the history.
    rounds : int, optional
        Rounds at most; by default 50.
    n_clients : int, default=1
        Owners to whom rows are dealt at random when neither X nor ``groups`` says who owns them.
    engine : str or Engine, default="local"
        How messages travel.
    privacy : object or None
        What protects uploads on their way, as :func:`fedfactor.run` takes it.
    random_state : int, RandomState, Generator or None, default=None
        Seed of every stream; None draws one, kept in ``run_.seed``.
    missing_values : None, default=None
        For the sake of one signature: this method refuses rows with missing cells.
    verbose : int, default=0
        1 or more: a bar on a terminal, lines in the log elsewhere.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        V, shared by all owners.
    components_private_ : dict of str to array of shape (p, n_features)
        Components that only one owner has, by owner; empty unless the alignment is one of ``*_rho``.
    client_factors_ : dict of str to array of shape (n_c, n_components)
        U of each owner. Only a simulation has them all.
    reconstruction_err_, relative_error_ : float
        ``‖X − UV‖``, and the same divided by ``‖X‖``, private components included.
    n_iter_ : int
        Rounds that were run.
    run_ : Run
        History, traffic, time, errors by owner, and the seed.
    n_components_, n_features_in_ : int
        The shape of V.
    feature_names_in_ : ndarray of str
        Only when the features have names.

    Notes
    -----
    With ``*_rho`` only components that at least two owners support are in ``components_``, so ``n_components_`` may be
    smaller than ``n_components``. ``transform(X, client=name)`` has a column for each shared component, and after them
    one for each private component of that owner.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import FNMF
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((30, 2)) @ rng.random((2, 6))
    >>> model = FNMF(n_components=2, random_state=0, tol=0).fit(X, groups=["north"] * 10 + ["south"] * 20)
    >>> model.components_.shape, model.relative_error_ < 0.1
    ((2, 6), True)
    """

    _method = algorithms.FNMF

    def __init__(
        self,
        n_components: int = 2,
        *,
        alignment: Literal["lap", "lap_rho", "sinkhorn", "sinkhorn_rho", "knn"] = "lap",
        barycenter: Literal["fixed_point", "progressive", "hierarchical", "client"] = "fixed_point",
        gamma: float = 0.01,
        scale_gamma: bool = False,
        pull_from: int = 1,
        local_steps: int = 10,
        local_solver: Literal["ipalm", "hals"] = "ipalm",
        inertia: float = 0.0,
        align_every: int = 10,
        alpha: float = 1e-3,
        epsilon: float = 0.05,
        neighbours: int = 1,
        start: Literal["own", "common"] = "own",
        weights: Literal["equal", "rows"] = "equal",
        scale: Literal["unit", "usage", "free"] = "unit",
        tol: float = 1e-4,
        diagnostics: bool = False,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        missing_values: Missing = None,
        verbose: int = 0,
    ) -> None:
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
        self.alpha = alpha
        self.epsilon = epsilon
        self.neighbours = neighbours
        self.start = start
        self.weights = weights
        self.scale = scale
        self.tol = tol
        self.diagnostics = diagnostics
        self.rounds = rounds
        self.n_clients = n_clients
        self.engine = engine
        self.privacy = privacy
        self.random_state = random_state
        self.missing_values = missing_values
        self.verbose = verbose

    def _keep(self, result: Run, federation: Federation) -> None:
        super()._keep(result, federation)
        owned = {name: kept.V_private for name, kept in result.factors.items()}
        self.components_private_ = {name: V for name, V in owned.items() if V is not None}


class FedProxNMF(FederatedTransformer):
    r"""Federated averaging of NMF whose owners are held near the average.

    .. math:: \min_{U_c, V_c \ge 0} \tfrac12 \|X_c - U_c V_c\|^2 + \tfrac{\mu}{2} \|V_c - \bar V\|^2

    The face of :class:`fedfactor.algorithms.FedProxNMF`. Needs complete rows.

    Parameters
    ----------
    n_components : int, default=2
        Rank k. No rule can choose it without a look at the data, so the default is the smallest that tells rows apart.
    mu : float, default=1
        Weight of the proximal term; 0 is federated averaging.
    relative : bool, default=False
        Take mu as a share of the mean squared norm of the columns of U: free of the scale of the data.
    pull_from : int, default=1
        First round with that term; in round 0 nothing has been averaged yet.
    local_steps : int, default=10
        Alternations between two exchanges.
    local_solver : {"hals", "ipalm", "multiplicative"}, default="hals"
        Coordinate descent, projected gradient steps, or multiplicative updates.
    inertia : float, default=0
        Share of the last move that iPALM adds before a step.
    start : {"common", "own"}, default="common"
        All owners begin with the server's V, or each with its own.
    weights : {"rows", "equal"}, default="rows"
        Average owners by their number of rows, or all alike.
    scale : {"free", "unit", "usage"}, default="free"
        Norm of the rows of V before they are sent: as they are, 1, or the norm of their column of U.
    tol : float, default=1e-4
        Converged when V moves by less than this share of its norm in three rounds in a row; 0 uses all rounds.
    diagnostics : bool, default=False
        Keep the drift of owners in the history.
    rounds : int, optional
        Rounds at most; by default 50.
    n_clients : int, default=1
        Owners to whom rows are dealt at random when neither X nor ``groups`` says who owns them.
    engine : str or Engine, default="local"
        How messages travel.
    privacy : object or None
        What protects uploads on their way, as :func:`fedfactor.run` takes it.
    random_state : int, RandomState, Generator or None, default=None
        Seed of every stream; None draws one, kept in ``run_.seed``.
    missing_values : None, default=None
        For the sake of one signature: this method refuses rows with missing cells.
    verbose : int, default=0
        1 or more: a bar on a terminal, lines in the log elsewhere.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        V, shared by all owners.
    client_factors_ : dict of str to array of shape (n_c, n_components)
        U of each owner. Only a simulation has them all.
    reconstruction_err_, relative_error_ : float
        ``‖X − UV‖``, and the same divided by ``‖X‖``.
    n_iter_ : int
        Rounds that were run.
    run_ : Run
        History, traffic, time, errors by owner, and the seed.
    n_components_, n_features_in_ : int
        The shape of V.
    feature_names_in_ : ndarray of str
        Only when the features have names.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import FedProxNMF
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((30, 2)) @ rng.random((2, 6))
    >>> model = FedProxNMF(n_components=2, n_clients=3, tol=0, random_state=0).fit(X)
    >>> model.transform(X).shape, sorted(model.client_factors_)
    ((30, 2), ['0', '1', '2'])
    """

    _method = algorithms.FedProxNMF

    def __init__(
        self,
        n_components: int = 2,
        *,
        mu: float = 1.0,
        relative: bool = False,
        pull_from: int = 1,
        local_steps: int = 10,
        local_solver: Literal["hals", "ipalm", "multiplicative"] = "hals",
        inertia: float = 0.0,
        start: Literal["common", "own"] = "common",
        weights: Literal["rows", "equal"] = "rows",
        scale: Literal["unit", "usage", "free"] = "free",
        tol: float = 1e-4,
        diagnostics: bool = False,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        missing_values: Missing = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.mu = mu
        self.relative = relative
        self.pull_from = pull_from
        self.local_steps = local_steps
        self.local_solver = local_solver
        self.inertia = inertia
        self.start = start
        self.weights = weights
        self.scale = scale
        self.tol = tol
        self.diagnostics = diagnostics
        self.rounds = rounds
        self.n_clients = n_clients
        self.engine = engine
        self.privacy = privacy
        self.random_state = random_state
        self.missing_values = missing_values
        self.verbose = verbose


class OneShotNMF(FederatedTransformer):
    """Factor everywhere, combine once: every owner solves NMF alone, then components are aligned and averaged.

    The face of :class:`fedfactor.algorithms.OneShotNMF`. Needs complete rows.

    Parameters
    ----------
    n_components : int, default=2
        Rank k. No rule can choose it without a look at the data, so the default is the smallest that tells rows apart.
    combine : {"fixed_point", "progressive", "hierarchical", "mean"}, default="fixed_point"
        A barycenter of the owners' V, or their plain mean.
    alignment : {"lap", "sinkhorn", "knn"}, default="lap"
        How components are aligned for the barycenter.
    local_steps : int, default=500
        Most alternations of an owner.
    local_solver : {"hals", "ipalm", "multiplicative"}, default="hals"
        Coordinate descent, projected gradient steps, or multiplicative updates.
    local_tol : float, default=1e-6
        An owner stops when ten steps lower its loss by less than this share; 0 takes all steps.
    start : {"own", "common"}, default="own"
        Each owner draws its first V, or all take the server's.
    weights : {"equal", "rows"}, default="equal"
        Owners count alike, or by their number of rows.
    rounds : int, optional
        For the sake of one signature: one exchange is all there is.
    n_clients : int, default=1
        Owners to whom rows are dealt at random when neither X nor ``groups`` says who owns them.
    engine : str or Engine, default="local"
        How messages travel.
    privacy : object or None
        What protects uploads on their way, as :func:`fedfactor.run` takes it.
    random_state : int, RandomState, Generator or None, default=None
        Seed of every stream; None draws one, kept in ``run_.seed``.
    missing_values : None, default=None
        For the sake of one signature: this method refuses rows with missing cells.
    verbose : int, default=0
        1 or more: a bar on a terminal, lines in the log elsewhere.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        V, shared by all owners.
    client_factors_ : dict of str to array of shape (n_c, n_components)
        U of each owner. Only a simulation has them all.
    reconstruction_err_, relative_error_ : float
        ``‖X − UV‖``, and the same divided by ``‖X‖``.
    n_iter_ : int
        Rounds that were run.
    run_ : Run
        History, traffic, time, errors by owner, and the seed.
    n_components_, n_features_in_ : int
        The shape of V.
    feature_names_in_ : ndarray of str
        Only when the features have names.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import OneShotNMF
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((30, 2)) @ rng.random((2, 6))
    >>> model = OneShotNMF(n_components=2, n_clients=3, random_state=0).fit(X)
    >>> model.n_iter_, model.components_.shape
    (1, (2, 6))
    """

    _method = algorithms.OneShotNMF

    def __init__(
        self,
        n_components: int = 2,
        *,
        combine: Literal["fixed_point", "progressive", "hierarchical", "mean"] = "fixed_point",
        alignment: Literal["lap", "sinkhorn", "knn"] = "lap",
        local_steps: int = 500,
        local_solver: Literal["hals", "ipalm", "multiplicative"] = "hals",
        local_tol: float = 1e-6,
        start: Literal["own", "common"] = "own",
        weights: Literal["equal", "rows"] = "equal",
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        missing_values: Missing = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.combine = combine
        self.alignment = alignment
        self.local_steps = local_steps
        self.local_solver = local_solver
        self.local_tol = local_tol
        self.start = start
        self.weights = weights
        self.rounds = rounds
        self.n_clients = n_clients
        self.engine = engine
        self.privacy = privacy
        self.random_state = random_state
        self.missing_values = missing_values
        self.verbose = verbose
