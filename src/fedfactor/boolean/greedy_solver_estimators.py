"""Greedy Boolean solvers as estimators: ASSO, GreConD and MEBF."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from fedfactor.boolean.solver_estimator_base import BooleanSolver
from fedfactor.boolean.solvers.asso import TAUS
from fedfactor.core.parameters import Declared


class ASSO(BooleanSolver):
    """Boolean factorization of one matrix from associations between columns.

    Parameters
    ----------
    n_components : int, at least 1, default=2
        Most components.
    tau : float or sequence of float, default=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
        Threshold of the association; of several values the best is used.
    reward : float, above 0, default=1.0
        Weight of newly covered ones.
    penalty : float, at least 0, default=1.0
        Weight of newly covered zeros.
    time_limit : float, optional
        Seconds after which the best result so far is kept; ``finished_`` is then False.
    binarize : float, optional
        Each client uses ``X > binarize``. None: the data are zeros and ones; other values are rejected.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        V, zeros and ones; components that were not needed are zero.
    U_ : array of shape (n, n_components)
        U as found by the solver.
    loss_ : float
        Number of wrong cells divided by the number of ones, with U chosen by :meth:`transform`.
    n_components_ : int
        Number of components that are not zero.
    n_iter_ : int
        Number of iterations; 1 for a greedy solver.
    finished_ : bool
        Whether the solver ended before ``time_limit``.

    Notes
    -----
    The method is :func:`fedfactor.boolean.solvers.asso.asso`.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import ASSO
    >>> X = np.kron(np.eye(2), np.ones((8, 6)))
    >>> ASSO(n_components=2).fit(X).loss_
    0.0
    """

    _solver = "asso"
    _bounds: ClassVar[Mapping[str, Declared]] = {
        "tau": Declared(check=False),
        "reward": Declared(above=0),
        "penalty": Declared(at_least=0),
    }

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
    """Boolean factorization of one matrix from below, by formal concepts.

    Parameters
    ----------
    n_components : int, at least 1, default=2
        Most components.
    time_limit : float, optional
        Seconds after which the best result so far is kept; ``finished_`` is then False.
    binarize : float, optional
        Each client uses ``X > binarize``. None: the data are zeros and ones; other values are rejected.

    Attributes
    ----------
    components_, U_, loss_, n_components_, n_iter_, finished_
        As in :class:`~fedfactor.ASSO`.

    Notes
    -----
    The method is :func:`fedfactor.boolean.solvers.grecond.grecond`.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import GreConD
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
    """Boolean factorization of one matrix by median expansion.

    Parameters
    ----------
    n_components : int, at least 1, default=2
        Most components.
    share : float or sequence of float, default=0.8
        Share of the rows of a tile that a column must have; of several values the best is used.
    leave : float in [0, 1), default=0.05
        Stop when at most this share of the ones is left.
    time_limit : float, optional
        Seconds after which the best result so far is kept; ``finished_`` is then False.
    binarize : float, optional
        Each client uses ``X > binarize``. None: the data are zeros and ones; other values are rejected.

    Attributes
    ----------
    components_, U_, loss_, n_components_, n_iter_, finished_
        As in :class:`~fedfactor.ASSO`.

    Notes
    -----
    The method is :func:`fedfactor.boolean.solvers.mebf.mebf`.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import MEBF
    >>> X = np.kron(np.eye(2), np.ones((8, 6)))
    >>> MEBF(n_components=2).fit(X).loss_
    0.0
    """

    _solver = "mebf"
    _bounds: ClassVar[Mapping[str, Declared]] = {"share": Declared(check=False), "leave": Declared(at_least=0, below=1)}

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
