"""FedDMF with a recommender's manners."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedfactor import algorithms
from fedfactor.core.errors import DataError
from fedfactor.core.run import Run
from fedfactor.estimators._face import face
from fedfactor.estimators._recommender import CatalogueRecommender
from fedfactor.estimators._users import UserTable, new_ratings, number_of_items
from fedfactor.kernels.ratings import deep as dmf
from fedfactor.kernels.ratings.top_items import best_by_blocks


class DeepTable(UserTable):
    """Users of one owner, the item vectors it knows, and the network that joins them.

    Parameters
    ----------
    factors : DeepFactors
        What the owner kept.
    U : array of shape (n, d)
        User vectors: the owner's, or those of new users.
    seen, users, items
        As for :class:`UserTable`.
    """

    def __init__(self, factors: Any, U: Any, seen: Any, users: Any, items: Any) -> None:
        super().__init__(U, factors.V, seen, users, items, None)
        self.factors = factors
        self._b = dmf.item_part(factors.network, np.ascontiguousarray(factors.V.T))

    def places(self, users: Any, items: Any) -> tuple[np.ndarray, np.ndarray]:
        """Find rows and columns, −1 for ids that were not in fit; an item of which nobody sent a vector is refused."""
        rows, found = super().places(users, items)
        self._refuse(found[found >= 0])
        return rows, found

    def columns(self, items: Any) -> np.ndarray:
        """Find columns by item id; an item of which nobody sent a vector is refused."""
        found = super().columns(items)
        self._refuse(found)
        return found

    def _refuse(self, found: np.ndarray) -> None:
        lost = found[~np.asarray(self.factors.known)[found]]
        if len(lost):
            raise DataError(
                f"Nobody published a vector of item {self.items[lost].tolist()[0]!r}: its owners withhold it, or the "
                "run ended before its last exchange."
            )

    def at(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the probabilities of cells."""
        net = self.factors.network
        a = dmf.user_part(net, self.U[rows])
        return dmf.probability(dmf.pair_logits(net, a, self._b[columns]))

    def average(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the share of cells that are touched, for users and items that nobody knows."""
        return np.full(len(rows), self.seen.nnz / max(1, self.seen.shape[0] * self.seen.shape[1]))

    def scores(self, rows: np.ndarray) -> np.ndarray:
        """Return the probabilities of all items for some users; −inf where no vector is known."""
        block = np.array(dmf.probabilities(self.factors.network, self.U[rows], self.V.T))
        block[:, ~np.asarray(self.factors.known)] = -np.inf
        return block

    def best(
        self,
        rows: np.ndarray,
        n: int,
        exclude_seen: bool = True,
        allowed: np.ndarray | None = None,
        shrink: float | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return columns of the best items, and their scores; a few users' scores exist at a time."""
        seen, n = self.seen[rows], number_of_items(n, self.V.shape[1])

        def scores(some: slice) -> np.ndarray:
            block = self.scores(rows[some])
            if allowed is not None:
                block[:, ~allowed] = -np.inf
            return block

        return best_by_blocks(scores, seen, n, skip_seen=exclude_seen)


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
        self.scale_, self._homes = None, None
        self.tables_ = {
            name: DeepTable(kept, kept.U, found.owners[name], found.users[name], found.items)
            for name, kept in result.factors.items()
        }
