"""Recommenders with the result of pooled ratings."""

from __future__ import annotations

from typing import Any, Literal

from fedfactor import algorithms
from fedfactor.engines.engine import Engine
from fedfactor.estimators.parameter_names import accept_other_names
from fedfactor.recommend.estimator_base import FederatedRecommender


@accept_other_names(max_iter="rounds")
class PooledCF(FederatedRecommender):
    r"""Matrix factorization of ratings with the result of pooled ratings, from sums over clients.

    .. math:: \min \sum_{ij \text{ rated}} (x_{ij} - \mu - b_i - c_j - u_i^\top v_j)^2
              + \sum_i \rho(n_i) \|u_i\|^2 + \sum_j \rho(n_j) \|v_j\|^2 + \beta (\|b\|^2 + \|c\|^2),
              \qquad \rho(n) = \lambda n + \lambda_0

    Parameters
    ----------
    n_components : int, at least 1, default=16
        Number of components (the rank k).
    feedback : {"explicit", "implicit"}, default="explicit"
        Ratings, or implicit feedback (clicks, plays, counts).
    ridge : float, at least 0, default=0.05
        λ: regularization of factors per rating of a user or item (implicit feedback: per unit of weight). Ratings
        are scaled to unit variance first.
    ridge_floor : float, above 0, default=6.0
        λ₀: regularization of factors independent of the number of ratings.
    bias_ridge : float, above 0, default=3.0
        β: regularization of biases, in ratings at the mean.
    weight : float, above 0, default=3.0
        Implicit feedback: weight of a stored 1 relative to a cell that is not stored.
    counts : {"log", "binary", "raw"}, default="log"
        Implicit feedback: meaning of a stored number r: :math:`\log_2(1 + r)`, 1, or r.
    iterations : int, at least 1, default=17
        Maximum number of exchanges before the last two.
    validation : float in [0, 1), default=0.05
        Share of the ratings that is held out of these exchanges, to decide when to stop and whether λ and λ₀ are
        halved or doubled. The last two exchanges use all ratings. 0 holds none out.
    tol : float, at least 0, default=0.0002
        Proceed to the last two exchanges when three in a row lower the validation error by less than this share; 0
        uses all iterations and keeps λ and λ₀.
    min_ratings : int, at least 1, default=3
        Items with fewer ratings have a bias and no factors (implicit feedback: neither).
    rounds : int, optional
        Maximum number of rounds; default 20. ``max_iter`` is an alias.
    n_clients : int, default=1
        Number of clients among which users are split at random when the data name no clients and ``groups`` is not
        given.
    random_state : int, RandomState, Generator or None, optional
        Seed of every random stream; the seed that was used is ``run_.seed``.
    scale : (low, high), optional
        Lowest and highest rating, to which predictions are clipped; by default those of the data.
    verbose : int, default=0
        1 or more: show progress.
    engine, privacy, callbacks, checkpoint
        As in :func:`fedfactor.run`.

    Attributes
    ----------
    items_ : ndarray of shape (m,)
        Item ids.
    users_ : dict of str to ndarray
        User ids of each client.
    components_ : array
        Item factors (with biases: followed by a row of ones and a row of biases).
    client_factors_ : dict of str to array
        User factors of each client (in a simulation).
    n_iter_ : int
        Number of exchanges.
    run_ : Run
        History, traffic, time, errors by client, and the seed.

    Notes
    -----
    An exchange sends, for each item, the (k + 1) (k + 4) / 2 sums of its least squares problem from each client,
    and k + 1 numbers to it.

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
        tol: float = 0.0002,
        min_ratings: int = 3,
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
        self.scale = scale


@accept_other_names(max_iter="rounds")
class PooledCNMF(FederatedRecommender):
    r"""Non-negative matrix factorization of ratings with the result of pooled ratings, from sums over clients.

    .. math:: \min_{U, V \ge 0} \sum_{ij \text{ rated}} (x_{ij} - \mu - b_i - c_j - U_i V_j)^2
              + \text{regularisation}

    An iteration takes two exchanges (implicit feedback: one). With ``tol=0`` all rounds are used, whether or not
    they lower the error.

    Parameters
    ----------
    n_components : int, at least 1, default=6
        Number of components (the rank k).
    feedback : {"explicit", "implicit"}, default="explicit"
        Ratings, or implicit feedback.
    weight : float, above 0, default=10.0
        Of one unit of implicit feedback.
    tol : float, at least 0, default=0.0
        Converged when three iterations in a row lower the squared error by less than this share; 0 uses all rounds.
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
        Maximum number of rounds; default 121. ``max_iter`` is an alias.
    n_clients, random_state, scale, verbose, engine, privacy, callbacks, checkpoint
        As in :func:`fedfactor.run`.

    Attributes
    ----------
    items_, users_, components_, client_factors_, n_iter_, run_
        As in :class:`~fedfactor.PooledCF`.

    Notes
    -----
    An exchange sends two sums of k m numbers from each client and V, k m numbers, to it.

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
        tol: float = 0.0,
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
        self.feedback = feedback
        self.weight = weight
        self.tol = tol
        self.start_scale = start_scale
        self.alpha = alpha
        self.beta = beta
        self.gamma = gamma
        self.delta = delta
        self.eta_user = eta_user
        self.eta_item = eta_item
        self.by_count = by_count
        self.scale = scale
