"""Estimators whose totals take further rows in, and give rows back that leave, in one exchange."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from fedfactor.core.algorithm import Algorithm
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import DataError
from fedfactor.core.run import Run
from fedfactor.decomposition.second_moments import diagonal
from fedfactor.estimators.base import FederatedTransformer
from fedfactor.estimators.totals import ChangesTotals

ROUNDING = 1e-9
"""How far below zero rounding can leave a sum of squares from which others were taken off, relative to the former."""


def _has_totals(model: Any) -> bool:
    """Return whether an estimator with these settings can take further rows alone."""
    return model.solver != "subspace" and getattr(model, "split", "rows") == "rows"


class KeepsTotals(ChangesTotals, FederatedTransformer):
    """An estimator that depends on the rows through totals, which it keeps."""

    @available_if(_has_totals)
    def partial_fit(self, X: Any, y: Any = None, *, groups: Any = None, consent: bool = False) -> Self:
        """Take in further rows, of known or of new clients, in one exchange with their clients alone.

        The result is that of a fit to all rows so far. Afterwards ``client_factors_``, ``run_`` and the errors refer
        to the rows of this call; :meth:`transform` places the others. The first call is a :meth:`fit`. A saved folder
        holds no totals.

        Parameters
        ----------
        X : as in :meth:`fit`
            Further rows, with the features of the earlier ones.
        y : None
            Ignored.
        groups : array-like of shape (n,), optional
            The client of each row, as in :meth:`fit`.
        consent : bool, default=False
            Where uploads are protected by secure aggregation: the clients of these rows agree that their sums are seen,
            which are the difference of two totals.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from fedfactor import PooledPCA
        >>> X = np.random.default_rng(0).integers(0, 9, (40, 5)).astype(float)
        >>> model = PooledPCA(2).fit({"north": X[:20], "south": X[20:30]}).partial_fit({"west": X[30:]})
        >>> bool((model.components_ == PooledPCA(2).fit({"all": X}).components_).all())
        True
        """
        if not hasattr(self, "components_"):
            self._learn(X, groups)
            return self
        return self._changed(X, groups, 1, consent)

    def remove(self, X: Any, *, groups: Any = None, consent: bool = False) -> Self:
        """Take rows off that took part, in one exchange with their clients alone.

        The result is that of a fit to the remaining rows: bit-identical where the sums are those of whole numbers, else
        up to rounding. ``client_factors_`` is empty afterwards; :meth:`transform` places the remaining rows. Rows that
        did not take part cannot be recognized, unless they would leave totals that no rows have.

        Parameters
        ----------
        X : as in :meth:`fit`
            The rows that leave, of one client or of several.
        groups : array-like of shape (n,), optional
            The client of each row, as in :meth:`fit`.
        consent : bool, default=False
            As in :meth:`partial_fit`.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from fedfactor import PooledPCA
        >>> X = np.random.default_rng(0).integers(0, 9, (40, 5)).astype(float)
        >>> model = PooledPCA(2).fit({"north": X[:20], "south": X[20:]}).remove({"north": X[:20]})
        >>> bool((model.components_ == PooledPCA(2).fit({"south": X[20:]}).components_).all()), model.n_samples_
        (True, 20)
        """
        check_is_fitted(self)
        return self._changed(X, groups, -1, consent)

    def _changed(self, X: Any, groups: Any, sign: int, consent: bool) -> Self:
        self._change = self._asked(sign, consent, "with solver='gram'")
        try:
            self._learn(X, groups, further=True)
        finally:
            self._change = None
        return self

    def _begun(self, algorithm: Algorithm, further: bool) -> Algorithm:
        return self._with_totals(algorithm)

    def _keep(self, result: Run, federation: Federation) -> None:
        change = self._change
        if change is not None and change.sign < 0:
            _check_left(change.held, result.totals)
        super()._keep(result, federation)
        self._totals = result.totals
        if change is not None and change.sign < 0:
            self.client_factors_ = {}
            for name in ("reconstruction_err_", "relative_error_"):
                vars(self).pop(name, None)


def _check_left(before: Any, after: Any) -> None:
    """Refuse totals that no rows can have."""
    if float(after.rows) < 1:
        raise DataError("No row would be left. Remove fewer rows, or fit other ones.")
    squares = diagonal(after.half)
    were = diagonal(before.half)
    if bool((squares < -ROUNDING * np.maximum(were, 0)).any()):
        raise DataError(
            "The sums of squares of the remaining rows would be negative, so not all of these rows took part. Give the "
            "rows as they were when they took part."
        )
