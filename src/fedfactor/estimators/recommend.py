"""Recommenders with scikit-learn's manners."""

from __future__ import annotations

from typing import Any, Literal

from fedfactor import algorithms
from fedfactor.core.run import Run
from fedfactor.data.ratings import Ratings
from fedfactor.engines.base import Engine
from fedfactor.estimators._recommender import FederatedRecommender


class FedSPLIT(FederatedRecommender):
    """A recommender from one exchange of item factors.

    The face of :class:`fedfactor.algorithms.FedSPLIT`, which says how it works and what travels.

    Parameters
    ----------
    n_components : int, default=4
        Rank of the joint factors, the paper's K.
    local_components : int, default=6
        Rank of an owner's own factors, at most.
    rank_rule : {"third", "paper"}, default="third"
        An owner of n users takes at most n/3 components, or (as printed) at most min(n, 21) − 1.
    item_bias : {"pooled", "count", "mean"}, default="pooled"
        Item biases from sums before anybody factors, or owners' own ones averaged by count, or plainly (as
        printed).
    unrated : {"draw", "mean", "keep"}, default="draw"
        What stands for items that an owner has no rating of.
    masked : bool, default=False
        Leave unrated items out of the joint step. With ``joint="gather"`` this **shows the server which items were
        rated**.
    unit_rows : bool, default=True
        Send item factors at one scale.
    joint : {"gather", "sum"}, default="gather"
        Item factors travel once and are seen, or stay home while the joint step runs on sums.
    joint_rounds : int, default=30
        Exchanges of the joint step on sums.
    refine : int, default=20
        Steps at home after the joint factors came; 0 as printed.
    min_raters : int, default=4
        Send item factors of items that at least this many users of the owner rated; the others are drawn. Owners
        without such an item send none. 1 as printed.
    outlier : float, default=20.0
        Leave out owners whose largest entry is this many times the median owner's.
    select : {"all", "size", "quality"}, default="all"
        Who gives item factors.
    min_ratings : int, default=100
        For ``select="size"``.
    max_error : float, default=1.0
        For ``select="quality"``: the largest root mean square error on own ratings, held out.
    iterations : int, default=60
        Of an owner's own factorization.
    start_scale : float, default=1.0
        Factors start between 0 and this.
    alpha : float, default=0.06
        Regularisation of user factors.
    beta : float, default=0.06
        Regularisation of item factors.
    gamma : float, default=0.02
        Regularisation of user biases.
    delta : float, default=0.02
        Regularisation of item biases.
    eta_user : float, default=0.005
        Learning rate of user biases.
    eta_item : float, default=0.005
        Learning rate of item biases.
    by_count : bool, default=True
        Multiply the first two regularisations by numbers of ratings.
    overrides : tuple, default=()
        Owners' own values of ``local_components`` and of the nine settings above: (client, ((setting, value), ...)).
    rounds : int, optional
        Exchanges at most; by default as many as the method needs.
    n_clients : int, default=1
        Owners to whom users are dealt at random when neither the ratings nor ``groups`` say who owns them.
    engine : str or Engine, default="local"
        How messages travel.
    privacy : None, str or transforms, default=None
        What protects uploads on their way.
    random_state : int, RandomState, Generator or None, default=None
        Seed of every stream; None draws one, kept in ``run_.seed``.
    scale : (low, high), optional
        Predictions are clipped to it, by default to the smallest and largest rating in ``fit``; when given, levels that
        no ratings on this scale can have are left out, and their senders named.
    verbose : int, default=0
        1 or more: a bar on a terminal, lines in the log elsewhere.

    Attributes
    ----------
    items_ : ndarray of shape (m,)
        Item ids.
    users_ : dict of str to ndarray
        User ids of each owner.
    components_ : array
        Item factors of the first owner's model; where it has biases, below them a row of ones and a row of levels.
    client_factors_ : dict of str to array
        User factors of each owner. Only a simulation has them all.
    scale_ : (low, high) or None
        To which predictions are clipped.
    n_rejected_ : int
        Owners left out of a joint step because what they sent cannot be item factors.
    n_iter_ : int
        Exchanges that were run.
    run_ : Run
        History, traffic, time, errors by owner, and the seed.

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
        unrated: Literal["draw", "mean", "keep"] = "draw",
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
        iterations: int = 60,
        start_scale: float = 1.0,
        alpha: float = 0.06,
        beta: float = 0.06,
        gamma: float = 0.02,
        delta: float = 0.02,
        eta_user: float = 0.005,
        eta_item: float = 0.005,
        by_count: bool = True,
        overrides: tuple[Any, ...] = (),
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        scale: tuple[float, float] | None = None,
        verbose: int = 0,
    ) -> None:
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
        self.iterations = iterations
        self.start_scale = start_scale
        self.alpha = alpha
        self.beta = beta
        self.gamma = gamma
        self.delta = delta
        self.eta_user = eta_user
        self.eta_item = eta_item
        self.by_count = by_count
        self.overrides = overrides
        self.rounds = rounds
        self.n_clients = n_clients
        self.engine = engine
        self.privacy = privacy
        self.random_state = random_state
        self.scale = scale
        self.verbose = verbose

    def _keep(self, result: Run, found: Ratings) -> None:
        super()._keep(result, found)
        if self.rounds is None and "moved" not in result.history[-1].metrics:
            self._warn(
                "joined nothing: no owner sent item factors, so all keep models of their own ratings. min_raters (no "
                "owner may have an item of so many raters) and select say who sends"
            )


class PooledCF(FederatedRecommender):
    """The recommender that pooled ratings would give, from sums alone.

    The face of :class:`fedfactor.algorithms.PooledCF`, which says how it works and what travels.

    Parameters
    ----------
    n_components : int, default=16
        Rank k.
    feedback : {"explicit", "implicit"}, default="explicit"
        Ratings, or signs of interest.
    ridge : float, default=0.05
        Regularisation of factors for each rating that a user or an item has; ratings are brought to unit variance.
    ridge_floor : float, default=6.0
        Regularisation of factors whatever the number of ratings.
    bias_ridge : float, default=3.0
        Regularisation of biases, in ratings at the mean.
    weight : float, default=3.0
        Implicit feedback: how much more a stored 1 weighs than a cell that is not stored.
    counts : {"log", "binary", "raw"}, default="log"
        Implicit feedback: what a stored number r stands for: log₂(1 + r), 1, or r itself.
    iterations : int, default=17
        Exchanges at most before the last two.
    validation : float, default=0.05
        Share of the ratings that stays out of these exchanges, to judge by: when to stop, and whether the first two
        settings should be halved or doubled. The last two exchanges use all ratings.
    tol : float, default=2e-4
        Go on to the last two exchanges when three in a row lower the error on the ratings kept aside by less than this
        share; 0 uses all iterations.
    min_ratings : int, default=3
        Items with fewer ratings in all have a bias and no factors.
    rounds : int, optional
        Exchanges at most; by default 20.
    n_clients : int, default=1
        Owners to whom users are dealt at random when neither the ratings nor ``groups`` say who owns them.
    engine : str or Engine, default="local"
        How messages travel.
    privacy : None, str or transforms, default=None
        What protects uploads on their way.
    random_state : int, RandomState, Generator or None, default=None
        Seed of every stream; None draws one, kept in ``run_.seed``.
    scale : (low, high), optional
        Predictions are clipped to it; by default to the smallest and largest rating in ``fit``.
    verbose : int, default=0
        1 or more: a bar on a terminal, lines in the log elsewhere.

    Attributes
    ----------
    items_ : ndarray of shape (m,)
        Item ids.
    users_ : dict of str to ndarray
        User ids of each owner.
    components_ : array
        Item factors of the first owner's model; where it has biases, below them a row of ones and a row of levels.
    client_factors_ : dict of str to array
        User factors of each owner. Only a simulation has them all.
    scale_ : (low, high) or None
        To which predictions are clipped.
    n_rejected_ : int
        Owners left out of a joint step because what they sent cannot be item factors.
    n_iter_ : int
        Exchanges that were run.
    run_ : Run
        History, traffic, time, errors by owner, and the seed.

    Examples
    --------
    >>> import pandas as pd
    >>> from fedfactor import PooledCF
    >>> likes = {"ann": [5, 4, 1], "bob": [4, 5, 1, 2], "cat": [1, 1, 5, 4], "dan": [1, 2, 4, 5]}
    >>> rows = [(user, item, rating) for user, all_ in likes.items() for item, rating in zip("abcd", all_)]
    >>> ratings = pd.DataFrame(rows, columns=["user", "item", "rating"])
    >>> owner = {"ann": "north", "bob": "north", "cat": "south", "dan": "south"}
    >>> model = PooledCF(n_components=1, random_state=0).fit(ratings, groups=owner)
    >>> items, scores = model.recommend("ann", n=1)
    >>> items[0].tolist(), model.predict("ann", "d").shape
    (['d'], (1,))
    """

    _method = algorithms.PooledCF

    def __init__(
        self,
        n_components: int = 16,
        *,
        feedback: Literal["explicit", "implicit"] = "explicit",
        ridge: float = 0.05,
        ridge_floor: float = 6.0,
        bias_ridge: float = 3.0,
        weight: float = 3.0,
        counts: Literal["log", "binary", "raw"] = "log",
        iterations: int = 17,
        validation: float = 0.05,
        tol: float = 2e-4,
        min_ratings: int = 3,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        scale: tuple[float, float] | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.feedback = feedback
        self.ridge = ridge
        self.ridge_floor = ridge_floor
        self.bias_ridge = bias_ridge
        self.weight = weight
        self.counts = counts
        self.iterations = iterations
        self.validation = validation
        self.tol = tol
        self.min_ratings = min_ratings
        self.rounds = rounds
        self.n_clients = n_clients
        self.engine = engine
        self.privacy = privacy
        self.random_state = random_state
        self.scale = scale
        self.verbose = verbose


class PooledCNMF(FederatedRecommender):
    """Ratings as non-negative parts, as pooled ratings would give them, from sums alone.

    The face of :class:`fedfactor.algorithms.PooledCNMF`, which says how it works and what travels.

    Parameters
    ----------
    n_components : int, default=6
        Rank k.
    feedback : {"explicit", "implicit"}, default="explicit"
        Ratings, or signs of interest.
    weight : float, default=10.0
        Of one unit of implicit feedback.
    start_scale : float, default=1.0
        Factors start between 0 and this.
    tol : float, default=0.0
        Converged when three iterations in a row lower the squared error by less than this share; 0 uses all rounds.
    alpha : float, default=0.06
        Regularisation of user factors.
    beta : float, default=0.06
        Regularisation of item factors.
    gamma : float, default=0.02
        Regularisation of user biases.
    delta : float, default=0.02
        Regularisation of item biases.
    eta_user : float, default=0.005
        Learning rate of user biases.
    eta_item : float, default=0.005
        Learning rate of item biases.
    by_count : bool, default=True
        Multiply the first two regularisations by numbers of ratings.
    rounds : int, optional
        Exchanges at most, two for an iteration (implicit feedback: one); by default 121. With ``tol=0`` all are used,
        whether or not more would help.
    n_clients : int, default=1
        Owners to whom users are dealt at random when neither the ratings nor ``groups`` say who owns them.
    engine : str or Engine, default="local"
        How messages travel.
    privacy : None, str or transforms, default=None
        What protects uploads on their way.
    random_state : int, RandomState, Generator or None, default=None
        Seed of every stream; None draws one, kept in ``run_.seed``.
    scale : (low, high), optional
        Predictions are clipped to it; by default to the smallest and largest rating in ``fit``.
    verbose : int, default=0
        1 or more: a bar on a terminal, lines in the log elsewhere.

    Attributes
    ----------
    items_ : ndarray of shape (m,)
        Item ids.
    users_ : dict of str to ndarray
        User ids of each owner.
    components_ : array
        Item factors of the first owner's model; where it has biases, below them a row of ones and a row of levels.
    client_factors_ : dict of str to array
        User factors of each owner. Only a simulation has them all.
    scale_ : (low, high) or None
        To which predictions are clipped.
    n_rejected_ : int
        Owners left out of a joint step because what they sent cannot be item factors.
    n_iter_ : int
        Exchanges that were run.
    run_ : Run
        History, traffic, time, errors by owner, and the seed.

    Examples
    --------
    >>> import pandas as pd
    >>> from fedfactor import PooledCNMF
    >>> likes = {"ann": [5, 4, 1], "bob": [4, 5, 1, 2], "cat": [1, 1, 5, 4], "dan": [1, 2, 4, 5]}
    >>> rows = [(user, item, rating) for user, all_ in likes.items() for item, rating in zip("abcd", all_)]
    >>> ratings = pd.DataFrame(rows, columns=["user", "item", "rating"])
    >>> owner = {"ann": "north", "bob": "north", "cat": "south", "dan": "south"}
    >>> model = PooledCNMF(n_components=1, random_state=0).fit(ratings, groups=owner)
    >>> items, scores = model.recommend("ann", n=1)
    >>> items[0].tolist(), model.predict("ann", "d").shape
    (['d'], (1,))
    """

    _method = algorithms.PooledCNMF

    def __init__(
        self,
        n_components: int = 6,
        *,
        feedback: Literal["explicit", "implicit"] = "explicit",
        weight: float = 10.0,
        start_scale: float = 1.0,
        tol: float = 0.0,
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
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.feedback = feedback
        self.weight = weight
        self.start_scale = start_scale
        self.tol = tol
        self.alpha = alpha
        self.beta = beta
        self.gamma = gamma
        self.delta = delta
        self.eta_user = eta_user
        self.eta_item = eta_item
        self.by_count = by_count
        self.rounds = rounds
        self.n_clients = n_clients
        self.engine = engine
        self.privacy = privacy
        self.random_state = random_state
        self.scale = scale
        self.verbose = verbose
