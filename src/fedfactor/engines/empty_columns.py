"""Columns without a single observed value: nothing in the data determines their weights, so they get none."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np

from fedfactor.core.algorithm import Domain, Layout
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import callers_level
from fedfactor.core.printable_text import listed
from fedfactor.core.run import Run

__all__ = ["EmptyColumnWarning", "empty_columns", "without_empty_columns"]


class EmptyColumnWarning(UserWarning):
    """A column has no observed value at any client."""


def empty_columns(federation: Federation) -> np.ndarray:
    """Return the positions of columns without an observed value, where dense rows have missing values.

    Examples
    --------
    >>> rows = np.array([[1.0, np.nan], [2.0, np.nan]])
    >>> empty_columns(Federation({"a": rows}, missing_values=np.nan)).tolist()
    [1]
    """
    seen: Any = np.zeros(federation.n_features, bool)
    for name in federation.names:
        mask: Any = federation.shard(name).mask
        if not isinstance(mask, np.ndarray):
            return np.zeros(0, np.int64)  # complete rows, or cells of a recommender
        seen |= mask.any(axis=0)
    return np.flatnonzero(~seen)


def without_empty_columns(run: Run, federation: Federation) -> Run:
    """Set the weights of columns without an observed value to zero, and warn; initial values would remain in V."""
    algorithm = run.algorithm
    if algorithm.layout != Layout.ROWS or algorithm.domain == Domain.REAL or set(run.factors) != set(federation.names):
        return run
    empty = empty_columns(federation)
    if not len(empty):
        return run
    names = federation.feature_names
    positions: list[int] = [int(j) for j in empty]
    which = listed([repr(names[j]) if names else f"column {j}" for j in positions])
    few = len(empty) == 1
    warnings.warn(
        f"{which} {'has' if few else 'have'} no value at any owner: {'its' if few else 'their'} weights in all "
        f"components are set to 0. Leave {'it' if few else 'them'} out (--drop).",
        EmptyColumnWarning,
        stacklevel=callers_level(),
    )

    def cleared(V: Any) -> Any:
        if not isinstance(V, np.ndarray):
            return V
        found: Any = np.array(V)  # type: ignore[reportUnknownArgumentType]
        found[:, empty] = 0
        return found

    factors = {
        name: replace(kept, V=cleared(kept.V), V_private=cleared(kept.V_private)) for name, kept in run.factors.items()
    }
    return replace(run, factors=factors)
