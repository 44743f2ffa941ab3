"""Who touched what: users × items of clients whose catalogues overlap in part, brought to one list of item ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from fedfactor.core.client_data import Federation
from fedfactor.core.client_items import ItemShard
from fedfactor.core.errors import DataError
from fedfactor.core.pytree import is_mapping
from fedfactor.recommend.ratings import Ratings, ratings_of

__all__ = ["Interactions", "ItemTable", "interactions_of"]


@dataclass(frozen=True, slots=True, eq=False)
class ItemTable:
    """The interactions of one client with ids of its own.

    Attributes
    ----------
    X : array or sparse matrix of shape (n, p)
        What is not zero is an interaction.
    users : sequence of length n
        User ids. They are never compared with those of other clients.
    items : sequence of length p
        Item ids: the client's catalogue. Equal ids mean the same item at all clients.
    withheld : collection of ids
        Items of which no vector may leave the client.

    Examples
    --------
    >>> table = ItemTable([[1, 0], [1, 1]], users=["ann", "bob"], items=["tea", "jam"], withheld=["jam"])
    >>> interactions_of({"shop": table}).items.tolist()
    ['jam', 'tea']
    """

    X: Any
    users: Any
    items: Any
    withheld: Iterable[Any] = ()


@dataclass(frozen=True, slots=True, eq=False)
class Interactions:
    """Interactions of all clients over the union of their catalogues.

    Attributes
    ----------
    owners : dict of str to csr_array of shape (n_c, m)
        Ones where there was an interaction.
    users : dict of str to ndarray of shape (n_c,)
        User ids.
    items : ndarray of shape (m,)
        Item ids of all clients together, sorted.
    held : dict of str to int array
        Columns that each client holds.
    withheld : dict of str to int array
        Columns of which nothing may leave the client.
    """

    owners: Mapping[str, sparse.csr_array]
    users: Mapping[str, np.ndarray]
    items: np.ndarray
    held: Mapping[str, np.ndarray]
    withheld: Mapping[str, np.ndarray] = field(default_factory=dict[str, np.ndarray])

    @property
    def common(self) -> np.ndarray:
        """Columns that two clients or more hold and share."""
        count = np.zeros(len(self.items), np.int64)
        for name, columns in self.held.items():
            count[np.setdiff1d(columns, self.withheld.get(name, []))] += 1
        return np.flatnonzero(count > 1)

    def dealt(self, n_clients: int, seed: int) -> Interactions:
        """Deal the users of the one client at random to several, who all hold its items."""
        found = Ratings(self.owners, self.users, self.items).dealt(n_clients, seed)
        held, hidden = ({k: part["0"] for k in found.owners if "0" in part} for part in (self.held, self.withheld))
        return Interactions(found.owners, found.users, self.items, held, hidden)

    def federation(self) -> Federation:
        """Return what an engine takes; columns are named by item so that clients cannot mix them up."""
        names = tuple(str(item) for item in self.items.tolist())
        names = names if len(set(names)) == len(names) else None
        shards = {
            owner: ItemShard(X=X, features=names, held=self.held[owner], withheld=self.withheld.get(owner))
            for owner, X in self.owners.items()
        }
        return Federation(shards)


def interactions_of(
    data: Any,
    groups: Any = None,
    *,
    catalogues: Mapping[str, Any] | None = None,
    withheld: Mapping[str, Any] | None = None,
) -> Interactions:
    """Bring interactions of many clients to one list of items.

    Parameters
    ----------
    data : mapping of client to ItemTable, Interactions, or anything that :func:`ratings_of` takes
        Of ratings it matters only that they are there.
    groups : str, mapping, sequence or None
        Who owns which user, as in :func:`ratings_of`.
    catalogues : mapping of client to item ids, optional
        What each client holds. By default the items that its users touched (those of its table, for an ItemTable): a
        zero in the column of an item that a client does not hold has no meaning.
    withheld : mapping of client to item ids, optional
        Items of which no vector may leave the client.

    Returns
    -------
    Interactions

    Examples
    --------
    >>> north = ItemTable(np.eye(2), users=[1, 2], items=["a", "b"])
    >>> south = ItemTable(np.eye(2), users=[1, 2], items=["b", "c"])
    >>> found = interactions_of({"north": north, "south": south})
    >>> found.items.tolist(), found.common.tolist(), found.held["south"].tolist()
    (['a', 'b', 'c'], [1], [1, 2])
    """
    if isinstance(data, Interactions):
        if groups is not None or catalogues is not None or withheld is not None:
            raise DataError("These interactions come with owners, catalogues and secrets. Leave the arguments out.")
        return data
    if is_mapping(data) and data and all(isinstance(part, ItemTable) for part in data.values()):
        if groups is not None or catalogues is not None:
            raise DataError("Item tables come with owners and catalogues. Leave groups and catalogues out.")
        return _of_tables({str(name): table for name, table in data.items()}, withheld or {})
    found = ratings_of(data, groups, need_rating=False)
    if found.n_ratings == 0:
        raise DataError("There are no interactions at all.")
    return _of_ratings(found, catalogues, withheld or {})


def _of_tables(tables: Mapping[str, ItemTable], withheld: Mapping[str, Any]) -> Interactions:
    ids = {name: _ids(table.items, f"items of owner {name!r}") for name, table in tables.items()}
    items = np.unique(np.concatenate(list(ids.values())))
    _check_owners(withheld, tables)
    withheld = {str(name): hidden for name, hidden in withheld.items()}
    owners: dict[str, sparse.csr_array] = {}
    users: dict[str, np.ndarray] = {}
    held: dict[str, np.ndarray] = {}
    secret: dict[str, np.ndarray] = {}
    for name in sorted(tables):
        X = sparse.coo_array(tables[name].X)
        users[name] = _ids(tables[name].users, f"users of owner {name!r}")
        if X.shape != (len(users[name]), len(ids[name])):
            raise DataError(
                f"Owner {name!r} has {X.shape[0]} rows and {X.shape[1]} columns for {len(users[name])} users and "
                f"{len(ids[name])} items. Give one id for each."
            )
        columns = np.searchsorted(items, ids[name])
        there = X.data != 0
        shape = (X.shape[0], len(items))
        cells = (X.coords[0][there], columns[X.coords[1][there]])
        owners[name] = _ones(sparse.coo_array((np.ones(there.sum(), np.float32), cells), shape=shape))
        held[name] = np.sort(columns)
        hidden = [*tables[name].withheld, *withheld.get(name, ())]
        secret[name] = _columns(hidden, items, f"items withheld by {name!r}")
    return Interactions(owners, users, items, held, secret)


def _of_ratings(found: Ratings, catalogues: Mapping[str, Any] | None, withheld: Mapping[str, Any]) -> Interactions:
    _check_owners({**(catalogues or {}), **withheld}, found.owners)
    owners = {name: _ones(R) for name, R in sorted(found.owners.items())}
    items = found.items
    held: dict[str, np.ndarray] = {}
    listed: dict[str, np.ndarray] = {}
    if catalogues is not None:
        listed = {str(name): _ids(ids, f"catalogue of {name!r}") for name, ids in catalogues.items()}
        items = np.unique(np.concatenate([items, *listed.values()]))
        place = np.searchsorted(items, found.items)
        owners = {name: _widen(X, place, len(items)) for name, X in owners.items()}
    for name, X in owners.items():
        touched = np.unique(X.indices)
        held[name] = touched
        if name in listed:
            held[name] = np.searchsorted(items, np.sort(listed[name]))
            strange = np.setdiff1d(touched, held[name])
            if len(strange):
                raise DataError(f"Users of {name!r} touched {items[strange[0]]!r}, which its catalogue does not list.")
    secret = {str(name): _columns(ids, items, f"items withheld by {name!r}") for name, ids in withheld.items()}
    return Interactions(owners, found.users, items, held, secret)


def _check_owners(named: Mapping[Any, Any], owners: Mapping[str, Any]) -> None:
    """Refuse names that are no client's: what a misspelt one withholds would be sent."""
    unknown = sorted(set(map(str, named)) - set(owners))
    if unknown:
        raise DataError(f"No owner is called {unknown[0]!r}; the owners are {', '.join(owners)}.")


def _ones(R: Any) -> sparse.csr_array:
    X = sparse.csr_array(R)
    X.sum_duplicates()
    return sparse.csr_array((np.ones(X.nnz, np.float32), X.indices, X.indptr), shape=X.shape)


def _widen(X: sparse.csr_array, place: np.ndarray, width: int) -> sparse.csr_array:
    return sparse.csr_array((X.data, place[X.indices], X.indptr), shape=(X.shape[0], width))


def _ids(values: Any, what: str) -> np.ndarray:
    found = np.asarray(list(values) if not hasattr(values, "dtype") else values)
    if found.ndim != 1 or len(np.unique(found)) < len(found):
        raise DataError(f"The {what} must be a list of ids, each of them once.")
    return found


def _columns(ids: Any, items: np.ndarray, what: str) -> np.ndarray:
    known = {item: column for column, item in enumerate(items.tolist())}
    lost = [each for each in ids if each not in known]
    if lost:
        raise DataError(f"Among the {what} is {lost[0]!r}, which no client holds.")
    return np.array(sorted(known[each] for each in ids), dtype=np.int64)
