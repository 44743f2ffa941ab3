"""Ratings in many dresses, as a users × items matrix for each client, with all ids kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.errors import DataError
from fedfactor.core.pytree import is_mapping
from fedfactor.core.random_streams import stream
from fedfactor.io.partition import split_evenly
from fedfactor.linalg.products import stored_rows
from fedfactor.recommend.rating_statistics import hold_out

__all__ = [
    "Ratings",
    "column_named",
    "compared_columns",
    "deal_groups",
    "filter_ratings",
    "leave_last_out",
    "nobody_owns",
    "ratings_of",
    "split_ratings",
    "split_ratings_by_time",
]


@dataclass(frozen=True, slots=True, eq=False)
class Ratings:
    """Ratings of all clients, each client's in its own matrix.

    Attributes
    ----------
    owners : dict of str to csr_array of shape (n_c, m)
        Stored cells were rated. All matrices have the same columns.
    users : dict of str to ndarray of shape (n_c,)
        User ids, row by row.
    items : ndarray of shape (m,)
        Item ids, column by column: those of all clients together, sorted.
    """

    owners: Mapping[str, sparse.csr_array]
    users: Mapping[str, np.ndarray]
    items: np.ndarray

    @property
    def n_ratings(self) -> int:
        """Number of ratings in all."""
        return sum(R.nnz for R in self.owners.values())

    def dealt(self, n_clients: int, seed: int) -> Ratings:
        """Deal the users of the one client at random to several."""
        users = self.users["0"]
        return _cut(self.owners["0"], split_evenly(len(users), n_clients, seed), users, self.items)

    def federation(self, *, masked: bool = True) -> Federation:
        """Return what an engine takes; columns are named by item so that clients cannot mix them up.

        ``masked``: what is not stored is unknown. Else it was not touched, which is something to go by.
        """
        names = tuple(str(item) for item in self.items.tolist())
        mask = "stored" if masked else None
        shards = {owner: Shard(X=R, mask=mask, features=names) for owner, R in self.owners.items()}
        return Federation(shards, missing_values="unstored" if masked else None)


NAMES = {
    "user": ("user", "userId", "user_id", "userid", "UserID", "uid"),
    "item": ("item", "itemId", "item_id", "itemid", "ItemID", "iid", "movieId", "movie_id", "MovieID", "product_id"),
    "rating": ("rating", "Rating", "ratings", "score", "stars", "count", "plays", "weight"),
}
"""Names of columns that are understood, the first one that is there."""


def column_named(columns: Any, word: str) -> str | None:
    """Return the column that holds users, items or ratings under one of the names in use, or None.

    Examples
    --------
    >>> column_named(["userId", "movieId", "rating"], "item")
    'movieId'
    """
    there = [str(name) for name in columns]
    return next((name for name in NAMES[word] if name in there), None)


def compared_columns(ratings: Any, what: str, *, need_rating: bool = True) -> tuple[Any, Any, Any]:
    """Return users, items and ratings of a frame that predictions are compared with; None: it has no ratings.

    Examples
    --------
    >>> compared_columns({"user": [7], "item": ["b"], "rating": [4]}, "score")
    ([7], ['b'], array([4.]))
    """
    columns = getattr(ratings, "columns", list(ratings) if is_mapping(ratings) else ())
    names = {word: column_named(columns, word) for word in NAMES}
    needed = ["user", "item", *(["rating"] if need_rating else [])]
    absent = [word for word in needed if names[word] is None]
    if absent:
        wanted = f"{', '.join(needed[:-1])} and {needed[-1]}"
        raise DataError(f"{what} takes a data frame with {wanted}; here is no column {absent[0]!r}.")
    users = ratings[str(names["user"])]
    items = ratings[str(names["item"])]
    if not len(users):
        raise DataError("There are no ratings to compare with.")
    return users, items, None if names["rating"] is None else np.asarray(ratings[names["rating"]], dtype=float)


def nobody_owns(data: Any, groups: Any, owners: Mapping[str, Any]) -> bool:
    """Return whether neither ratings nor groups name a client; then all users lie with one called "0"."""
    return groups is None and not isinstance(data, Mapping) and list(owners) == ["0"]


def ratings_of(data: Any, groups: Any = None, *, need_rating: bool = True) -> Ratings:
    """Sort ratings by client.

    Parameters
    ----------
    data : data frame, CSR matrix, Ratings, or mapping of client to one of the first two
        A frame has the columns ``user``, ``item`` and ``rating`` or other names in use for them (``userId``,
        ``movieId``, ...; further columns are not looked at), one row for each rating.
        In a matrix rows are users, columns items and stored cells ratings; users and items are then known by
        position.
    groups : str, mapping, sequence or None
        Who owns which user. For a frame: the name of a column, or a mapping from user to client. For a matrix: one
        label per row. None: one client, called ``"0"``. A mapping of clients needs none.
    need_rating : bool
        False: in a frame without a column of ratings every row counts as 1.

    Returns
    -------
    Ratings
        Items that only some clients know are columns for all; where a client has no rating of them nothing is stored.

    Raises
    ------
    DataError
        Columns are missing, a cell is rated twice, a rating is not finite, a user has no client or two.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"user": [7, 7, 9], "item": ["b", "a", "b"], "rating": [4.0, 5.0, 1.0]})
    >>> found = ratings_of(frame, groups={7: "north", 9: "south"})
    >>> found.owners["north"].toarray(), found.items.tolist()
    (array([[5., 4.]]), ['a', 'b'])
    """
    if isinstance(data, Ratings):
        if groups is not None:
            raise DataError("groups says who owns which user, but these ratings come with their owners. Leave it out.")
        return data
    if is_mapping(data) and not hasattr(data, "shape"):
        if groups is not None:
            raise DataError("groups says who owns which user, but this mapping already does. Leave groups out.")
        return _of_owners(data, need_rating)
    if sparse.issparse(data):
        return _of_matrix(data, groups)
    if _is_frame(data):
        return _of_frame(data, groups, need_rating)
    raise DataError(
        "Ratings come as a data frame with the columns user, item and rating, as a sparse matrix, or as a mapping from "
        f"owner to one of these; this is a {type(data).__name__}."
    )


def _is_frame(data: Any) -> bool:
    return hasattr(data, "columns") and hasattr(data, "to_numpy")


def _columns(frame: Any, need_rating: bool = True) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    names = {word: column_named(frame.columns, word) for word in NAMES}
    absent = [word for word, name in names.items() if name is None and (need_rating or word != "rating")]
    if absent:
        told = "" if absent[0] != "rating" else " Signs of interest need none: feedback='implicit', or PooledEASE."
        raise DataError(
            f"The ratings have no column {absent[0]!r}; they have {', '.join(map(str, frame.columns))}. Rename: "
            f"ratings.rename(columns={{'old name': {absent[0]!r}}}).{told}"
        )
    users, items = (np.asarray(frame[names[word]].to_numpy()) for word in ("user", "item"))
    for name, ids in (("user", users), ("item", items)):
        if ids.dtype == object and any(value is None or value != value for value in ids.tolist()):
            raise DataError(f"The column {name!r} has empty cells. Drop those rows, or fill them.")
        if ids.dtype.kind == "f" and not np.isfinite(ids).all():
            raise DataError(f"The column {name!r} has cells that are not finite. Drop those rows, or fill them.")
    if names["rating"] is None:
        return users, items, np.ones(len(users))
    try:
        values = np.asarray(frame[names["rating"]].to_numpy(), dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(f"The column {names['rating']!r} does not hold numbers ({error}).") from None
    return users, items, values


def _of_frame(frame: Any, groups: Any, need_rating: bool) -> Ratings:
    users, items, values = _columns(frame, need_rating)
    user_ids, rows = np.unique(users, return_inverse=True)
    item_ids, columns = np.unique(items, return_inverse=True)
    R = _matrix(rows, columns, values, (len(user_ids), len(item_ids)), user_ids, item_ids)
    if isinstance(groups, str):
        if groups not in list(frame.columns):
            raise DataError(f"groups={groups!r} is no column; there are {', '.join(map(str, frame.columns))}.")
        labels = np.asarray(frame[groups].to_numpy())
        first = np.full(len(user_ids), -1)
        first[rows[::-1]] = np.arange(len(rows))[::-1]
        owners = labels[first]
        clash = np.flatnonzero(labels != owners[rows])
        if len(clash):
            who = user_ids[rows[clash[0]]]
            raise DataError(f"User {who!r} has two owners, {owners[rows[clash[0]]]!r} and {labels[clash[0]]!r}.")
    elif is_mapping(groups):
        lost = [user for user in user_ids.tolist() if user not in groups]
        if lost:
            raise DataError(f"groups names no owner for user {lost[0]!r} ({len(lost)} such users).")
        owners = np.array([str(groups[user]) for user in user_ids.tolist()])
    elif groups is None:
        owners = np.full(len(user_ids), "0")
    else:
        raise DataError("For a data frame groups is the name of a column, or a mapping from user to owner.")
    return _cut(R, owners, user_ids, item_ids)


def _of_matrix(data: Any, groups: Any) -> Ratings:
    R = _canonical(data)
    if groups is None:
        owners = np.full(R.shape[0], "0")
    elif isinstance(groups, (str, bytes, Mapping)) or len(groups) != R.shape[0]:
        raise DataError(f"For a matrix of {R.shape[0]} users groups holds one label for each of them, in their order.")
    else:
        owners = np.asarray(groups)
    return _cut(R, owners, np.arange(R.shape[0]), np.arange(R.shape[1]))


def _of_owners(data: Mapping[Any, Any], need_rating: bool) -> Ratings:
    if not data:
        raise DataError("A federation needs at least one owner, but none was given.")
    if all(sparse.issparse(part) for part in data.values()):
        widths = {part.shape[1] for part in data.values()}
        if len(widths) > 1:
            raise DataError(f"The owners' matrices have {sorted(widths)} columns. Agree on one list of items first.")
        owners = {str(name): _canonical(part) for name, part in data.items()}
        users = {name: np.arange(R.shape[0]) for name, R in owners.items()}
        m: int = widths.pop()
        return Ratings(dict(sorted(owners.items())), users, np.arange(m))
    if not all(_is_frame(part) for part in data.values()):
        raise DataError("A mapping of owners holds data frames for all of them, or sparse matrices for all of them.")
    parts = {str(name): _columns(part, need_rating) for name, part in data.items()}
    item_ids = np.unique(np.concatenate([items for _, items, _ in parts.values()]))
    owners: dict[str, sparse.csr_array] = {}
    users: dict[str, np.ndarray] = {}
    for name, (who, what, values) in sorted(parts.items()):
        users[name], rows = np.unique(who, return_inverse=True)
        shape = (len(users[name]), len(item_ids))
        owners[name] = _matrix(rows, np.searchsorted(item_ids, what), values, shape, users[name], item_ids)
    return Ratings(owners, users, item_ids)


def _canonical(data: Any) -> sparse.csr_array:
    R = sparse.csr_array(data, copy=True)
    R.sum_duplicates()
    kind = R.dtype if R.dtype in map(np.dtype, ("float32", "float64")) else np.float64
    R = R.astype(kind)
    if not np.isfinite(R.data).all():
        raise DataError("Some ratings are not finite. Leave those cells out: what is not stored was not rated.")
    return R


def _matrix(rows: Any, columns: Any, values: Any, shape: Any, users: Any, items: Any) -> sparse.csr_array:
    if not np.isfinite(values).all():
        raise DataError("Some ratings are not finite. Drop those rows: what is not listed was not rated.")
    index = np.int32 if max(len(values), *shape) < 2**31 else np.int64
    R = sparse.coo_array((values, (rows.astype(index), columns.astype(index))), shape=shape).tocsr()
    if R.nnz < len(values):
        order = np.lexsort((columns, rows))
        same = (np.diff(rows[order]) == 0) & (np.diff(columns[order]) == 0)
        p = order[np.flatnonzero(same)[0]]
        raise DataError(
            f"User {_plain(users[rows[p]])!r} rated item {_plain(items[columns[p]])!r} more than once. Keep one, for "
            "example the last: ratings.drop_duplicates(['user', 'item'], keep='last')."
        )
    return R


def _plain(name: Any) -> Any:
    return name.item() if hasattr(name, "item") else name


def _cut(R: sparse.csr_array, owners: np.ndarray, users: np.ndarray, items: np.ndarray) -> Ratings:
    names = np.array([str(owner) for owner in owners.tolist()])
    found = {name: np.flatnonzero(names == name) for name in sorted(set(names.tolist()))}
    return Ratings({k: R[rows] for k, rows in found.items()}, {k: users[rows] for k, rows in found.items()}, items)


def filter_ratings(
    R: Any, *, per_user: int = 20, per_item: int = 20
) -> tuple[sparse.csr_array, np.ndarray, np.ndarray]:
    """Drop users with few ratings, then items with few; return what is left and the rows and columns kept.

    Examples
    --------
    >>> R, rows, columns = filter_ratings(sparse.csr_array(np.array([[1.0, 2.0], [0.0, 3.0]])), per_user=2, per_item=1)
    >>> R.shape, rows.tolist()
    ((1, 2), [0])
    """
    R = sparse.csr_array(R)
    rows = np.flatnonzero(np.diff(R.indptr) >= per_user)
    R = R[rows]
    columns = np.flatnonzero(np.bincount(R.indices, minlength=R.shape[1]) >= per_item)
    return sparse.csr_array(R[:, columns]), rows, columns


def deal_groups(n_users: int, *, least: int = 3, most: int = 30, seed: int = 0) -> np.ndarray:
    """Deal users at random to groups whose sizes are drawn evenly from ``least`` to ``most``; a rest joins the last.

    Examples
    --------
    >>> labels = deal_groups(100, seed=1)
    >>> int(np.unique(labels, return_counts=True)[1].min()) >= 3
    True
    """
    rng = stream("rating groups", seed)
    order = rng.permutation(n_users)
    sizes: list[int] = []
    while sum(sizes) < n_users:
        sizes.append(int(rng.integers(least, most + 1)))
    sizes[-1] -= sum(sizes) - n_users
    if sizes[-1] < least and len(sizes) > 1:
        sizes[-2:] = [sizes[-2] + sizes[-1]]
    labels = np.empty(n_users, dtype="<U8")
    labels[order] = np.repeat([f"{g:04d}" for g in range(len(sizes))], sizes)
    return labels


def split_ratings(R: Any, share: float = 0.2, *, seed: int = 0) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Hold out a share of the ratings at random; users and items that have ratings keep at least one.

    Examples
    --------
    >>> train, test = split_ratings(sparse.csr_array(np.ones((5, 6))), 0.2)
    >>> train.nnz, test.nnz
    (24, 6)
    """
    return hold_out(sparse.csr_array(R), share, stream("rating split", seed))


