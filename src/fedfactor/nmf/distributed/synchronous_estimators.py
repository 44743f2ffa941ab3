"""Estimators of synchronous secure distributed NMF."""

from __future__ import annotations

from typing import Any, Literal

from fedfactor import algorithms
from fedfactor.engines.engine import Engine
from fedfactor.estimators.columns import ColumnSplitEstimator
from fedfactor.estimators.parameter_names import accept_other_names


@accept_other_names(max_iter="rounds")
class SynSD(ColumnSplitEstimator):
    r"""Synchronous secure distributed NMF: clients take local steps and average the common factor.

    .. math:: \min_{U_c \ge 0,\, V \ge 0} \sum_c \tfrac12\|X_c - U_c V\|^2

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
    A round costs ``local_steps`` times O(n m k) time and sends V, k m numbers, in each direction.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import SynSD
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((40, 2)) @ rng.random((2, 30))
    >>> model = SynSD(n_components=2, rounds=20, random_state=0).fit(X, groups=["a"] * 25 + ["b"] * 15)
    >>> model.components_.shape, model.relative_error_ < 0.1
    ((2, 30), True)
    """

    _method = algorithms.SynSD

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
        self.split = split
        self.device = device
        self.storage = storage
        self.missing_values = missing_values


@accept_other_names(max_iter="rounds")
class SynSSD(ColumnSplitEstimator):
    r"""Synchronous secure sketched distributed NMF: SynSD with sketches of messages or of data.

    .. math:: \min_{U_c \ge 0,\, V \ge 0} \sum_c \tfrac12\|X_c - U_c V\|^2

    Parameters
    ----------
    n_components : int, at least 1, default=2
        Number of components (the rank k).
    sketch : {"uv", "u", "v"}, default="uv"
        Factor that is sketched, in the letters of the paper, whose U is the common factor (V here). ``"u"``: the
        private factor is updated through a sketch of the common one; its mean (k d numbers) is sent in every inner
        step, the whole V once in ``local_steps``. ``"v"``: the common factor is updated through a private sketch of
        the rows; the whole V is sent in every inner step. ``"uv"``: both.
    kind : {"subsampling", "gaussian", "count", "srht"}, default="subsampling"
        How sketches are drawn.
    ratio : float in (0, 1], default=0.1
        Width of a sketch as a share of what it replaces, at least three times the rank.
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
    split : {"rows", "columns"}, default="rows"
        Whether clients hold rows of X or, as in the paper, columns; ``groups`` labels these.
    rounds : int, optional
        Maximum number of rounds; default 1000. ``max_iter`` is an alias.
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
    An inner step sends V or a sketch of it (``sketch``), once in ``local_steps`` the whole V, k m numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import SynSSD
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((40, 2)) @ rng.random((2, 30))
    >>> model = SynSSD(n_components=2, rounds=20, random_state=0).fit(X, groups=["a"] * 25 + ["b"] * 15)
    >>> model.components_.shape, model.relative_error_ < 0.1
    ((2, 30), True)
    """

    _method = algorithms.SynSSD

    def __init__(
        self,
        n_components: int = 2,
        *,
        sketch: Literal["uv", "u", "v"] = "uv",
        kind: Literal["subsampling", "gaussian", "count", "srht"] = "subsampling",
        ratio: float = 0.1,
        local_steps: int = 10,
        align: bool = True,
        solver: Literal["proximal", "gradient"] = "proximal",
        rule: Literal["relative", "absolute"] = "relative",
        schedule_start: float | None = None,
        growth: float | None = None,
        init: Literal["scaled", "unit", "small"] = "scaled",
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
        self.sketch = sketch
        self.kind = kind
        self.ratio = ratio
        self.local_steps = local_steps
        self.align = align
        self.solver = solver
        self.rule = rule
        self.schedule_start = schedule_start
        self.growth = growth
        self.init = init
        self.split = split
        self.device = device
        self.storage = storage
        self.missing_values = missing_values
