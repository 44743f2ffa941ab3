"""Boolean factorization from sums alone and by votes, with scikit-learn's manners."""

from __future__ import annotations

from typing import Any, Literal, Self

from fedfactor import algorithms
from fedfactor.core.federation import Missing
from fedfactor.engines.base import Engine
from fedfactor.estimators._boolean import BooleanTransformer


class PooledBMF(BooleanTransformer):
    r"""Boolean factorization as if all rows lay in one place, from sums alone.

    .. math:: \min_{U_c \in \{0,1\},\, V \in \{0,1\}} \sum_c |X_c \oplus (U_c \circ V)|

    The face of :class:`fedfactor.algorithms.PooledBMF`, which says how it works and what travels.

    Parameters
    ----------
    n_components : int, default=2
        Number of components k. No rule can choose it without a look at the data.
    solver : {"counts", "proximal"}, default="counts"
        A search on sums of counts, or FELB's proximal steps on sums; the settings down to `sample` are of the search,
        those below it of the steps.
    thresholds : tuple of float, default=(0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
        Shares of rows from which on a column belongs to a candidate; each is a start of its own.
    penalties : tuple of int, default=(1, 2, 4)
        What a wrongly covered zero costs at first; each is a start of its own.
    pairs : bool, default=True
        Let pairs of columns propose candidates, too.
    candidates : int, default=1000
        Most candidates for each threshold.
    trials : int, default=8
        Exchanges of components that are tried side by side.
    patience : int, default=2
        How often all of these may fail before the search ends; 0: none are tried.
    search_rounds : int, default=80
        Rounds after which no more exchanges are tried.
    sample : int, default=5000
        Of more rows than this, about so many take part in the search; all take part in the last descent.
    local_steps : int, default=10
        Steps on U in each round.
    server_steps : int, default=10
        Steps on V in each round.
    kappa : float, default=0.01
        Weight κ of the regulariser that draws cells to 0 and 1.
    lam : float, default=0.01
        Weight λ of the same.
    rate : float, default=1.005
        Growth of λ in each step.
    beta : float, default=0.01
        Inertia, below ½.
    gamma : float, default=0.0
        Above 0: the adaptive rate of FALB.
    scale_prox : bool, default=True
        Weigh the regulariser by the step size.
    prox : {"exact", "printed"}, default="exact"
        The minimiser, or the formula of the paper.
    step : {"safe", "elbmf"}, default="safe"
        The step that descends, or the larger one of the ELBMF code.
    norm : {"frobenius", "spectral"}, default="frobenius"
        What bounds the step.
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
    missing_values : None, nan, number or "unstored", default=None
        What marks a missing cell; such cells count for nothing. Refused with ``solver="proximal"``.
    verbose : int, default=0
        1 or more: a bar on a terminal, lines in the log elsewhere.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        V, zeros and ones, shared by all owners.
    client_factors_ : dict of str to array of shape (n_c, n_components)
        U of each owner, zeros and ones. Only a simulation has them all.
    loss_ : float
        Wrong cells over ones, of all owners together: minus ``score(X)``.
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
    >>> from fedfactor import PooledBMF
    >>> X = np.kron(np.eye(2), np.ones((10, 4)))
    >>> model = PooledBMF(n_components=2, n_clients=2, random_state=0).fit(X)
    >>> model.loss_, bool((model.inverse_transform(model.transform(X)) == X).all())
    (0.0, True)
    """

    _method = algorithms.PooledBMF

    def __init__(
        self,
        n_components: int = 2,
        *,
        solver: Literal["counts", "proximal"] = "counts",
        thresholds: tuple[float, ...] = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
        penalties: tuple[int, ...] = (1, 2, 4),
        pairs: bool = True,
        candidates: int = 1000,
        trials: int = 8,
        patience: int = 2,
        search_rounds: int = 80,
        sample: int = 5000,
        local_steps: int = 10,
        server_steps: int = 10,
        kappa: float = 0.01,
        lam: float = 0.01,
        rate: float = 1.005,
        beta: float = 0.01,
        gamma: float = 0.0,
        scale_prox: bool = True,
        prox: Literal["exact", "printed"] = "exact",
        step: Literal["safe", "elbmf"] = "safe",
        norm: Literal["frobenius", "spectral"] = "frobenius",
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
        self.solver = solver
        self.thresholds = thresholds
        self.penalties = penalties
        self.pairs = pairs
        self.candidates = candidates
        self.trials = trials
        self.patience = patience
        self.search_rounds = search_rounds
        self.sample = sample
        self.local_steps = local_steps
        self.server_steps = server_steps
        self.kappa = kappa
        self.lam = lam
        self.rate = rate
        self.beta = beta
        self.gamma = gamma
        self.scale_prox = scale_prox
        self.prox = prox
        self.step = step
        self.norm = norm
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


class BooleanVotes(BooleanTransformer):
    r"""One-shot federated Boolean factorization: local solvers, then a vote on V.

    The face of :class:`fedfactor.algorithms.BooleanVotes`, which says how it works and what travels.

    Parameters
    ----------
    n_components : int, default=2
        Number of components k. No rule can choose it without a look at the data.
    solver : {"asso", "elbmf", "grecond", "mebf", "primp", "zhang"}, default="asso"
        What every owner runs on its own rows.
    vote : {"majority", "average", "or"}, default="majority"
        When at least half of the owners have a one; when the rounded average is one; when any has a one.
    align : {"lap", "none"}, default="lap"
        Match the components of all owners before the vote, or vote on positions as they are.
    refit : {"boolean", "none"}, default="boolean"
        Choose U for the elected V, or keep the U of the local run.
    tie : {"one", "zero"}, default="one"
        What a majority of exactly half is.
    options : tuple[tuple[str, Any], ...], default=()
        Further arguments of the solver, such as ``(("tau", 0.7),)``.
    time_limit : float, optional
        Seconds for each owner's solver.
    binarize : float, optional
        Rows are ``X > binarize``, taken by each owner alone; None: they are zeros and ones already, and anything else
        is refused.
    n_init : int, default=1
        Starts; the one with the least summed error is kept. With ``dp(...)`` only one: a budget is that of one run.
    rounds : int, optional
        Rounds at most; by default 1.
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
    >>> from fedfactor import BooleanVotes
    >>> X = np.kron(np.eye(2), np.ones((10, 4)))
    >>> model = BooleanVotes(n_components=2, n_clients=2, random_state=0).fit(X)
    >>> model.loss_, bool((model.inverse_transform(model.transform(X)) == X).all())
    (0.0, True)
    """

    _method = algorithms.BooleanVotes

    def __init__(
        self,
        n_components: int = 2,
        *,
        solver: Literal["asso", "elbmf", "grecond", "mebf", "primp", "zhang"] = "asso",
        vote: Literal["majority", "average", "or"] = "majority",
        align: Literal["lap", "none"] = "lap",
        refit: Literal["boolean", "none"] = "boolean",
        tie: Literal["one", "zero"] = "one",
        options: tuple[tuple[str, Any], ...] = (),
        time_limit: float | None = None,
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
        self.solver = solver
        self.vote = vote
        self.align = align
        self.refit = refit
        self.tie = tie
        self.options = options
        self.time_limit = time_limit
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
        """Return the published rule: positions are voted on as they are, and U is kept.

        Parameters
        ----------
        n_components : int
            Number of components k.
        **changes
            Further parameters.

        Returns
        -------
        BooleanVotes
            Not fitted.
        """
        return cls(n_components, **{"align": "none", "refit": "none", **changes})
