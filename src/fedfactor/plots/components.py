"""A figure of components that are pictures."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fedfactor.core.pytree import Array
from fedfactor.plots.axes import axes_or_new


def mosaic(V: Array, shape: tuple[int, int], *, n_columns: int | None = None, gap: int = 1) -> np.ndarray:
    """Lay components out as tiles of one picture, each scaled to [0, 1]; spaces between tiles are NaN.

    Parameters
    ----------
    V : array of shape (k, m)
        The components.
    shape : (int, int)
        Height and width of one tile; their product is m.
    n_columns : int, optional
        Tiles in a row; by default about a square.
    gap : int
        Cells between tiles.

    Returns
    -------
    ndarray
        The picture.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor.plots import mosaic
    >>> mosaic(np.eye(4), (2, 2)).shape
    (5, 5)
    """
    V = np.asarray(V, dtype=float)
    height, width = shape
    if V.ndim != 2 or V.shape[1] != height * width:
        raise ValueError(f"Components of shape {V.shape} cannot be drawn as tiles of {height} × {width} cells.")
    columns = n_columns or math.ceil(math.sqrt(len(V)))
    rows = math.ceil(len(V) / columns)
    picture = np.full((rows * (height + gap) - gap, columns * (width + gap) - gap), np.nan)
    for i, component in enumerate(V):
        top = (i // columns) * (height + gap)
        left = (i % columns) * (width + gap)
        highest = float(np.abs(component).max())
        tile = component.reshape(height, width) / (highest if highest > 0 else 1.0)
        picture[top : top + height, left : left + width] = tile
    return picture


def plot_components(V: Array, shape: tuple[int, int], *, n_columns: int | None = None, ax: Any = None) -> Any:
    """Draw components as small pictures.

    Parameters
    ----------
    V, shape, n_columns
        As in :func:`mosaic`.
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
    >>> from fedfactor.plots import panels, plot_components
    >>> len(plot_components(np.eye(4), (2, 2), ax=panels()[0]).images)
    1
    """
    picture = mosaic(V, shape, n_columns=n_columns)
    ax = axes_or_new(ax)
    ax.set_facecolor("0.85")  # spaces are transparent, so that blank tiles show too
    ax.imshow(picture, cmap="gray_r", interpolation="nearest", vmin=min(0.0, float(np.nanmin(picture))), vmax=1.0)
    ax.set(xticks=[], yticks=[])
    for side in ax.spines.values():
        side.set_visible(False)
    return ax
