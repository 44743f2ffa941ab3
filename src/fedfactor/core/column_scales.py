"""What all clients' columns add up to, and the weights that follow from it: idf, scales, a choice of columns."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from fedfactor.core.algorithm import Uplink
from fedfactor.core.input_validation import is_sparse
from fedfactor.core.pytree import Array, public, record

SCALES = ("rms", "mean", "std", "max", "quantile")
"""What a column can be divided by."""

# quarter powers of two, from 6e-8 to 1e12
_LEAST = -24
_MOST = 40
_STEPS = 4
BINS = (_MOST - _LEAST) * _STEPS
"""Sizes that positive cells are counted by where a largest value or a quantile is asked for."""

_BLOCK = 1 << 20
"""Cells that are counted in one go."""


@record("core.ColumnSums")
class ColumnSums:
    """Up, and down again as the sum of all clients.

    Per column: cells that are not zero, sums, sums of squares, observed cells, and, where the largest value or a
    quantile is wanted, how many cells have which size (else no bins). A largest value is no sum, and an exact one would
    show one row's cell: a size does for a scale, to a quarter power of two.
    """

    uplink: ClassVar[Uplink] = Uplink.SUM

    support: Array
    squares: Array
    sums: Array
    cells: Array
    bins: Array
    n: Array = public()

    def weights(self, words: str) -> np.ndarray:
        """Turn the sums into one factor per column by the agreed steps, such as ``scale max``."""
        found = np.ones(len(self.support))
        for word in words.split(";"):
            name, _, rest = word.strip().partition(" ")
            found = found * self._factor(name, rest.split())
        return found

    def _factor(self, name: str, rest: list[str]) -> np.ndarray:
        if name == "tf-idf":
            return np.log((1 + float(self.n)) / (1 + self.support)) + 1
        cells = np.maximum(self.cells, 1)
        mean = self.sums / cells
        square = self.squares / cells
        variance = np.maximum(square - mean * mean, 0)
        if name == "select":
            spread = np.divide(variance, np.abs(mean), out=np.zeros_like(mean), where=mean != 0)
            chosen = np.zeros(len(spread))
            chosen[np.argsort(-spread, kind="stable")[: int(rest[0])]] = 1
            return chosen
        kind = rest[0] if rest else "rms"
        if kind in ("max", "quantile"):
            size = self._quantile(1.0 if kind == "max" else float(rest[1]))
        else:
            size = {"rms": np.sqrt(square), "mean": np.abs(mean), "std": np.sqrt(variance)}[kind]
        return np.divide(1.0, size, out=np.ones_like(size), where=size > 0)

    def _quantile(self, share: float) -> np.ndarray:
        """Size below which a share of the positive cells of each column lies; 0 for a column without any."""
        totals = self.bins.sum(axis=0)
        reached = np.cumsum(self.bins, axis=0) >= np.maximum(share * totals, 1e-9)
        edge = np.exp2(_LEAST + (np.argmax(reached, axis=0) + 1) / _STEPS)
        return np.where(totals > 0, edge, 0.0)


def needs_bins(words: str) -> bool:
    """Return whether a step needs a maximum or a quantile."""
    return "max" in words or "quantile" in words


def column_sums(X: Any, mask: Any = None, *, bins: bool = False) -> ColumnSums:
    """Add up one client's columns.

    Examples
    --------
    >>> sums = column_sums(np.array([[1.0, 0.0], [2.0, 0.0]]))
    >>> float(sums.n), sums.support.tolist(), sums.squares.tolist()
    (2.0, [2.0, 0.0], [5.0, 0.0])
    """
    n, m = X.shape
    if is_sparse(X):
        X = X.tocsr()
        squares = np.bincount(X.indices, np.square(X.data, dtype=np.float64), m)
        sums = np.bincount(X.indices, X.data, m)
        support = np.bincount(X.indices, X.data != 0, m)
        stored = np.bincount(X.indices, minlength=m)
        values = X.data
        columns = X.indices
    else:
        squares = np.square(X, dtype=np.float64).sum(0)
        support = (X != 0).sum(0)
        sums = X.sum(0, dtype=np.float64)
        stored = None
        values = np.asarray(X)
        columns = None
    cells: Any = np.full(m, float(n)) if mask is None else stored if isinstance(mask, str) else mask.sum(0)
    sizes = _counted(values, columns, m) if bins else np.zeros((0, m))
    leaves = (np.asarray(part, np.float64) for part in (support, squares, sums, cells, sizes))
    return ColumnSums(*leaves, n=np.float64(n))


def _counted(values: np.ndarray, columns: np.ndarray | None, m: int) -> np.ndarray:
    """Count positive cells by column and size."""
    found = np.zeros(BINS * m)
    step = max(1, _BLOCK // max(1, values[:1].size))
    for start in range(0, len(values), step):
        part = values[start : start + step]
        where = np.broadcast_to(np.arange(m), part.shape) if columns is None else columns[start : start + step]
        there = part > 0
        size = np.floor(np.log2(part[there].astype(np.float64)) * _STEPS).astype(np.int64) - _LEAST * _STEPS
        place = np.clip(size, 0, BINS - 1) * m + where[there]
        found += np.bincount(place, minlength=BINS * m)
    return found.reshape(BINS, m)


def weighted(X: Any, weights: np.ndarray) -> Any:
    """Multiply every column by its weight."""
    if is_sparse(X):
        X = X.copy()
        X.data = (X.data * weights[X.indices]).astype(X.data.dtype)
        return X
    return (X * weights).astype(X.dtype)
