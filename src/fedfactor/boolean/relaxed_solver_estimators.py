"""Relaxed Boolean solvers as estimators: ELBMF, PRIMP and the method of Zhang et al."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from fedfactor.boolean.proximal_maps import Pull
from fedfactor.boolean.solver_estimator_base import BooleanSolver
from fedfactor.core.parameters import Declared


class ELBMF(BooleanSolver):
    """Boolean factorization of one matrix by proximal steps with an elastic-net regularizer.

    Parameters
    ----------
    n_components : int, at least 1, default=2
        Most components.
    kappa : float, at least 0, default=0.01
        Weight κ of the regularizer.
    lam : float, at least 0, default=0.02
        Weight λ of the regularizer.
    rate : float, at least 1, default=1.02
        Growth of λ in each step.
    beta : float in [0, 0.5), default=0.0001
        Inertia, below ½.
    max_iter : int, at least 1, default=3000
        Most alternating steps.
    tol : float, at least 0, default=1e-08
        Stop when the squared error moves less than this.
    time_limit : float, optional
        Seconds after which the best result so far is kept; ``finished_`` is then False.
    binarize : float, optional
        Each client uses ``X > binarize``. None: the data are zeros and ones; other values are rejected.
    random_state : int, RandomState, Generator or None, optional
        Seed of every random stream; the seed that was used is ``run_.seed``.

    Attributes
    ----------
    components_, U_, loss_, n_components_, n_iter_, finished_
        As in :class:`~fedfactor.ASSO`.

    Notes
    -----
    The method is :func:`fedfactor.boolean.solvers.elbmf.elbmf`.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import ELBMF
    >>> X = np.kron(np.eye(2), np.ones((8, 6)))
    >>> ELBMF(n_components=2, random_state=0).fit(X).loss_
    0.0
    """

    _solver = "elbmf"
    _bounds: ClassVar[Mapping[str, Declared]] = {
        "kappa": Declared(at_least=0),
        "lam": Declared(at_least=0),
        "rate": Declared(at_least=1),
        "beta": Declared(at_least=0, below=0.5),
        "max_iter": Declared(at_least=1),
        "tol": Declared(at_least=0),
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        kappa: float = 0.01,
        lam: float = 0.02,
        rate: float = 1.02,
        beta: float = 0.0001,
        max_iter: int = 3000,
        tol: float = 1e-08,
        time_limit: float | None = None,
        binarize: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.kappa = kappa
        self.lam = lam
        self.rate = rate
        self.beta = beta
        self.max_iter = max_iter
        self.tol = tol
        self.time_limit = time_limit
        self.binarize = binarize
        self.random_state = random_state

    def _options(self) -> dict[str, Any]:
        options = super()._options()
        weights = {name: options.pop(name) for name in ("kappa", "lam", "beta")}
        return {**options, "pull": Pull(**weights)}


class ZhangBMF(BooleanSolver):
    """Boolean factorization of one matrix by penalized NMF and thresholds.

    Parameters
    ----------
    n_components : int, at least 1, default=2
        Most components.
    lam : float, at least 0, default=1.0
        Penalty on numbers that are neither 0 nor 1.
    growth : float, above 0, default=1.0
        Growth of the penalty in each iteration.
    max_iter : int, at least 1, default=1000
        Multiplicative updates.
    full_grid : bool, default=False
        Search all 100 × 100 thresholds instead of coarse, then fine.
    time_limit : float, optional
        Seconds after which the best result so far is kept; ``finished_`` is then False.
    binarize : float, optional
        Each client uses ``X > binarize``. None: the data are zeros and ones; other values are rejected.
    random_state : int, RandomState, Generator or None, optional
        Seed of every random stream; the seed that was used is ``run_.seed``.

    Attributes
    ----------
    components_, U_, loss_, n_components_, n_iter_, finished_
        As in :class:`~fedfactor.ASSO`.

    Notes
    -----
    The method is :func:`fedfactor.boolean.solvers.zhang.zhang`.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import ZhangBMF
    >>> X = np.kron(np.eye(2), np.ones((8, 6)))
    >>> ZhangBMF(n_components=2, random_state=0).fit(X).loss_
    0.0
    """

    _solver = "zhang"
    _bounds: ClassVar[Mapping[str, Declared]] = {
        "lam": Declared(at_least=0),
        "growth": Declared(above=0),
        "max_iter": Declared(at_least=1),
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        lam: float = 1.0,
        growth: float = 1.0,
        max_iter: int = 1000,
        full_grid: bool = False,
        time_limit: float | None = None,
        binarize: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.lam = lam
        self.growth = growth
        self.max_iter = max_iter
        self.full_grid = full_grid
        self.time_limit = time_limit
        self.binarize = binarize
        self.random_state = random_state


class PRIMP(BooleanSolver):
    """Boolean factorization of one matrix by proximal steps and description length.

    Parameters
    ----------
    n_components : int, at least 1, default=2
        Most components.
    weight : float, at least 0, default=0.1
        Weight of the penalty.
    cost : {"error", "mdl"}, default="mdl"
        Criterion for thresholds: number of wrong cells, or description length.
    max_iter : int, at least 1, default=1000
        Most alternating steps.
    tol : float, at least 0, default=1e-08
        Stop when the relative change of the squared error falls below this.
    full_grid : bool, default=False
        Search all 100 × 100 thresholds instead of coarse, then fine.
    time_limit : float, optional
        Seconds after which the best result so far is kept; ``finished_`` is then False.
    binarize : float, optional
        Each client uses ``X > binarize``. None: the data are zeros and ones; other values are rejected.
    random_state : int, RandomState, Generator or None, optional
        Seed of every random stream; the seed that was used is ``run_.seed``.

    Attributes
    ----------
    components_, U_, loss_, n_components_, n_iter_, finished_
        As in :class:`~fedfactor.ASSO`.

    Notes
    -----
    The method is :func:`fedfactor.boolean.solvers.primp.primp`.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import PRIMP
    >>> X = np.kron(np.eye(2), np.ones((8, 6)))
    >>> PRIMP(n_components=2, random_state=0).fit(X).loss_
    0.0
    """

    _solver = "primp"
    _bounds: ClassVar[Mapping[str, Declared]] = {
        "weight": Declared(at_least=0),
        "max_iter": Declared(at_least=1),
        "tol": Declared(at_least=0),
    }

    def __init__(
        self,
        n_components: int = 2,
        *,
        weight: float = 0.1,
        cost: Literal["error", "mdl"] = "mdl",
        max_iter: int = 1000,
        tol: float = 1e-08,
        full_grid: bool = False,
        time_limit: float | None = None,
        binarize: float | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.weight = weight
        self.cost = cost
        self.max_iter = max_iter
        self.tol = tol
        self.full_grid = full_grid
        self.time_limit = time_limit
        self.binarize = binarize
        self.random_state = random_state
