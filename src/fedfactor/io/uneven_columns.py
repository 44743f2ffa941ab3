"""Columns of different scale: the largest ones decide a fit by squares, without a warning."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedfactor.core.client_data import Federation
from fedfactor.core.column_scales import column_sums
from fedfactor.core.input_validation import is_sparse
from fedfactor.core.pytree import is_numpy, tree_sum

__all__ = [
    "PUBLIC_SCALES",
    "ScaleWarning",
    "different_units",
    "even_columns",
    "owner_sums",
    "uneven",
    "warn_of_scales",
]

_APART = 100.0
_OTHER_UNIT = 8.0  # of columns that are steady at all clients: glucose in mg/dl and mmol/l is 18 apart, g/dl and g/l 10
_STEADY = 0.5  # squared mean over mean square: cells spread by no more than their mean
_FAR = 50.0
_NEARLY_ALL = 0.95
_FEWEST_CELLS = 10
_WIDEST = 2000  # columns; beyond it they are genes, words or pixels, and of one unit


class ScaleWarning(UserWarning):
    """Columns of a table differ so much in scale that only the largest ones count."""


PUBLIC_SCALES = (
    "divide each column of the files by a public constant, such as the upper end of its range (in a federation the "
    "step 'scale declared' of [preprocess] does so, by the ranges of fedfactor federation units)"
)
"""How columns are brought to one scale where no figure may be measured on rows: in private runs."""


def uneven(features: Sequence[str] | None, sums: Any, *, private: bool = False) -> str:
    """Return which columns are a hundred times larger than others; empty when none is.

    ``private`` names the remedy that a run with noise or secure aggregation admits.

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
    small = order[0]
    large = order[-1]
    ratio = size[large] / size[small]
    if ratio < _APART:
        return ""
    few = [features[j] for j in order[::-1] if size[j] * _APART <= size[large]][:3]
    remedy = (
        f"Scale them by numbers that are not measured on rows: {PUBLIC_SCALES}."
        if private
        else "Scale them: --scale rms, in a federation the step 'scale' of [preprocess] (under secure aggregation "
        "or noise 'scale declared', by the ranges of [units]), in Python "
        "open_files(..., steps=['scale']) or X / X.std(0)."
    )
    return (
        f"Columns differ in scale by a factor of {ratio:.0f}: {features[large]!r} has a root mean square of "
        f"{size[large]:.3g}, {features[small]!r} of {size[small]:.3g}. The large ones decide the fit, and "
        f"{', '.join(map(repr, few))} hardly count. {remedy}"
    )


def different_units(
    features: Sequence[str] | None, sums: Mapping[str, Any], medians: Mapping[str, np.ndarray] | None = None
) -> str:
    """Return which columns one client seems to have in other units than another; empty when none is.

    A hundred times as large is another unit; eight times are, where cells spread by no more than their mean. With
    `medians` (of the cells that are not zero, by client) these must differ as well: a single large cell moves a mean.

    Examples
    --------
    >>> grams, milligrams = (column_sums(np.array([[a, 5.0], [a, 6.0]])) for a in (0.8, 800.0))
    >>> said = different_units(["dose", "age"], {"north": grams, "south": milligrams})
    >>> said.partition(".")[0]
    "Owners seem to use different units: 'dose' is 1000 times larger at 'south' than at 'north'"
    """
    if features is None or len(features) > _WIDEST or len(sums) < 2:
        return ""
    owners = list(sums)
    size = np.array([np.sqrt(each.squares / np.maximum(each.cells, 1)) for each in sums.values()])
    known = np.where(size > 0, size, np.nan)
    found: dict[int, tuple[float, str, str]] = {}
    for j in np.flatnonzero((size > 0).sum(axis=0) >= 2):
        most = int(np.nanargmax(known[:, j]))
        least = int(np.nanargmin(known[:, j]))
        found[int(j)] = (float(known[most, j] / known[least, j]), owners[most], owners[least])
    steady = np.array([each.sums**2 >= _STEADY * each.squares * each.cells for each in sums.values()])
    limit = np.where(steady.all(axis=0), _OTHER_UNIT, _APART)
    if medians is not None:
        found = {j: _by_median(each, j, medians) for j, each in found.items() if each[0] >= limit[j]}
        limit = limit / 2  # medians of a few rows scatter
    odd = sorted((j for j in found if found[j][0] >= limit[j]), key=lambda j: -found[j][0])
    if not odd:
        return ""
    told = [
        f"{features[j]!r} is {ratio:.0f} times larger at {large!r} than at {small!r}"
        for j, (ratio, large, small) in ((j, found[j]) for j in odd[:3])
    ]
    more = f" and {len(odd) - 3} more columns" if len(odd) > 3 else ""
    return (
        f"Owners seem to use different units: {', '.join(told)}{more}. Convert such columns to one unit at their "
        "owner, or leave them out (--drop). No scaling of all owners' columns together mends it."
    )


