"""A recommender whose totals take further users in, and give users back that leave, in one exchange."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from fedfactor.core.algorithm import Algorithm
from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.errors import DataError, callers_level
from fedfactor.core.run import Run
from fedfactor.estimators.totals import ChangesTotals
from fedfactor.recommend.list_estimator_base import ListRecommender
from fedfactor.recommend.ratings import Ratings
from fedfactor.recommend.user_table import UnknownWarning


def _has_totals(model: Any) -> bool:
    """Return whether an estimator with these settings can take further users alone."""
    return model.low_rank is None


class KeepsUsers(ChangesTotals, ListRecommender):
    """A recommender of lists that depends on users through totals, which it keeps."""

    low_rank: Any

    @available_if(_has_totals)
    def partial_fit(self, ratings: Any, y: Any = None, *, groups: Any = None, consent: bool = False) -> Self:
        """Take in further users, of known or of new clients, in one exchange with their clients alone.

        The weights are those of a fit to all users so far, over the items that had weights. Items that were unknown or
        too rare then have none until the next fit, with a warning: their sums were never sent. The first call is a
        :meth:`fit`. A saved file holds no totals.

        Parameters
        ----------
        ratings : as in :meth:`fit`
            Of users who are not yet in.
        y : None
            Ignored.
        groups : as in :meth:`fit`
        consent : bool, default=False
            Where uploads are protected by secure aggregation: the clients of these users agree that their sums are
            seen, which are the difference of two totals.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from scipy import sparse
        >>> from fedfactor import PooledEASE
        >>> X = sparse.csr_array((np.random.default_rng(0).random((60, 8)) < 0.4) * 1.0)
        >>> model = PooledEASE().fit({"north": X[:30]}).partial_fit({"south": X[30:]})
        >>> bool(np.allclose(model.components_, PooledEASE().fit({"all": X}).components_))
        True
        """
        if not hasattr(self, "components_"):
            return self.fit(ratings, groups=groups)
        found = self._dealt(self._read(ratings, groups), ratings, groups, self.run_.seed)
        for name, users in found.users.items():
            known = set(self.users_.get(name, np.empty(0)).tolist())
            twice = next((user for user in users.tolist() if user in known), None)
            if twice is not None:
                raise DataError(
                    f"User {twice!r} of client {name!r} is in already. Give further users other ids, or call "
                    "remove(users=...) first."
                )
        return self._changed(self._in_known_items(found), 1, consent)

    def remove(self, users: Any = None, *, client: str | None = None, consent: bool = False) -> Self:
        """Take users off who took part, in one exchange with their clients alone.

        The weights are those of a fit to the remaining users: bit-identical where the sums are those of whole numbers
        (``counts="binary"``, ``balance=0``), else up to rounding.

        Parameters
        ----------
        users : sequence of ids, or a single id, optional
            Who leaves; by default all users of ``client``.
        client : str, optional
            The client that leaves; with ``users``, the client of these.
        consent : bool, default=False
            As in :meth:`partial_fit`.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from scipy import sparse
        >>> from fedfactor import PooledEASE
        >>> X = sparse.csr_array((np.random.default_rng(0).random((60, 8)) < 0.4) * 1.0)
        >>> model = PooledEASE(counts="binary", balance=0.0).fit({"north": X[:30], "south": X[30:]})
        >>> fresh = PooledEASE(counts="binary", balance=0.0).fit({"south": X[30:]})
        >>> bool((model.remove(client="north").components_ == fresh.components_).all()), sorted(model.users_)
        (True, ['south'])
        """
        check_is_fitted(self)
        if users is None and client is None:
            raise ValueError("No party is to leave. Give users, or client.")
        if users is None:
            table = self.tables_.of(client)
            places = {str(client): np.arange(len(table.users))}
        else:
            ids = [users] if np.ndim(users) == 0 else list(users)
            sorted_out = self.tables_.by_owner(ids, client)
            places = {
                name: self.tables_[name].rows([ids[each] for each in which]) for name, which in sorted_out.items()
            }
        owners = {name: self.tables_[name].seen[rows] for name, rows in places.items()}
        who = {name: self.users_[name][rows] for name, rows in places.items()}
        if sum(map(len, who.values())) == sum(map(len, self.users_.values())):
            raise DataError("No user would be left. Remove fewer users, or fit other ones.")
        return self._changed(Ratings(owners, who, self.items_), -1, consent)

    def _in_known_items(self, found: Ratings) -> Ratings:
        """Return ratings in the columns of the totals; items without sums there are left out of them."""
        place = {item: column for column, item in enumerate(self.items_.tolist())}
        columns = np.array([place.get(item, -1) for item in found.items.tolist()], np.int64)
        owners: dict[str, sparse.csr_array] = {}
        for name, R in found.owners.items():
            cells = R.tocoo()
            kept = columns[cells.col] >= 0
            where = (cells.row[kept], columns[cells.col[kept]])
            owners[name] = sparse.coo_array((cells.data[kept], where), shape=(R.shape[0], len(self.items_))).tocsr()
        unknown = int((columns < 0).sum())
        if unknown:
            warnings.warn(
                f"{unknown} items were not in fit, and have no weights until the next fit.",
                UnknownWarning,
                stacklevel=callers_level(),
            )
        return Ratings(owners, found.users, self.items_)

    def _changed(self, found: Ratings, sign: int, consent: bool) -> Self:
        self._change = self._asked(sign, consent, "with low_rank=None")
        algorithm, engine, seed = self._settings()
        try:
            result = self._run(self._with_totals(algorithm), self._federation(found), engine, seed)
        finally:
            self._change = None
        everyone = _joined(self._present(), found) if sign > 0 else _without(self._present(), found)
        self._keep(self._placed(result, everyone), everyone)
        return self

    def _present(self) -> Ratings:
        owners = {name: sparse.csr_array(table.seen) for name, table in self.tables_.items()}
        return Ratings(owners, self.users_, self.items_)

    def _placed(self, result: Run, everyone: Ratings) -> Run:
        """Let all users meet the weights of the run."""
        method: Algorithm = result.algorithm
        names = tuple(str(item) for item in everyone.items.tolist())
        shards = {name: Shard(X=R, features=names) for name, R in everyone.owners.items()}
        factors: dict[str, Any] = {name: method.finish(shard, None, result.down) for name, shard in shards.items()}
        scores = {name: method.score(shard, factors[name], result.down) for name, shard in shards.items()}
        return replace(result, factors=factors, scores=scores)

    def _federation(self, found: Any) -> Federation:
        """Leave the mask out: what is not stored was not touched, which is something to go by."""
        return found.federation(masked=False)

    def _keep(self, result: Run, found: Any) -> None:
        super()._keep(result, found)
        self._totals = result.totals


def _joined(present: Ratings, further: Ratings) -> Ratings:
    owners: dict[str, sparse.csr_array] = dict(present.owners)
    users: dict[str, np.ndarray] = dict(present.users)
    for name, R in further.owners.items():
        before = owners.get(name)
        owners[name] = R if before is None else sparse.csr_array(sparse.vstack([before, R]))
        users[name] = further.users[name] if before is None else np.concatenate([users[name], further.users[name]])
    return Ratings(_in_order(owners), users, present.items)


def _without(present: Ratings, leaving: Ratings) -> Ratings:
    owners: dict[str, sparse.csr_array] = dict(present.owners)
    users: dict[str, np.ndarray] = dict(present.users)
    for name, gone in leaving.users.items():
        stay = np.flatnonzero(~np.isin(users[name], gone))
        owners[name] = owners[name][stay]
        users[name] = users[name][stay]
        if not len(stay):
            del owners[name], users[name]
    return Ratings(_in_order(owners), users, present.items)


def _in_order(owners: Mapping[str, sparse.csr_array]) -> dict[str, sparse.csr_array]:
    return dict(sorted(owners.items()))
