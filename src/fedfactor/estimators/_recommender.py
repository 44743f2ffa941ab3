"""The shared machinery of the recommenders: sort ratings by owner, run, answer questions."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from fedfactor.core.errors import DataError
from fedfactor.core.protocol import LocalFactors
from fedfactor.core.run import Run
from fedfactor.data.partition import split_evenly
from fedfactor.data.ratings import Ratings, ratings_of
from fedfactor.engines.run import engine_of
from fedfactor.estimators import _inputs
from fedfactor.estimators._face import EveryRun, Face, Progress, RatingScale
from fedfactor.estimators._users import UserTable, new_ratings, number_of_items


class FederatedRecommender(EveryRun, RatingScale, Progress, Face):
    """An estimator over ratings: its parameters are the settings of one algorithm, and those of every run.

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
    """

    n_components: int
    _example: ClassVar[str] = """
        >>> import pandas as pd
        >>> from fedfactor import {name}
        >>> likes = {"ann": [5, 4, 1], "bob": [4, 5, 1, 2], "cat": [1, 1, 5, 4], "dan": [1, 2, 4, 5]}
        >>> rows = [(user, item, rating) for user, all_ in likes.items() for item, rating in zip("abcd", all_)]
        >>> ratings = pd.DataFrame(rows, columns=["user", "item", "rating"])
        >>> owner = {"ann": "north", "bob": "north", "cat": "south", "dan": "south"}
        >>> model = {name}(n_components=1, random_state=0).fit(ratings, groups=owner)
        >>> items, scores = model.recommend("ann", n=1)
        >>> items[0].tolist(), model.predict("ann", "d").shape
        (['d'], (1,))
        """

    def fit(self, ratings: Any, y: Any = None, *, groups: Any = None) -> Self:
        """Learn from ratings that belong to several owners.

        Parameters
        ----------
        ratings : data frame, sparse matrix, Ratings, or mapping of owner to one of the first two
            A frame has the columns ``user``, ``item`` and ``rating``. In a matrix, rows are users, columns are items
            and stored cells are ratings; users and items are then known by position.
        y : None
            Ignored.
        groups : str, mapping or sequence, optional
            Who owns which user: the name of a column or a mapping from user to owner (frames), one label for each row
            (matrices). By default users are dealt at random to ``n_clients`` owners.

        Returns
        -------
        self
        """
        engine, seed = engine_of(self.engine), _inputs.draw_seed(self.random_state)
        algorithm = self._algorithm()
        _check_scale(self.scale)
        found = ratings_of(ratings, groups)
        if self.n_clients > 1 and nobody_owns(ratings, groups, found.owners):
            found = _deal(found, self.n_clients, seed)
        if not found.n_ratings:
            raise DataError("There are no ratings at all.")
        self._keep(self._run(algorithm, found.federation(), engine, seed), found)
        return self

    def predict(self, users: Any, items: Any, *, client: str | None = None) -> np.ndarray:
        """Return the predicted rating of each (user, item) pair, within the scale of the ratings.

        Parameters
        ----------
        users, items : sequences of ids of equal length, or single ids
        client : str, optional
            The users' owner; needed only where two owners use one id.

        Returns
        -------
        array of shape (pairs,)
        """
        users = _as_list(users)
        items = _as_list(items)
        if len(users) != len(items):
            raise DataError(f"{len(users)} users and {len(items)} items make no pairs. Give one item for each user.")
        out = np.empty(len(users))
        for name, where in self._by_owner(users, client).items():
            out[where] = self.tables_[name].predict([users[p] for p in where], [items[p] for p in where])
        return out

    def recommend(
        self, users: Any = None, n: int = 10, *, exclude_seen: bool = True, client: str | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the n best items of each user and their scores, best first.

        Parameters
        ----------
        users : sequence of ids, or a single id, optional
            By default all users of all owners, in the order of ``users_``.
        n : int, default=10
            Items for each user.
        exclude_seen : bool, default=True
            Leave out what the user rated already.
        client : str, optional
            The users' owner; needed only where two owners use one id.

        Returns
        -------
        items : array of shape (users, n)
        scores : array of shape (users, n)
            −inf where a user has fewer items left.

        Notes
        -----
        Scores of a few users exist at a time: memory is that of the answer.
        """
        check_is_fitted(self)
        n = number_of_items(n, len(self.items_))
        if users is None:
            names = [client] if client is not None else list(self.tables_)
            parts = [self._table(name).recommend(n=n, exclude_seen=exclude_seen) for name in names]
            return np.concatenate([items for items, _ in parts]), np.concatenate([scores for _, scores in parts])
        users = _as_list(users)
        items, scores = np.empty((len(users), n), self.items_.dtype), np.empty((len(users), n))
        for name, where in self._by_owner(users, client).items():
            table = self.tables_[name]
            items[where], scores[where] = table.recommend([users[p] for p in where], n, exclude_seen=exclude_seen)
        return items, scores

    def fold_in(self, ratings: Any, *, client: str | None = None) -> UserTable:
        """Find factors of users who were not in fit, from the items' side of the model alone; nothing is sent.

        Parameters
        ----------
        ratings : dict of item to rating, data frame, or sparse matrix
            Of one user (``dict``) or of several.
        client : str, optional
            The owner whose model is used, where models differ; by default the first.

        Returns
        -------
        UserTable
            With ``predict(users, items)`` and ``recommend(users, n)`` of its own; the user of a dict is called 0.
        """
        check_is_fitted(self)
        table = self._table(next(iter(self.tables_)) if client is None else client)
        R, users = new_ratings(ratings, table)
        U = self.run_.algorithm.fold_in(R, LocalFactors(table.U, table.V), "stored")
        return UserTable(U, table.V, R, users, self.items_, self.scale_)

    def score(self, ratings: Any, y: Any = None, *, client: str | None = None) -> float:
        """Return minus the root mean square error on ratings of known users and items: higher is better.

        Parameters
        ----------
        ratings : data frame with user, item and rating
        y : None
            Ignored.
        client : str, optional
            The users' owner; needed only where two owners use one id.
        """
        true, found = self._compared(ratings, client)
        return -float(np.sqrt(np.mean(np.square(found - true))))

    def _compared(self, ratings: Any, client: str | None) -> tuple[np.ndarray, np.ndarray]:
        """Return ratings and what is predicted for them."""
        check_is_fitted(self)
        columns = getattr(ratings, "columns", ratings if isinstance(ratings, Mapping) else ())
        absent = [name for name in ("user", "item", "rating") if name not in columns]
        if absent:
            raise DataError(f"score takes a data frame with user, item and rating; here is no column {absent[0]!r}.")
        true = np.asarray(ratings["rating"], dtype=float)
        if not len(true):
            raise DataError("There are no ratings to compare with.")
        return true, self.predict(ratings["user"], ratings["item"], client=client)

    def _keep(self, result: Run, found: Any) -> None:
        self.run_ = result
        self.n_iter_ = result.rounds
        self.items_ = found.items
        self.users_ = {name: found.users[name] for name in sorted(found.users)}
        self.components_ = result.V
        self.client_factors_ = {name: kept.U for name, kept in result.factors.items()}
        implicit = getattr(result.algorithm, "feedback", "explicit") == "implicit"
        values = [R.data for R in found.owners.values() if R.nnz]
        seen = (float(min(v.min() for v in values)), float(max(v.max() for v in values)))
        low, high = seen if self.scale is None else self.scale
        self.scale_ = None if implicit else (float(low), float(high))
        self.tables_ = {
            name: UserTable(kept.U, kept.V, found.owners[name], found.users[name], found.items, self.scale_)
            for name, kept in result.factors.items()
        }
        self.n_rejected_ = len(result.rejected)
        if result.rejected:
            self._warn(f"left out uploads of {', '.join(result.rejected)}, which cannot be right")

    def _warn(self, what: str) -> None:
        warnings.warn(f"{type(self).__name__} {what}.", ConvergenceWarning, stacklevel=4)

    def _table(self, name: str) -> UserTable:
        if str(name) not in self.tables_:
            raise ValueError(f"No owner is called {name!r}; the run knew {', '.join(self.tables_)}.")
        return self.tables_[str(name)]

    def _by_owner(self, users: list[Any], client: str | None) -> dict[str, list[int]]:
        """Sort positions of users by owner."""
        check_is_fitted(self)
        if client is not None:
            self._table(client)
            return {str(client): list(range(len(users)))}
        places: dict[str, list[int]] = {}
        for position, user in enumerate(users):
            homes = [name for name, table in self.tables_.items() if user in table]
            if len(homes) > 1:
                raise DataError(
                    f"Owners {homes[0]!r} and {homes[1]!r} both have a user {user!r}. Say whose: client=..."
                )
            if not homes:
                raise DataError(f"No user {user!r} is known. fold_in takes the ratings of users who were not in fit.")
            places.setdefault(homes[0], []).append(position)
        return places