def _by_median(found: tuple[float, str, str], j: int, medians: Mapping[str, np.ndarray]) -> tuple[float, str, str]:
    """Return the ratio of medians instead of that of root mean squares."""
    _, large, small = found
    high = float(medians[large][j])
    low = float(medians[small][j])
    return (high / low if low > 0 else 0.0), large, small


def owner_medians(federation: Federation) -> dict[str, np.ndarray]:
    """Return the median of each column's cells that are observed and not zero, by client; 0 where there are none."""
    found: dict[str, np.ndarray] = {}
    for name in federation.names:
        cells = _sizes(federation.shard(name))
        found[name] = np.array([np.median(column) if len(column) else 0.0 for column in cells])
    return found


def outliers(federation: Federation) -> str:
    """Name columns of a client with a cell fifty times larger than nearly all others; empty when there is none.

    Examples
    --------
    >>> from fedfactor.core.client_data import Shard
    >>> X = np.column_stack([np.arange(1.0, 31), np.arange(1.0, 31)])
    >>> X[4, 0] = 99999
    >>> outliers(Federation({"north": Shard(X, None, ("platelets", "age"))})).partition(" (")[0]
    "Cells far from all others: 'platelets' at 'north' has 1e+05"
    """
    names = federation.feature_names
    told = list[str]()
    if names is None:
        return ""
    for owner in federation.names:
        for j, column in enumerate(_sizes(federation.shard(owner))):
            if len(column) < _FEWEST_CELLS:
                continue
            usual = float(np.quantile(column, _NEARLY_ALL, method="lower"))
            most = float(column.max())
            if most > _FAR * usual:
                told.append(f"{names[j]!r} at {owner!r} has {most:.3g} (95 % of its cells are at most {usual:.3g})")
    more = f" and {len(told) - 3} more columns" if len(told) > 3 else ""
    remedy = "Check them: the code of a missing value, or a slip?"
    return f"Cells far from all others: {'; '.join(told[:3])}{more}. {remedy}" if told else ""


def _sizes(shard: Any) -> list[np.ndarray]:
    """Return the absolute values of each column's cells that are observed and not zero."""
    X = np.abs(np.asarray(shard.X, np.float64))
    seen = (X > 0) if shard.mask is None else (X > 0) & np.asarray(shard.mask, bool)
    return [X[seen[:, j], j] for j in range(X.shape[1])]


def owner_sums(federation: Federation) -> dict[str, Any]:
    """Sum columns and their squares at every client; nothing where columns have no names, or are sparse or many."""
    names = federation.feature_names
    shards = {name: federation.shard(name) for name in federation.names}
    plain = all(is_numpy(s.X) and not is_sparse(s.X) and s.bounds is None for s in shards.values())
    if names is None or not 2 <= len(names) <= _WIDEST or not plain:
        return {}
    return {name: column_sums(shard.X, shard.mask) for name, shard in shards.items()}


def even_columns(federation: Federation) -> Federation | None:
    """Divide named columns that differ in scale by a hundred or more by their root mean square; None: they do not.

    Examples
    --------
    >>> from fedfactor.core.client_data import Shard
    >>> labs = Shard(np.array([[250.0, 1.0], [300.0, 0.8]]), None, ("platelets", "creatinine"))
    >>> even_columns(Federation({"north": labs})).shard("north").X.round(2).tolist()
    [[0.91, 1.1], [1.09, 0.88]]
    """
    sums = owner_sums(federation)
    if not sums or not uneven(federation.feature_names, tree_sum(list(sums.values()))):
        return None
    pooled = tree_sum(list(sums.values()))
    size = np.sqrt(pooled.squares / np.maximum(pooled.cells, 1))
    size[size == 0] = 1.0
    shards = {name: federation.shard(name) for name in federation.names}
    return Federation(
        {name: replace(shard, X=(shard.X / size).astype(shard.X.dtype)) for name, shard in shards.items()}
    )


def warn_of_scales(federation: Federation, *, private: bool = False) -> None:
    """Warn of named columns whose scales differ between clients or among each other, and of cells far from others."""
    sums = owner_sums(federation)
    if not sums:
        return
    names = federation.feature_names
    units = different_units(names, sums, owner_medians(federation))
    for said in (units, outliers(federation), uneven(names, tree_sum(list(sums.values())), private=private)):
        if said:
            warnings.warn(said, ScaleWarning, stacklevel=2)
