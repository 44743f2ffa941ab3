"""Baselines of the recommenders: FCF, FedMF, Biases and Popularity."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from fedfactor import algorithms
from fedfactor.core.errors import DataError
from fedfactor.engines.engine import Engine
from fedfactor.estimators.parameter_names import accept_other_names
from fedfactor.recommend.estimator_base import FederatedRecommender
from fedfactor.recommend.list_estimator_base import ListRecommender


@accept_other_names(max_iter="rounds")
class FCF(FederatedRecommender):
    r"""Federated collaborative filtering: alternating least squares with summed gradients, explicit or implicit.

    .. math:: \min \sum_{ij} c_{ij} (p_{ij} - u_i^\top v_j)^2 + \lambda (\|U\|^2 + \|V\|^2)

    Parameters
    ----------
    n_components : int, at least 1, default=5
        Number of components (the rank k).
    feedback : {"explicit", "implicit"}, default="explicit"
        ``"explicit"``: only rated cells count, p is the rating less the mean. ``"implicit"``: every cell counts, p
        = 1 with weight :math:`1 + w r` where something is stored, else p = 0 with weight 1.
    weight : float, above 0, default=10.0
        Of one unit of implicit feedback.
    lam : float, above 0, default=5.0
        Regularization; in explicit feedback of U, where a user's sum has few terms, as of V.
    learning_rate : float, above 0, default=0.05
        Of the server's Adam steps.
    rounds : int, optional
        Maximum number of rounds; default 100. ``max_iter`` is an alias.
    n_clients, random_state, scale, verbose, engine, privacy, callbacks, checkpoint
        As in :func:`fedfactor.run`.

    Attributes
    ----------
    items_, users_, components_, client_factors_, n_iter_, run_
        As in :class:`~fedfactor.PooledCF`.

    Notes
    -----
    A baseline. A round sends V and its gradient, k m numbers each.

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
        verbose: int | bool = 0,
        callbacks: Any = (),
        checkpoint: Any = None,
    ) -> None:
        super().__init__(rounds, n_clients, engine, privacy, random_state, verbose, callbacks, checkpoint)
        self.n_components = n_components
        self.feedback = feedback
        self.weight = weight
        self.lam = lam
        self.learning_rate = learning_rate
        self.scale = scale


@accept_other_names(max_iter="rounds")
class FedMF(FederatedRecommender):
    r"""Matrix factorization with biases by federated gradient descent.

    .. math:: \min \sum_{ij \text{ rated}} (x_{ij} - \mu - b_i - c_j - u_i^\top v_j)^2
              + \lambda \sum_{ij \text{ rated}} (\|u_i\|^2 + \|v_j\|^2 + b_i^2 + c_j^2)

    Parameters
    ----------
    n_components : int, at least 1, default=8
        Number of components (the rank k).
    lam : float, at least 0, default=0.1
        Regularization, for each rating.
    learning_rate : float, above 0, default=0.5
        Of user and item steps; gradients are means over ratings.
    momentum : float in [0, 1), default=0.5
        Share of the last item step that is taken again.
    local_steps : int, at least 1, default=2
        Steps on user factors before item gradients are taken.
    rounds : int, optional
        Maximum number of rounds; default 101. ``max_iter`` is an alias.
    n_clients, random_state, scale, verbose, engine, privacy, callbacks, checkpoint
        As in :func:`fedfactor.run`.

    Attributes
    ----------
    items_, users_, components_, client_factors_, n_iter_, run_
        As in :class:`~fedfactor.PooledCF`.

    Notes
    -----
    A baseline. A round sends V with item biases and their gradient, (k + 1) m numbers each.

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
        verbose: int | bool = 0,
        callbacks: Any = (),
        checkpoint: Any = None,
    ) -> None:
        super().__init__(rounds, n_clients, engine, privacy, random_state, verbose, callbacks, checkpoint)
        self.n_components = n_components
        self.lam = lam
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.local_steps = local_steps
        self.scale = scale


class Baseline(FederatedRecommender):
    """A model without factors: its score of an item is one number."""

    def similar_items(self, items: Any, n: int = 10, *, client: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Refuse: one number for each item does not show which items are alike."""
        raise DataError(f"{type(self).__name__} knows no similar items. Use PooledEASE or PooledCF for them.")


