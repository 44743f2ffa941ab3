"""Recommenders of lists: items from items, and items that only others hold."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Literal, Self

import numpy as np

from fedfactor import algorithms
from fedfactor.core.errors import DataError
from fedfactor.core.federation import Federation, Shard
from fedfactor.data.interactions import Interactions, interactions_of
from fedfactor.data.ratings import Ratings
from fedfactor.engines.base import Engine
from fedfactor.engines.callbacks import watcher
from fedfactor.engines.run import engine_of, run
from fedfactor.estimators import _inputs
from fedfactor.estimators._recommender import FederatedRecommender, nobody_owns
from fedfactor.estimators._users import UserTable, number_of_items
from fedfactor.estimators.deep import deal_interactions
from fedfactor.kernels.ratings.top_items import best_by_blocks
from fedfactor.privacy.dp import DP


class WeightTable(UserTable):
    """Users whose scores are what they touched times weights between items; items without weights are on no list."""

    def best(
        self,
        rows: np.ndarray,
        n: int,
        exclude_seen: bool = True,
        allowed: np.ndarray | None = None,
        shrink: float | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return columns of the best items, and their scores; a few users' scores exist at a time."""
        n, U, idle = number_of_items(n, self.V.shape[1]), self.U[rows], ~self.V.any(axis=0)
        closed = idle if allowed is None else idle | ~allowed

        def scores(some: slice) -> np.ndarray:
            block = np.asarray(U[some] @ self.V)
            block[:, closed] = -np.inf
            return block

        return best_by_blocks(scores, self.seen[rows], n, skip_seen=exclude_seen)

    def similar(self, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return, for some columns, the n others that tell most about them."""
        if self.V.shape[0] != self.V.shape[1]:
            return super().similar(columns, n)
        weights = np.array(self.V[:, columns].T)
        weights[:, ~self.V.any(axis=0)] = -np.inf
        weights[np.arange(len(columns)), columns] = -np.inf
        order = np.argsort(-weights, axis=1, kind="stable")[:, : number_of_items(n, self.V.shape[1])]
        return order, np.take_along_axis(weights, order, axis=1)


class PooledEASE(FederatedRecommender):
    """Lists of items from what pooled users touched together, by one exchange of a Gram matrix.

    The face of :class:`fedfactor.algorithms.PooledEASE`, which says how it works and what travels.

    Parameters
    ----------
    low_rank : int, optional
        None: the whole Gram matrix travels. A number d: only its products with d directions do.
    ridge : float, default=40.0
        Regularisation of the weights.
    counts : {"log", "binary", "raw"}, default="log"
        What a stored number r stands for: log₂(1 + r), 1, or r itself.
    balance : float, default=0.5
        Rows are divided by their norm to this power: 0 counts users by what they touched, 1 all alike.
    min_users : int, default=3
        Items that fewer users touched, over all owners, are never recommended.
    min_pairs : int, default=1
        Pairs of items that fewer users share are replaced by what chance would make them.
    exchanges : int, default=3
        Of the low-rank form: multiplications by the Gram matrix.
    rounds : int, optional
        Exchanges at most; by default as many as the method needs.
    n_clients : int, default=1
        Owners to whom users are dealt at random when neither the data nor ``groups`` say who owns them.
    engine : str or Engine, default="local"
        How messages travel.
    privacy : None, str or transforms, default=None
        What protects uploads on their way.
    random_state : int, RandomState, Generator or None, default=None
        Seed of every stream; None draws one, kept in ``run_.seed``.
    verbose : int, default=0
        1 or more: a bar on a terminal, lines in the log elsewhere.

    Attributes
    ----------
    items_ : ndarray of shape (m,)
        Item ids.
    users_ : dict of str to ndarray
        User ids of each owner.
    components_ : array of shape (m, m), or (d, m) for the low-rank form
        Weights: what each item tells about each other.
    support_ : ndarray of shape (m,)
        Users who touched each item, over all owners.
    n_iter_ : int
        Exchanges that were run.
    run_ : Run
        History, traffic, time, errors by owner, and the seed.

    Examples
    --------
    >>> import pandas as pd
    >>> from fedfactor import PooledEASE
    >>> likes = {"ann": "ab", "bob": "abc", "cat": "cd", "dan": "acd", "eve": "ab", "fay": "cd", "gus": "a"}
    >>> clicks = pd.DataFrame([(user, item) for user, all_ in likes.items() for item in all_], columns=["user", "item"])
    >>> owner = {user: "north" if user < "d" else "south" for user in likes}
    >>> model = PooledEASE(ridge=1.0, random_state=0).fit(clicks, groups=owner)
    >>> model.recommend("gus", n=1)[0].tolist()
    [['b']]
    """

    _method = algorithms.PooledEASE
    scale = None  # scores of lists need none

    def __init__(
        self,
        low_rank: int | None = None,
        *,
        ridge: float = 40.0,
        counts: Literal["log", "binary", "raw"] = "log",
        balance: float = 0.5,
        min_users: int = 3,
        min_pairs: int = 1,
        exchanges: int = 3,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.low_rank = low_rank
        self.ridge = ridge
        self.counts = counts
        self.balance = balance
        self.min_users = min_users
        self.min_pairs = min_pairs
        self.exchanges = exchanges
        self.rounds = rounds
        self.n_clients = n_clients
        self.engine = engine
        self.privacy = privacy
        self.random_state = random_state
        self.verbose = verbose

    @property
    def _implicit(self) -> bool:
        return True

    def _federation(self, found: Ratings) -> Federation:
        """Leave the mask out: what is not stored was not touched, which is something to go by."""
        names = tuple(str(item) for item in found.items.tolist())
        return Federation({owner: Shard(X=R, features=names) for owner, R in found.owners.items()})

    def _exchanges(self) -> int | None:
        """Return how many exchanges a private run pays for: those that take place."""
        asked = self.privacy if isinstance(self.privacy, (tuple, list)) else (self.privacy,)
        if self.rounds is not None or not any(isinstance(part, DP) for part in asked):
            return self.rounds
        return 1 if self.low_rank is None else self.exchanges

    def _make_table(self, U: Any, V: Any, seen: Any, users: Any, kept: Any) -> WeightTable:
        return WeightTable(U, V, seen, users, self.items_, self.scale_, self.support_)


class PooledRidge(FederatedRecommender):
    """Items that only others hold: ridge regression on directions of the items that all owners hold.

    The face of :class:`fedfactor.algorithms.PooledRidge`, which says how it works and what travels; it takes what
    :class:`fedfactor.FedDMF` takes.

    Parameters
    ----------
    n_components : int, default=32
        Directions.
    ridge : float, default=30.0
        Regularisation of the coefficients.
    min_users : int, default=3
        Items that fewer of an owner's users touched are not published.
    rounds : int, optional
        Exchanges at most; by default as many as the method needs.
    n_clients : int, default=1
        Owners to whom users are dealt at random when neither the data nor ``groups`` say who owns them.
    engine : str or Engine, default="local"
        How messages travel.
    privacy : None, str or transforms, default=None
        What protects uploads on their way.
    random_state : int, RandomState, Generator or None, default=None
        Seed of every stream; None draws one, kept in ``run_.seed``.
    verbose : int, default=0
        1 or more: a bar on a terminal, lines in the log elsewhere.

    Attributes
    ----------
    items_ : ndarray of shape (m,)
        Item ids of all owners together.
    users_ : dict of str to ndarray
        User ids of each owner.
    held_ : dict of str to ndarray
        Item ids that each owner holds.
    client_factors_ : dict of str to array of shape (n_c, d)
        Users along the directions.
    run_ : Run
        History, traffic, time, errors by owner, and the seed.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import PooledRidge
    >>> from fedfactor.data import ItemTable
    >>> X = np.random.default_rng(0).random((20, 6)) < 0.5
    >>> north = ItemTable(X[:10, :4], users=range(10), items=list("abcd"))
    >>> south = ItemTable(X[10:, 2:], users=range(10), items=list("cdef"))
    >>> model = PooledRidge(2, random_state=0).fit({"north": north, "south": south})
    >>> model.predict_proba("north", [3, 7], ["f", "a"]).shape
    (2,)
    """

    _method = algorithms.PooledRidge
    scale = None  # scores are cut to 0..1

    def __init__(
        self,
        n_components: int = 32,
        *,
        ridge: float = 30.0,
        min_users: int = 3,
        rounds: int | None = None,
        n_clients: int = 1,
        engine: str | Engine = "local",
        privacy: Any = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.ridge = ridge
        self.min_users = min_users
        self.rounds = rounds
        self.n_clients = n_clients
        self.engine = engine
        self.privacy = privacy
        self.random_state = random_state
        self.verbose = verbose

    @property
    def _implicit(self) -> bool:
        return True

    def fit(
        self, ratings: Any, y: Any = None, *, groups: Any = None, catalogues: Any = None, withheld: Any = None
    ) -> Self:
        """Learn from interactions that belong to several owners.

        Parameters
        ----------
        ratings : mapping of owner to ItemTable, or as for the other recommenders
            Of ratings it matters only that they are there.
        y : None
            Ignored.
        groups : str, mapping or sequence, optional
            Who owns which user.
        catalogues, withheld : mapping of owner to item ids, optional
            What each owner holds (by default what its users touched), and what it keeps to itself.

        Returns
        -------
        self
        """
        engine, seed = engine_of(self.engine), _inputs.draw_seed(self.random_state)
        for name in ("n_components", "n_clients"):
            _inputs.check_whole(name, getattr(self, name))
        found = interactions_of(ratings, groups, catalogues=catalogues, withheld=withheld)
        if self.n_clients > 1 and nobody_owns(ratings, groups, found.owners):
            found = deal_interactions(found, self.n_clients, seed)
        algorithm = self._method(**{field.name: getattr(self, field.name) for field in fields(self._method)})
        watch = watcher(self.verbose, type(self).__name__)
        options = {"rounds": self.rounds, "seed": seed, "privacy": self.privacy, "callbacks": watch}
        result = run(algorithm, found.federation(), engine=engine, **options)
        self._keep(result, self._as_ratings(found))
        self.held_ = {name: found.items[columns] for name, columns in found.held.items()}
        return self

    @staticmethod
    def _as_ratings(found: Interactions) -> Ratings:
        return Ratings(found.owners, found.users, found.items)

    def predict_proba(self, client: str, users: Any, items: Any) -> np.ndarray:
        """Return the score, between 0 and 1, of each (user, item) pair at one owner, also for items of others.

        Parameters
        ----------
        client : str
            The users' owner.
        users, items : sequences of ids of equal length, or single ids

        Returns
        -------
        array of shape (pairs,)
        """
        return np.clip(self.predict(users, items, client=client), 0, 1)

    def score(self, ratings: Any, y: Any = None, *, client: str | None = None) -> float:
        """Return F1 at the share of touched cells, over pairs whose ``rating`` is 0 (no interaction) or not.

        Parameters
        ----------
        ratings : data frame with user, item and rating
        y : None
            Ignored.
        client : str, optional
            The users' owner; needed only where two owners use one id.
        """
        truth, found = self._compared(ratings, client)
        if not (truth != 0).any():
            raise DataError("No pair has an interaction, so there is nothing to find.")
        true, guess = truth != 0, found >= np.quantile(found, 1 - (truth != 0).mean())
        return 2 * float((true & guess).sum()) / max(1.0, float(true.sum() + guess.sum()))

    def _make_table(self, U: Any, V: Any, seen: Any, users: Any, kept: Any) -> WeightTable:
        return WeightTable(U, V, seen, users, self.items_, self.scale_, self.support_)