def _check_scale(scale: Any) -> None:
    """Refuse what cannot clip; the other way round it would make every prediction the same."""
    try:
        low, high = (0.0, 1.0) if scale is None else map(float, scale)
    except (TypeError, ValueError):
        low = high = np.nan
    if not low < high:
        raise ValueError(f"scale={scale!r} must be the lowest and the highest rating.")


def _as_list(ids: Any) -> list[Any]:
    if isinstance(ids, (str, bytes)) or not hasattr(ids, "__len__"):
        return [ids]
    return ids.tolist() if hasattr(ids, "tolist") else list(ids)


def nobody_owns(ratings: Any, groups: Any, owners: Mapping[str, Any]) -> bool:
    """Tell whether neither ratings nor groups name an owner; then all users lie with one called "0"."""
    return groups is None and not isinstance(ratings, Mapping) and list(owners) == ["0"]


def rows_dealt(n_rows: int, n_clients: int, seed: int) -> dict[str, np.ndarray]:
    """Deal rows at random; return those of each owner."""
    labels = np.asarray(split_evenly(n_rows, n_clients, seed)).astype(str)
    return {name: np.flatnonzero(labels == name) for name in sorted(set(labels.tolist()))}


def _deal(found: Ratings, n_clients: int, seed: int) -> Ratings:
    R, users = found.owners["0"], found.users["0"]
    rows = rows_dealt(len(users), n_clients, seed)
    return replace(found, owners={k: R[v] for k, v in rows.items()}, users={k: users[v] for k, v in rows.items()})
