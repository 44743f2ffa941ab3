"""Federated Boolean factorization by proximal averaging, with scikit-learn's manners."""

from __future__ import annotations

from typing import Any, Literal, Self

from fedfactor import algorithms
from fedfactor.algorithms.felb import PAPER
from fedfactor.core.federation import Missing
from fedfactor.engines.base import Engine
from fedfactor.estimators._boolean import BooleanTransformer


class FELB(BooleanTransformer):
    r"""Federated Boolean factorization with an elastic-net regulariser around 0 and 1.

    .. math:: \min_{U_c \in \{0,1\},\, V \in \{0,1\}} \sum_c |X_c \oplus (U_c \circ V)|

    The face of :class:`fedfactor.algorithms.FELB`, which says how it works and what travels.

    Parameters
    ----------
    n_components : int, default=2
        Number of components k. No rule can choose it without a look at the data.
    local_steps : int, default=10
        Alternating steps between two exchanges.
    kappa : float, default=0.01
        Weight κ of the regulariser that draws cells to 0 and 1.
    lam : float, default=0.01
        Weight λ of the same.
    rate : float, default=1.005
        Growth of λ in each step.
    beta : float, default=0.01
        Inertia, below ½.
    scale_prox : bool, default=True
        Weigh the regulariser by the step size.
    prox : {"exact", "printed"}, default="exact"
        The minimiser, or the formula of the paper.
    step : {"safe", "elbmf"}, default="safe"
        The step that descends, or the larger one of the ELBMF code.
    norm : {"frobenius", "spectral"}, default="frobenius"
        What bounds the step.
    schedule : {"steps", "rounds"}, default="steps"
        What the growth of λ counts.
    server_prox : bool, default=True
        Draw the average to 0 and 1.
    init : {"independent", "shared"}, default="independent"
        Clients start from a V of their own, or from a common one.
    weights : {"equal", "rows"}, default="equal"
        Average owners all alike, or by their number of rows.
    refit : {"boolean", "none"}, default="boolean"
        Choose U for the final V, or round the relaxed U.
    tol : float, default=1e-6
        Converged when no cell of V moves by more than this and V is Boolean; 0 uses all rounds.
    binarize : float, optional
        Rows are ``X > binarize``, taken by each owner alone; None: they are zeros and ones already, and anything else
        is refused.
    n_init : int, default=1
        Starts; the one with the least summed error is kept. With ``dp(...)`` only one: a budget is that of one run.
    rounds : int, optional
        Rounds at most; by default 100.
    n_clients : int, default=1
        Owners to whom rows are dealt at random when neither X nor ``groups`` says who owns them.
    engine : str or Engine, default="local"
        How messages travel.
    privacy : None, str or tuple, default=None
        What protects uploads on their way.
    random_state : int, RandomState, Generator or None, default=None
        Seed of every stream; None draws one, kept in ``run_.seed``.
    missing_values : None, default=None
        For the sake of one signature: rows with missing cells are refused.
    verbose : int, default=0
        1 or more: a bar on a terminal, lines in the log elsewhere.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        V, zeros and ones, shared by all owners.
    client_factors_ : dict of str to array of shape (n_c, n_components)
        U of each owner, zeros and ones. Only a simulation has them all.
    loss_ : float
        Wrong cells over ones, of all owners together.
    metrics_ : BooleanMetrics
        Loss, recall, precision and similarity, by owner, on average and pooled; of the owners in ``client_factors_``.
    reconstruction_err_, relative_error_ : float
        Square root of the wrong cells, and of the loss.
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
    >>> from fedfactor import FELB
    >>> X = np.kron(np.eye(2), np.ones((10, 4)))
    >>> model = FELB(n_components=2, n_clients=2, random_state=0).fit(X)
    >>> model.loss_, bool((model.inverse_transform(model.transform(X)) == X).all())
    (0.0, True)
    """

    _method = algorithms.FELB

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
        step: Literal["safe", "elbmf"] = "safe",
        norm: Literal["frobenius", "spectral"] = "frobenius",
        schedule: Literal["steps", "rounds"] = "steps",
        server_prox: bool = True,
        init: Literal["independent", "shared"] = "independent",
        weights: Literal["equal", "rows"] = "equal",
        refit: Literal["boolean", "none"] = "boolean",
        tol: float = 1e-6,
        binarize: float | None = None,
        n_init: int = 1,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        missing_values: Missing = None,
        verbose: int = 0,
    ) -> None:
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
        self.weights = weights
        self.refit = refit
        self.tol = tol
        self.binarize = binarize
        self.n_init = n_init
        self.rounds = rounds
        self.n_clients = n_clients
        self.engine = engine
        self.privacy = privacy
        self.random_state = random_state
        self.missing_values = missing_values
        self.verbose = verbose

    @classmethod
    def paper(cls, n_components: int = 2, **changes: Any) -> Self:
        """Return the method as printed in the paper, for comparisons.

        Parameters
        ----------
        n_components : int
            Number of components k.
        **changes
            Further parameters.

        Returns
        -------
        FELB
            Not fitted.
        """
        return cls(n_components, **{**PAPER, **changes})


