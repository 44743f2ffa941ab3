"""FedDMF with a recommender's manners."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedfactor import algorithms
from fedfactor.core.run import Run
from fedfactor.data.user_table import DeepTable, new_ratings
from fedfactor.estimators._face import face
from fedfactor.estimators._recommender import CatalogueRecommender


@face(algorithms.FedDMF, without=("scale",))
class FedDMF(CatalogueRecommender):
    """Deep matrix factorization over owners with partly overlapping catalogues, who match no users.

    Attributes
    ----------
    client_factors_ : dict of str to array of shape (n_c, d)
        User vectors of each owner: features of its users, for predicting their attributes at home.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor import FedDMF
    >>> from fedfactor.data import ItemTable
    >>> X = np.random.default_rng(0).random((20, 6)) < 0.5
    >>> north = ItemTable(X[:10, :4], users=range(10), items=list("abcd"))
    >>> south = ItemTable(X[10:, 2:], users=range(10), items=list("cdef"))
    >>> model = FedDMF(4, hidden=8, epochs=2, refine=1, random_state=0).fit({"north": north, "south": south})
    >>> model.predict_proba("north", [3, 7], ["f", "a"]).shape
    (2,)
    """

    def predict_proba(self, client: str, users: Any, items: Any) -> np.ndarray:
        """Return the probability of each (user, item) pair at one client, also for items that only others hold.

        Parameters
        ----------
        client : str
            The users' owner.
        users, items : sequences of ids of equal length, or single ids

        Returns
        -------
        array of shape (pairs,)
        """
        return self.predict(users, items, client=client)

    def fold_in(self, ratings: Any, *, client: str | None = None) -> DeepTable:
        """Find vectors of users who were not in fit, with one owner's network and item vectors; nothing is sent.

        Parameters
        ----------
        ratings : dict of item to rating, data frame, or sparse matrix
            Of one user (``dict``) or of several.
        client : str, optional
            The owner whose network is used; by default the first.

        Returns
        -------
        DeepTable
            With ``predict(users, items)`` and ``recommend(users, n)`` of its own; the user of a dict is called 0.
        """
        check_is_fitted(self)
        table: Any = self._table(next(iter(self.tables_)) if client is None else client)
        R, users = new_ratings(ratings, table)
        R.data[:] = 1
        return DeepTable(table.factors, self.run_.algorithm.fold_in(R, table.factors), R, users, self.items_)

    def score(self, ratings: Any, y: Any = None, *, client: str | None = None) -> float:
        """Return F1 at one half, over pairs of known users and items whose ``rating`` is 0 (no interaction) or not.

        Parameters
        ----------
        ratings : data frame with user, item and rating
        y : None
            Ignored.
        client : str, optional
            The users' owner; needed only where two owners use one id.
        """
        ratings, found = self._compared(ratings, client)
        true, guess = ratings != 0, found > 0.5
        return 2 * float((true & guess).sum()) / max(1.0, float(true.sum() + guess.sum()))

    def _keep(self, result: Run, found: Any) -> None:
        self.run_ = result
        self.n_iter_ = result.rounds
        self.items_ = found.items
        self.users_ = {name: found.users[name] for name in sorted(found.users)}
        self.components_ = result.V
        self.client_factors_ = {name: kept.U for name, kept in result.factors.items()}
        self.scale_, self._homes, self.n_rejected_ = None, None, 0
        self.support_ = sum(np.bincount(X.indices, minlength=X.shape[1]) for X in found.owners.values())
        self.tables_ = {
            name: self._make_table(kept.U, kept.V, found.owners[name], found.users[name], kept)
            for name, kept in result.factors.items()
        }

    def _make_table(self, U: Any, V: Any, seen: Any, users: Any, kept: Any) -> DeepTable:
        return DeepTable(kept, U, seen, users, self.items_)
