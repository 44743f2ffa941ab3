"""Factorizations of parties that never wait for each other, with scikit-learn's manners."""

from __future__ import annotations

from typing import Any, Literal

from fedfactor import algorithms
from fedfactor.core.federation import Missing
from fedfactor.engines.base import Engine
from fedfactor.estimators._columns import SecureFace


class AsynSD(SecureFace):
    """NMF of parties that never wait for each other; the face of :class:`fedfactor.algorithms.AsynSD`.

    Parameters
    ----------
    n_components : int, default=2
        Rank k. No rule can choose it without a look at the data, so the default is the smallest that tells rows apart.
    local_steps : int, default=10
        Alternations between two exchanges.
    align : bool, default=True
        Match components before averaging. Without it the mean mixes unlike components and the run stalls.
    server : {"history", "harmonic", "constant"}, default="history"
        Mean of what each party sent last, or a weight ω that falls or stays.
    omega : float, optional
        See ``server``.
    weights : {"equal", "rows"}, default="equal"
        Whether parties count alike in the mean or by what they hold.
    solver : {"proximal", "gradient"}, default="proximal"
        Proximal coordinate descent, or projected gradient steps that shrink.
    rule : {"relative", "absolute"}, default="relative"
        Whether the schedule is measured against the data, or is in their units as in the published code.
    start : float, optional
        Proximal weight, or gradient step, to begin with.
    growth : float, optional
        Proximal weight ``start + growth t``, or gradient step ``start / (1 + growth t)``.
    init : {"scaled", "unit", "small"}, default="scaled"
        Factors drawn so that U V has the mean of the data, or uniform as in the published code.
    split : {"rows", "columns"}, default="rows"
        What owners hold: rows of X, or columns of it as in the paper. ``groups`` labels the one or the other.
    rounds : int, optional
        Rounds at most; by default 100.
    n_clients : int, default=1
        Owners to whom rows (or columns) are dealt at random when ``groups`` does not say who owns them.
    engine : str or Engine, default="local"
        How messages travel. On ``"local"`` all parties come to every round, so that nobody is ahead of anybody;
        :class:`~fedfactor.engines.local.virtual_clock.VirtualEngine` and ``"mpi"`` let each come when it is done.
    privacy : str, dp(...), transform, or tuple of these, default=None
        What protects uploads on their way, see :func:`fedfactor.run`.
    random_state : int, RandomState, Generator or None, default=None
        Seed of every stream; None draws one, kept in ``run_.seed``.
    missing_values : None, default=None
        For the sake of one signature: this method refuses rows with missing cells.
    verbose : int, default=0
        1 or more: a bar on a terminal, lines in the log elsewhere.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        V.
    client_factors_ : dict of str to array
        What only that owner has: its rows of U, or with ``split="columns"`` its columns of V as rows.
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
    >>> from fedfactor import AsynSD
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((40, 2)) @ rng.random((2, 30))
    >>> model = AsynSD(n_components=2, random_state=0).fit(X, groups=["a"] * 25 + ["b"] * 15)
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
        server: Literal["history", "harmonic", "constant"] = "history",
        omega: float | None = None,
        weights: Literal["equal", "rows"] = "equal",
        solver: Literal["proximal", "gradient"] = "proximal",
        rule: Literal["relative", "absolute"] = "relative",
        start: float | None = None,
        growth: float | None = None,
        init: Literal["scaled", "unit", "small"] = "scaled",
        split: Literal["rows", "columns"] = "rows",
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
        self.align = align
        self.server = server
        self.omega = omega
        self.weights = weights
        self.solver = solver
        self.rule = rule
        self.start = start
        self.growth = growth
        self.init = init
        self.split = split
        self.rounds = rounds
        self.n_clients = n_clients
        self.engine = engine
        self.privacy = privacy
        self.random_state = random_state
        self.missing_values = missing_values
        self.verbose = verbose


class AsynSSD(SecureFace):
    """Asyn-SD whose parties look at a part of their rows in each step; the face of
    :class:`fedfactor.algorithms.AsynSSD`.

    Parameters
    ----------
    n_components : int, default=2
        Rank k. No rule can choose it without a look at the data, so the default is the smallest that tells rows apart.
    kind : {"subsampling", "gaussian", "count", "srht"}, default="subsampling"
        How sketches are drawn.
    ratio : float, default=0.1
        Width of a sketch as a share of what it replaces, at least three times the rank.
    local_steps : int, default=10
        Alternations between two exchanges.
    align : bool, default=True
        Match components before averaging. Without it the mean mixes unlike components and the run stalls.
    server : {"history", "harmonic", "constant"}, default="history"
        Mean of what each party sent last, or a weight ω that falls or stays.
    omega : float, optional
        See ``server``.
    weights : {"equal", "rows"}, default="equal"
        Whether parties count alike in the mean or by what they hold.
    solver : {"proximal", "gradient"}, default="proximal"
        Proximal coordinate descent, or projected gradient steps that shrink.
    rule : {"relative", "absolute"}, default="relative"
        Whether the schedule is measured against the data, or is in their units as in the published code.
    start : float, optional
        Proximal weight, or gradient step, to begin with.
    growth : float, optional
        Proximal weight ``start + growth t``, or gradient step ``start / (1 + growth t)``.
    init : {"scaled", "unit", "small"}, default="scaled"
        Factors drawn so that U V has the mean of the data, or uniform as in the published code.
    split : {"rows", "columns"}, default="rows"
        What owners hold: rows of X, or columns of it as in the paper. ``groups`` labels the one or the other.
    rounds : int, optional
        Rounds at most; by default 100.
    n_clients : int, default=1
        Owners to whom rows (or columns) are dealt at random when ``groups`` does not say who owns them.
    engine : str or Engine, default="local"
        How messages travel. On ``"local"`` all parties come to every round, so that nobody is ahead of anybody;
        :class:`~fedfactor.engines.local.virtual_clock.VirtualEngine` and ``"mpi"`` let each come when it is done.
    privacy : str, dp(...), transform, or tuple of these, default=None
        What protects uploads on their way, see :func:`fedfactor.run`.
    random_state : int, RandomState, Generator or None, default=None
        Seed of every stream; None draws one, kept in ``run_.seed``.
    missing_values : None, default=None
        For the sake of one signature: this method refuses rows with missing cells.
    verbose : int, default=0
        1 or more: a bar on a terminal, lines in the log elsewhere.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        V.
    client_factors_ : dict of str to array
        What only that owner has: its rows of U, or with ``split="columns"`` its columns of V as rows.
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
    >>> from fedfactor import AsynSSD
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((40, 2)) @ rng.random((2, 30))
    >>> model = AsynSSD(n_components=2, random_state=0).fit(X, groups=["a"] * 25 + ["b"] * 15)
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
        server: Literal["history", "harmonic", "constant"] = "history",
        omega: float | None = None,
        weights: Literal["equal", "rows"] = "equal",
        solver: Literal["proximal", "gradient"] = "proximal",
        rule: Literal["relative", "absolute"] = "relative",
        start: float | None = None,
        growth: float | None = None,
        init: Literal["scaled", "unit", "small"] = "scaled",
        split: Literal["rows", "columns"] = "rows",
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        missing_values: Missing = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.kind = kind
        self.ratio = ratio
        self.local_steps = local_steps
        self.align = align
        self.server = server
        self.omega = omega
        self.weights = weights
        self.solver = solver
        self.rule = rule
        self.start = start
        self.growth = growth
        self.init = init
        self.split = split
        self.rounds = rounds
        self.n_clients = n_clients
        self.engine = engine
        self.privacy = privacy
        self.random_state = random_state
        self.missing_values = missing_values
        self.verbose = verbose
