"""Distributed factorization of one matrix with scikit-learn's manners."""

from __future__ import annotations

from typing import Any, Literal

from fedfactor import algorithms
from fedfactor.core.federation import Missing
from fedfactor.engines.base import Engine
from fedfactor.estimators._base import FederatedTransformer
from fedfactor.estimators._columns import GridFace


class DSANLS(GridFace):
    """Distributed NMF for speed, by sketches of the factors; the face of :class:`fedfactor.algorithms.DSANLS`.

    X is cut into blocks of rows and of columns for ``n_clients`` nodes of one cluster: nobody keeps anything to
    itself.

    Parameters
    ----------
    n_components : int, default=2
        Rank k. No rule can choose it without a look at the data, so the default is the smallest that tells rows apart.
    sketch : {"subsampling", "gaussian", "count", "srht"}, default="subsampling"
        How sketches are drawn.
    ratio : float, default=0.1
        Width of a sketch as a share of what it replaces, at least three times the rank.
    solver : {"proximal", "gradient"}, default="proximal"
        Proximal coordinate descent, or projected gradient steps that shrink.
    rule : {"relative", "absolute"}, default="relative"
        Whether the schedule is measured against the data, or is in their units as in the published code.
    start : float, optional
        Proximal weight, or gradient step, to begin with.
    growth : float, optional
        Proximal weight ``start + growth t``, or gradient step ``start / (1 + growth t)``.
    init : {"scaled", "unit"}, default="scaled"
        Factors drawn so that U V has the mean of the data, or uniform as in the published code.
    leak : {"warn", "refuse", "ignore"}, default="warn"
        What to do before an upload that completes enough sketches to solve for U.
    iterations : int, default=100
        Iterations; one is two rounds.
    collect : bool, default=True
        Whether the last round brings V together. Else it is put together here, and the error is a sample.
    rounds : int, optional
        Rounds at most; by default those of all iterations.
    n_clients : int, default=1
        Nodes that share X.
    engine : str or Engine, default="local"
        How messages travel.
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
        Rows of U of each node.
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
        start: float | None = None,
        growth: float | None = None,
        init: Literal["scaled", "unit"] = "scaled",
        leak: Literal["warn", "refuse", "ignore"] = "warn",
        iterations: int = 100,
        collect: bool = True,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        missing_values: Missing = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.sketch = sketch
        self.ratio = ratio
        self.solver = solver
        self.rule = rule
        self.start = start
        self.growth = growth
        self.init = init
        self.leak = leak
        self.iterations = iterations
        self.collect = collect
        self.rounds = rounds
        self.n_clients = n_clients
        self.engine = engine
        self.privacy = privacy
        self.random_state = random_state
        self.missing_values = missing_values
        self.verbose = verbose


class DistributedNMF(FederatedTransformer):
    """Plain distributed NMF over blocks of rows: the rival of :class:`DSANLS`; :class:`PooledNMF` is its better form.

    The face of :class:`fedfactor.algorithms.DistributedNMF`. Needs complete rows.

    Parameters
    ----------
    n_components : int, default=2
        Rank k. No rule can choose it without a look at the data, so the default is the smallest that tells rows apart.
    solver : {"hals", "mu", "bpp"}, default="hals"
        In each round one sweep of coordinate descent, one multiplicative update, or the exact solution by block
        principal pivoting (ANLS).
    tol : float, default=0.0
        Converged when three rounds in a row lower the squared error by less than this share; 0 uses all rounds.
    rounds : int, optional
        Rounds at most; by default 100.
    n_clients : int, default=1
        Owners to whom rows are dealt at random when neither X nor ``groups`` says who owns them.
    engine : str or Engine, default="local"
        How messages travel.
    privacy : str, dp(...), transform, or tuple of these, optional
        What protects uploads on their way: ``"secure-sum"``, :func:`fedfactor.dp`, ``"median"``; see
        :func:`fedfactor.run`. ``run_.privacy`` says who could see what.
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
    >>> from fedfactor import DistributedNMF
    >>> rng = np.random.default_rng(0)
    >>> X = rng.random((30, 2)) @ rng.random((2, 6))
    >>> model = DistributedNMF(n_components=2, solver="bpp", n_clients=3, random_state=0).fit(X)
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
        missing_values: Missing = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.solver = solver
        self.tol = tol
        self.rounds = rounds
        self.n_clients = n_clients
        self.engine = engine
        self.privacy = privacy
        self.random_state = random_state
        self.missing_values = missing_values
        self.verbose = verbose
