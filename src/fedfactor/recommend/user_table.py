"""Users with factors, networks or weights, which give ratings and recommendations by id."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
from scipy import sparse

from fedfactor.core.errors import DataError, callers_level
from fedfactor.core.pytree import is_mapping
from fedfactor.recommend.feddmf import network as dmf
from fedfactor.recommend.top_items import best_by_blocks, best_items


class UnknownWarning(UserWarning):
    """Users or items that were not in ``fit`` are predicted from the average user or item."""


class UserTable:
    """Users of one client, or new ones: their factors, the items, and what they rated.

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
    support : array of shape (m,), optional
        Ratings of each item, over all clients; by default those in `seen`.
    """

    SHRINK = 20.0
    """Ratings at which an item stands half-way between the average item and its own factors, in lists."""

    def __init__(
        self, U: Any, V: Any, seen: Any, users: Any, items: Any, scale: tuple[float, float] | None, support: Any = None
    ) -> None:
        self.U = U
        self.V = V
        self.seen = seen
        self.scale = scale
        self.users = np.asarray(users)
        self.items = np.asarray(items)
        self.support = np.bincount(seen.indices, minlength=len(self.items)) if support is None else np.asarray(support)
        self._rows = {user: row for row, user in enumerate(self.users.tolist())}
        self._columns = {item: column for column, item in enumerate(self.items.tolist())}

    def __contains__(self, user: Any) -> bool:
        """Return whether a user is here."""
        return _plain(user) in self._rows

    def rows(self, users: Any) -> np.ndarray:
        """Find rows by user id."""
        return _find(users, self._rows, "user", "fold_in takes the ratings of users who were not in fit")

    def columns(self, items: Any) -> np.ndarray:
        """Find columns by item id."""
        return _find(items, self._columns, "item", "only items that were rated in fit have factors")

    def places(self, users: Any, items: Any) -> tuple[np.ndarray, np.ndarray]:
        """Find rows and columns, −1 for ids that were not in fit."""
        users = listed(users)
        items = listed(items)
        return (
            np.fromiter((self._rows.get(user, -1) for user in users), np.int64, len(users)),
            np.fromiter((self._columns.get(item, -1) for item in items), np.int64, len(items)),
        )

    def predict(self, users: Any, items: Any) -> np.ndarray:
        """Return the predicted rating of each (user, item) pair; of what was not in fit, as of the average."""
        users = listed(users)
        items = listed(items)
        if len(users) != len(items):
            raise DataError(f"{len(users)} users and {len(items)} items make no pairs. Give one item for each user.")
        rows, columns = self.places(users, items)
        note_unknown(*unknown_ids(users, items, rows, columns))
        return self.at_or_average(rows, columns)

    def at_or_average(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return predictions of cells; where a place is −1, those of the average user or item."""
        out = np.empty(len(rows))
        known = (rows >= 0) & (columns >= 0)
        out[known] = self.at(rows[known], columns[known])
        if not known.all():
            out[~known] = self.average(rows[~known], columns[~known])
        return out

    def at(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the predicted ratings of cells."""
        return self._clipped(np.einsum("pk,pk->p", self.U[rows], self.V.T[columns]))

    def average(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return predictions for the average user (row −1), for the average item (column −1), or for both."""
        user = np.asarray(self.U.mean(axis=0) if len(self.U) else np.zeros(self.V.shape[0]))
        left = np.where((rows < 0)[:, None], user, self.U[rows] if len(self.U) else user)
        right = np.where((columns < 0)[:, None], self._average_item(), self.V.T[columns])
        return self._clipped(np.einsum("pk,pk->p", left, right))

    def _average_item(self) -> np.ndarray:
        total = float(self.support.sum())
        weights = self.support / total if total > 0 else np.full(len(self.items), 1 / max(len(self.items), 1))
        return np.asarray(self.V @ weights)

    def _clipped(self, scores: np.ndarray) -> np.ndarray:
        return scores if self.scale is None else np.clip(scores, *self.scale)

    def recommend(
        self,
        users: Any = None,
        n: int = 10,
        *,
        exclude_seen: bool = True,
        only: Any = None,
        without: Any = None,
        shrink: float | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the n best items for each user, and their scores, best first.

        Parameters
        ----------
        users : sequence of ids, optional
            By default all.
        n : int
            Items for each user. Where fewer are left, the list ends in scores of −inf.
        exclude_seen : bool
            Leave out what the user rated.
        only, without : sequence of item ids, or bool array of one entry for each of ``items``, optional
            Items that may be, and that may not be, on a list.
        shrink : float, optional
            Ratings at which an item stands half-way between the average item and its own factors. By default 20 for
            ratings, so that a film with two good ones does not lead every list, and 0 for signs of interest.

        Returns
        -------
        items : array of shape (users, n)
        scores : array of shape (users, n)
            Not clipped, so that ties at the top of the scale do not hide an order.
        """
        rows = np.arange(len(self.users)) if users is None else self.rows(listed(users))
        columns, scores = self.best(rows, n, exclude_seen, self.allowed(only, without), shrink)
        return self.items[columns], scores

    def allowed(self, only: Any, without: Any) -> np.ndarray | None:
        """Turn rules about items into a mask over columns; None when there are none."""
        if only is None and without is None:
            return None
        mask = np.ones(len(self.items), bool) if only is None else self._mask(only)
        return mask if without is None else mask & ~self._mask(without)

    def _mask(self, ids: Any) -> np.ndarray:
        given = np.asarray(ids)
        if given.dtype == bool:
            if given.shape != (len(self.items),):
                raise DataError(f"A mask over items has {len(self.items)} entries, this one has {given.size}.")
            return given
        mask = np.zeros(len(self.items), bool)
        mask[[self._columns[item] for item in listed(ids) if item in self._columns]] = True
        return mask

    def best(
        self,
        rows: np.ndarray,
        n: int,
        exclude_seen: bool = True,
        allowed: np.ndarray | None = None,
        shrink: float | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return columns of the best items, and their scores; a few users' scores exist at a time."""
        n = number_of_items(n, self.V.shape[1])
        seen = self.seen[rows]
        closed = self._closed(allowed)
        if closed is None:
            return best_items(self.U[rows], self._ranking(shrink), seen, n, skip_seen=exclude_seen)
        score = self._scorer(rows, shrink)

        def scores(some: slice) -> np.ndarray:
            block = score(some)
            block[:, closed] = -np.inf
            return block

        return best_by_blocks(scores, seen, n, skip_seen=exclude_seen)

    def _closed(self, allowed: np.ndarray | None) -> np.ndarray | None:
        """Return which items may be on no list; None: all may."""
        return None if allowed is None else ~allowed

    def _scorer(self, rows: np.ndarray, shrink: float | None) -> Callable[[slice], np.ndarray]:
        """Return what scores all items for some of the users in these rows."""
        U, V = self.U[rows], self._ranking(shrink)
        return lambda some: np.asarray(U[some] @ V)

    def _ranking(self, shrink: float | None) -> np.ndarray:
        """Return the items' side that lists are made with: items of few ratings are drawn to the average item."""
        shrink = (0.0 if self.scale is None else self.SHRINK) if shrink is None else float(shrink)
        if shrink < 0:
            raise ValueError(f"shrink={shrink} must not be negative.")
        if shrink == 0:
            return self.V
        weight = self.support / (self.support + shrink)
        average = self._average_item()[:, None]
        return np.ascontiguousarray(average + (self.V - average) * weight).astype(self.V.dtype)

    def similar(self, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return, for some columns, the n others whose factors point the same way, and the cosines."""
        bilinear = self.V.shape[0] > 2 and bool((self.V[-2] == 1).all())
        F = np.asarray(self.V[:-2] if bilinear else self.V, np.float64)
        norms = np.linalg.norm(F, axis=0)
        F = F / np.where(norms > 0, norms, 1)
        cosines = F[:, columns].T @ F
        cosines[:, norms == 0] = -np.inf
        cosines[np.arange(len(columns)), columns] = -np.inf
        order = np.argsort(-cosines, axis=1, kind="stable")[:, : number_of_items(n, F.shape[1])]
        return order, np.take_along_axis(cosines, order, axis=1)


class WeightTable(UserTable):
    """Users whose scores are what they touched times weights between items; items without weights are on no list."""

    def _closed(self, allowed: np.ndarray | None) -> np.ndarray:
        idle = ~self.V.any(axis=0)
        return idle if allowed is None else idle | ~allowed

    def _ranking(self, shrink: float | None) -> np.ndarray:
        return self.V

    def similar(self, columns: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return, for some columns, the n others with the largest weights."""
        if self.V.shape[0] != self.V.shape[1]:
            return super().similar(columns, n)
        weights = np.array(self.V[:, columns].T)
        weights[:, ~self.V.any(axis=0)] = -np.inf
        weights[np.arange(len(columns)), columns] = -np.inf
        order = np.argsort(-weights, axis=1, kind="stable")[:, : number_of_items(n, self.V.shape[1])]
        return order, np.take_along_axis(weights, order, axis=1)


class DeepTable(UserTable):
    """Users of one client, the item vectors it knows, and the network that joins them.

    Parameters
    ----------
    factors : DeepFactors
        What the client kept.
    U : array of shape (n, d)
        User vectors: the client's, or those of new users.
    seen, users, items
        As for :class:`UserTable`.
    """

    def __init__(self, factors: Any, U: Any, seen: Any, users: Any, items: Any) -> None:
        super().__init__(U, factors.V, seen, users, items, None)
        self.factors = factors
        self._b = dmf.item_part(factors.network, np.ascontiguousarray(factors.V.T))

    def places(self, users: Any, items: Any) -> tuple[np.ndarray, np.ndarray]:
        """Find rows and columns, −1 for ids that were not in fit; an item without an uploaded vector is refused."""
        rows, found = super().places(users, items)
        self._refuse(found[found >= 0])
        return rows, found

    def columns(self, items: Any) -> np.ndarray:
        """Find columns by item id; an item without an uploaded vector is refused."""
        found = super().columns(items)
        self._refuse(found)
        return found

    def _refuse(self, found: np.ndarray) -> None:
        lost = found[~np.asarray(self.factors.known)[found]]
        if len(lost):
            raise DataError(
                f"No party published a vector of item {self.items[lost].tolist()[0]!r}: its owners withhold it, or the "
                "run ended before its last exchange."
            )

    def at(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the probabilities of cells."""
        net = self.factors.network
        a = dmf.user_part(net, self.U[rows])
        return dmf.probability(dmf.pair_logits(net, a, self._b[columns]))

    def average(self, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        """Return the share of cells that are touched, for unknown users and items."""
        return np.full(len(rows), self.seen.nnz / max(1, self.seen.shape[0] * self.seen.shape[1]))

    def scores(self, rows: np.ndarray) -> np.ndarray:
        """Return the probabilities of all items for some users; −inf where no vector is known."""
        block = np.array(dmf.probabilities(self.factors.network, self.U[rows], self.V.T))
        block[:, ~np.asarray(self.factors.known)] = -np.inf
        return block

    def _closed(self, allowed: np.ndarray | None) -> np.ndarray:
        lost = ~np.asarray(self.factors.known)
        return lost if allowed is None else lost | ~allowed

    def _scorer(self, rows: np.ndarray, shrink: float | None) -> Callable[[slice], np.ndarray]:
        return lambda some: self.scores(rows[some])


def unknown_ids(users: Any, items: Any, rows: np.ndarray, columns: np.ndarray) -> tuple[int, int, int]:
    """Count different users and items that were not in fit, and the pairs that have one of them.

    Examples
    --------
    >>> unknown_ids(["eve", "eve", "ann"], ["x", "y", "x"], np.array([-1, -1, 0]), np.array([0, 1, 0]))
    (1, 0, 2)
    """
    lost = (rows < 0) | (columns < 0)
    users_lost = {users[place] for place in np.flatnonzero(rows < 0)}
    return len(users_lost), len({items[place] for place in np.flatnonzero(columns < 0)}), int(lost.sum())


def note_unknown(users: int, items: int, pairs: int) -> None:
    """Warn that some pairs were predicted from averages: counts of different users, different items, and pairs."""
    if users or items:
        parts = [f"{n} {word}{'s' if n != 1 else ''}" for n, word in ((users, "user"), (items, "item")) if n]
        warnings.warn(
            f"{' and '.join(parts)} {'was' if users + items == 1 else 'were'} not in fit: {pairs} "
            f"{'pair' if pairs == 1 else 'pairs'} predicted from the average.",
            UnknownWarning,
            stacklevel=callers_level(),
        )


def number_of_items(n: Any, m: int) -> int:
    """Refuse what is no length of a list of m items at most."""
    if isinstance(n, bool) or not isinstance(n, Integral) or not 1 <= int(n) <= m:
        raise DataError(f"n={n!r} must be a whole number from 1 to {m}, the number of items.")
    return int(n)


def new_ratings(ratings: Any, table: UserTable) -> tuple[sparse.csr_array, np.ndarray]:
    """Turn ratings of new users into a matrix over the known items, and their ids; unknown items are ignored."""
    m = len(table.items)
    kind = table.V.dtype
    if sparse.issparse(ratings):
        R: Any = sparse.csr_array(ratings).astype(kind)
        if R.shape[1] != m:
            raise DataError(f"The new ratings have {R.shape[1]} columns, but there are {m} items.")
        _check_finite(R.data)
        n: int = R.shape[0]
        return R, np.arange(n)
    if hasattr(ratings, "columns"):
        from fedfactor.recommend.ratings import ratings_of

        found = ratings_of(ratings, need_rating=False)
        R = found.owners["0"].tocoo()
        users = found.users["0"]
        columns = table.places([], found.items)[1]
        note_unknown(0, int((columns < 0).sum()), int((columns[R.col] < 0).sum()))
        columns, known = columns[R.col], columns[R.col] >= 0
        cells = (R.row[known], columns[known])
        return sparse.csr_array((R.data[known].astype(kind), cells), shape=(len(users), m)), users
    if is_mapping(ratings):
        columns = table.places([], list(ratings))[1]
        note_unknown(0, int((columns < 0).sum()), int((columns < 0).sum()))
        values = np.asarray(list(ratings.values()), dtype=kind)
        known = columns >= 0
        _check_finite(values)
        cells = (np.zeros(int(known.sum()), int), columns[known])
        return sparse.csr_array((values[known], cells), shape=(1, m)), np.arange(1)
    raise DataError("New ratings come as {item: rating} of one user, a data frame, or a sparse matrix.")


def _check_finite(values: np.ndarray) -> None:
    if not np.isfinite(values).all():
        raise DataError("Some of the new ratings are not finite. Leave them out.")


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def listed(ids: Any) -> list[Any]:
    """Return ids, or a single one, as a list of plain values."""
    if isinstance(ids, (str, bytes)) or not hasattr(ids, "__len__"):
        return [_plain(ids)]
    return [_plain(value) for value in (ids.tolist() if hasattr(ids, "tolist") else list(ids))]


def _find(ids: Any, known: dict[Any, int], word: str, remedy: str) -> np.ndarray:
    wanted = listed(ids)
    lost = [value for value in wanted if value not in known]
    if lost:
        raise DataError(f"No {word} {lost[0]!r} is known ({len(lost)} such): {remedy}.")
    return np.fromiter((known[value] for value in wanted), np.int64, len(wanted))
