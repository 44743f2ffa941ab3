"""What the faces of Boolean factorizations share: thresholds, restarts, Boolean products and metrics."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from numbers import Real
from typing import Any, ClassVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fedfactor.core.checks import as_matrix, check_values, is_sparse
from fedfactor.core.errors import DataError, PoorFitWarning, callers_level
from fedfactor.core.federation import Federation, Shard
from fedfactor.core.run import Run
from fedfactor.core.tree import Array
from fedfactor.estimators._base import FederatedTransformer
from fedfactor.estimators._face import BooleanRows, Restarts
from fedfactor.kernels.boolean.home import column_counts
from fedfactor.kernels.boolean.product import boolean_product
from fedfactor.kernels.products import as_like
from fedfactor.metrics.boolean import BooleanMetrics, boolean_metrics


class BooleanTransformer(BooleanRows, Restarts, FederatedTransformer):
    """An estimator whose rows and factors are zeros and ones.

    Attributes
    ----------
    components_ : array of shape (n_components, n_features)
        V, zeros and ones, shared by all owners.
    client_factors_ : dict of str to array of shape (n_c, n_components)
        U of each owner, zeros and ones. Only a simulation has them all.
    loss_ : float
        Wrong cells over ones, of all owners together.
    metrics_ : BooleanMetrics
        Loss, recall, precision and similarity, by owner, on average and pooled; of the owners in ``client_factors_``.
    reconstruction_err_, relative_error_ : float
        Square root of the wrong cells, and of the loss.
    """

    _example: ClassVar[str] = """
        >>> import numpy as np
        >>> from fedfactor import {name}
        >>> X = np.kron(np.eye(2), np.ones((10, 4)))
        >>> model = {name}(n_components=2, n_clients=2, random_state=0).fit(X)
        >>> model.loss_, bool((model.inverse_transform(model.transform(X)) == X).all())
        (0.0, True)
        """
    # Factors are rounded in any case: a run that ends with its last round has not failed.
    _warns_at_last_round: ClassVar[bool] = False

    def inverse_transform(self, U: Any) -> Array:
        """Return the Boolean product ``U ∘ V``: what the factors say the rows were.

        Parameters
        ----------
        U : array of shape (n, n_components)
            Zeros and ones.

        Returns
        -------
        X : array of shape (n, n_features)
            Zeros and ones.
        """
        return boolean_product(*boolean_rows(self, U))

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
            Of one owner named ``"new rows"``, or of each.
        """
        check_is_fitted(self)
        factors = self._factors(None)

        def rows(shard: Shard) -> tuple[Array, Array, Any]:
            return shard.X, self.run_.algorithm.fold_in(shard.X, factors, shard.mask), shard.mask

        found = self._each(X, rows)
        found = found if isinstance(found, dict) else {"new rows": found}
        rows_, U, masks = ({name: three[place] for name, three in found.items()} for place in range(3))
        return boolean_metrics(rows_, U, factors.V, floor=floor, masks=masks)

    def _encode(self, federation: Federation) -> Federation:
        return binarized(federation, self.binarize)

    def _keep(self, result: Run, federation: Federation) -> None:
        super()._keep(result, federation)
        if result.owners_only is not None:  # exact counts are not covered by the promise of a private run
            for name in ("metrics_", "loss_"):
                self.__dict__.pop(name, None)
            return
        # On an engine of many processes each holds only its own owners' factors, and measures those; scores are of all.
        names = [name for name in federation.names if name in self.client_factors_]
        rows = {name: federation.shard(name).X for name in names}
        masks = {name: federation.shard(name).mask for name in names}
        self.metrics_ = boolean_metrics(rows, self.client_factors_, result.V, masks=masks)
        self.loss_ = float(result.score.sse) / max(1.0, float(result.score.total))
        if getattr(result.algorithm, "refit", "boolean") == "none":
            # The loss is that of score for every method; what the rounded U of the run gives is in metrics_.
            self.loss_ = self.measure({name: federation.shard(name) for name in names}).pooled.loss
        self._tell_poor_fit(rows, masks)

    def _tell_poor_fit(self, rows: dict[str, Array], masks: dict[str, Any]) -> None:
        """Warn when nothing, the most frequent columns or one row for all would fit as well; all from column counts."""
        counts = zip(*(column_counts(rows[name], masks[name]) for name in rows), strict=True)
        ones, seen = (np.sum(parts, axis=0) for parts in counts)
        total = int(ones.sum())
        if not total:
            return
        k = self.n_components_
        simple = {
            "no components at all": total,
            f"the {k} most frequent columns, one for each component,": total - int(np.sort(ones)[::-1][:k].sum()),
            "one and the same row for all": int(np.minimum(ones, seen - ones).sum()),
        }
        name = min(simple, key=lambda each: simple[each])
        best, empty = simple[name] / total, not bool((self.components_ > 0.5).any())
        if self.loss_ > best + 1e-9 or empty:
            found = "found no components: V is empty" if empty else f"has loss {self.loss_:.3f}"
            warnings.warn(
                f"{type(self).__name__} {found}, where {name} would have {best:.3f}. Take PooledBMF with its defaults, "
                "more starts (n_init), or another number of components.",
                PoorFitWarning,
                stacklevel=callers_level(),
            )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = self.binarize is None
        return tags


def binarized(federation: Federation, threshold: float | None) -> Federation:
    """Replace every owner's rows by ``X > threshold``, after the checks that it would hide; None: as they are."""
    if threshold is None:
        return federation
    if isinstance(threshold, bool) or not isinstance(threshold, Real) or not math.isfinite(threshold):
        raise ValueError(f"binarize={threshold!r} must be a number, or None when the rows are zeros and ones already.")
    shards = {name: federation.shard(name) for name in federation.names}
    for name, shard in shards.items():
        check_values(name, shard.X, shard.mask, "real")
    made = {name: replace(shard, X=above(shard.X, float(threshold))) for name, shard in shards.items()}
    return Federation(made, missing_values=federation.missing_values)


def above(X: Array, threshold: float) -> Array:
    """Return ``X > threshold`` as zeros and ones of the type of X; sparse rows stay sparse."""
    if not is_sparse(X):
        return as_like(X > threshold, X)
    if threshold < 0:
        raise DataError(
            f"binarize={threshold:g} would turn every unstored cell of a sparse matrix into a one. Use a threshold "
            "of at least 0, or pass a dense matrix."
        )
    X = X.copy()
    X.data = (X.data > threshold).astype(X.dtype)
    X.eliminate_zeros()
    return X


def boolean_rows(face: Any, U: Any) -> tuple[Array, Array]:
    """Return U as a dense matrix, and the components in its library and type."""
    check_is_fitted(face)
    U, _ = as_matrix(U)
    U = U.toarray() if is_sparse(U) else U
    k = face.components_.shape[0]
    if U.shape[1] != k:
        raise DataError(f"U has {U.shape[1]} columns, but there are {k} components. Pass what transform returns.")
    return U, as_like(face.components_, U)
