"""A quantile of all owners' numbers together, found from counts: nobody shows a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["count_below", "federated_quantile"]


def count_below(X: Any, edges: np.ndarray) -> np.ndarray:
    """At one owner: count the cells at or below each edge.

    Examples
    --------
    >>> import numpy as np
    >>> count_below(np.array([[1.0, 2.0, 3.0]]), np.array([0.5, 2.0]))
    array([0, 2])
    """
    stored = np.sort((X.data if hasattr(X, "indptr") else np.asarray(X)).ravel())
    unstored = int(np.prod(X.shape)) - stored.size  # cells of a sparse matrix that are zero without being there
    return np.searchsorted(stored, edges, side="right") + unstored * (edges >= 0)


def federated_quantile(
    owners: Mapping[str, Any], q: float, low: float, high: float, *, splits: int = 16, rounds: int = 12
) -> float:
    """Find a number such that a share q of all cells is at or below it.

    Parameters
    ----------
    owners : mapping of name to matrix
        Each owner's numbers; only :func:`count_below` looks at them.
    q : float
        Share, in (0, 1).
    low, high : float
        A range known to hold it, such as that of the instrument.
    splits, rounds : int
        In each round the range is cut into so many parts and the counts say which part to go on with.

    Returns
    -------
    float
        Good to ``(high − low) / splits**rounds``, or to the last number that no cell separates.

    Notes
    -----
    What travels: `splits` edges down, as many whole numbers up, which add up and so may pass through a secure sum.

    Examples
    --------
    >>> import numpy as np
    >>> X = {"a": np.arange(50.0)[None], "b": np.arange(50.0, 100.0)[None]}
    >>> round(federated_quantile(X, 0.95, 0, 100), 6)
    94.0
    """
    if not 0 < q < 1 or not low < high:
        raise ValueError(f"q={q} must lie in (0, 1) and low={low} below high={high}.")
    cells = sum(int(np.prod(X.shape)) for X in owners.values())
    for _ in range(rounds):
        edges = np.linspace(low, high, splits + 1)[1:]
        counts = np.sum([count_below(X, edges) for X in owners.values()], axis=0)
        place = int(np.argmax(counts >= q * cells)) if (counts >= q * cells).any() else splits - 1
        low, high = (low if place == 0 else float(edges[place - 1])), float(edges[place])
    return high
