"""Users of several clients, each client's in a table of its own: which client holds a user, and which request goes to
which client.
"""

from __future__ import annotations

from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from fedfactor.core.errors import DataError
from fedfactor.recommend.user_table import UserTable, listed, note_unknown, unknown_ids


class OwnerTables(dict[str, UserTable]):
    """Tables by client; fixed once made, since who holds a user is looked up once."""

    def name(self, owner: Any = None) -> str:
        """Return the name of a client, by default of the first; refuse others."""
        name = next(iter(self)) if owner is None else str(owner)
        if name not in self:
            raise ValueError(f"No owner is called {owner!r}; the run knew {', '.join(self)}.")
        return name

    def of(self, owner: Any = None) -> UserTable:
        """Return the table of a client, by default the first."""
        return self[self.name(owner)]

    @cached_property
    def homes(self) -> dict[Any, tuple[str, ...]]:
        """The clients of every user: looking through all clients for each pair would be slow."""
        homes: dict[Any, tuple[str, ...]] = {}
        for name, table in self.items():
            for user in table.users.tolist():
                homes[user] = (*homes.get(user, ()), name)
        return homes

    def by_owner(self, users: list[Any], client: str | None, *, strangers: bool = False) -> dict[str, list[int]]:
        """Sort positions of users by client; strangers go to the client of most users, or are refused."""
        if client is not None:
            self.of(client)
            return {str(client): list(range(len(users)))}
        places: dict[str, list[int]] = {}
        largest = max(self, key=lambda name: len(self[name].users))
        for position, user in enumerate(users):
            homes = self.homes.get(user, (largest,) if strangers else ())
            if len(homes) > 1:
                raise DataError(
                    f"Owners {homes[0]!r} and {homes[1]!r} both have a user {user!r}. Say whose: client=..."
                )
            if not homes:
                some = ", ".join(repr(each) for each in islice(self.homes, 3))
                raise DataError(
                    f"No user {user!r} was in fit, where they are called {some} and so on. In Python, fold_in takes "
                    "the ratings of others."
                )
            places.setdefault(homes[0], []).append(position)
        return places

    def predict(self, users: Any, items: Any, client: str | None) -> np.ndarray:
        """Return the predicted rating of each (user, item) pair; of what was not in fit, as of the average."""
        users = listed(users)
        items = listed(items)
        if len(users) != len(items):
            raise DataError(f"{len(users)} users and {len(items)} items make no pairs. Give one item for each user.")
        out = np.empty(len(users))
        lost = (np.zeros(len(users), np.int64), np.zeros(len(users), np.int64))
        for name, where in self.by_owner(users, client, strangers=True).items():
            rows, columns = self[name].places([users[p] for p in where], [items[p] for p in where])
            lost[0][where] = rows
            lost[1][where] = columns
            out[where] = self[name].at_or_average(rows, columns)
        note_unknown(*unknown_ids(users, items, *lost))
        return out

    def recommend(self, users: Any, n: int, client: str | None, rules: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """Return the n best items of each user, by default of all, and their scores, best first."""
        if users is None:
            tables = self.values() if client is None else [self.of(client)]
            parts = [table.recommend(n=n, **rules) for table in tables]
            return np.concatenate([items for items, _ in parts]), np.concatenate([scores for _, scores in parts])
        users = listed(users)
        items = np.empty((len(users), n), self.of().items.dtype)
        scores = np.empty((len(users), n))
        for name, where in self.by_owner(users, client).items():
            items[where], scores[where] = self[name].recommend([users[p] for p in where], n, **rules)
        return items, scores
