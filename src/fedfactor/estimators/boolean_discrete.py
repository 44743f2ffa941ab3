"""ASSO, GreConD and MEBF: discrete solvers of one Boolean matrix, with scikit-learn's manners."""

from __future__ import annotations

from collections.abc import Sequence

from fedfactor.estimators._boolean_solver import BooleanSolver
from fedfactor.kernels.boolean.asso import TAUS


class ASSO(BooleanSolver):
    """Boolean factorization from associations between columns; see :func:`fedfactor.kernels.boolean.asso.asso`.

    Parameters
    ----------
    n_components : int, default=2
        Most components.
    tau : float | Sequence[float], default=0.1 to 1.0 in steps of 0.1
        Threshold of the association; of several the best is kept.
    reward : float, default=1.0
        Weight of newly covered ones.
    penalty : float, default=1.0
        Weight of newly covered zeros.
    time_limit : float, optional
        Seconds; what was found by then is kept, and ``finished_`` says so.
    binarize : float, optional
        Rows are ``X > binarize``; None: they are zeros and ones already, and anything else is refused.

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
    >>> from fedfactor.estimators import ASSO
    >>> X = np.kron(np.eye(2), np.ones((8, 6)))
    >>> ASSO(n_components=2).fit(X).loss_
    0.0
    """

    _solver = "asso"

    def __init__(
        self,
        n_components: int = 2,
        *,
        tau: float | Sequence[float] = TAUS,
        reward: float = 1.0,
        penalty: float = 1.0,
        time_limit: float | None = None,
        binarize: float | None = None,
    ) -> None:
        self.n_components = n_components
        self.tau = tau
        self.reward = reward
        self.penalty = penalty
        self.time_limit = time_limit
        self.binarize = binarize


class GreConD(BooleanSolver):
    """Boolean factorization from below by formal concepts; see :func:`fedfactor.kernels.boolean.grecond.grecond`.

    Parameters
    ----------
    n_components : int, default=2
        Most components.
    time_limit : float, optional
        Seconds; what was found by then is kept, and ``finished_`` says so.
    binarize : float, optional
        Rows are ``X > binarize``; None: they are zeros and ones already, and anything else is refused.

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
    >>> from fedfactor.estimators import GreConD
    >>> X = np.kron(np.eye(2), np.ones((8, 6)))
    >>> GreConD(n_components=2).fit(X).loss_
    0.0
    """

    _solver = "grecond"

    def __init__(
        self,
        n_components: int = 2,
        *,
        time_limit: float | None = None,
        binarize: float | None = None,
    ) -> None:
        self.n_components = n_components
        self.time_limit = time_limit
        self.binarize = binarize


class MEBF(BooleanSolver):
    """Boolean factorization by median expansion; see :func:`fedfactor.kernels.boolean.mebf.mebf`.

    Parameters
    ----------
    n_components : int, default=2
        Most components.
    share : float | Sequence[float], default=0.8
        How many rows of a tile a column must have; of several the best is kept.
    leave : float, default=0.05
        Stop when at most this share of the ones is left.
    time_limit : float, optional
        Seconds; what was found by then is kept, and ``finished_`` says so.
    binarize : float, optional
        Rows are ``X > binarize``; None: they are zeros and ones already, and anything else is refused.

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
    >>> from fedfactor.estimators import MEBF
    >>> X = np.kron(np.eye(2), np.ones((8, 6)))
    >>> MEBF(n_components=2).fit(X).loss_
    0.0
    """

    _solver = "mebf"

    def __init__(
        self,
        n_components: int = 2,
        *,
        share: float | Sequence[float] = 0.8,
        leave: float = 0.05,
        time_limit: float | None = None,
        binarize: float | None = None,
    ) -> None:
        self.n_components = n_components
        self.share = share
        self.leave = leave
        self.time_limit = time_limit
        self.binarize = binarize
