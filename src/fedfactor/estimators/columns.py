"""Base classes of estimators whose clients hold columns, and of those whose nodes hold blocks of X."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from fedfactor.core.algorithm import Algorithm, Layout
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import DataError
from fedfactor.core.grid import block_federation, even_nodes, grid_federation, grid_of
from fedfactor.core.pytree import Array
from fedfactor.estimators import inputs as _inputs
from fedfactor.estimators.base import FederatedTransformer, copied
from fedfactor.io import groups as owned
from fedfactor.io.partition import row_positions
from fedfactor.linalg.products import as_like


class ColumnSplitEstimator(FederatedTransformer):
    """An estimator whose owners hold rows or, with ``split="columns"``, columns of X: the algorithm then sees Xᵀ.

    Attributes
    ----------
    client_factors_ : dict of str to array
        What only that owner has: its rows of U, or with ``split="columns"`` its columns of V as rows.
    """

    split: Literal["rows", "columns"]

    def fit_transform(self, X: Any, y: Any = None, *, groups: Any = None) -> Any:
        """Fit, and return U: rows in the order of X, or a dict from client to U when X names its clients.

        Parameters
        ----------
        X, y, groups
            As in :meth:`fit`.

        Returns
        -------
        U : array of shape (n, n_components), or dict of such
        """
        if self.split != "columns":
            return super().fit_transform(X, y, groups=groups)
        self._learn(X, groups)
        return copied(self._common)

    def _divided(self, X: Any, groups: Any, algorithm: Algorithm, seed: int, further: bool) -> tuple[Any, Federation]:
        if self.split != "columns":
            return super()._divided(X, groups, algorithm, seed, further)
        if owned.is_owned(X):
            raise DataError("split='columns' cuts one matrix into columns, but this X comes with its owners of rows.")
        X = _inputs.matrix(self, X, reset=True)
        labels = owned.owner_labels(X.shape[1], groups, self.n_clients, seed)
        turned = X.T.tocsr() if hasattr(X, "tocsr") else X.T
        return labels, owned.split(turned, labels, self.missing_values, None)

    def _learn(self, X: Any, groups: Any, *, further: bool = False) -> Any:
        labels = super()._learn(X, groups, further=further)
        if self.split == "columns":
            self._turn(labels)
        return labels

    def _turn(self, labels: Any) -> None:
        """Exchange the roles: what the owners have is V, what they share is U."""
        shared = self.run_.V
        factors = self.run_.factors
        self._common: Array = shared.T
        n_features = sum(len(kept.U) for kept in factors.values())
        positions = {"0": np.arange(n_features)} if labels is None else row_positions(labels)
        V = as_like(np.zeros((self.n_components_, n_features)), shared)
        for name, columns in positions.items():
            V[:, columns] = factors[name].U.T
        self.components_ = V
        self.n_features_in_ = n_features


class GridEstimator(FederatedTransformer):
    """An estimator that cuts X into blocks for the nodes of one cluster.

    Attributes
    ----------
    client_factors_ : dict of str to array
        Rows of U of each node.
    """

    def fit_transform(self, X: Any, y: Any = None, *, groups: Any = None) -> Any:
        """Fit, and return U as :meth:`transform` computes it; ``client_factors_`` holds U as of the last sketch.

        Parameters
        ----------
        X, y, groups
            As in :meth:`fit`.

        Returns
        -------
        U : array of shape (n, n_components)
        """
        return self.fit(X, y, groups=groups).transform(X)

    def _divided(self, X: Any, groups: Any, algorithm: Algorithm, seed: int, further: bool) -> tuple[Any, Federation]:
        if owned.is_owned(X) and not isinstance(X, Federation):
            raise DataError(
                "This method cuts one matrix among nodes, but this X comes with its owners. Stack the rows."
            )
        if groups is not None:
            raise DataError("This method cuts rows and columns among nodes by itself: leave groups out.")
        if isinstance(X, Federation):
            return None, X
        X = _inputs.matrix(self, X, reset=True)
        if self.missing_values is not None:
            raise DataError("Blocks of a grid have no missing cells: missing_values must be None.")
        if algorithm.layout == Layout.BLOCKS:
            return None, block_federation(X, grid_of(self.n_clients, X.shape))
        return None, grid_federation(X, even_nodes(X.shape[0], min(self.n_clients, *X.shape)))
