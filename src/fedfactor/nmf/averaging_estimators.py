"""Estimators that average the components of clients: FedAvg, FedProx and one-shot NMF."""

from __future__ import annotations

from typing import Any, Literal

from fedfactor import algorithms
from fedfactor.engines.engine import Engine
from fedfactor.estimators.base import FederatedTransformer
from fedfactor.estimators.parameter_names import accept_other_names


@accept_other_names(max_iter="rounds")
class FedAvgNMF(FederatedTransformer):
    """Federated averaging of NMF: clients factorize their own rows, and the server averages V.

    A baseline: where clients differ, the average of their components differs from the components of the pooled
    rows.

    Parameters
    ----------
    n_components : int, at least 1, default=2
        Number of components (the rank k).
    local_steps : int, at least 1, default=10
        Alternations (one sweep over U, one over V) between two exchanges.
    local_solver : {"hals", "gradient", "multiplicative"}, default="hals"
        Coordinate descent, projected gradient, or multiplicative updates.
    weights : {"rows", "equal"}, default="rows"
        Average clients by their number of rows, as FedAvg does, or all alike.
    tol : float, at least 0, default=0.0001
        The run has converged when V moves by less than this share of its norm in three rounds in a row; 0 uses all
        rounds.
    rounds : int, optional
        Maximum number of rounds; default 50. ``max_iter`` is an alias.
    missing_values : None
        Only None: this method requires complete rows.
    n_clients, random_state, verbose, engine, privacy, device, storage, callbacks, checkpoint
        As in :class:`~fedfactor.PooledNMF`.

    Attributes
    ----------
    components_, reconstruction_err_, relative_error_
        As in :class:`~fedfactor.FNMF`.
    client_factors_, n_iter_, run_
        As in :class:`~fedfactor.PooledNMF`.

    Notes
    -----
    A round costs ``local_steps`` times O(n m k) time and sends V, k m numbers, in each direction.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import FedAvgNMF
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((30, 2)) @ rng.random((2, 6))
    >>> model = FedAvgNMF(n_components=2, n_clients=3, tol=0, random_state=0).fit(X)
    >>> model.transform(X).shape, sorted(model.client_factors_)
    ((30, 2), ['0', '1', '2'])
    """

    _method = algorithms.FedAvgNMF

    def __init__(
        self,
        n_components: int = 2,
        *,
        local_steps: int = 10,
        local_solver: Literal["hals", "gradient", "multiplicative"] = "hals",
        weights: Literal["rows", "equal"] = "rows",
        tol: float = 0.0001,
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
        self.local_solver = local_solver
        self.weights = weights
        self.tol = tol
        self.device = device
        self.storage = storage
        self.missing_values = missing_values


@accept_other_names(max_iter="rounds")
class FedProxNMF(FederatedTransformer):
    r"""Federated averaging of NMF with a proximal term that keeps the V of each client near the average.

    .. math:: \min_{U_c, V_c \ge 0} \tfrac12 \|X_c - U_c V_c\|^2 + \tfrac{\mu}{2} \|V_c - \bar V\|^2

    Parameters
    ----------
    n_components : int, at least 1, default=2
        Number of components (the rank k).
    mu : float, at least 0, default=1.0
        Weight of the proximal term, in the units of ``UᵀU``; 0 is federated averaging.
    relative : bool, default=False
        Measure ``mu`` relative to the mean squared norm of the columns of a client's U, so that its meaning does
        not depend on the scale of the data.
    pull_from : int, at least 0, default=1
        First round with that term. Round 0 has no average yet.
    local_steps : int, at least 1, default=10
        Alternations between two exchanges.
    local_solver : {"hals", "gradient", "multiplicative"}, default="hals"
        Coordinate descent, projected gradient steps, or multiplicative updates.
    inertia : float in [0, 0.5), default=0.0
        Share of the last move that is added before a gradient step (iPALM).
    start : {"common", "own"}, default="common"
        Initialization of V: common, or drawn by each client.
    weights : {"rows", "equal"}, default="rows"
        Average clients by their number of rows, or all alike.
    row_norm : {"unit", "usage", "free"}, default="free"
        V is sent with rows of norm 1; with the norm of their column of U; or as it is.
    tol : float, at least 0, default=0.0001
        The run has converged when V moves by less than this share of its norm in three rounds in a row; 0 uses all
        rounds.
    diagnostics : bool, default=False
        Record in each round the distance of the clients from the average, with and without alignment, and their
        similarity to it.
    rounds : int, optional
        Maximum number of rounds; default 50. ``max_iter`` is an alias.
    missing_values : None
        Only None: this method requires complete rows.
    n_clients, random_state, verbose, engine, privacy, device, storage, callbacks, checkpoint
        As in :class:`~fedfactor.PooledNMF`.

    Attributes
    ----------
    components_, reconstruction_err_, relative_error_
        As in :class:`~fedfactor.FNMF`.
    client_factors_, n_iter_, run_
        As in :class:`~fedfactor.PooledNMF`.

    Notes
    -----
    A round costs ``local_steps`` times O(n m k) time and sends V, k m numbers, in each direction.

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
        local_solver: Literal["hals", "gradient", "multiplicative"] = "hals",
        inertia: float = 0.0,
        start: Literal["common", "own"] = "common",
        weights: Literal["rows", "equal"] = "rows",
        row_norm: Literal["unit", "usage", "free"] = "free",
        tol: float = 0.0001,
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
        self.mu = mu
        self.relative = relative
        self.pull_from = pull_from
        self.local_steps = local_steps
        self.local_solver = local_solver
        self.inertia = inertia
        self.start = start
        self.weights = weights
        self.row_norm = row_norm
        self.tol = tol
        self.diagnostics = diagnostics
        self.device = device
        self.storage = storage
        self.missing_values = missing_values


@accept_other_names()
class OneShotNMF(FederatedTransformer):
    """One-shot federated NMF: every client solves NMF alone, then components are aligned and averaged.

    Parameters
    ----------
    n_components : int, at least 1, default=2
        Number of components (the rank k).
    combine : {"fixed_point", "progressive", "hierarchical", "mean"}, default="fixed_point"
        Barycenter of the clients' V, see :func:`~fedfactor.linalg.alignment.barycenter.barycenter`, or their plain
        mean (a sum).
    alignment : {"lap", "sinkhorn", "knn"}, default="lap"
        How components are aligned for the barycenter.
    local_steps : int, at least 1, default=500
        Maximum number of alternations of a client.
    local_solver : {"hals", "gradient", "multiplicative"}, default="hals"
        Coordinate descent, projected gradient steps, or multiplicative updates.
    local_tol : float, at least 0, default=1e-06
        A client stops when ten steps lower its loss by less than this share; 0 uses all steps.
    start : {"own", "common"}, default="own"
        Initialization of V: drawn by each client, or common.
    weights : {"equal", "rows"}, default="equal"
        Clients count alike, or by their number of rows.
    rounds : int, optional
        Maximum number of rounds; default 1.
    missing_values : None
        Only None: this method requires complete rows.
    n_clients, random_state, verbose, engine, privacy, device, storage, callbacks, checkpoint
        As in :class:`~fedfactor.PooledNMF`.

    Attributes
    ----------
    components_, reconstruction_err_, relative_error_
        As in :class:`~fedfactor.FNMF`.
    client_factors_, n_iter_, run_
        As in :class:`~fedfactor.PooledNMF`.

    Notes
    -----
    One exchange: each client sends its V, k m numbers, and the server sees every one of them.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import OneShotNMF
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((30, 2)) @ rng.random((2, 6))
    >>> model = OneShotNMF(n_components=2, n_clients=3, random_state=0).fit(X)
    >>> model.transform(X).shape, sorted(model.client_factors_)
    ((30, 2), ['0', '1', '2'])
    """

    _method = algorithms.OneShotNMF

    def __init__(
        self,
        n_components: int = 2,
        *,
        combine: Literal["fixed_point", "progressive", "hierarchical", "mean"] = "fixed_point",
        alignment: Literal["lap", "sinkhorn", "knn"] = "lap",
        local_steps: int = 500,
        local_solver: Literal["hals", "gradient", "multiplicative"] = "hals",
        local_tol: float = 1e-06,
        start: Literal["own", "common"] = "own",
        weights: Literal["equal", "rows"] = "equal",
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
        self.combine = combine
        self.alignment = alignment
        self.local_steps = local_steps
        self.local_solver = local_solver
        self.local_tol = local_tol
        self.start = start
        self.weights = weights
        self.device = device
        self.storage = storage
        self.missing_values = missing_values
