"""Figures that help to choose: a rank, a method."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedfactor.plots.axes import axes_or_new


def plot_rank(found: Any, *, ax: Any = None) -> Any:
    """Draw the held-out error of each rank, and mark the one that is recommended.

    Parameters
    ----------
    found : RankSelection
        What :func:`fedfactor.select_rank` returned.
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
    >>> from fedfactor.plots import panels, plot_rank
    >>> from fedfactor import RankSelection
    >>> errors = np.array([[0.4, 0.2, 0.25], [0.5, 0.2, 0.23]])
    >>> ax = plot_rank(RankSelection((1, 2, 3), errors, errors, 2, 2, 0), ax=panels()[0])
    >>> ax.get_xlabel()
    'rank'
    """
    ax = axes_or_new(ax)
    low = found.errors.min(axis=0)
    high = found.errors.max(axis=0)
    ax.fill_between(found.ranks, low, high, alpha=0.2, linewidth=0)
    ax.plot(found.ranks, found.curve, marker="o", label="held-out cells")
    if np.isfinite(found.fitted).any():
        ax.plot(found.ranks, found.fitted.mean(axis=0), linestyle=":", label="cells used")
    ax.axvline(found.recommended, color="0.5", linestyle="--", label=f"recommended: {found.recommended}")
    ax.set(xlabel="rank", ylabel="relative error")
    ax.legend(frameon=False)
    return ax


def plot_comparison(errors: Mapping[str, Mapping[str, Any]], *, ax: Any = None) -> Any:
    """Draw the errors of several methods: all clients together as a mark, single clients as a line from best to worst.

    Parameters
    ----------
    errors : mapping of method to mapping of client to error, or to a list of errors over seeds
        One row for each method.
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
    >>> from fedfactor.plots import panels, plot_comparison
    >>> ax = plot_comparison({"alone": {"a": 0.3, "b": 0.5}, "together": {"a": 0.2, "b": 0.2}}, ax=panels()[0])
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['alone', 'together']
    """
    ax = axes_or_new(ax)
    for place, owners in enumerate(errors.values()):
        means = [float(np.asarray(error).mean()) for error in owners.values()]
        ax.plot([min(means), max(means)], [place, place], color="0.6", linewidth=2, zorder=1)
        ax.plot(means, [place] * len(means), "|", markersize=10, color="C0", zorder=2)
        ax.plot([np.mean(means)], [place], "o", color="C0", zorder=3)
    ax.set_yticks(range(len(errors)), list(errors))
    ax.invert_yaxis()
    ax.set_xlim(left=0)
    ax.set_xlabel("relative error of held-out cells or rows: mean ●, each owner |")
    return ax
