"""A figure of how each client fares."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedfactor.plots.axes import Runs, axes_or_new, by_label


def plot_client_errors(runs: Runs, *, ax: Any = None) -> Any:
    """Draw every client's relative error: a good total can hide a bad one.

    Parameters
    ----------
    runs : Run, sequence of Run, or mapping of label to Run
        One group of bars per client, one bar per run.
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
    >>> import numpy as np, fedfactor
    >>> from fedfactor.plots import panels, plot_client_errors
    >>> X = np.random.default_rng(0).random((30, 6))
    >>> run = fedfactor.run(fedfactor.algorithms.PooledNMF(2), {"a": X[:7], "b": X[7:]}, rounds=5, seed=0)
    >>> len(plot_client_errors(run, ax=panels()[0]).patches)
    2
    """
    labelled = by_label(runs)
    owners = sorted({name for run in labelled.values() for name in run.scores})
    ax = axes_or_new(ax)
    width = 0.8 / len(labelled)
    for i, (label, run) in enumerate(labelled.items()):
        heights = [run.scores[name].relative_error if name in run.scores else float("nan") for name in owners]
        ax.bar(np.arange(len(owners)) + (i - (len(labelled) - 1) / 2) * width, heights, width, label=label)
    ax.set_xticks(range(len(owners)), owners)
    ax.set(xlabel="owner", ylabel="relative error")
    ax.legend(frameon=False)
    return ax
