"""A figure of how much each client has of each component."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedfactor.core.run import Run
from fedfactor.plots.axes import axes_or_new


def usage_by_owner(factors: Run | Mapping[str, Any]) -> tuple[list[str], np.ndarray]:
    """Return the clients, and for each of them what share of its rows' weight lies on each component.

    Components are first brought to one length, where V is known: what a component adds to the rows counts, not how its
    weight is split between U and V.

    Parameters
    ----------
    factors : Run, fitted estimator, or mapping of client to U
        The source.

    Returns
    -------
    owners : list of str
    shares : ndarray of shape (clients, k)
        Each row adds up to 1.

    Examples
    --------
    >>> usage_by_owner({"north": np.array([[1.0, 3.0]]), "south": np.array([[1.0, 1.0], [1.0, 1.0]])})
    (['north', 'south'], array([[0.25, 0.75],
           [0.5 , 0.5 ]]))
    """
    run = getattr(factors, "run_", factors)
    if isinstance(run, Run):
        length = np.abs(_plain(run.V)).sum(axis=1)
        parts = {name: np.abs(_plain(kept.U)) for name, kept in run.factors.items() if len(kept.U)}
        parts = {name: U * length if U.shape[1] == len(length) else U for name, U in parts.items()}
    else:
        parts = {str(name): np.abs(_plain(U)) for name, U in run.items()}
    owners = sorted(parts)
    sums = np.array([parts[name].sum(axis=0) for name in owners])
    total = sums.sum(axis=1, keepdims=True) if len(owners) else sums
    return owners, np.divide(sums, total, out=np.zeros_like(sums), where=total > 0)


def plot_usage(factors: Run | Mapping[str, Any], *, most: int = 40, ax: Any = None) -> Any:
    """Draw what share of each client's weight lies on each component, as a heat map.

    Parameters
    ----------
    factors : Run, fitted estimator, or mapping of client to U
        As in :func:`usage_by_owner`.
    most : int, default=40
        Clients drawn at most: those whose shares differ most from the mean of all.
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
    >>> from fedfactor.plots import panels, plot_usage
    >>> ax = plot_usage({"north": np.ones((3, 2)), "south": np.ones((4, 2))}, ax=panels()[0])
    >>> [label.get_text() for label in ax.get_yticklabels()]
    ['north', 'south']
    """
    owners, shares = usage_by_owner(factors)
    if not owners:
        raise ValueError("No owner's factors are known, so there is nothing to draw.")
    if len(owners) > most:
        far = np.abs(shares - shares.mean(axis=0)).sum(axis=1)
        kept = np.sort(np.argsort(-far, kind="stable")[:most])
        owners = [owners[int(i)] for i in kept]
        shares = shares[kept]
    ax = axes_or_new(ax)
    picture = ax.imshow(shares, aspect="auto", cmap="viridis", vmin=0, interpolation="nearest")
    ax.set_yticks(range(len(owners)), owners)
    k = shares.shape[1]
    ax.set_xticks(range(0, k, max(1, k // 20)))
    ax.set(xlabel="component", ylabel="owner")
    ax.figure.colorbar(picture, ax=ax, fraction=0.05, label="share of the owner's weight")
    return ax


def _plain(array: Any) -> np.ndarray:
    return array.detach().cpu().numpy() if hasattr(array, "detach") else np.asarray(array)
