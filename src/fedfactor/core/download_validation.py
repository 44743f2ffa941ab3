"""What a client may check of a download before it touches a row: numbers in their range, columns that exist."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedfactor.core.pytree import Array, Tree, kind_of, leaves, to_numpy

__all__ = ["odd_columns", "odd_numbers", "odd_octets"]

SLACK = 1e-3
"""How far a number may lie outside of its range: room for payloads in half precision."""

NOT_NEGATIVE = (0.0, np.inf)


def odd_numbers(down: Tree, ranges: Mapping[str, tuple[float, float]] | None = None) -> str:
    """Return which number of a download is none, or lies outside of what an honest server can send; or nothing.

    Parameters
    ----------
    down : record
    ranges : mapping of leaf to (least, most), optional
        What the method promises; leaves that the download does not have are passed over.

    Examples
    --------
    >>> from fedfactor.core.algorithm import Score
    >>> odd_numbers(Score.of(-1.0, 2, 3.0), {"sse": (0.0, 9.0)})
    'Score.sse holds a number outside of 0 to 9'
    """
    for path, leaf in leaves(down):
        cells = to_numpy(leaf)
        if cells.dtype.kind == "f" and not np.isfinite(cells).all():
            return f"{kind_of(down).__name__}.{path} holds a cell that is no number"
        least, most = (ranges or {}).get(path, (-np.inf, np.inf))
        room = SLACK * max(1.0, abs(most)) if np.isfinite(most) else 0.0
        if cells.size and not least <= cells.min() <= cells.max() <= most + room:
            return f"{kind_of(down).__name__}.{path} holds a number outside of {least:g} to {most:g}"
    return ""


def odd_columns(columns: Array, n_features: int, *beside: tuple[Array, int]) -> str:
    """Return why a list of columns is none: beyond those there are, or not in order; or nothing.

    Parameters
    ----------
    columns : array of int
    n_features : int
    *beside : (array, axis)
        What has one entry for each of these columns, along that axis.

    Examples
    --------
    >>> odd_columns(np.array([1, 3]), 4), odd_columns(np.array([1, 1]), 4)
    ('', 'columns are not in order, or there are none such')
    """
    found: Any = to_numpy(columns)
    if found.size and (found[0] < 0 or found[-1] >= n_features or (np.diff(found) <= 0).any()):
        return "columns are not in order, or there are none such"
    if any(np.shape(part)[axis] != found.size for part, axis in beside):
        return "what belongs to columns has another number of them"
    return ""


def odd_octets(packed: Array, n_features: int) -> str:
    """Return what is wrong with packed bits: those beyond the last column must be 0, eight columns to a byte.

    Examples
    --------
    >>> odd_octets(np.array([[0b111]], np.uint8), 3), odd_octets(np.array([[0b1000]], np.uint8), 3)
    ('', 'columns that do not exist are marked')
    """
    bits = np.unpackbits(to_numpy(packed).astype(np.uint8), axis=-1, bitorder="little")
    return "columns that do not exist are marked" if bits[..., n_features:].any() else ""
