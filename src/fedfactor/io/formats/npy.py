"""NumPy's ``.npy``: mapped, not read."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.core.atomic_files import write_atomic
from fedfactor.core.errors import DataError
from fedfactor.io.file_content import Content, Reading


def read(path: Path, reading: Reading) -> Content:
    """Map a ``.npy`` file read-only. Nothing is read until it is used; ``max_bytes`` has no meaning here."""
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty (0 bytes). Write it again with numpy.save.")
    try:
        X = np.load(path, mmap_mode="r", allow_pickle=False)
        return Content(X if reading.rows is None else X[slice(*reading.rows)])
    except Exception as error:  # a damaged header is parsed as Python: tokens, syntax, recursion, anything
        raise DataError(
            f"{path} is not a readable .npy array ({error}). It may be cut short, or hold Python objects, which are "
            "never loaded. Write it again with numpy.save from a numeric array."
        ) from error


def count_rows(path: Path, reading: Reading) -> int:
    """Count the rows without reading them."""
    return len(read(path, reading).X)


def write(path: Path, rows: Any) -> None:
    """Write the matrix alone: the format has no room for names."""
    buffer = io.BytesIO()
    np.save(buffer, rows.X, allow_pickle=False)
    write_atomic(path, buffer.getvalue())
