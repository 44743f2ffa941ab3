"""Estimators of one matrix that is distributed over the nodes of a cluster."""

from __future__ import annotations

from typing import Any, Literal

from fedfactor import algorithms
from fedfactor.engines.engine import Engine
from fedfactor.estimators.base import FederatedTransformer
from fedfactor.estimators.columns import GridEstimator
from fedfactor.estimators.parameter_names import accept_other_names


@accept_other_names()
class DSANLS(GridEstimator):
    r"""Distributed NMF of one matrix for speed, with sketches of the factors.

    .. math:: \min_{U \ge 0,\, V \ge 0} \tfrac12 \|M - U V\|^2

    X is cut into blocks of rows and of columns for ``n_clients`` nodes of one cluster; it does not protect privacy.

    Parameters
    ----------
    n_components : int, at least 1, default=2
        Number of components (the rank k).
    sketch : {"subsampling", "gaussian", "count", "srht"}, default="subsampling"
        How sketches are drawn. Subsampling is the cheapest and keeps sparse data sparse; the others see every cell
        in each step.
    ratio : float in (0, 1], default=0.1
        Width of a sketch as a share of what it replaces, at least three times the rank.
    solver : {"proximal", "gradient"}, default="proximal"
        Proximal coordinate descent, or projected gradient steps that shrink.
    rule : {"relative", "absolute"}, default="relative"
        Whether the schedule is measured against the data, or is in their units as in the published code.
    schedule_start : float, at least 0, optional
        Proximal weight, or gradient step, in the first step.
    growth : float, at least 0, optional
        Proximal weight ``schedule_start + growth t``, or gradient step ``schedule_start / (1 + growth t)``.
    init : {"scaled", "unit"}, default="scaled"
        Factors drawn so that U V has the mean of the data, or uniform on [0, 1] as in the published code.
    leak : {"warn", "refuse", "ignore"}, default="warn"
        What to do before an upload that would complete enough sketches to solve for U.
    iterations : int, at least 1, default=100
        Number of iterations; the last round sends all of V to every node (k m numbers, once).
    collect : bool, default=True
        False: nodes keep their columns of V, and the error is measured on the cells for which a node knows both
        factors.
    cap : float, above 0, optional
        Upper bound of the cells of a factor; the convergence proof of the paper assumes bounded factors, such as
        ``sqrt(2 ‖M‖)``.
    rounds : int, optional
        Maximum number of rounds; by default as many as the method needs.
    missing_values : None
        Only None: this method requires complete rows.
    engine, privacy, callbacks, checkpoint
        As in :func:`fedfactor.run`.
    device, storage
        Only None or ``"cpu"`` and None: this method runs on the CPU.
    n_clients, random_state, verbose
        As in :class:`~fedfactor.PooledNMF`.

    Attributes
    ----------
    client_factors_ : dict of str to array
        Rows of U of each node.
    components_, reconstruction_err_, relative_error_
        As in :class:`~fedfactor.FNMF`.
    n_iter_, run_
        As in :class:`~fedfactor.PooledNMF`.

    Notes
    -----
    A round sends two sketches of k d numbers, d = ``ratio`` times the sketched dimension.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import DSANLS
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((60, 3)) @ rng.random((3, 40))
    >>> model = DSANLS(n_components=3, ratio=0.5, n_clients=2, leak="ignore", random_state=0).fit(X)
    >>> model.components_.shape, model.relative_error_ < 0.05
    ((3, 40), True)
    """

    _method = algorithms.DSANLS

    def __init__(
        self,
        n_components: int = 2,
        *,
        sketch: Literal["subsampling", "gaussian", "count", "srht"] = "subsampling",
        ratio: float = 0.1,
        solver: Literal["proximal", "gradient"] = "proximal",
        rule: Literal["relative", "absolute"] = "relative",
        schedule_start: float | None = None,
        growth: float | None = None,
        init: Literal["scaled", "unit"] = "scaled",
        leak: Literal["warn", "refuse", "ignore"] = "warn",
        iterations: int = 100,
        collect: bool = True,
        cap: float | None = None,
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
        self.ratio = ratio
        self.solver = solver
        self.rule = rule
        self.schedule_start = schedule_start
        self.growth = growth
        self.init = init
        self.leak = leak
        self.iterations = iterations
        self.collect = collect
        self.cap = cap
        self.device = device
        self.storage = storage
        self.missing_values = missing_values


@accept_other_names(max_iter="rounds")
class DistributedNMF(FederatedTransformer):
    r"""Plain distributed NMF over blocks of rows: the baseline of :class:`DSANLS`; use :class:`PooledNMF` instead.

    .. math:: \min_{U \ge 0,\, V \ge 0} \tfrac12 \|X - U V\|^2

    Parameters
    ----------
    n_components : int, at least 1, default=2
        Number of components (the rank k).
    solver : {"hals", "mu", "bpp"}, default="hals"
        One sweep of coordinate descent, one multiplicative update, or the exact solution by block principal
        pivoting (ANLS) for either factor in each round.
    tol : float, at least 0, default=0.0
        Converged when three rounds in a row lower the squared error by less than this share; 0 uses all rounds.
    rounds : int, optional
        Maximum number of rounds; default 100. ``max_iter`` is an alias.
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
    A round costs O(n m k) time and sends k (k + m) numbers from each client and k m numbers to it.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import DistributedNMF
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((30, 2)) @ rng.random((2, 6))
    >>> model = DistributedNMF(n_components=2, n_clients=3, tol=0, random_state=0).fit(X)
    >>> model.transform(X).shape, sorted(model.client_factors_)
    ((30, 2), ['0', '1', '2'])
    """

    _method = algorithms.DistributedNMF

    def __init__(
        self,
        n_components: int = 2,
        *,
        solver: Literal["hals", "mu", "bpp"] = "hals",
        tol: float = 0.0,
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
        self.tol = tol
        self.device = device
        self.storage = storage
        self.missing_values = missing_values


@accept_other_names(max_iter="rounds")
class GridNMF(GridEstimator):
    r"""NMF of one matrix in blocks on a grid of ``n_clients`` nodes; no node has all rows or all columns.

    .. math:: \min_{U \ge 0,\, V \ge 0} \tfrac12 \|X - U V\|^2

    Of all grids with that number of nodes, the one that sends least is used. To choose the grid, pass a Federation
    of ``fedfactor.data.block_federation`` or ``fedfactor.data.open_blocks``.

    Parameters
    ----------
    n_components : int, at least 1, default=2
        Number of components (the rank k).
    solver : {"hals", "mu", "bpp"}, default="hals"
        A sweep of coordinate descent, a multiplicative update, or the exact solution by block principal pivoting
        (ANLS) for either factor in each iteration.
    local_steps : int, at least 1, default=1
        Sweeps over a factor between two sums.
    tol : float, at least 0, default=0.0
        Converged when three iterations in a row lower the squared error by less than this share; 0 uses all rounds.
    rounds : int, optional
        Maximum number of rounds; default 201. ``max_iter`` is an alias.
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
        Rows of U of each node.
    components_, reconstruction_err_, relative_error_
        As in :class:`~fedfactor.FNMF`.
    n_iter_, run_
        As in :class:`~fedfactor.PooledNMF`.

    Notes
    -----
    An iteration sends k (k + rows) and k (k + columns) numbers of each block, within the rows and columns of the
    grid.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import GridNMF
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((60, 3)) @ rng.random((3, 40))
    >>> model = GridNMF(n_components=3, n_clients=6, random_state=0).fit(X)
    >>> model.components_.shape, model.relative_error_ < 0.05
    ((3, 40), True)
    """

    _method = algorithms.GridNMF

    def __init__(
        self,
        n_components: int = 2,
        *,
        solver: Literal["hals", "mu", "bpp"] = "hals",
        local_steps: int = 1,
        tol: float = 0.0,
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
        self.local_steps = local_steps
        self.tol = tol
        self.device = device
        self.storage = storage
        self.missing_values = missing_values