@accept_other_names(max_iter="rounds")
class Biases(Baseline):
    r"""Ratings from a mean and biases of users and items, from sums over clients: the baseline of rating models.

    .. math:: \min_{b, c} \sum_{ij \text{ rated}} (x_{ij} - \mu - b_i - c_j)^2 + \beta_u \|b\|^2 + \beta_v \|c\|^2

    Parameters
    ----------
    user_ridge : float, above 0, default=5.0
        β_u: regularization of user biases, in ratings.
    item_ridge : float, above 0, default=5.0
        β_v: regularization of item biases, in ratings.
    tol : float, at least 0, default=0.001
        Converged when no item bias moves by more than this share of the largest; 0 uses all rounds.
    rounds : int, optional
        Maximum number of rounds; default 20. ``max_iter`` is an alias.
    n_clients, random_state, scale, verbose, engine, privacy, callbacks, checkpoint
        As in :func:`fedfactor.run`.

    Attributes
    ----------
    items_, users_, components_, client_factors_, n_iter_, run_
        As in :class:`~fedfactor.PooledCF`.

    Notes
    -----
    An exchange sends two sums of m numbers from each client and m biases to it.

    Examples
    --------
    >>> import pandas as pd
    >>> from fedfactor import Biases
    >>> likes = {"ann": [5, 4, 1], "bob": [4, 5, 1, 2], "cat": [1, 1, 5, 4], "dan": [1, 2, 4, 5]}
    >>> rows = [(user, item, rating) for user, all_ in likes.items() for item, rating in zip("abcd", all_)]
    >>> ratings = pd.DataFrame(rows, columns=["user", "item", "rating"])
    >>> owner = {"ann": "north", "bob": "north", "cat": "south", "dan": "south"}
    >>> model = Biases(random_state=0).fit(ratings, groups=owner)
    >>> items, scores = model.recommend("ann", n=1)
    >>> items[0].tolist(), model.predict("ann", "d").shape
    (['d'], (1,))
    """

    _method = algorithms.Biases

    def __init__(
        self,
        user_ridge: float = 5.0,
        *,
        item_ridge: float = 5.0,
        tol: float = 0.001,
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
        self.user_ridge = user_ridge
        self.item_ridge = item_ridge
        self.tol = tol
        self.scale = scale


@accept_other_names()
class Popularity(Baseline, ListRecommender):
    r"""The most popular items, less those that a user has rated, from sums over clients: the baseline of lists.

    .. math:: \hat x_{ij} = \frac{1}{n} \sum_c |\{i \in c : x_{ij} \text{ is stored}\}|

    Parameters
    ----------
    min_users : int, at least 1, default=1
        Items of fewer users, over all clients, are left out and never recommended.
    rounds : int, optional
        Maximum number of rounds; default 1.
    n_clients, random_state, verbose, engine, privacy, callbacks, checkpoint
        As in :func:`fedfactor.run`.

    Attributes
    ----------
    items_, users_, components_, client_factors_, n_iter_, run_
        As in :class:`~fedfactor.PooledCF`.

    Notes
    -----
    One exchange of m counts.

    Examples
    --------
    >>> import pandas as pd
    >>> from fedfactor import Popularity
    >>> clicks = pd.DataFrame([("ann", "a"), ("bob", "a"), ("bob", "b"), ("cat", "c"), ("dan", "b")],
    ...                       columns=["user", "item"])
    >>> model = Popularity(random_state=0).fit(clicks, groups={"ann": 0, "bob": 0, "cat": 1, "dan": 1})
    >>> model.recommend(["ann", "cat"], n=1)[0].tolist()
    [['b'], ['a']]
    """

    _method = algorithms.Popularity

    def __init__(
        self,
        min_users: int = 1,
        *,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        verbose: int | bool = 0,
        callbacks: Any = (),
        checkpoint: Any = None,
    ) -> None:
        super().__init__(rounds, n_clients, engine, privacy, random_state, verbose, callbacks, checkpoint)
        self.min_users = min_users
