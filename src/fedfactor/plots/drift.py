"""Figures of how far clients drift from each other and from the server."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedfactor.evaluation.metrics.coherence import client_similarity
from fedfactor.plots.axes import Runs, axes_or_new, by_label


def plot_drift(runs: Runs, *, plain: bool = True, ax: Any = None) -> Any:
    """Draw how far clients moved from the factor they received, round by round.

    Parameters
    ----------
    runs : Run, sequence of Run, or mapping of label to Run
        Runs of methods with ``diagnostics=True``, such as :class:`~fedfactor.algorithms.FNMF`.
    plain : bool
        Draw, dashed, also the drift that does not look for the best order of components.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If no run kept its drift.
    MissingExtraError
        If matplotlib is not installed.

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> from fedfactor.plots import panels, plot_drift
    >>> X = np.random.default_rng(0).random((30, 6))
    >>> method = fedfactor.algorithms.FNMF(2, diagnostics=True)
    >>> run = fedfactor.run(method, {"a": X[:7], "b": X[7:]}, rounds=5, seed=0)
    >>> len(plot_drift(run, ax=panels()[0]).lines)
    2
    """
    known = {label: run for label, run in by_label(runs).items() if any("drift" in r.metrics for r in run.history)}
    if not known:
        raise ValueError("No run kept its drift, so there is nothing to draw. Run the method with diagnostics=True.")
    ax = axes_or_new(ax)
    for label, run in known.items():
        rounds = [record.index + 1 for record in run.history]
        kept = {name: [r.metrics.get(name, np.nan) for r in run.history] for name in ("drift", "plain_drift")}
        line = ax.plot(rounds, kept["drift"], label=label)[0]
        if plain:
            ax.plot(rounds, kept["plain_drift"], linestyle="--", color=line.get_color())
    ax.set(xlabel="round", ylabel="drift / norm of V" + (" (dashed: order as it stands)" if plain else ""))
    ax.set_yscale("log")
    ax.legend(frameon=False)
    return ax


def plot_similarity(source: Any, *, ax: Any = None) -> Any:
    """Draw how alike clients are: a line over rounds for runs, or a table for the components of clients.

    Parameters
    ----------
    source : Run or mapping of label to Run; mapping of client to array of shape (k, m)
        Runs with ``diagnostics=True``, or components.
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
    >>> import numpy as np
    >>> from fedfactor.plots import panels, plot_similarity
    >>> len(plot_similarity({"a": np.eye(2), "b": np.eye(2)}, ax=panels()[0]).images)
    1
    """
    values = list(source.values()) if hasattr(source, "values") else [source]
    if values and not hasattr(values[0], "history"):
        return _table(source, axes_or_new(ax))
    lines: dict[str, list[float]] = {}
    for label, run in by_label(source).items():
        names = [n for n in ("client_similarity", "server_similarity") if any(n in r.metrics for r in run.history)]
        if names:
            lines[label] = [record.metrics.get(names[0], np.nan) for record in run.history]
    if not lines:
        raise ValueError("No run kept its similarity, so there is nothing to draw. Run it with diagnostics=True.")
    ax = axes_or_new(ax)
    for label, line in lines.items():
        ax.plot(range(1, len(line) + 1), line, label=label)
    ax.set(xlabel="round", ylabel="matched cosine", ylim=(0, 1.02))
    ax.legend(frameon=False)
    return ax


def _table(source: Any, ax: Any) -> Any:
    names, table = client_similarity(source)
    image = ax.imshow(table, vmin=0, vmax=1, cmap="viridis")
    if len(names) <= 20:
        ax.set_xticks(range(len(names)), names, rotation=90)
        ax.set_yticks(range(len(names)), names)
    ax.set(title="matched cosine of owners' components")
    ax.figure.colorbar(image, ax=ax, shrink=0.8)
    return ax
