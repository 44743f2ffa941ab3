"""The shared machinery of the recommenders: sort ratings by owner, run, answer questions."""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from fedfactor.core.errors import DataError
from fedfactor.core.run import Run
from fedfactor.data.interactions import Interactions, interactions_of
from fedfactor.data.partition import split_evenly
from fedfactor.data.ratings import Ratings, column_named, ratings_of
from fedfactor.data.user_table import UserTable, new_ratings, note_unknown, number_of_items
from fedfactor.engines.run import engine_of
from fedfactor.estimators import _inputs
from fedfactor.estimators._face import EveryRun, Face, Progress, RatingScale
from fedfactor.estimators._list_file import write_lists
from fedfactor.estimators._model_file import read_model, write_model


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
        found = ratings_of(ratings, groups, need_rating=not self._implicit)
        if self.n_clients > 1 and nobody_owns(ratings, groups, found.owners):
            found = _deal(found, self.n_clients, seed)
        if not found.n_ratings:
            raise DataError("There are no ratings at all.")
        self._keep(self._run(algorithm, self._federation(found), engine, seed), found)
        return self

    @property
    def _implicit(self) -> bool:
        """Whether stored numbers are signs of interest: then frames need no column of ratings."""
        return getattr(self, "feedback", "explicit") == "implicit"

    def _federation(self, found: Ratings) -> Any:
        return found.federation()

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

        Notes
        -----
        Users and items that were not in ``fit`` are predicted from the average user and the average item, with a
        warning that says how many: a held-out set may have some.
        """
        check_is_fitted(self)
        users = _as_list(users)
        items = _as_list(items)
        if len(users) != len(items):
            raise DataError(f"{len(users)} users and {len(items)} items make no pairs. Give one item for each user.")
        out, strangers, lost = np.empty(len(users)), 0, 0
        for name, where in self._by_owner(users, client, strangers=True).items():
            table = self.tables_[name]
            rows, columns = table.places([users[p] for p in where], [items[p] for p in where])
            strangers, lost = strangers + int((rows < 0).sum()), lost + int((columns < 0).sum())
            out[where] = table.at_or_average(rows, columns)
        note_unknown(strangers, lost)
        return out

    def recommend(
        self,
        users: Any = None,
        n: int = 10,
        *,
        exclude_seen: bool = True,
        only: Any = None,
        without: Any = None,
        shrink: float | None = None,
        client: str | None = None,
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
        only, without : sequence of item ids, or bool array of one entry for each of ``items_``, optional
            Items that may be, and that may not be, on a list: what is in stock, what is for adults.
        shrink : float, optional
            Ratings at which an item stands half-way between the average item and its own factors. By default 20 for
            ratings, so that a film with two good ones does not lead every list, and 0 for signs of interest.
        client : str, optional
            The users' owner; needed only where two owners use one id.

        Returns
        -------
        items : array of shape (users, n)
        scores : array of shape (users, n)
            What the lists are sorted by; −inf where a user has fewer items left.

        Notes
        -----
        Scores of a few users exist at a time: memory is that of the answer.
        """
        check_is_fitted(self)
        n = number_of_items(n, len(self.items_))
        rules = {"exclude_seen": exclude_seen, "only": only, "without": without, "shrink": shrink}
        if users is None:
            names = [client] if client is not None else list(self.tables_)
            parts = [self._table(name).recommend(n=n, **rules) for name in names]
            return np.concatenate([items for items, _ in parts]), np.concatenate([scores for _, scores in parts])
        users = _as_list(users)
        items, scores = np.empty((len(users), n), self.items_.dtype), np.empty((len(users), n))
        for name, where in self._by_owner(users, client).items():
            table = self.tables_[name]
            items[where], scores[where] = table.recommend([users[p] for p in where], n, **rules)
        return items, scores

    def recommend_to(
        self,
        path: str | os.PathLike[str],
        n: int = 10,
        *,
        exclude_seen: bool = True,
        only: Any = None,
        without: Any = None,
        shrink: float | None = None,
        client: str | None = None,
    ) -> int:
        """Write the n best items of every user to a file that only its writer can read.

        Parameters
        ----------
        path : path
            Ends in ``.csv`` or ``.parquet``. Receives the columns ``user``, ``rank`` (from 1), ``item``, ``score`` and
            ``owner``; users with fewer than n items left have fewer rows.
        n, exclude_seen, only, without, shrink
            As in :meth:`recommend`.
        client : str, optional
            Whose users; by default those of all owners.

        Returns
        -------
        int
            Rows written.

        Notes
        -----
        Lists of some thousand users are in memory at a time.
        """
        check_is_fitted(self)
        n = number_of_items(n, len(self.items_))
        rules = {"exclude_seen": exclude_seen, "only": only, "without": without, "shrink": shrink}
        names = list(self.tables_)
        if client is not None:
            self._table(client)
            names = [str(client)]
        return write_lists(self, Path(path), names, n, rules)

    def similar_items(self, items: Any, n: int = 10, *, client: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the n items most like each of some items, and how alike they are, best first.

        Parameters
        ----------
        items : sequence of ids, or a single id
        n : int, default=10
        client : str, optional
            The owner whose model is used, where models differ; by default the first.

        Returns
        -------
        items : array of shape (items, n)
        scores : array of shape (items, n)
            Cosines of item factors (of PooledEASE: weights); −inf for items without factors.
        """
        check_is_fitted(self)
        table = self._table(next(iter(self.tables_)) if client is None else client)
        columns, scores = table.similar(table.columns(_as_list(items)), n)
        return table.items[columns], scores

    def of_owner(self, client: str) -> Self:
        """Return what one owner may take home: the items' side and its own users, nothing of other owners.

        Parameters
        ----------
        client : str
            The owner.
        """
        check_is_fitted(self)
        table, name = self._table(client), str(client)
        mine = copy.copy(self)
        mine.tables_, mine.users_ = {name: table}, {name: self.users_[name]}
        mine.client_factors_ = {name: self.client_factors_[name]}
        mine.components_ = table.V
        mine.run_ = replace(self.run_, factors={name: self.run_.factors[name]}, scores={name: self.run_.scores[name]})
        mine._homes = None
        return mine

    def save(self, path: str | os.PathLike[str], *, client: str | None = None) -> None:
        """Write a fitted model to a file that only its writer can read, without other owners' users and ratings.

        Parameters
        ----------
        path : path
        client : str, optional
            Whose model; needed where there are several owners.
        """
        check_is_fitted(self)
        if client is None and len(self.tables_) > 1:
            raise DataError(
                f"This model holds users and ratings of {len(self.tables_)} owners. Say whose file it is to be: "
                f"save(path, client={next(iter(self.tables_))!r})."
            )
        write_model(self, next(iter(self.tables_)) if client is None else str(client), Path(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model that :meth:`save` wrote; settings of engine and privacy are not kept."""
        return read_model(cls, Path(path))

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
        name = next(name for name, each in self.tables_.items() if each is table)
        U = self.run_.algorithm.fold_in(R, self.run_.factors[name], "stored")
        return self._make_table(U, table.V, R, users, self.run_.factors[name])

    def _make_table(self, U: Any, V: Any, seen: Any, users: Any, kept: Any) -> UserTable:
        return UserTable(U, V, seen, users, self.items_, self.scale_, self.support_)

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
        names = {word: column_named(columns, word) for word in ("user", "item", "rating")}
        absent = [word for word, name in names.items() if name is None]
        if absent:
            raise DataError(f"score takes a data frame with user, item and rating; here is no column {absent[0]!r}.")
        true = np.asarray(ratings[names["rating"]], dtype=float)
        if not len(true):
            raise DataError("There are no ratings to compare with.")
        return true, self.predict(ratings[names["user"]], ratings[names["item"]], client=client)

    def _keep(self, result: Run, found: Any) -> None:
        self.run_ = result
        self.n_iter_ = result.rounds
        self.items_ = found.items
        self.users_ = {name: found.users[name] for name in sorted(found.users)}
        self.components_ = result.V
        self.client_factors_ = {name: kept.U for name, kept in result.factors.items()}
        values = [R.data for R in found.owners.values() if R.nnz]
        seen = (float(min(v.min() for v in values)), float(max(v.max() for v in values)))
        low, high = seen if self.scale is None else self.scale
        self.scale_ = None if self._implicit else (float(low), float(high))
        self.support_ = sum(np.bincount(R.indices, minlength=R.shape[1]) for R in found.owners.values())
        self.tables_ = {
            name: self._make_table(kept.U, kept.V, found.owners[name], found.users[name], kept)
            for name, kept in result.factors.items()
        }
        self._homes = None
        self.n_rejected_ = len(result.rejected)
        if result.rejected:
            self._warn(f"left out uploads of {', '.join(result.rejected)}, which cannot be right")

    def _warn(self, what: str) -> None:
        warnings.warn(f"{type(self).__name__} {what}.", ConvergenceWarning, stacklevel=4)

    def _table(self, name: str) -> UserTable:
        if str(name) not in self.tables_:
            raise ValueError(f"No owner is called {name!r}; the run knew {', '.join(self.tables_)}.")
        return self.tables_[str(name)]

    def _home_of(self) -> dict[Any, tuple[str, ...]]:
        """Return the owners of every user, made once: looking through all owners for each pair would be slow."""
        if getattr(self, "_homes", None) is None:
            homes: dict[Any, tuple[str, ...]] = {}
            for name, table in self.tables_.items():
                for user in table.users.tolist():
                    homes[user] = (*homes.get(user, ()), name)
            self._homes = homes
        return self._homes or {}

    def _by_owner(self, users: list[Any], client: str | None, *, strangers: bool = False) -> dict[str, list[int]]:
        """Sort positions of users by owner; strangers go to the owner of most users, or are refused."""
        check_is_fitted(self)
        if client is not None:
            self._table(client)
            return {str(client): list(range(len(users)))}
        places: dict[str, list[int]] = {}
        known, largest = self._home_of(), max(self.tables_, key=lambda name: len(self.tables_[name].users))
        for position, user in enumerate(users):
            homes = known.get(user.item() if isinstance(user, np.generic) else user, (largest,) if strangers else ())
            if len(homes) > 1:
                raise DataError(
                    f"Owners {homes[0]!r} and {homes[1]!r} both have a user {user!r}. Say whose: client=..."
                )
            if not homes:
                some = ", ".join(repr(each) for each in islice(known, 3))
                raise DataError(
                    f"No user {user!r} was in fit, where they are called {some} and so on. In Python, fold_in takes "
                    "the ratings of others."
                )
            places.setdefault(homes[0], []).append(position)
        return places


class CatalogueRecommender(FederatedRecommender):
    """A recommender whose owners hold catalogues of their own, which overlap in part.

    Attributes
    ----------
    items_ : ndarray of shape (m,)
        Item ids of all owners together.
    held_ : dict of str to ndarray
        Item ids that each owner holds.
    """

    scale = None  # probabilities need none

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
        algorithm = self._algorithm()
        found = interactions_of(ratings, groups, catalogues=catalogues, withheld=withheld)
        if self.n_clients > 1 and nobody_owns(ratings, groups, found.owners):
            found = deal_interactions(found, self.n_clients, seed)
        self._keep(self._run(algorithm, found.federation(), engine, seed), found)
        self.held_ = {name: found.items[columns] for name, columns in found.held.items()}
        return self


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


def deal_interactions(found: Interactions, n_clients: int, seed: int) -> Interactions:
    """Deal the users of one owner at random to several, who all hold its items."""
    X, users = found.owners["0"], found.users["0"]
    rows = rows_dealt(len(users), n_clients, seed)
    owners, held = {k: X[v] for k, v in rows.items()}, {k: found.held["0"] for k in rows}
    hidden = {k: found.withheld["0"] for k in rows} if "0" in found.withheld else {}
    return Interactions(owners, {k: users[v] for k, v in rows.items()}, found.items, held, hidden)
