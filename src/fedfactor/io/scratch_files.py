"""Room for a matrix that a file unfolds to: in memory, or, when it is large for this machine, in a scratch file."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import numpy as np

__all__ = ["is_large", "room"]

_SHARE = 8
"""What takes more than this part of the machine's memory is kept on disk, and mapped."""


def is_large(size: int) -> bool:
    """Return whether so many bytes are better kept on disk.

    Examples
    --------
    >>> is_large(1000)
    False
    """
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not Linux
        return size > 1 << 32
    return size > memory // _SHARE


def room(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return an array to fill; a large one lies in a file without a name, in the folder for temporary files.

    Examples
    --------
    >>> room((2, 3), "float32").shape
    (2, 3)
    """
    dtype = np.dtype(dtype)
    if not is_large(int(np.prod(shape, dtype=object)) * dtype.itemsize):
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(prefix="fedfactor-") as file:  # the map keeps it, and the system removes it after
        return np.memmap(file, dtype, "w+", shape=shape)
