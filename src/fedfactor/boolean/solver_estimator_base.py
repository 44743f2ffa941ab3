"""Base class of the Boolean solvers as estimators: one matrix, no federation."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from fedfactor.boolean.estimator_base import BooleanRows
from fedfactor.boolean.product import boolean_refit, count
from fedfactor.boolean.solvers.registry import RANDOM, factor
from fedfactor.core.algorithm import Domain, Meta
from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.input_validation import check_rank, check_values
from fedfactor.core.pytree import Array
from fedfactor.estimators import inputs as _inputs
from fedfactor.io.preprocessing import binarized
from fedfactor.linalg.products import as_like


class BooleanSolver(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BooleanRows):
    """Base class of the solvers of one matrix.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        V, zeros and ones; rows of zeros were not needed.
    U_ : array of shape (n, n_components)
        The row factor that the solver itself found.
    loss_ : float
        Wrong cells over ones with that U.
    n_components_ : int
        Components that are not empty.
    n_iter_ : int
        Iterations of a relaxed solver; 1 for a greedy one.
    finished_ : bool
        Whether the solver ended before the time limit.
    """

    n_components: int
    time_limit: float | None
    _solver: ClassVar[str]

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find Boolean components.

        Parameters
        ----------
        X : array, sparse matrix or data frame of shape (n, m)
            Zeros and ones, or numbers to be compared with ``binarize``.
        y : None
            Ignored.

        Returns
        -------
        self
        """
        self._solve(X)
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Array:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Fit, and choose U for the components, as :meth:`transform` does.

        Parameters
        ----------
        X, y
            As in :meth:`fit`.

        Returns
        -------
        U : array of shape (n, n_components)
        """
        return boolean_refit(self._solve(X), self.components_)

    def transform(self, X: Any) -> Array:
        """Choose the components whose union comes close to each row.

        Parameters
        ----------
        X : as in :meth:`fit`

        Returns
        -------
        U : array of shape (n, n_components)
            Zeros and ones, of the floating type of X.
        """
        check_is_fitted(self)
        return boolean_refit(self._rows(X, reset=False), self.components_)

    def score(self, X: Any, y: Any = None) -> float:
        """Return minus the loss, wrong cells over ones, of rows under the components.

        Parameters
        ----------
        X : as in :meth:`transform`
        y : None
            Ignored.

        Returns
        -------
        float
        """
        check_is_fitted(self)
        rows = self._rows(X, reset=False)
        return -count(rows, boolean_refit(rows, self.components_), self.components_).loss

    def _rows(self, X: Any, *, reset: bool) -> Array:
        rows = Federation({"all": Shard.of(_inputs.matrix(self, X, reset=reset))})
        shard = binarized(rows, self.binarize).shard("all")
        check_values("all", shard.X, None, Domain.BINARY)
        return shard.X

    def _options(self) -> dict[str, Any]:
        """Return the settings of the solver."""
        own = ("n_components", "binarize", "random_state")
        return {name: value for name, value in self.get_params(deep=False).items() if name not in own}

    def _solve(self, X: Any) -> Array:
        self._check_parameters()
        rows = self._rows(X, reset=True)
        check_rank(self.n_components, Meta(rows.shape[1], ("all",), n_rows=rows.shape[0]))
        seed = _inputs.draw_seed(getattr(self, "random_state", None)) if self._solver in RANDOM else 0
        found = factor(rows, self.n_components, self._solver, rng=np.random.default_rng(seed), **self._options())
        self.components_ = as_like(found.V, rows)
        self.U_ = as_like(found.U, rows)
        # As in score, and as for every other method: with U chosen for V, which may be better than the solver's.
        self.loss_ = count(rows, boolean_refit(rows, self.components_), self.components_).loss
        self.finished_ = found.finished
        self.n_iter_ = found.n_iter
        self.n_components_ = int(found.V.any(axis=1).sum())
        return rows

    @property
    def _n_features_out(self) -> int:
        return self.components_.shape[0]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
