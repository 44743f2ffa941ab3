"""Base classes of the recommenders of lists, and of those whose clients hold catalogues of their own."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import numpy as np

from fedfactor.core.run import Run
from fedfactor.recommend.estimator_base import FederatedRecommender
from fedfactor.recommend.interactions import interactions_of
from fedfactor.recommend.user_table import WeightTable


class ListRecommender(FederatedRecommender):
    """A recommender that goes by what users touched: it makes lists, and its scores are no ratings."""

    scale = None  # scores of lists need none
    _kind_of_table = WeightTable

    @property
    def _implicit(self) -> bool:
        return True


class CatalogueRecommender(ListRecommender):
    """A recommender whose clients hold catalogues of their own, which overlap in part.

    Attributes
    ----------
    items_ : ndarray of shape (m,)
        Item ids of all clients together.
    held_ : dict of str to ndarray
        Item ids that each client holds.
    """

    _touched_only = True

    def fit(
        self, ratings: Any, y: Any = None, *, groups: Any = None, catalogues: Any = None, withheld: Any = None
    ) -> Self:
        """Learn from interactions that belong to several clients.

        Parameters
        ----------
        ratings : mapping of client to ItemTable, or as for the other recommenders
            Only whether there is a rating matters.
        y : None
            Ignored.
        groups : str, mapping or sequence, optional
            As for the other recommenders.
        catalogues, withheld : mapping of client to item ids, optional
            What each client holds (by default what its users touched), and what it keeps to itself.

        Returns
        -------
        self
        """
        return self._learn(ratings, groups, partial(interactions_of, catalogues=catalogues, withheld=withheld))

    def _read(self, ratings: Any, groups: Any) -> Any:
        return interactions_of(ratings, groups)

    def _keep(self, result: Run, found: Any) -> None:
        super()._keep(result, found)
        self.held_ = {name: found.items[columns] for name, columns in found.held.items()}

    def predict_proba(self, client: str, users: Any, items: Any) -> np.ndarray:
        """Return the probability of each (user, item) pair at one client, also for items that only others hold.

        Parameters
        ----------
        client : str
            The users' client.
        users, items : sequences of ids of equal length, or single ids

        Returns
        -------
        array of shape (pairs,)
        """
        return np.clip(self.predict(users, items, client=client), 0, 1)

    def score(self, ratings: Any, y: Any = None, *, client: str | None = None) -> float:
        """Return F1 over pairs of known users and items whose ``rating`` is 0 (no interaction) or not.

        An interaction is predicted from one half on; by :class:`fedfactor.PooledRidge` for the share of pairs
        that have one.

        Parameters
        ----------
        ratings : data frame with user, item and rating
        y : None
            Ignored.
        client : str, optional
            The users' client; needed only where two clients use one id.

        Returns
        -------
        float
        """
        truth, found = self._compared(ratings, client)
        true = truth != 0
        guess = self._guess(true, found)
        return 2 * float((true & guess).sum()) / max(1.0, float(true.sum() + guess.sum()))

    def _guess(self, true: np.ndarray, found: np.ndarray) -> np.ndarray:
        """Return which pairs are taken for interactions."""
        return found > 0.5
