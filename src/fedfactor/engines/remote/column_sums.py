"""Column sums that all owners' preprocessing depends on, added up before round 0."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fedfactor.core.checks import is_sparse
from fedfactor.core.protocol import Meta, Uplink
from fedfactor.core.tree import Array, public, record
from fedfactor.core.wire import Leaf, Spec


@record
class ColumnSums:
    """Up, and down again as the sum of all: rows, non-zero cells per column, squared cells per column."""

    uplink: ClassVar[Uplink] = "sum"

    support: Array
    squares: Array
    n: Array = public()

    def weights(self, kind: str) -> np.ndarray:
        """Turn the sums into one factor per column: ``tf-idf`` (smooth idf) or ``scale`` (1 / root mean square)."""
        n = float(self.n)
        if kind == "tf-idf":
            return np.log((1 + n) / (1 + self.support)) + 1
        mean = np.sqrt(self.squares / n)
        return np.divide(1.0, mean, out=np.ones_like(mean), where=mean > 0)


@record
class Ask:
    """Down: asks for the column sums; says nothing."""

    nothing: Array = public()


def survey_messages(meta: Meta) -> dict[type, Spec]:
    """List what may travel in a survey."""
    column = Leaf("float64", (meta.n_features,))
    return {
        Ask: {"nothing": Leaf("float64", ())},
        ColumnSums: {"n": Leaf("float64", ()), "support": column, "squares": column},
    }


def column_sums(X: Any) -> ColumnSums:
    """Add up one owner's columns.

    Examples
    --------
    >>> sums = column_sums(np.array([[1.0, 0.0], [2.0, 0.0]]))
    >>> float(sums.n), sums.support.tolist(), sums.squares.tolist()
    (2.0, [2.0, 0.0], [5.0, 0.0])
    """
    if is_sparse(X):
        squares = np.bincount(X.indices, np.square(X.data, dtype=np.float64), X.shape[1])
        support = np.bincount(X.indices, X.data != 0, X.shape[1])
    else:
        squares, support = np.square(X, dtype=np.float64).sum(0), (X != 0).sum(0)
    return ColumnSums(np.asarray(support, np.float64), np.asarray(squares, np.float64), np.float64(X.shape[0]))


def weighted(X: Any, weights: np.ndarray) -> Any:
    """Multiply every column by its weight."""
    if is_sparse(X):
        X = X.copy()
        X.data = (X.data * weights[X.indices]).astype(X.data.dtype)
        return X
    return (X * weights).astype(X.dtype)
