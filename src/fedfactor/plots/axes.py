"""Where figures are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedfactor.core.errors import MissingExtraError
from fedfactor.core.run import Run

Runs = Run | Mapping[str, Run] | Sequence[Run]


def axes_or_new(ax: Any) -> Any:
    """Return the axes given, or those of a new figure.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    if ax is not None:
        return ax
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingExtraError.named("matplotlib", "plots", "Drawing a figure") from error
    return pyplot.subplots(layout="constrained")[1]


def panels(count: int = 1, *, width: float = 5.0, height: float = 3.5) -> list[Any]:
    """Make axes side by side in a figure that no window shows, for ``axes[0].figure.savefig(path)``.

    Parameters
    ----------
    count : int
        Number of axes.
    width, height : float
        Size of each in inches.

    Returns
    -------
    list of Axes

    Examples
    --------
    >>> from fedfactor.plots import panels
    >>> len(panels(3))
    3
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError.named("matplotlib", "plots", "Drawing a figure") from error
    figure = Figure(figsize=(count * width, height), layout="constrained")
    return list(figure.subplots(1, count, squeeze=False)[0])


def by_label(runs: Runs) -> dict[str, Run]:
    """Give every run a label: the one it came with, or its algorithm's name, numbered when several share it."""
    if isinstance(runs, Mapping):
        return dict(runs)
    runs = [runs] if isinstance(runs, Run) else list(runs)
    names = [type(run.algorithm).__name__ for run in runs]
    return {
        name if names.count(name) == 1 else f"{name} {names[: i + 1].count(name)}": run
        for i, (name, run) in enumerate(zip(names, runs, strict=True))
    }
