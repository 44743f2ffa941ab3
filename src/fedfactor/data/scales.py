"""Columns of different scale: the largest ones decide a fit by squares, and nobody notices."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedfactor.core.checks import is_sparse
from fedfactor.core.column_sums import column_sums
from fedfactor.core.federation import Federation
from fedfactor.core.tree import tree_sum

__all__ = ["ScaleWarning", "uneven", "warn_of_scales"]

_APART = 100.0
_WIDEST = 2000  # columns; beyond it they are genes, words or pixels, and of one unit


class ScaleWarning(UserWarning):
    """Columns of a table differ so much in scale that only the largest ones count."""


def uneven(features: Sequence[str] | None, sums: Any) -> str:
    """Say which columns are a hundred times larger than others; empty when none is.

    Examples
    --------
    >>> said = uneven(["platelets", "creatinine"], column_sums(np.array([[250.0, 1.0], [300.0, 0.8]])))
    >>> said.partition(":")[0]
    'Columns differ in scale by a factor of 305'
    """
    if features is None or not 2 <= len(features) <= _WIDEST:
        return ""
    size = np.sqrt(sums.squares / np.maximum(sums.cells, 1))
    there = np.flatnonzero(size > 0)
    if len(there) < 2:
        return ""
    order = there[np.argsort(size[there], kind="stable")]
    small, large = order[0], order[-1]
    ratio = size[large] / size[small]
    if ratio < _APART:
        return ""
    few = [features[j] for j in order[::-1] if size[j] * _APART <= size[large]][:3]
    return (
        f"Columns differ in scale by a factor of {ratio:.0f}: {features[large]!r} has a root mean square of "
        f"{size[large]:.3g}, {features[small]!r} of {size[small]:.3g}. The large ones decide the fit, and "
        f"{', '.join(map(repr, few))} hardly count. Scale them: --scale rms, in a federation the step 'scale' of "
        "[preprocess], in Python open_files(..., steps=['scale']) or X / X.std(0)."
    )


def warn_of_scales(federation: Federation) -> None:
    """Warn once when the named columns of all owners together differ in scale by a hundred or more."""
    names = federation.feature_names
    shards = [federation.shard(name) for name in federation.names]
    if names is None or not 2 <= len(names) <= _WIDEST:
        return
    if any(is_sparse(shard.X) or not isinstance(shard.X, np.ndarray) or shard.bounds is not None for shard in shards):
        return
    said = uneven(names, tree_sum([column_sums(shard.X, shard.mask) for shard in shards]))
    if said:
        warnings.warn(said, ScaleWarning, stacklevel=2)
