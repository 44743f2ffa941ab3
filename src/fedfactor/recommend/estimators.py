"""Recommenders with scikit-learn's manners."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedfactor import algorithms
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import DataError
from fedfactor.core.run import Run
from fedfactor.estimators.signatures import face
from fedfactor.privacy.dp import asked_of
from fedfactor.recommend.estimator_base import CatalogueRecommender, FederatedRecommender, ListRecommender
from fedfactor.recommend.user_table import DeepTable


@face(algorithms.FedSPLIT, n_components=4)
class FedSPLIT(FederatedRecommender):
    """A recommender from one exchange of item factors."""

    _how = "n_components=1, min_raters=1, random_state=0"

    def _keep(self, result: Run, found: Any) -> None:
        super()._keep(result, found)
        if self.rounds is None and "moved" not in result.history[-1].metrics:
            self._warn(
                "joined nothing: no owner sent item factors, so all keep models of their own ratings. min_raters (no "
                "owner may have an item of so many raters) and select say who sends"
            )


@face(algorithms.PooledCF, n_components=16)
class PooledCF(FederatedRecommender):
    """The recommender that pooled ratings would give, from sums alone."""


@face(algorithms.PooledCNMF, n_components=6)
class PooledCNMF(FederatedRecommender):
    """Ratings as non-negative parts, as pooled ratings would give them, from sums alone.

    An iteration takes two exchanges (implicit feedback: one). With ``tol=0`` all rounds are used, whether or not more
    would help.
    """


@face(algorithms.FCF, n_components=5)
class FCF(FederatedRecommender):
    """Federated alternating least squares with summed gradients: the iterative baseline, explicit or implicit."""


@face(algorithms.FedMF, n_components=8)
class FedMF(FederatedRecommender):
    """Matrix factorization with biases by federated gradient descent: an iterative baseline."""


@face(algorithms.PooledEASE, without=("scale",))
class PooledEASE(ListRecommender):
    """Lists of items from what pooled users touched together, by one exchange of a Gram matrix.

    Attributes
    ----------
    components_ : array of shape (m, m), or (d, m) for the low-rank form
        Weights: what each item tells about each other.

    Examples
    --------
    >>> import pandas as pd
    >>> from fedfactor import PooledEASE
    >>> likes = {"ann": "ab", "bob": "abc", "cat": "cd", "dan": "acd", "eve": "ab", "fay": "cd", "gus": "a"}
    >>> clicks = pd.DataFrame([(user, item) for user, all_ in likes.items() for item in all_], columns=["user", "item"])
    >>> owner = {user: "north" if user < "d" else "south" for user in likes}
    >>> model = PooledEASE(ridge=1.0, random_state=0).fit(clicks, groups=owner)
    >>> model.recommend("gus", n=1)[0].tolist()
    [['b']]
    """

    low_rank: int | str | None

    def _federation(self, found: Any) -> Federation:
        """Leave the mask out: what is not stored was not touched, which is something to go by."""
        return found.federation(masked=False)

    def _exchanges(self) -> int | None:
        """Return how many exchanges a private run pays for: those that take place."""
        if self.rounds is not None or asked_of(self.privacy) is None:
            return self.rounds
        return 1 if self.low_rank is None else 2


class Baseline(FederatedRecommender):
    """A model without factors: what it says of an item is one number."""

    def similar_items(self, items: Any, n: int = 10, *, client: str | None = None) -> tuple[np.ndarray, np.ndarray]:
        """Refuse: one number for each item does not tell which items are alike."""
        raise DataError(f"{type(self).__name__} knows no similar items. Use PooledEASE or PooledCF for them.")


@face(algorithms.Biases)
class Biases(Baseline):
    """Ratings from a mean and levels of users and items: the baseline of rating models, from sums alone."""

    _how = "random_state=0"


@face(algorithms.Popularity, without=("scale",))
class Popularity(Baseline, ListRecommender):
    """The most popular items for everybody, less what each user has seen: the baseline of lists, from sums alone.

    Examples
    --------
    >>> import pandas as pd
    >>> from fedfactor import Popularity
    >>> clicks = pd.DataFrame([("ann", "a"), ("bob", "a"), ("bob", "b"), ("cat", "c"), ("dan", "b")],
    ...                       columns=["user", "item"])
    >>> model = Popularity(random_state=0).fit(clicks, groups={"ann": 0, "bob": 0, "cat": 1, "dan": 1})
    >>> model.recommend(["ann", "cat"], n=1)[0].tolist()
    [['b'], ['a']]
    """


@face(algorithms.PooledRidge, without=("scale",))
class PooledRidge(CatalogueRecommender):
    """Items that only others hold: ridge regression on directions of the items that all owners hold.

    It takes what :class:`fedfactor.FedDMF` takes.

    Attributes
    ----------
    client_factors_ : dict of str to array of shape (n_c, d)
        Users along the directions.
    """

    _how = "2, random_state=0"

    def _guess(self, true: np.ndarray, found: np.ndarray) -> np.ndarray:
        if not true.any():
            raise DataError("No pair has an interaction, so there is nothing to find.")
        return found >= np.quantile(found, 1 - true.mean())


@face(algorithms.FedDMF, without=("scale",))
class FedDMF(CatalogueRecommender):
    """Deep matrix factorization over owners with partly overlapping catalogues, who match no users.

    Attributes
    ----------
    client_factors_ : dict of str to array of shape (n_c, d)
        User vectors of each owner: features of its users, for predicting their attributes at home.
    """

    _how = "4, hidden=8, epochs=2, refine=1, random_state=0"

    def _table(self, kept: Any, seen: Any, users: Any) -> DeepTable:
        return DeepTable(kept, kept.U, seen, users, self.items_)
