"""Figures of components whose columns have names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedfactor.plots.axes import axes_or_new


def top_features(V: Any, features: Sequence[str] | None = None, n: int = 10) -> list[list[tuple[str, float]]]:
    """List the largest weights of each component, by name, largest first; zeros are left out.

    Parameters
    ----------
    V : array of shape (k, m)
    features : sequence of str, optional
        Names of the m columns; by default their numbers.
    n : int, default=10
        Names for each component at most.

    Returns
    -------
    list of list of (str, float)

    Examples
    --------
    >>> top_features([[0.0, 2.0, 1.0]], ["age", "weight", "height"], n=2)
    [[('weight', 2.0), ('height', 1.0)]]
    """
    V = np.asarray(V)
    names = [f"column {j}" for j in range(V.shape[1])] if features is None else [str(name) for name in features]
    if len(names) != V.shape[1]:
        raise ValueError(f"{len(names)} names were given for {V.shape[1]} columns.")
    n = min(n, V.shape[1])
    found: list[list[tuple[str, float]]] = []
    for row in V:
        size = np.abs(row)
        best = np.argpartition(-size, n - 1)[:n] if n else np.array([], int)
        best = best[np.lexsort((best, -size[best]))]
        found.append([(names[j], float(row[j])) for j in best if row[j] != 0])
    return found


def plot_top_features(
    V: Any, features: Sequence[str] | None = None, *, component: int = 0, n: int = 10, ax: Any = None
) -> Any:
    """Draw the largest weights of one component as bars with the names of their features.

    Parameters
    ----------
    V : array of shape (k, m), Run or fitted estimator
        The components; a run or an estimator brings their names.
    features : sequence of str, optional
        Names of the m columns.
    component : int, default=0
        Which one.
    n : int, default=10
        Bars at most.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.

    Examples
    --------
    >>> from fedfactor.plots import panels, plot_top_features
    >>> ax = plot_top_features([[0.0, 2.0, 1.0]], ["age", "weight", "height"], ax=panels()[0])
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['weight', 'height']
    """
    V, features = components_of(V, features)
    if not 0 <= component < len(V):
        raise ValueError(f"component={component} is not known: there are {len(V)}, counted from 0.")
    (found,) = top_features(V[component : component + 1], features, n)
    ax = axes_or_new(ax)
    ax.barh(range(len(found)), [weight for _, weight in found], height=0.7)
    ax.set_yticks(range(len(found)), [_short(name) for name, _ in found])
    ax.invert_yaxis()
    ax.set_title(f"component {component}", loc="left")
    ax.set_xlabel("weight")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return ax


def components_of(source: Any, features: Sequence[str] | None = None) -> tuple[np.ndarray, Sequence[str] | None]:
    """Take V and its names from a run, an estimator or an array."""
    if hasattr(source, "components_"):
        names = getattr(source, "feature_names_in_", getattr(source, "items_", None))
        source = source.components_
        features = names if features is None else features
    elif hasattr(source, "factors"):
        source, features = source.V, source.feature_names if features is None else features
    V = source.detach().cpu().numpy() if hasattr(source, "detach") else np.asarray(source)
    return V, features


def _short(name: str, most: int = 28) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"
