"""Incremental fitting: an estimator continues from its last fit, with all rows or with further rows alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self

from sklearn.utils.metaestimators import available_if

from fedfactor.core.algorithm import Algorithm
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import IncompatibleError
from fedfactor.core.pytree import to_numpy
from fedfactor.core.run import Run
from fedfactor.estimators.base import FederatedTransformer
from fedfactor.nmf.pooled.warm_start import Begin, refuse_held, sums_to_hold
from fedfactor.privacy.dp import refuse_start


def _sums_serve(model: Any) -> bool:
    """Return whether an estimator with these settings can take further rows alone; the reason why not is an error."""
    refuse_held(model.to_algorithm(), masked=model.missing_values is not None)
    return getattr(model, "split", "rows") == "rows"


class IncrementalFit(FederatedTransformer):
    """An estimator that can continue from the components of its last fit."""

    warm_start: bool

    @available_if(_sums_serve)
    def partial_fit(self, X: Any, y: Any = None, *, groups: Any = None) -> Self:
        r"""Take in further rows, of known or of new clients, without the earlier ones.

        .. math:: \min_{V \ge 0,\, U_c \ge 0} \tfrac12 \|X_{\text{earlier}} - U_{\text{earlier}} V\|^2
            + \sum_c \tfrac12 \|X_c - U_c V\|^2

        by the rounds of :meth:`fit`, from the present V, where :math:`U_{\text{earlier}}` **stays what it was** when
        those rows took part. Their error then depends on V through :math:`U^\top U` and :math:`U^\top X` alone; the
        server has seen these sums and keeps them. Earlier rows are neither needed nor kept, and none of them is
        forgotten: each counts as much as a further one. The first call is a :meth:`fit`.

        Afterwards ``client_factors_``, ``run_`` and the errors refer to the rows of this call; :meth:`transform` finds
        U of earlier rows under the new V. Sums serve for the squared error on complete rows without penalties, clients'
        own components or noise: elsewhere there is no ``partial_fit``; use ``warm_start=True`` and fit all rows. A
        saved folder holds no sums.

        Parameters
        ----------
        X : as in :meth:`fit`
            Further rows, with the features of the earlier ones and not preprocessed: what was done to those is done.
        y : None
            Ignored.
        groups : array-like of shape (n,), optional
            The client of each row, as in :meth:`fit`.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from fedfactor import PooledNMF
        >>> rng = np.random.default_rng(0)
        >>> X = rng.random((60, 2)) @ rng.random((2, 6))
        >>> model = PooledNMF(n_components=2, random_state=0).fit({"north": X[:20], "south": X[20:40]})
        >>> sorted(model.partial_fit({"west": X[40:]}).client_factors_)
        ['west']
        """
        self._learn(X, groups, further=hasattr(self, "components_"))
        return self

    def _begun(self, algorithm: Algorithm, further: bool) -> Algorithm:
        if not hasattr(self, "components_") or not (further or self.warm_start):
            return algorithm
        refuse_start(self.privacy, "partial_fit" if further else "warm_start=True")
        held = getattr(self, "_held", None)
        if further and held is None:
            raise IncompatibleError(
                "No sums of the earlier rows are at hand: fit keeps them in this process and in no folder, where all "
                "owners have complete rows and no noise protects them. Use warm_start=True and fit earlier and further "
                "rows together."
            )
        return replace(algorithm, begin=Begin(to_numpy(self.components_), held if further else None))  # type: ignore[reportCallIssue]

    def _keep(self, result: Run, federation: Federation) -> None:
        super()._keep(result, federation)
        self._held = None
        method: Any = result.algorithm
        rows = {name: federation.shard(name) for name in federation.names if name in result.factors}
        whole = len(rows) == len(federation.names) and all(shard.mask is None for shard in rows.values())
        try:
            refuse_held(method, masked=not whole or result.owners_only is not None)
        except IncompatibleError:
            return
        before = None if method.begin is None else method.begin.held
        self._held = sums_to_hold(((rows[name], result.factors[name]) for name in rows), before)
