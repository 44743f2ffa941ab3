"""Estimators of asynchronous secure distributed NMF."""

from __future__ import annotations

from typing import Any, Literal

from fedfactor import algorithms
from fedfactor.engines.engine import Engine
from fedfactor.estimators.columns import ColumnSplitEstimator
from fedfactor.estimators.parameter_names import accept_other_names


@accept_other_names(max_iter="rounds")
class AsynSD(ColumnSplitEstimator):
    r"""Asynchronous secure distributed NMF: clients do not wait for each other.

    .. math:: \min_{U_c \ge 0,\, V \ge 0} \sum_c \tfrac12\|X_c - U_c V\|^2

    With ``engine="local"`` all clients take part in every round; with
    :class:`fedfactor.engines.VirtualEngine` and ``"mpi"`` each sends when it is ready.

    Parameters
    ----------
    n_components : int, at least 1, default=2
        Number of components (the rank k).
    local_steps : int, at least 1, default=10
        Alternations between two exchanges of the whole V (T₂ of the paper).
    align : bool, default=True
        Match components before averaging; otherwise the mean mixes different components and the run stalls.
    solver : {"proximal", "gradient"}, default="proximal"
        Proximal coordinate descent, or projected gradient steps that shrink.
    rule : {"relative", "absolute"}, default="relative"
        Whether the schedule is measured against the data, or is in their units as in the published code.
    schedule_start : float, at least 0, optional
        Proximal weight, or gradient step, in the first step.
    growth : float, at least 0, optional
        Proximal weight ``schedule_start + growth t``, or gradient step ``schedule_start / (1 + growth t)``, t
        counting alternations.
    init : {"scaled", "unit", "small"}, default="scaled"
        Factors drawn so that U V has the mean of the data, or uniform on [0, 1] or [0, 0.01] as in the published
        code.
    server : {"history", "harmonic", "constant"}, default="history"
        ``"history"``: V is the mean of the last upload of every client. ``"harmonic"``: ``V ← (1 − ω) V + ω V_c``
        with ``ω = omega / (omega + t)`` at arrival t, as published. ``"constant"``: ω is ``omega``, by default one
        over the number of clients.
    omega : float, above 0, optional
        See ``server``; 1 for ``harmonic``.
    weights : {"equal", "rows"}, default="equal"
        Clients count alike in the mean, as published, or by their number of rows.
    split : {"rows", "columns"}, default="rows"
        Whether clients hold rows of X or, as in the paper, columns; ``groups`` labels these.
    rounds : int, optional
        Maximum number of rounds; default 100. ``max_iter`` is an alias.
    missing_values : None
        Only None: this method requires complete rows.
    device, storage
        Only None or ``"cpu"`` and None: this method runs on the CPU.
    n_clients, random_state, verbose
        As in :class:`~fedfactor.PooledNMF`.
    engine, privacy, callbacks, checkpoint
        As in :func:`fedfactor.run`.

    Attributes
    ----------
    client_factors_ : dict of str to array
        The private factor of each client: its rows of U or, with ``split="columns"``, its columns of V as rows.
    components_, reconstruction_err_, relative_error_
        As in :class:`~fedfactor.FNMF`.
    n_iter_, run_
        As in :class:`~fedfactor.PooledNMF`.

    Notes
    -----
    An arrival sends the change of V, k m numbers, to the server and V back.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import AsynSD
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((40, 2)) @ rng.random((2, 30))
    >>> model = AsynSD(n_components=2, rounds=20, random_state=0).fit(X, groups=["a"] * 25 + ["b"] * 15)
    >>> model.components_.shape, model.relative_error_ < 0.1
    ((2, 30), True)
    """

    _method = algorithms.AsynSD

    def __init__(
        self,
        n_components: int = 2,
        *,
        local_steps: int = 10,
        align: bool = True,
        solver: Literal["proximal", "gradient"] = "proximal",
        rule: Literal["relative", "absolute"] = "relative",
        schedule_start: float | None = None,
        growth: float | None = None,
        init: Literal["scaled", "unit", "small"] = "scaled",
        server: Literal["history", "harmonic", "constant"] = "history",
        omega: float | None = None,
        weights: Literal["equal", "rows"] = "equal",
        split: Literal["rows", "columns"] = "rows",
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
        self.align = align
        self.solver = solver
        self.rule = rule
        self.schedule_start = schedule_start
        self.growth = growth
        self.init = init
        self.server = server
        self.omega = omega
        self.weights = weights
        self.split = split
        self.device = device
        self.storage = storage
        self.missing_values = missing_values


@accept_other_names(max_iter="rounds")
class AsynSSD(ColumnSplitEstimator):
    r"""Asynchronous secure sketched distributed NMF: AsynSD whose clients use a part of their rows in each step.

    .. math:: \min_{U_c \ge 0,\, V \ge 0} \sum_c \tfrac12\|X_c - U_c V\|^2

    Parameters
    ----------
    n_components : int, at least 1, default=2
        Number of components (the rank k).
    kind : {"subsampling", "gaussian", "count", "srht"}, default="subsampling"
        How sketches are drawn.
    ratio : float in (0, 1], default=0.1
        Share of the rows that a step uses, at least three times the rank.
    local_steps : int, at least 1, default=10
        Alternations between two exchanges of the whole V (T₂ of the paper).
    align : bool, default=True
        Match components before averaging; otherwise the mean mixes different components and the run stalls.
    solver : {"proximal", "gradient"}, default="proximal"
        Proximal coordinate descent, or projected gradient steps that shrink.
    rule : {"relative", "absolute"}, default="relative"
        Whether the schedule is measured against the data, or is in their units as in the published code.
    schedule_start : float, at least 0, optional
        Proximal weight, or gradient step, in the first step.
    growth : float, at least 0, optional
        Proximal weight ``schedule_start + growth t``, or gradient step ``schedule_start / (1 + growth t)``, t
        counting alternations.
    init : {"scaled", "unit", "small"}, default="scaled"
        Factors drawn so that U V has the mean of the data, or uniform on [0, 1] or [0, 0.01] as in the published
        code.
    server : {"history", "harmonic", "constant"}, default="history"
        ``"history"``: V is the mean of the last upload of every client. ``"harmonic"``: ``V ← (1 − ω) V + ω V_c``
        with ``ω = omega / (omega + t)`` at arrival t, as published. ``"constant"``: ω is ``omega``, by default one
        over the number of clients.
    omega : float, above 0, optional
        See ``server``; 1 for ``harmonic``.
    weights : {"equal", "rows"}, default="equal"
        Clients count alike in the mean, as published, or by their number of rows.
    split : {"rows", "columns"}, default="rows"
        Whether clients hold rows of X or, as in the paper, columns; ``groups`` labels these.
    rounds : int, optional
        Maximum number of rounds; default 100. ``max_iter`` is an alias.
    missing_values : None
        Only None: this method requires complete rows.
    device, storage
        Only None or ``"cpu"`` and None: this method runs on the CPU.
    n_clients, random_state, verbose
        As in :class:`~fedfactor.PooledNMF`.
    engine, privacy, callbacks, checkpoint
        As in :func:`fedfactor.run`.

    Attributes
    ----------
    client_factors_ : dict of str to array
        The private factor of each client: its rows of U or, with ``split="columns"``, its columns of V as rows.
    components_, reconstruction_err_, relative_error_
        As in :class:`~fedfactor.FNMF`.
    n_iter_, run_
        As in :class:`~fedfactor.PooledNMF`.

    Notes
    -----
    An arrival sends the change of V, k m numbers, to the server and V back. See :class:`AsynSD` for the order of
    arrivals. Depending on it, a run may stay on a plateau for tens of exchanges, because the proximal weight grows and
    steps become short; ``schedule_start=0.01, growth=0`` leaves a plateau sooner, at a higher error where sketches are
    noisy.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import AsynSSD
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((40, 2)) @ rng.random((2, 30))
    >>> model = AsynSSD(n_components=2, rounds=20, random_state=0).fit(X, groups=["a"] * 25 + ["b"] * 15)
    >>> model.components_.shape, model.relative_error_ < 0.1
    ((2, 30), True)
    """

    _method = algorithms.AsynSSD

    def __init__(
        self,
        n_components: int = 2,
        *,
        kind: Literal["subsampling", "gaussian", "count", "srht"] = "subsampling",
        ratio: float = 0.1,
        local_steps: int = 10,
        align: bool = True,
        solver: Literal["proximal", "gradient"] = "proximal",
        rule: Literal["relative", "absolute"] = "relative",
        schedule_start: float | None = None,
        growth: float | None = None,
        init: Literal["scaled", "unit", "small"] = "scaled",
        server: Literal["history", "harmonic", "constant"] = "history",
        omega: float | None = None,
        weights: Literal["equal", "rows"] = "equal",
        split: Literal["rows", "columns"] = "rows",
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
        self.kind = kind
        self.ratio = ratio
        self.local_steps = local_steps
        self.align = align
        self.solver = solver
        self.rule = rule
        self.schedule_start = schedule_start
        self.growth = growth
        self.init = init
        self.server = server
        self.omega = omega
        self.weights = weights
        self.split = split
        self.device = device
        self.storage = storage
        self.missing_values = missing_values