class FALB(BooleanTransformer):
    r"""FELB with a rate of its own for each cell: the closer to 0 or 1, the stronger the pull.

    The face of :class:`fedfactor.algorithms.FALB`, which says how it works and what travels.

    Parameters
    ----------
    n_components : int, default=2
        Number of components k. No rule can choose it without a look at the data.
    local_steps : int, default=10
        Alternating steps between two exchanges.
    gamma : float, default=10.0
        Γ of the adaptive rate.
    eps : float, default=1e-2
        Smallest distance to 0 or 1 that enters the adaptive rate.
    kappa : float, default=0.01
        Weight κ of the regulariser that draws cells to 0 and 1.
    lam : float, default=0.01
        Weight λ of the same.
    rate : float, default=1.005
        Growth of λ in each step.
    beta : float, default=0.01
        Inertia, below ½.
    scale_prox : bool, default=True
        Weigh the regulariser by the step size.
    prox : {"exact", "printed"}, default="exact"
        The minimiser, or the formula of the paper.
    step : {"safe", "elbmf"}, default="safe"
        The step that descends, or the larger one of the ELBMF code.
    norm : {"frobenius", "spectral"}, default="frobenius"
        What bounds the step.
    schedule : {"steps", "rounds"}, default="steps"
        What the growth of λ counts.
    server_prox : bool, default=True
        Draw the average to 0 and 1.
    init : {"independent", "shared"}, default="independent"
        Clients start from a V of their own, or from a common one.
    weights : {"equal", "rows"}, default="equal"
        Average owners all alike, or by their number of rows.
    refit : {"boolean", "none"}, default="boolean"
        Choose U for the final V, or round the relaxed U.
    tol : float, default=1e-6
        Converged when no cell of V moves by more than this and V is Boolean; 0 uses all rounds.
    binarize : float, optional
        Rows are ``X > binarize``, taken by each owner alone; None: they are zeros and ones already, and anything else
        is refused.
    n_init : int, default=1
        Starts; the one with the least summed error is kept. With ``dp(...)`` only one: a budget is that of one run.
    rounds : int, optional
        Rounds at most; by default 100.
    n_clients : int, default=1
        Owners to whom rows are dealt at random when neither X nor ``groups`` says who owns them.
    engine : str or Engine, default="local"
        How messages travel.
    privacy : None, str or tuple, default=None
        What protects uploads on their way.
    random_state : int, RandomState, Generator or None, default=None
        Seed of every stream; None draws one, kept in ``run_.seed``.
    missing_values : None, default=None
        For the sake of one signature: rows with missing cells are refused.
    verbose : int, default=0
        1 or more: a bar on a terminal, lines in the log elsewhere.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        V, zeros and ones, shared by all owners.
    client_factors_ : dict of str to array of shape (n_c, n_components)
        U of each owner, zeros and ones. Only a simulation has them all.
    loss_ : float
        Wrong cells over ones, of all owners together.
    metrics_ : BooleanMetrics
        Loss, recall, precision and similarity, by owner, on average and pooled; of the owners in ``client_factors_``.
    reconstruction_err_, relative_error_ : float
        Square root of the wrong cells, and of the loss.
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
    >>> from fedfactor import FALB
    >>> X = np.kron(np.eye(2), np.ones((10, 4)))
    >>> model = FALB(n_components=2, n_clients=2, random_state=0).fit(X)
    >>> model.loss_, bool((model.inverse_transform(model.transform(X)) == X).all())
    (0.0, True)
    """

    _method = algorithms.FALB

    def __init__(
        self,
        n_components: int = 2,
        *,
        local_steps: int = 10,
        gamma: float = 10.0,
        eps: float = 1e-2,
        kappa: float = 0.01,
        lam: float = 0.01,
        rate: float = 1.005,
        beta: float = 0.01,
        scale_prox: bool = True,
        prox: Literal["exact", "printed"] = "exact",
        step: Literal["safe", "elbmf"] = "safe",
        norm: Literal["frobenius", "spectral"] = "frobenius",
        schedule: Literal["steps", "rounds"] = "steps",
        server_prox: bool = True,
        init: Literal["independent", "shared"] = "independent",
        weights: Literal["equal", "rows"] = "equal",
        refit: Literal["boolean", "none"] = "boolean",
        tol: float = 1e-6,
        binarize: float | None = None,
        n_init: int = 1,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        missing_values: Missing = None,
        verbose: int = 0,
    ) -> None:
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
        self.weights = weights
        self.refit = refit
        self.tol = tol
        self.binarize = binarize
        self.n_init = n_init
        self.rounds = rounds
        self.n_clients = n_clients
        self.engine = engine
        self.privacy = privacy
        self.random_state = random_state
        self.missing_values = missing_values
        self.verbose = verbose

    @classmethod
    def paper(cls, n_components: int = 2, **changes: Any) -> Self:
        """Return the method as printed in the paper, for comparisons.

        Parameters
        ----------
        n_components : int
            Number of components k.
        **changes
            Further parameters.

        Returns
        -------
        FALB
            Not fitted.
        """
        return cls(n_components, **{**PAPER, **changes})
