"""Base classes of the Boolean estimators: thresholds, Boolean products and metrics."""

from __future__ import annotations

import warnings
from typing import Any, ClassVar, Self

from sklearn.utils.validation import check_is_fitted

from fedfactor.boolean.metrics import BooleanMetrics, boolean_metrics, poor_fit
from fedfactor.boolean.product import boolean_product
from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.errors import PoorFitWarning, callers_level
from fedfactor.core.input_validation import is_sparse
from fedfactor.core.pytree import Array, is_mapping
from fedfactor.core.run import Run
from fedfactor.estimators.base import FederatedTransformer, with_components
from fedfactor.estimators.estimator import Estimator
from fedfactor.io.preprocessing import binarized


class BooleanRows(Estimator):
    """Base class of the estimators of binary data."""

    binarize: float | None

    def inverse_transform(self, U: Any) -> Array:
        """Return the Boolean product ``U ∘ V``: the rows as approximated by the factors.

        Parameters
        ----------
        U : array of shape (n, n_components)
            Zeros and ones.

        Returns
        -------
        X : array of shape (n, n_features)
            Zeros and ones.
        """
        U, V = with_components(self, U)
        return boolean_product(U.toarray() if is_sparse(U) else U, V)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self.binarize is None
        return tags


class BooleanTransformer(BooleanRows, FederatedTransformer):
    """An estimator whose rows and factors are zeros and ones.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        V, zeros and ones, shared by all clients.
    client_factors_ : dict of str to array of shape (n_c, n_components)
        U of each client, zeros and ones. Only a simulation has them all.
    loss_ : float
        Wrong cells over ones, of all clients together.
    metrics_ : BooleanMetrics
        Loss, recall, precision and similarity, by client, on average and pooled; of the clients in ``client_factors_``.
    reconstruction_err_, relative_error_ : float
        Square root of the wrong cells, and of the loss.
    """

    # Factors are rounded in any case: a run that ends with its last round has not failed.
    _warns_at_last_round: ClassVar[bool] = False

    def score(self, X: Any, y: Any = None) -> float:
        """Return minus the loss of rows under the components, ``−|X ⊕ U∘V| / |X|``: higher is better.

        Parameters
        ----------
        X : as in :meth:`transform`
        y : None
            Ignored.

        Returns
        -------
        float
        """
        return -self.measure(X).pooled.loss

    def measure(self, X: Any, *, floor: float | None = None) -> BooleanMetrics:
        """Choose U for rows and count how well the Boolean product meets them.

        Parameters
        ----------
        X : as in :meth:`transform`
        floor : float, optional
            The loss of the factors that the data were made from, where they are known.

        Returns
        -------
        BooleanMetrics
            Of one client named ``"new rows"``, or of each.
        """
        check_is_fitted(self)
        factors = self._factors(None)

        def rows(shard: Shard) -> tuple[Array, Array, Any]:
            return shard.X, self.run_.algorithm.fold_in(shard.X, factors, shard.mask), shard.mask

        found = self._each(X, rows)
        found = found if is_mapping(found) else {"new rows": found}
        rows_, U, masks = ({name: three[place] for name, three in found.items()} for place in range(3))
        return boolean_metrics(rows_, U, factors.V, floor=floor, masks=masks)

    def _encode(self, federation: Federation) -> Federation:
        return binarized(federation, self.binarize)

    def _keep(self, result: Run, federation: Federation) -> None:
        super()._keep(result, federation)
        if result.owners_only is not None:  # exact counts are not covered by the promise of a private run
            for name in ("metrics_", "loss_"):
                vars(self).pop(name, None)
            return
        # On an engine of many processes each holds only its own clients' factors, and measures those; scores are of
        # all.
        names = [name for name in federation.names if name in self.client_factors_]
        rows = {name: federation.shard(name).X for name in names}
        masks = {name: federation.shard(name).mask for name in names}
        self.metrics_ = boolean_metrics(rows, self.client_factors_, result.V, masks=masks)
        self.loss_ = float(result.score.sse) / max(1.0, float(result.score.total))
        if getattr(result.algorithm, "refit", "boolean") == "none":
            # The loss is that of score for every method; what the rounded U of the run gives is in metrics_.
            self.loss_ = self.measure({name: federation.shard(name) for name in names}).pooled.loss
        said = poor_fit(self.loss_, self.components_, rows, masks)
        if said:
            warnings.warn(
                f"{type(self).__name__} {said}. Take PooledBMF with its defaults, more starts (n_init), or another "
                "number of components.",
                PoorFitWarning,
                stacklevel=callers_level(),
            )


class AsPrinted(BooleanTransformer):
    """An estimator with a constructor for the method as printed in its paper."""

    _printed: ClassVar[dict[str, Any]]

    @classmethod
    def paper(cls, n_components: int = 2, **changes: Any) -> Self:
        """Return the method as printed in the paper, for comparisons.

        Parameters
        ----------
        n_components : int
            Number of components k.
        **changes
            Further parameters.

        Returns
        -------
        estimator
            Not fitted.
        """
        return cls(n_components, **{**cls._printed, **changes})
