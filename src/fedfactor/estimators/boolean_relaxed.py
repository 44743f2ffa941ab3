"""ELBMF, Zhang's method and PRIMP: relaxed solvers of one Boolean matrix, with scikit-learn's manners."""

from __future__ import annotations

from typing import Any, Literal

from fedfactor.estimators._boolean_solver import BooleanSolver
from fedfactor.kernels.boolean.prox import Pull


class ELBMF(BooleanSolver):
    """Boolean factorization by proximal steps; see :func:`fedfactor.kernels.boolean.elbmf.elbmf`.

    Parameters
    ----------
    n_components : int, default=2
        Most components.
    kappa : float, default=0.01
        Weight κ of the regulariser.
    lam : float, default=0.02
        Weight λ of the regulariser.
    rate : float, default=1.02
        Growth of λ in each step.
    beta : float, default=1e-4
        Inertia, below ½.
    max_iter : int, default=3000
        Most alternating steps.
    tol : float, default=1e-8
        Stop when the squared error moves less than this.
    time_limit : float, optional
        Seconds; what was found by then is kept, and ``finished_`` says so.
    binarize : float, optional
        Rows are ``X > binarize``; None: they are zeros and ones already, and anything else is refused.
    random_state : int, RandomState, Generator or None, default=None
        Draws the start.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        V, zeros and ones; rows of zeros were not needed.
    U_ : array of shape (n, n_components)
        The row factor that the solver itself found.
    loss_ : float
        Wrong cells over ones with U chosen for the components as :meth:`transform` does: minus ``score(X)``.
    n_components_ : int
        Components that are not empty.
    n_iter_ : int
        Iterations of a relaxed solver; 1 for a greedy one.
    finished_ : bool
        Whether the solver ended before the time limit.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor.estimators import ELBMF
    >>> X = np.kron(np.eye(2), np.ones((8, 6)))
    >>> ELBMF(n_components=2, random_state=0).fit(X).loss_
    0.0
    """

    _solver = "elbmf"

    def __init__(
        self,
        n_components: int = 2,
        *,
        kappa: float = 0.01,
        lam: float = 0.02,
        rate: float = 1.02,
        beta: float = 1e-4,
        max_iter: int = 3000,
        tol: float = 1e-8,
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
    """Boolean factorization by penalised NMF and thresholds; see :func:`fedfactor.kernels.boolean.zhang.zhang`.

    Parameters
    ----------
    n_components : int, default=2
        Most components.
    lam : float, default=1.0
        Penalty on numbers that are neither 0 nor 1.
    growth : float, default=1.0
        Growth of the penalty in each iteration.
    max_iter : int, default=1000
        Multiplicative updates.
    full_grid : bool, default=False
        Search all 100 × 100 thresholds instead of coarse, then fine.
    time_limit : float, optional
        Seconds; what was found by then is kept, and ``finished_`` says so.
    binarize : float, optional
        Rows are ``X > binarize``; None: they are zeros and ones already, and anything else is refused.
    random_state : int, RandomState, Generator or None, default=None
        Draws the start.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        V, zeros and ones; rows of zeros were not needed.
    U_ : array of shape (n, n_components)
        The row factor that the solver itself found.
    loss_ : float
        Wrong cells over ones with U chosen for the components as :meth:`transform` does: minus ``score(X)``.
    n_components_ : int
        Components that are not empty.
    n_iter_ : int
        Iterations of a relaxed solver; 1 for a greedy one.
    finished_ : bool
        Whether the solver ended before the time limit.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor.estimators import ZhangBMF
    >>> X = np.kron(np.eye(2), np.ones((8, 6)))
    >>> ZhangBMF(n_components=2, random_state=0).fit(X).loss_
    0.0
    """

    _solver = "zhang"

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
    """Boolean factorization by proximal steps and code length; see :func:`fedfactor.kernels.boolean.primp.primp`.

    Parameters
    ----------
    n_components : int, default=2
        Most components.
    weight : float, default=0.1
        Weight of the penalty.
    cost : {"error", "mdl"}, default="mdl"
        What thresholds are chosen by: wrong cells, or the length of a code.
    max_iter : int, default=1000
        Most alternating steps.
    tol : float, default=1e-8
        Stop when the relative change of the squared error falls below this.
    full_grid : bool, default=False
        Search all 100 × 100 thresholds instead of coarse, then fine.
    time_limit : float, optional
        Seconds; what was found by then is kept, and ``finished_`` says so.
    binarize : float, optional
        Rows are ``X > binarize``; None: they are zeros and ones already, and anything else is refused.
    random_state : int, RandomState, Generator or None, default=None
        Draws the start.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        V, zeros and ones; rows of zeros were not needed.
    U_ : array of shape (n, n_components)
        The row factor that the solver itself found.
    loss_ : float
        Wrong cells over ones with U chosen for the components as :meth:`transform` does: minus ``score(X)``.
    n_components_ : int
        Components that are not empty.
    n_iter_ : int
        Iterations of a relaxed solver; 1 for a greedy one.
    finished_ : bool
        Whether the solver ended before the time limit.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor.estimators import PRIMP
    >>> X = np.kron(np.eye(2), np.ones((8, 6)))
    >>> PRIMP(n_components=2, random_state=0).fit(X).loss_
    0.0
    """

    _solver = "primp"

    def __init__(
        self,
        n_components: int = 2,
        *,
        weight: float = 0.1,
        cost: Literal["error", "mdl"] = "mdl",
        max_iter: int = 1000,
        tol: float = 1e-8,
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
