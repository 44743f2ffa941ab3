"""Base classes of estimators whose clients hold columns, and of those whose nodes hold blocks of X."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from fedfactor.core.algorithm import Algorithm, Layout
from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.errors import DataError, IncompatibleError
from fedfactor.core.grid import block_federation, even_nodes, grid_federation, grid_of
from fedfactor.core.pytree import Array, is_mapping
from fedfactor.engines.capabilities import SupportsColumns, for_columns
from fedfactor.engines.columns import columns_as_rows, refuse_noise
from fedfactor.estimators import inputs as _inputs
from fedfactor.estimators.base import FederatedTransformer, copied
from fedfactor.io import groups as owned
from fedfactor.io.partition import row_positions
from fedfactor.io.row_matching import matched_rows
from fedfactor.linalg.products import as_like


class ColumnSplitEstimator(FederatedTransformer):
    """An estimator whose clients hold rows or, with ``split="columns"``, columns of X: the algorithm then sees Xᵀ.

    Attributes
    ----------
    client_factors_ : dict of str to array
        What only that client has: its rows of U, or with ``split="columns"`` its columns of V as rows.
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
            With ``split="columns"`` one array, whose rows are those that all clients have, in the order of the first.
        """
        if self.split != "columns":
            return super().fit_transform(X, y, groups=groups)
        self._learn(X, groups)
        return copied(self._common)

    def _begun(self, algorithm: Algorithm, further: bool) -> Algorithm:
        algorithm = super()._begun(algorithm, further)
        return (
            for_columns(algorithm) if self.split == "columns" and isinstance(algorithm, SupportsColumns) else algorithm
        )

    def _divided(self, X: Any, groups: Any, algorithm: Algorithm, seed: int, further: bool) -> tuple[Any, Federation]:
        if self.split != "columns":
            return super()._divided(X, groups, algorithm, seed, further)
        refuse_noise(self.privacy)
        if owned.is_owned(X):
            return self._of_clients(X, groups)
        X = _inputs.matrix(self, X, reset=True)
        labels = owned.owner_labels(X.shape[1], groups, self.n_clients, seed)
        turned = X.T.tocsr() if hasattr(X, "tocsr") else X.T
        return labels, owned.split(turned, labels, self.missing_values, None)

    def _of_clients(self, X: Any, groups: Any) -> tuple[Any, Federation]:
        """Match the rows of clients that bring their own columns; a column's label is then its client."""
        if groups is not None:
            raise DataError("groups assigns columns of one matrix to clients, but this X names its clients.")
        federation = owned.federation_of(X, self.missing_values) if not is_mapping(X) else None
        names: Sequence[str] = list(X) if federation is None else federation.names
        shards = {
            str(name): Shard.of(X[name], self.missing_values) if federation is None else federation.shard(name)
            for name in names
        }
        rows = matched_rows(shards)
        labels = np.concatenate([np.full(shard.n_features, name, dtype=object) for name, shard in shards.items()])
        columns = [feature for shard in shards.values() for feature in shard.features or ()]
        vars(self).pop("feature_names_in_", None)
        if len(columns) == len(labels) == len(set(columns)):
            self.feature_names_in_ = np.asarray(columns, dtype=object)
        turned = {name: columns_as_rows(shard, rows[name]) for name, shard in shards.items()}
        return labels, Federation(turned)

    def _learn(self, X: Any, groups: Any, *, further: bool = False) -> Any:
        if self.split == "columns" and (further or getattr(self, "warm_start", False)):
            raise IncompatibleError(
                "With split='columns' a further row changes the rows of all clients. Fit all rows together, with "
                "warm_start=False."
            )
        labels = super()._learn(X, groups, further=further)
        if self.split == "columns":
            self._turn(labels)
        return labels

    def _turn(self, labels: Any) -> None:
        """Exchange the roles: the factor of each client is V, and the shared factor is U."""
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
