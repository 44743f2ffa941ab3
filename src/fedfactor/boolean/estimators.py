"""Estimators of federated Boolean factorization by counts and by votes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from fedfactor import algorithms
from fedfactor.boolean.estimator_base import AsPrinted, BooleanTransformer
from fedfactor.engines.engine import Engine
from fedfactor.estimators.parameter_names import accept_other_names


@accept_other_names(max_iter="rounds")
class PooledBMF(BooleanTransformer):
    r"""Boolean matrix factorization from counts summed over clients, as if all rows were pooled.

    .. math:: \min_{U_c \in \{0,1\},\, V \in \{0,1\}} \sum_c |X_c \oplus (U_c \circ V)|

    Parameters
    ----------
    n_components : int, at least 1, default=2
        Number of components (the rank k).
    solver : {"counts", "proximal"}, default="counts"
        The search by summed counts; or proximal steps as in :class:`FELB` with steps on V from the sums
        :math:`\sum_c U_c^\top U_c` and :math:`\sum_c U_c^\top X_c`. Only the latter supports :func:`fedfactor.dp`.
    thresholds : tuple of float, default=(0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
        For ``"counts"``: shares of rows in (0, 1] above which a column belongs to a candidate; each is an
        initialization. Dense data need high values, sparse data low ones.
    penalties : tuple of int, default=(1, 2, 4)
        For ``"counts"``: cost of a wrongly covered zero relative to an uncovered one during the choice of
        components; each is an initialization. The descent ends with cost 1.
    pairs : bool, default=True
        For ``"counts"``: pairs of columns propose candidates, too, at the cost of one exchange. Helps with sparse
        data, if all columns are counted at once (see ``candidates``).
    candidates : int, at least 1, default=1000
        For ``"counts"``: maximum number of candidates for each threshold, and of columns that are counted with all
        others at a time (fewer beyond 4,000 columns). With more columns the most frequent ones are counted, then up
        to three times the most frequent of those that are not similar to them.
    min_rows : int, at least 1, default=1
        For ``"counts"``: columns and pairs that fewer rows share propose no candidate, and components of fewer rows
        are dropped, so that no client receives a single row. The server sees the counts.
    trials : int, at least 1, default=8
        For ``"counts"``: exchanges of components that are tried in parallel.
    patience : int, at least 0, default=2
        For ``"counts"``: how many times all trials may fail before the search ends; 0 tries none.
    search_rounds : int, at least 0, default=80
        For ``"counts"``: rounds after which no further exchanges are tried; the last descent takes up to 12 rounds.
    sample : int, at least 1, default=5000
        For ``"counts"``: number of distinct rows (chosen by a hash) that take part in the search, each with its
        multiplicity; more (up to 20 times) where rows repeat. All rows take part in the last descent.
    local_steps : int, at least 1, default=10
        For ``"proximal"``: steps on U in each round.
    server_steps : int, at least 1, default=10
        For ``"proximal"``: steps on V in each round.
    kappa : float, at least 0, default=0.01
        For ``"proximal"``: weight κ of the regularizer that draws cells to 0 and 1.
    lam : float, at least 0, default=0.01
        For ``"proximal"``: weight λ of the same.
    rate : float, at least 1, default=1.005
        For ``"proximal"``: growth of λ in each step; t counts local steps.
    beta : float in [0, 0.5), default=0.01
        For ``"proximal"``: inertia.
    gamma : float, at least 0, default=0.0
        For ``"proximal"``: above 0, the adaptive rate of :class:`~fedfactor.algorithms.FALB`.
    scale_prox : bool, default=True
        For ``"proximal"``: weigh the regularizer by the step size.
    prox : {"exact", "printed"}, default="exact"
        For ``"proximal"``: the minimizer, or the formula of the FELB paper.
    step : {"safe", "elbmf"}, default="safe"
        For ``"proximal"``: the step that descends, or the larger one of the ELBMF code.
    norm : {"frobenius", "spectral"}, default="frobenius"
        For ``"proximal"``: what bounds the step.
    refit : {"boolean", "none"}, default="boolean"
        For ``"proximal"``: compute U for the final V, or round the relaxed U.
    tol : float, at least 0, default=1e-06
        For ``"proximal"``: converged when no cell of V moves by more than this and V is Boolean; 0 uses all rounds.
    binarize : float, optional
        Each client uses ``X > binarize``. None: the data are zeros and ones; other values are rejected.
    n_init : int, optional
        Number of initializations; the run with the smallest error is kept. 1 by default. With :func:`fedfactor.dp`
        only 1 is accepted, because the budget is that of one run.
    rounds : int, optional
        Maximum number of rounds; default 100. ``max_iter`` is an alias.
    n_clients, random_state, missing_values, verbose, engine, privacy, device, storage, callbacks, checkpoint
        As in :class:`~fedfactor.PooledNMF`.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        V, zeros and ones, shared by all clients.
    client_factors_ : dict of str to array of shape (n_c, n_components)
        U of each client, zeros and ones (in a simulation).
    loss_ : float
        Number of wrong cells divided by the number of ones, over all clients.
    metrics_ : BooleanMetrics
        Loss, recall, precision and similarity by client, on average and pooled.
    n_iter_, run_
        As in :class:`~fedfactor.PooledNMF`.

    Notes
    -----
    With the defaults a round sends the 25 k m bits of 25 sets of components to each client, and 25 k (k + m) counts
    from it.

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
        min_rows: int = 1,
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
        self.solver = solver
        self.thresholds = thresholds
        self.penalties = penalties
        self.pairs = pairs
        self.candidates = candidates
        self.min_rows = min_rows
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
        self.device = device
        self.storage = storage
        self.missing_values = missing_values


@accept_other_names()
class BooleanVotes(AsPrinted):
    """One-shot federated Boolean factorization: clients run a solver on their rows, then vote on V.

    Parameters
    ----------
    n_components : int, at least 1, default=2
        Number of components (the rank k).
    solver : {"asso", "elbmf", "grecond", "mebf", "primp", "zhang"}, default="asso"
        Solver that every client runs on its rows.
    vote : {"majority", "average", "or"}, default="majority"
        A cell is one when at least half of the clients have a one there; when the average, rounded half to even, is
        one; or when any client has a one.
    align : {"lap", "none"}, default="lap"
        Match the components of all clients to those of the first before the vote, or vote by position, as
        published.
    refit : {"boolean", "none"}, default="boolean"
        Compute U for the elected V; or keep the U of the local run, as published (with ``align="lap"`` its columns
        are reordered).
    tie : {"one", "zero"}, default="one"
        Value of a cell for which exactly half of the clients vote.
    options : tuple of (str, value), or mapping, default=()
        Further arguments of the solver, such as ``{"tau": 0.7}``.
    time_limit : float, above 0, optional
        Seconds for the solver of each client; components not found by then are zero, and the history counts the
        clients concerned.
    rounds : int, optional
        Maximum number of rounds; default 1.
    missing_values : None
        Only None: this method requires complete rows.
    device, storage
        Only None or ``"cpu"`` and None: this method runs on the CPU.
    binarize, n_init
        As in :class:`~fedfactor.PooledBMF`.
    n_clients, random_state, verbose
        As in :class:`~fedfactor.PooledNMF`.
    engine, privacy, callbacks, checkpoint
        As in :func:`fedfactor.run`.

    Attributes
    ----------
    components_, client_factors_, loss_, metrics_
        As in :class:`~fedfactor.PooledBMF`.
    n_iter_, run_
        As in :class:`~fedfactor.PooledNMF`.

    Notes
    -----
    One exchange: each client sends its V, k m bits, and the server sees every one of them. :meth:`paper` returns
    the method as printed.

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

    # The published rule: components are voted on by position, and U is kept.
    _printed: ClassVar[dict[str, Any]] = {"align": "none", "refit": "none"}

    def __init__(
        self,
        n_components: int = 2,
        *,
        solver: Literal["asso", "elbmf", "grecond", "mebf", "primp", "zhang"] = "asso",
        vote: Literal["majority", "average", "or"] = "majority",
        align: Literal["lap", "none"] = "lap",
        refit: Literal["boolean", "none"] = "boolean",
        tie: Literal["one", "zero"] = "one",
        options: tuple[tuple[str, Any], ...] | Mapping[str, Any] = (),
        time_limit: float | None = None,
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
        self.solver = solver
        self.vote = vote
        self.align = align
        self.refit = refit
        self.tie = tie
        self.options = options
        self.time_limit = time_limit
        self.binarize = binarize
        self.n_init = n_init
        self.device = device
        self.storage = storage
        self.missing_values = missing_values
