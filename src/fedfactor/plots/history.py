"""A figure of the error, round by round."""

from __future__ import annotations

from typing import Any

from fedfactor.plots.axes import Runs, axes_or_new, by_label


def plot_history(runs: Runs, baseline: float | None = None, *, metric: str = "relative_error", ax: Any = None) -> Any:
    """Draw a figure that the server knew after each round.

    Parameters
    ----------
    runs : Run, sequence of Run, or mapping of label to Run
        What to draw, one line each. Rounds without the metric leave a gap.
    baseline : float, optional
        A level to compare with, such as the error of pooled rows.
    metric : str
        Name in :attr:`RoundRecord.metrics <fedfactor.core.run.RoundRecord>`.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If no round of any run has the metric.
    MissingExtraError
        If matplotlib is not installed.

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> from fedfactor.plots import panels, plot_history
    >>> X = np.random.default_rng(0).random((30, 6))
    >>> run = fedfactor.run(fedfactor.algorithms.PooledNMF(2), {"a": X[:7], "b": X[7:]}, rounds=5, seed=0)
    >>> len(plot_history(run, baseline=0.4, ax=panels()[0]).lines)
    2
    """
    lines = {
        label: [record.metrics.get(metric, float("nan")) for record in run.history]
        for label, run in by_label(runs).items()
    }
    if all(value != value for line in lines.values() for value in line):
        raise ValueError(f"No round recorded {metric!r}, so there is nothing to draw. Name another metric.")
    ax = axes_or_new(ax)
    for label, line in lines.items():
        ax.plot(range(1, len(line) + 1), line, label=label)
    if baseline is not None:
        ax.axhline(baseline, color="0.5", linestyle="--", label="all rows in one place")
    ax.xaxis.get_major_locator().set_params(integer=True)  # there is no round 1.5
    ax.set(xlabel="round", ylabel=metric.replace("_", " "))
    ax.legend(frameon=False)
    return ax