def split_ratings_by_time(R: Any, when: Any, share: float = 0.2) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Hold out the last share of each user's ratings: what came later is what a recommender must foresee.

    Parameters
    ----------
    R : CSR matrix of shape (n, m)
    when : CSR matrix with the same stored cells
        Times; ties are split by item.
    share : float
        Of each user's ratings, rounded down; a user keeps at least one.

    Examples
    --------
    >>> R = sparse.csr_array(np.array([[5.0, 3.0]]))
    >>> train, test = split_ratings_by_time(R, sparse.csr_array(np.array([[9.0, 2.0]])), 0.5)
    >>> train.toarray(), test.toarray()
    (array([[0., 3.]]), array([[5., 0.]]))
    """
    R = sparse.csr_array(R)
    when = sparse.csr_array(when)
    if R.shape != when.shape or not (np.array_equal(R.indptr, when.indptr) and np.array_equal(R.indices, when.indices)):
        raise DataError("The times must be stored in the same cells as the ratings.")
    out = np.zeros(R.nnz, bool)
    for start, stop in zip(R.indptr[:-1], R.indptr[1:], strict=True):
        held = min(int(share * (stop - start)), stop - start - 1)
        if held > 0:
            out[start + np.argsort(when.data[start:stop], kind="stable")[-held:]] = True
    rows = stored_rows(R)
    return tuple(
        sparse.csr_array(sparse.coo_array((R.data[w], (rows[w], R.indices[w])), shape=R.shape)) for w in (~out, out)
    )  # type: ignore[return-value]


def leave_last_out(frame: Any, time: str = "timestamp", last: int = 1) -> tuple[Any, Any]:
    """Split a frame of ratings by time: the last of each user's are for testing.

    Parameters
    ----------
    frame : data frame
        With a column of users and one of times.
    time : str
        The column of times; of equal times the later row counts as later.
    last : int
        Ratings of each user that are held out; users with no more than that keep all.

    Returns
    -------
    train, test : data frames

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"userId": [1, 1, 2], "movieId": [5, 6, 5], "timestamp": [9, 2, 1]})
    >>> leave_last_out(frame)[1]["movieId"].tolist()
    [5]
    """
    user = column_named(frame.columns, "user")
    if user is None or time not in list(frame.columns):
        raise DataError(f"Splitting by time needs a column of users and the column {time!r}.")
    if isinstance(last, bool) or last < 1:
        raise ValueError(f"last={last!r} must be 1 or more.")
    order = np.argsort(np.asarray(frame[time].to_numpy()), kind="stable")
    users, counts = np.unique(np.asarray(frame[user].to_numpy()), return_inverse=True, return_counts=True)[1:]
    seen = np.zeros(len(counts), np.int64)
    later = np.zeros(len(order), bool)
    for place in order[::-1]:
        who = users[place]
        later[place] = seen[who] < last and counts[who] > last
        seen[who] += 1
    return frame[~later], frame[later]
