"""Estimators of federated Boolean factorization by proximal averaging: FELB and FALB."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from fedfactor import algorithms
from fedfactor.boolean.estimator_base import AsPrinted
from fedfactor.boolean.felb import PAPER
from fedfactor.engines.engine import Engine
from fedfactor.estimators.parameter_names import accept_other_names


@accept_other_names(max_iter="rounds")
class FELB(AsPrinted):
    r"""Federated Boolean factorization with an elastic-net regularizer around 0 and 1.

    .. math:: \min_{U_c \in \{0,1\},\, V \in \{0,1\}} \sum_c |X_c \oplus (U_c \circ V)|

    Parameters
    ----------
    n_components : int, at least 1, default=2
        Number of components (the rank k).
    local_steps : int, at least 1, default=10
        Alternating steps between two exchanges.
    kappa : float, at least 0, default=0.01
        Weight κ of the regularizer that draws cells to 0 and 1.
    lam : float, at least 0, default=0.01
        Weight λ of the same.
    rate : float, at least 1, default=1.005
        Growth of λ in each step.
    beta : float in [0, 0.5), default=0.01
        Inertia.
    scale_prox : bool, default=True
        Weigh the regularizer by the step size. Without it, as printed, it outweighs the data by orders of
        magnitude.
    prox : {"exact", "printed"}, default="exact"
        The minimizer, or the formula of the paper, which shrinks past 0 and past 1.
    step : {"safe", "elbmf", "falling"}, default="safe"
        ``(1−2β)/(1+2β)/L``, which descends for a regularizer that is not convex; ``2(1−β)/(1+2β)/L``, as in the
        ELBMF code; or the first one times ``λ/λ_t``, for which the paper shows that V comes to rest.
    norm : {"frobenius", "spectral"}, default="frobenius"
        The norm of the Gram matrix that bounds the step, L.
    schedule : {"steps", "rounds"}, default="steps"
        Unit of the growth of λ.
    server_prox : bool, default=True
        Apply the proximal operator to the average, too.
    init : {"independent", "shared"}, default="shared"
        Clients draw their own V, or share one.
    start : {"auto", "wide", "random", "uniform"}, default="auto"
        Initialization. ``"wide"``: two rounds of least squares with 3 k components, which the server combines into
        k from the sums ``UᵀU`` and ``UᵀX``. ``"random"``: V uniform on [0, 1], and U scaled to the mean of the
        data. ``"uniform"``: both uniform, as printed. ``"auto"``: wide if ``init="shared"`` and there are enough
        columns and neither noise nor a robust rule; else random.
    row_max : {"one", "free"}, default="one"
        ``"one"``: before V is sent, each row is scaled to a maximum of 1 and U by the inverse. ``"free"``: rows are
        sent unchanged.
    weights : {"equal", "rows"}, default="equal"
        Clients count alike in the average, or by their number of rows.
    refit : {"boolean", "none"}, default="boolean"
        Compute U for the final V, or round the relaxed U.
    tol : float, at least 0, default=1e-06
        Converged when no cell of V moves by more than this and V is Boolean; 0 uses all rounds.
    rounds : int, optional
        Maximum number of rounds; default 100. ``max_iter`` is an alias.
    missing_values : None
        Only None: this method requires complete rows.
    binarize, n_init
        As in :class:`~fedfactor.PooledBMF`.
    n_clients, random_state, verbose, engine, privacy, device, storage, callbacks, checkpoint
        As in :class:`~fedfactor.PooledNMF`.

    Attributes
    ----------
    components_, client_factors_, loss_, metrics_
        As in :class:`~fedfactor.PooledBMF`.
    n_iter_, run_
        As in :class:`~fedfactor.PooledNMF`.

    Notes
    -----
    A round costs ``local_steps`` times O(n m k) time and sends V, k m numbers, in each direction. :meth:`paper`
    returns the method as printed.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import FELB
    >>> X = np.kron(np.eye(2), np.ones((10, 4)))
    >>> model = FELB(n_components=2, n_clients=2, random_state=0).fit(X)
    >>> model.loss_, bool((model.inverse_transform(model.transform(X)) == X).all())
    (0.0, True)
    """

    _method = algorithms.FELB

    _printed: ClassVar[dict[str, Any]] = PAPER

    def __init__(
        self,
        n_components: int = 2,
        *,
        local_steps: int = 10,
        kappa: float = 0.01,
        lam: float = 0.01,
        rate: float = 1.005,
        beta: float = 0.01,
        scale_prox: bool = True,
        prox: Literal["exact", "printed"] = "exact",
        step: Literal["safe", "elbmf", "falling"] = "safe",
        norm: Literal["frobenius", "spectral"] = "frobenius",
        schedule: Literal["steps", "rounds"] = "steps",
        server_prox: bool = True,
        init: Literal["independent", "shared"] = "shared",
        start: Literal["auto", "wide", "random", "uniform"] = "auto",
        row_max: Literal["one", "free"] = "one",
        weights: Literal["equal", "rows"] = "equal",
        refit: Literal["boolean", "none"] = "boolean",
        tol: float = 1e-06,
        binarize: float | None = None,
        n_init: int | None = None,
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
        self.kappa = kappa
        self.lam = lam
        self.rate = rate
        self.beta = beta
        self.scale_prox = scale_prox
        self.prox = prox
        self.step = step
        self.norm = norm
        self.schedule = schedule
        self.server_prox = server_prox
        self.init = init
        self.start = start
        self.row_max = row_max
        self.weights = weights
        self.refit = refit
        self.tol = tol
        self.binarize = binarize
        self.n_init = n_init
        self.device = device
        self.storage = storage
        self.missing_values = missing_values


@accept_other_names(max_iter="rounds")
class FALB(AsPrinted):
    r"""FELB with an adaptive rate for each cell: the closer a cell is to 0 or 1, the stronger its regularization.

    .. math:: \min_{U_c \in \{0,1\},\, V \in \{0,1\}} \sum_c |X_c \oplus (U_c \circ V)|

    Parameters
    ----------
    n_components : int, at least 1, default=2
        Number of components (the rank k).
    local_steps : int, at least 1, default=10
        Alternating steps between two exchanges.
    gamma : float, above 0, default=10.0
        Γ of the adaptive rate.
    eps : float in [0, 0.5), default=0.01
        Smallest distance to 0 or 1 that enters the rate.
    kappa : float, at least 0, default=0.01
        Weight κ of the regularizer that draws cells to 0 and 1.
    lam : float, at least 0, default=0.01
        Weight λ of the same.
    rate : float, at least 1, default=1.005
        Growth of λ in each step.
    beta : float in [0, 0.5), default=0.01
        Inertia.
    scale_prox : bool, default=True
        Weigh the regularizer by the step size. Without it, as printed, it outweighs the data by orders of
        magnitude.
    prox : {"exact", "printed"}, default="exact"
        The minimizer, or the formula of the paper, which shrinks past 0 and past 1.
    step : {"safe", "elbmf", "falling"}, default="safe"
        ``(1−2β)/(1+2β)/L``, which descends for a regularizer that is not convex; ``2(1−β)/(1+2β)/L``, as in the
        ELBMF code; or the first one times ``λ/λ_t``, for which the paper shows that V comes to rest.
    norm : {"frobenius", "spectral"}, default="frobenius"
        The norm of the Gram matrix that bounds the step, L.
    schedule : {"steps", "rounds"}, default="steps"
        Unit of the growth of λ.
    server_prox : bool, default=True
        Apply the proximal operator to the average, too.
    init : {"independent", "shared"}, default="shared"
        Clients draw their own V, or share one.
    start : {"auto", "wide", "random", "uniform"}, default="auto"
        Initialization. ``"wide"``: two rounds of least squares with 3 k components, which the server combines into
        k from the sums ``UᵀU`` and ``UᵀX``. ``"random"``: V uniform on [0, 1], and U scaled to the mean of the
        data. ``"uniform"``: both uniform, as printed. ``"auto"``: wide if ``init="shared"`` and there are enough
        columns and neither noise nor a robust rule; else random.
    row_max : {"one", "free"}, default="one"
        ``"one"``: before V is sent, each row is scaled to a maximum of 1 and U by the inverse. ``"free"``: rows are
        sent unchanged.
    weights : {"equal", "rows"}, default="equal"
        Clients count alike in the average, or by their number of rows.
    refit : {"boolean", "none"}, default="boolean"
        Compute U for the final V, or round the relaxed U.
    tol : float, at least 0, default=1e-06
        Converged when no cell of V moves by more than this and V is Boolean; 0 uses all rounds.
    rounds : int, optional
        Maximum number of rounds; default 100. ``max_iter`` is an alias.
    missing_values : None
        Only None: this method requires complete rows.
    binarize, n_init
        As in :class:`~fedfactor.PooledBMF`.
    n_clients, random_state, verbose, engine, privacy, device, storage, callbacks, checkpoint
        As in :class:`~fedfactor.PooledNMF`.

    Attributes
    ----------
    components_, client_factors_, loss_, metrics_
        As in :class:`~fedfactor.PooledBMF`.
    n_iter_, run_
        As in :class:`~fedfactor.PooledNMF`.

    Notes
    -----
    A round costs ``local_steps`` times O(n m k) time and sends V, k m numbers, in each direction. :meth:`paper`
    returns the method as printed.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import FALB
    >>> X = np.kron(np.eye(2), np.ones((10, 4)))
    >>> model = FALB(n_components=2, n_clients=2, random_state=0).fit(X)
    >>> model.loss_, bool((model.inverse_transform(model.transform(X)) == X).all())
    (0.0, True)
    """

    _method = algorithms.FALB

    _printed: ClassVar[dict[str, Any]] = PAPER | {"eps": 0.0}

    def __init__(
        self,
        n_components: int = 2,
        *,
        local_steps: int = 10,
        gamma: float = 10.0,
        eps: float = 0.01,
        kappa: float = 0.01,
        lam: float = 0.01,
        rate: float = 1.005,
        beta: float = 0.01,
        scale_prox: bool = True,
        prox: Literal["exact", "printed"] = "exact",
        step: Literal["safe", "elbmf", "falling"] = "safe",
        norm: Literal["frobenius", "spectral"] = "frobenius",
        schedule: Literal["steps", "rounds"] = "steps",
        server_prox: bool = True,
        init: Literal["independent", "shared"] = "shared",
        start: Literal["auto", "wide", "random", "uniform"] = "auto",
        row_max: Literal["one", "free"] = "one",
        weights: Literal["equal", "rows"] = "equal",
        refit: Literal["boolean", "none"] = "boolean",
        tol: float = 1e-06,
        binarize: float | None = None,
        n_init: int | None = None,
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
        self.gamma = gamma
        self.eps = eps
        self.kappa = kappa
        self.lam = lam
        self.rate = rate
        self.beta = beta
        self.scale_prox = scale_prox
        self.prox = prox
        self.step = step
        self.norm = norm
        self.schedule = schedule
        self.server_prox = server_prox
        self.init = init
        self.start = start
        self.row_max = row_max
        self.weights = weights
        self.refit = refit
        self.tol = tol
        self.binarize = binarize
        self.n_init = n_init
        self.device = device
        self.storage = storage
        self.missing_values = missing_values
