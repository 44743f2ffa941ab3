"""Estimator of FedSPLIT."""

from __future__ import annotations

from typing import Any, Literal

from fedfactor import algorithms
from fedfactor.core.run import Run
from fedfactor.engines.engine import Engine
from fedfactor.estimators.parameter_names import accept_other_names
from fedfactor.recommend.estimator_base import FederatedRecommender


@accept_other_names()
class FedSPLIT(FederatedRecommender):
    """Recommender from one exchange of item factors.

    Parameters
    ----------
    n_components : int, at least 1, default=4
        Rank of the joint factors, the paper's K.
    local_components : int, at least 1, default=6
        Maximum rank of the factors of a client; see ``rank_rule``.
    rank_rule : {"third", "paper"}, default="third"
        A client of n users uses at most n/3 components, or at most min(n, 21) − 1 as printed, which can reveal
        ratings.
    item_bias : {"pooled", "count", "mean"}, default="pooled"
        ``"pooled"``: item biases from sums over all clients, before the factorization. ``"count"``: biases of the
        clients, averaged by their numbers of ratings (one more exchange). ``"mean"``: the plain average, as
        printed. Numbers of ratings are sent inside sums only.
    unrated : {"draw", "mean", "keep", "zero"}, default="draw"
        Values for items without a rating at a client; see
        :func:`~fedfactor.recommend.fedsplit.joint_nmf.fill_unrated`.
    masked : bool, default=False
        Leave unrated items out of the joint step instead. With ``joint="gather"`` this **shows the server which
        items the users of each client rated**.
    unit_rows : bool, default=True
        Send item factors scaled to norm 1; their norms stay at the client.
    joint : {"gather", "sum"}, default="gather"
        ``"gather"``: item factors are sent once and the server sees those of each client. ``"sum"``: the joint step
        runs on sums, in ``joint_rounds`` exchanges.
    joint_rounds : int, at least 1, default=30
        Number of exchanges of the joint step on sums.
    refine : int, at least 0, default=20
        Local steps on U and user biases after the joint step; 0 as printed.
    min_raters : int, at least 1, default=4
        Send item factors only of items that at least this many users of the client rated; fewer reveal ratings. 1
        as printed.
    outlier : float, above 1, default=20.0
        Leave out clients whose largest entry is this many times that of the median client; only where uploads are
        seen.
    select : {"all", "size", "quality"}, default="all"
        Clients that send item factors: all; those of at least ``min_ratings`` ratings; or those whose own model has
        a validation error of at most ``max_error``. All clients receive the result.
    min_ratings : int, at least 0, default=100
        Threshold of ``select="size"``.
    max_error : float, at least 0, default=1.0
        Threshold of ``select="quality"``, a root mean square error.
    updates : {"stable", "printed"}, default="stable"
        Updates of the client's own factorization: in steps that cannot overshoot, or eqs. 10 to 13 of the paper.
    joint_solver : {"hals", "multiplicative"}, default="hals"
        Solver of the joint step on gathered factors: coordinate descent, or eqs. 2 and 3 of the paper.
    iterations : int, at least 1, default=60
        Iterations of the factorization at each client.
    overrides : tuple of (client, ((setting, value), ...)), default=()
        Values of ``local_components``, ``iterations``, and ``start_scale`` to ``by_count`` for single clients.
    start_scale : float, above 0, default=1.0
        Factors start between 0 and this.
    alpha : float, at least 0, default=0.06
        Regularization of user factors.
    beta : float, at least 0, default=0.06
        Regularization of item factors.
    gamma : float, at least 0, default=0.02
        Regularization of user biases.
    delta : float, at least 0, default=0.02
        Regularization of item biases.
    eta_user : float, at least 0, default=0.005
        Learning rate of user biases.
    eta_item : float, at least 0, default=0.005
        Learning rate of item biases.
    by_count : bool, default=True
        Multiply the regularization of factors by the number of ratings.
    rounds : int, optional
        Maximum number of rounds; by default as many as the method needs.
    scale : (low, high), optional
        The lowest and the highest rating that every client agreed on, to which predictions are clipped; by default
        the smallest and the largest in ``fit``. When given, levels and residuals that no such ratings can give are
        left out, wherever single uploads are seen, and their senders named.
    n_clients, random_state, verbose, engine, privacy, callbacks, checkpoint
        As in :func:`fedfactor.run`.

    Attributes
    ----------
    n_rejected_ : int
        Clients left out of the joint step because their uploads cannot be item factors.
    items_, users_, components_, client_factors_, n_iter_, run_
        As in :class:`~fedfactor.PooledCF`.

    Notes
    -----
    Each client sends its item factors, ``local_components`` × m numbers, once; with ``joint="gather"`` the server
    sees them.

    Examples
    --------
    >>> import pandas as pd
    >>> from fedfactor import FedSPLIT
    >>> likes = {"ann": [5, 4, 1], "bob": [4, 5, 1, 2], "cat": [1, 1, 5, 4], "dan": [1, 2, 4, 5]}
    >>> rows = [(user, item, rating) for user, all_ in likes.items() for item, rating in zip("abcd", all_)]
    >>> ratings = pd.DataFrame(rows, columns=["user", "item", "rating"])
    >>> owner = {"ann": "north", "bob": "north", "cat": "south", "dan": "south"}
    >>> model = FedSPLIT(n_components=1, min_raters=1, random_state=0).fit(ratings, groups=owner)
    >>> items, scores = model.recommend("ann", n=1)
    >>> items[0].tolist(), model.predict("ann", "d").shape
    (['d'], (1,))
    """

    _method = algorithms.FedSPLIT

    def __init__(
        self,
        n_components: int = 4,
        *,
        local_components: int = 6,
        rank_rule: Literal["third", "paper"] = "third",
        item_bias: Literal["pooled", "count", "mean"] = "pooled",
        unrated: Literal["draw", "mean", "keep", "zero"] = "draw",
        masked: bool = False,
        unit_rows: bool = True,
        joint: Literal["gather", "sum"] = "gather",
        joint_rounds: int = 30,
        refine: int = 20,
        min_raters: int = 4,
        outlier: float = 20.0,
        select: Literal["all", "size", "quality"] = "all",
        min_ratings: int = 100,
        max_error: float = 1.0,
        updates: Literal["stable", "printed"] = "stable",
        joint_solver: Literal["hals", "multiplicative"] = "hals",
        iterations: int = 60,
        overrides: tuple[tuple[Any, tuple[tuple[str, Any], ...]], ...] = (),
        start_scale: float = 1.0,
        alpha: float = 0.06,
        beta: float = 0.06,
        gamma: float = 0.02,
        delta: float = 0.02,
        eta_user: float = 0.005,
        eta_item: float = 0.005,
        by_count: bool = True,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        scale: tuple[float, float] | None = None,
        verbose: int | bool = 0,
        callbacks: Any = (),
        checkpoint: Any = None,
    ) -> None:
        super().__init__(rounds, n_clients, engine, privacy, random_state, verbose, callbacks, checkpoint)
        self.n_components = n_components
        self.local_components = local_components
        self.rank_rule = rank_rule
        self.item_bias = item_bias
        self.unrated = unrated
        self.masked = masked
        self.unit_rows = unit_rows
        self.joint = joint
        self.joint_rounds = joint_rounds
        self.refine = refine
        self.min_raters = min_raters
        self.outlier = outlier
        self.select = select
        self.min_ratings = min_ratings
        self.max_error = max_error
        self.updates = updates
        self.joint_solver = joint_solver
        self.iterations = iterations
        self.overrides = overrides
        self.start_scale = start_scale
        self.alpha = alpha
        self.beta = beta
        self.gamma = gamma
        self.delta = delta
        self.eta_user = eta_user
        self.eta_item = eta_item
        self.by_count = by_count
        self.scale = scale

    def _keep(self, result: Run, found: Any) -> None:
        super()._keep(result, found)
        if self.rounds is None and "moved" not in result.history[-1].metrics:
            self._warn(
                "joined nothing: no owner sent item factors, so all keep models of their own ratings. min_raters (no "
                "owner may have an item of so many raters) and select say who sends"
            )
