"""Base classes of the recommenders: sort ratings by client, run, predict and recommend."""

from __future__ import annotations

import copy
import os
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from fedfactor.core.algorithm import Algorithm, Score
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import DataError, callers_level
from fedfactor.core.run import Run
from fedfactor.engines.engine import Engine
from fedfactor.estimators.estimator import FederatedEstimator
from fedfactor.recommend.client_model_file import OwnerModel, other_version
from fedfactor.recommend.client_tables import OwnerTables
from fedfactor.recommend.ratings import compared_columns, nobody_owns, ratings_of
from fedfactor.recommend.recommendation_files import write_lists
from fedfactor.recommend.user_table import UserTable, new_ratings, number_of_items


class FederatedRecommender(FederatedEstimator):
    """An estimator over ratings: its parameters are those of one algorithm and those of a run.

    Attributes
    ----------
    items_ : ndarray of shape (m,)
        Item ids.
    users_ : dict of str to ndarray
        User ids of each client.
    components_ : array
        Item factors of the first client's model; where it has biases, below them a row of ones and a row of levels.
    client_factors_ : dict of str to array
        User factors of each client. Only a simulation has them all.
    scale_ : (low, high) or None
        To which predictions are clipped.
    n_rejected_ : int
        Clients left out of a joint step because what they sent cannot be item factors.
    n_iter_ : int
        Exchanges that were run.
    run_ : Run
        History, traffic, time, errors by client, and the seed.
    """

    n_components: int
    scale: tuple[float, float] | None
    _touched_only: ClassVar[bool] = False
    _kind_of_table: ClassVar[type[UserTable]] = UserTable

    def fit(self, ratings: Any, y: Any = None, *, groups: Any = None) -> Self:
        """Learn from ratings that belong to several clients.

        Parameters
        ----------
        ratings : data frame, sparse matrix, Ratings, or mapping of client to one of the first two
            A frame has the columns ``user``, ``item`` and ``rating``. In a matrix, rows are users, columns are items
            and stored cells are ratings; users and items are then known by position.
        y : None
            Ignored.
        groups : str, mapping or sequence, optional
            Who owns which user: the name of a column or a mapping from user to client (frames), one label for each row
            (matrices). By default users are dealt at random to ``n_clients`` clients.

        Returns
        -------
        self
        """
        return self._learn(ratings, groups, self._read)

    def _read(self, ratings: Any, groups: Any) -> Any:
        found = ratings_of(ratings, groups, need_rating=not self._implicit)
        if not found.n_ratings:
            raise DataError("There are no ratings at all.")
        return found

    def _learn(self, ratings: Any, groups: Any, read: Any) -> Self:
        algorithm, engine, seed = self._settings()
        found = self._dealt(read(ratings, groups), ratings, groups, seed)
        self._keep(self._run(algorithm, self._federation(found), engine, seed), found)
        return self

    def _dealt(self, found: Any, ratings: Any, groups: Any, seed: int) -> Any:
        """Split users at random where neither the ratings nor ``groups`` name a client."""
        if self.n_clients > 1 and nobody_owns(ratings, groups, found.owners):
            return found.dealt(self.n_clients, seed)
        return found

    def _settings(self) -> tuple[Algorithm, Engine, int]:
        found = super()._settings()
        self._check_scale()
        return found

    def _federated(self, data: Any, algorithm: Algorithm, seed: int) -> Federation:
        if isinstance(data, Federation):
            return data
        return self._federation(self._dealt(self._read(data, None), data, None, seed))

    def _check_scale(self) -> None:
        """Raise ``ValueError`` unless ``scale`` is None or the lowest and the highest rating."""
        try:
            low, high = (0.0, 1.0) if self.scale is None else map(float, self.scale)
        except (TypeError, ValueError):
            low = high = np.nan
        if not low < high:
            raise ValueError(f"scale={self.scale!r} must be the lowest and the highest rating.")

    def _scale_of(self, owners: Any) -> tuple[float, float]:
        """Return the lowest and the highest rating."""
        if self.scale is not None:
            low, high = self.scale
            return float(low), float(high)
        values = [R.data for R in owners.values() if R.nnz]
        return float(min(v.min() for v in values)), float(max(v.max() for v in values))

    @property
    def _implicit(self) -> bool:
        """Whether stored numbers are signs of interest: then frames need no column of ratings."""
        return getattr(self, "feedback", "explicit") == "implicit"

    def _federation(self, found: Any) -> Federation:
        return found.federation()

    def predict(self, users: Any, items: Any, *, client: str | None = None) -> np.ndarray:
        """Return the predicted rating of each (user, item) pair, within the scale of the ratings.

        Parameters
        ----------
        users, items : sequences of ids of equal length, or single ids
        client : str, optional
            The users' client; needed only where two clients use one id.

        Returns
        -------
        array of shape (pairs,)

        Notes
        -----
        Users and items that were not in ``fit`` are predicted from the average user and the average item, with a
        warning with their number: a hold-out set may have some.
        """
        check_is_fitted(self)
        return self.tables_.predict(users, items, client)

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
            By default all users of all clients, in the order of ``users_``.
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
            The users' client; needed only where two clients use one id.

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
        return self.tables_.recommend(users, n, client, rules)

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
            Whose users; by default those of all clients.

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
        tables = self.tables_ if client is None else {str(client): self.tables_.of(client)}
        return write_lists(Path(path), tables, n, rules)

    def similar_items(self, items: Any, n: int = 10, *, client: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Return the n items most like each of some items, and how alike they are, best first.

        Parameters
        ----------
        items : sequence of ids, or a single id
        n : int, default=10
        client : str, optional
            The client whose model is used, where models differ; by default the first.

        Returns
        -------
        items : array of shape (items, n)
        scores : array of shape (items, n)
            Cosines of item factors (of PooledEASE: weights); −inf for items without factors.
        """
        check_is_fitted(self)
        table = self.tables_.of(client)
        columns, scores = table.similar(table.columns(items), n)
        return table.items[columns], scores

    def of_owner(self, client: str) -> Self:
        """Return what one client may take home: the items' side and its own users, nothing of other clients.

        Parameters
        ----------
        client : str
            The client.
        """
        check_is_fitted(self)
        table = self.tables_.of(client)
        name = str(client)
        mine = copy.copy(self)
        mine.tables_ = OwnerTables({name: table})
        mine.users_ = {name: self.users_[name]}
        mine.client_factors_ = {name: self.client_factors_[name]}
        mine.components_ = table.V
        mine.run_ = replace(self.run_, factors={name: self.run_.factors[name]}, scores={name: self.run_.scores[name]})
        return mine

    def save(self, path: str | os.PathLike[str], *, client: str | None = None) -> None:
        """Write a fitted model to a file that only its writer can read, without other clients' users and ratings.

        Parameters
        ----------
        path : path
        client : str, optional
            Whose model; needed where there are several clients.
        """
        check_is_fitted(self)
        if client is None and len(self.tables_) > 1:
            raise DataError(
                f"This model holds users and ratings of {len(self.tables_)} owners. Say whose file it is to be: "
                f"save(path, client={next(iter(self.tables_))!r})."
            )
        name = self.tables_.name(client)
        run = self.run_
        table = self.tables_[name]
        OwnerModel(
            type(self).__name__,
            name,
            self.get_params(deep=False),
            self.scale_,
            self.n_iter_,
            run.seed,
            run.status,
            run.factors[name],
            table.users,
            table.items,
            np.asarray(self.support_),
            table.seen,
        ).write(Path(path))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a model that :meth:`save` wrote; settings of engine and privacy are not kept."""
        kept = OwnerModel.read(Path(path), cls.__name__)
        try:
            model = cls(**kept.settings)
            method = model.to_algorithm()
        except (TypeError, ValueError) as error:
            raise other_version(Path(path), error) from None
        name = kept.owner
        nothing = Score.of(0, 0, 0)
        run = Run(method, kept.seed, kept.status, (), {name: kept.factors}, {name: nothing}, None)  # type: ignore[reportArgumentType]
        model._adopt(run, {name: kept.seen}, {name: kept.users}, kept.items, kept.scale, kept.support)
        model.n_iter_ = kept.rounds
        return model

    def fold_in(self, ratings: Any, *, client: str | None = None) -> UserTable:
        """Find factors of users who were not in fit, from the items' side of the model alone; nothing is sent.

        Parameters
        ----------
        ratings : dict of item to rating, data frame, or sparse matrix
            Of one user (``dict``) or of several.
        client : str, optional
            The client whose model is used, where models differ; by default the first.

        Returns
        -------
        UserTable
            With ``predict(users, items)`` and ``recommend(users, n)`` of its own; the user of a dict is called 0.
        """
        check_is_fitted(self)
        name = self.tables_.name(client)
        R, users = new_ratings(ratings, self.tables_[name])
        if self._touched_only:
            R.data[:] = 1
        kept = self.run_.factors[name]
        return self._table(replace(kept, U=self.run_.algorithm.fold_in(R, kept, "stored")), R, users)

    def _table(self, kept: Any, seen: Any, users: Any) -> UserTable:
        return self._kind_of_table(kept.U, kept.V, seen, users, self.items_, self.scale_, self.support_)

    def score(self, ratings: Any, y: Any = None, *, client: str | None = None) -> float:
        """Return minus the root mean square error on ratings of known users and items: higher is better.

        Parameters
        ----------
        ratings : data frame with user, item and rating
        y : None
            Ignored.
        client : str, optional
            The users' client; needed only where two clients use one id.
        """
        true, found = self._compared(ratings, client)
        return -float(np.sqrt(np.mean(np.square(found - true))))

    def _compared(self, ratings: Any, client: str | None) -> tuple[np.ndarray, np.ndarray]:
        """Return ratings and what is predicted for them."""
        check_is_fitted(self)
        users, items, true = compared_columns(ratings, "score")
        return true, self.predict(users, items, client=client)

    def _keep(self, result: Run, found: Any) -> None:
        scale = None if self._implicit else self._scale_of(found.owners)
        support = sum(np.bincount(R.indices, minlength=R.shape[1]) for R in found.owners.values())
        self._adopt(result, found.owners, found.users, found.items, scale, support)
        if result.rejected:
            self._warn(f"left out uploads of {', '.join(result.rejected)}, which cannot be right")

    def _adopt(self, result: Run, owners: Any, users: Any, items: Any, scale: Any, support: Any) -> None:
        """Take over a run, whether it has just ended or was read from a file."""
        self.run_ = result
        self.n_iter_ = result.rounds
        self.n_rejected_ = len(result.rejected)
        self.items_ = items
        self.users_ = {name: users[name] for name in sorted(users)}
        self.components_ = result.V
        self.client_factors_ = {name: kept.U for name, kept in result.factors.items()}
        self.scale_ = scale
        self.support_ = support
        tables = {name: self._table(kept, owners[name], users[name]) for name, kept in result.factors.items()}
        self.tables_ = OwnerTables(tables)

    def _warn(self, what: str) -> None:
        warnings.warn(f"{type(self).__name__} {what}.", ConvergenceWarning, stacklevel=callers_level())
