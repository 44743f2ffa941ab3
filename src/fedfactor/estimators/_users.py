"""Users with factors, whom one can ask for ratings and recommendations."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from fedfactor.core.errors import DataError
from fedfactor.kernels.ratings.top_items import best_items


class UserTable:
    """Users of one owner, or new ones: their factors, the items, and what they rated.

    Parameters
    ----------
    U : array of shape (n, k)
    V : array of shape (k, m)
    seen : CSR matrix of shape (n, m)
        What the users rated already.
    users : array of shape (n,)
        Their ids.
    items : array of shape (m,)
        Ids of the items.
    scale : (low, high) or None
        Predictions are clipped to it.
    """

    def __init__(self, U: Any, V: Any, seen: Any, users: Any, items: Any, scale: tuple[float, float] | None) -> None:
        self.U, self.V, self.seen, self.scale = U, V, seen, scale
        self.users, self.items = np.asarray(users), np.asarray(items)
        self._rows = {user: row for row, user in enumerate(self.users.tolist())}
        self._columns = {item: column for column, item in enumerate(self.items.tolist())}

    def __contains__(self, user: Any) -> bool:
        """Tell whether a user is here."""
        return _plain(user) in self._rows

    def rows(self, users: Any) -> np.ndarray:
        """Find rows by user id."""
        return _find(users, self._rows, "user", "fold_in takes the ratings of users who were not in fit")

    def columns(self, items: Any) -> np.ndarray:
        """Find columns by item id."""
        return _find(items, self._columns, "item", "only items that somebody rated in fit have factors")

    def predict(self, users: Any, items: Any) -> np.ndarray:
        """Return the predicted rating of each (user, item) pair."""
        users, items = _listed(users), _listed(items)
        if len(users) != len(items):
            raise DataError(f"{len(users)} users and {len(items)} items make no pairs. Give one item for each user.")
        return self.at(self.rows(users), self.columns(items))

    def at(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the predicted ratings of cells."""
        scores = np.einsum("pk,pk->p", self.U[rows], self.V.T[columns])
        return scores if self.scale is None else np.clip(scores, *self.scale)

    def recommend(self, users: Any = None, n: int = 10, *, exclude_seen: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Return the n best items for each user, and their scores, best first.

        Parameters
        ----------
        users : sequence of ids, optional
            By default all.
        n : int
            Items for each user. Where fewer are left, the list ends in scores of −inf.
        exclude_seen : bool
            Leave out what the user rated.

        Returns
        -------
        items : array of shape (users, n)
        scores : array of shape (users, n)
            Not clipped, so that ties at the top of the scale do not hide an order.
        """
        rows = np.arange(len(self.users)) if users is None else self.rows(_listed(users))
        columns, scores = self.best(rows, n, exclude_seen)
        return self.items[columns], scores

    def best(self, rows: np.ndarray, n: int, exclude_seen: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Return columns of the best items, and their scores."""
        n = number_of_items(n, self.V.shape[1])
        return best_items(self.U[rows], self.V, self.seen[rows], n, skip_seen=exclude_seen)


def number_of_items(n: Any, m: int) -> int:
    """Refuse what is no length of a list of m items at most."""
    if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or not 1 <= n <= m:
        raise DataError(f"n={n!r} must be a whole number from 1 to {m}, the number of items.")
    return int(n)


def new_ratings(ratings: Any, table: UserTable) -> tuple[sparse.csr_array, np.ndarray]:
    """Turn ratings of new users into a matrix over the known items, and their ids."""
    m, kind = len(table.items), table.V.dtype
    if sparse.issparse(ratings):
        R: Any = sparse.csr_array(ratings).astype(kind)
        if R.shape[1] != m:
            raise DataError(f"The new ratings have {R.shape[1]} columns, but there are {m} items.")
        _check_finite(R.data)
        return R, np.arange(R.shape[0])
    if hasattr(ratings, "columns"):
        from fedfactor.data.ratings import ratings_of

        found = ratings_of(ratings)
        R, users = found.owners["0"].tocoo(), found.users["0"]
        columns = table.columns(found.items)[R.col]
        return sparse.csr_array((R.data.astype(kind), (R.row, columns)), shape=(len(users), m)), users
    if isinstance(ratings, dict):
        columns = table.columns(list(ratings))
        values = np.asarray(list(ratings.values()), dtype=kind)
        _check_finite(values)
        return sparse.csr_array((values, (np.zeros(len(columns), int), columns)), shape=(1, m)), np.arange(1)
    raise DataError("New ratings come as {item: rating} of one user, a data frame, or a sparse matrix.")


def _check_finite(values: np.ndarray) -> None:
    if not np.isfinite(values).all():
        raise DataError("Some of the new ratings are not finite. Leave them out.")


def _plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _listed(ids: Any) -> list[Any]:
    if isinstance(ids, (str, bytes)) or not hasattr(ids, "__len__"):
        return [_plain(ids)]
    return [_plain(value) for value in (ids.tolist() if hasattr(ids, "tolist") else list(ids))]


def _find(ids: Any, known: dict[Any, int], word: str, remedy: str) -> np.ndarray:
    wanted = _listed(ids)
    lost = [value for value in wanted if value not in known]
    if lost:
        raise DataError(f"No {word} {lost[0]!r} is known ({len(lost)} such): {remedy}.")
    return np.fromiter((known[value] for value in wanted), np.int64, len(wanted))
