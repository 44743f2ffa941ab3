"""Iterative recommenders, for comparison, with scikit-learn's manners."""

from __future__ import annotations

from typing import Any, Literal

from fedfactor import algorithms
from fedfactor.engines.base import Engine
from fedfactor.estimators._recommender import FederatedRecommender


class FCF(FederatedRecommender):
    """Federated alternating least squares with summed gradients: the iterative baseline, explicit or implicit.

    The face of :class:`fedfactor.algorithms.FCF`, which says how it works and what travels.

    Parameters
    ----------
    n_components : int, default=5
        Rank k.
    feedback : {"explicit", "implicit"}, default="explicit"
        Ratings, or signs of interest.
    weight : float, default=10.0
        Of one unit of implicit feedback.
    lam : float, default=5.0
        Regularisation.
    learning_rate : float, default=0.05
        Of gradient steps.
    rounds : int, optional
        Exchanges; by default 100.
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
    >>> from fedfactor import FCF
    >>> likes = {"ann": [5, 4, 1], "bob": [4, 5, 1, 2], "cat": [1, 1, 5, 4], "dan": [1, 2, 4, 5]}
    >>> rows = [(user, item, rating) for user, all_ in likes.items() for item, rating in zip("abcd", all_)]
    >>> ratings = pd.DataFrame(rows, columns=["user", "item", "rating"])
    >>> owner = {"ann": "north", "bob": "north", "cat": "south", "dan": "south"}
    >>> model = FCF(n_components=1, random_state=0).fit(ratings, groups=owner)
    >>> items, scores = model.recommend("ann", n=1)
    >>> items[0].tolist(), model.predict("ann", "d").shape
    (['d'], (1,))
    """

    _method = algorithms.FCF

    def __init__(
        self,
        n_components: int = 5,
        *,
        feedback: Literal["explicit", "implicit"] = "explicit",
        weight: float = 10.0,
        lam: float = 5.0,
        learning_rate: float = 0.05,
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
        self.lam = lam
        self.learning_rate = learning_rate
        self.rounds = rounds
        self.n_clients = n_clients
        self.engine = engine
        self.privacy = privacy
        self.random_state = random_state
        self.scale = scale
        self.verbose = verbose


class FedMF(FederatedRecommender):
    """Matrix factorization with biases by federated gradient descent: an iterative baseline.

    The face of :class:`fedfactor.algorithms.FedMF`, which says how it works and what travels.

    Parameters
    ----------
    n_components : int, default=8
        Rank k.
    lam : float, default=0.1
        Regularisation.
    learning_rate : float, default=0.5
        Of gradient steps.
    momentum : float, default=0.5
        Share of the last item step that is taken again.
    local_steps : int, default=2
        Steps on user factors before item gradients are taken.
    rounds : int, optional
        Exchanges; by default 101.
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
    >>> from fedfactor import FedMF
    >>> likes = {"ann": [5, 4, 1], "bob": [4, 5, 1, 2], "cat": [1, 1, 5, 4], "dan": [1, 2, 4, 5]}
    >>> rows = [(user, item, rating) for user, all_ in likes.items() for item, rating in zip("abcd", all_)]
    >>> ratings = pd.DataFrame(rows, columns=["user", "item", "rating"])
    >>> owner = {"ann": "north", "bob": "north", "cat": "south", "dan": "south"}
    >>> model = FedMF(n_components=1, random_state=0).fit(ratings, groups=owner)
    >>> items, scores = model.recommend("ann", n=1)
    >>> items[0].tolist(), model.predict("ann", "d").shape
    (['d'], (1,))
    """

    _method = algorithms.FedMF

    def __init__(
        self,
        n_components: int = 8,
        *,
        lam: float = 0.1,
        learning_rate: float = 0.5,
        momentum: float = 0.5,
        local_steps: int = 2,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        scale: tuple[float, float] | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.lam = lam
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.local_steps = local_steps
        self.rounds = rounds
        self.n_clients = n_clients
        self.engine = engine
        self.privacy = privacy
        self.random_state = random_state
        self.scale = scale
        self.verbose = verbose
