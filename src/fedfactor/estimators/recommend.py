"""Recommenders with scikit-learn's manners."""

from __future__ import annotations

from typing import Any

from fedfactor import algorithms
from fedfactor.core.run import Run
from fedfactor.estimators._face import face
from fedfactor.estimators._recommender import FederatedRecommender


@face(algorithms.FedSPLIT, n_components=4)
class FedSPLIT(FederatedRecommender):
    """A recommender from one exchange of item factors.

    Examples
    --------
    >>> import pandas as pd
    >>> from fedfactor import FedSPLIT
    >>> likes = {"ann": [5, 4, 1], "bob": [4, 5, 1, 2], "cat": [1, 1, 5, 4], "dan": [1, 2, 4, 5]}
    >>> rows = [(user, item, rating) for user, all_ in likes.items() for item, rating in zip("abcd", all_)]
    >>> ratings = pd.DataFrame(rows, columns=["user", "item", "rating"])
    >>> owner = {"ann": "north", "bob": "north", "cat": "south", "dan": "south"}
    >>> model = FedSPLIT(n_components=1, min_raters=1, random_state=0).fit(ratings, groups=owner)
    >>> items, scores = model.recommend("ann", n=1)
    >>> items[0].tolist(), model.predict("ann", "d").shape
    (['d'], (1,))
    """

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
