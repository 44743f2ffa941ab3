"""What every reader returns, and the checks that are made once, here, and nowhere later."""

from __future__ import annotations

import math
import re
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from fedfactor.core.errors import DataError

__all__ = ["Table", "as_real", "refuse_bomb"]

_BLOCK = 1 << 22  # cells checked in one go: the check must not take as much memory as the matrix
_ROOMY = 1 << 30  # up to 1 GB a file may unfold to any size ...
_RATIO = 50  # ... beyond that to fifty times what it takes on disk
_WHO = r"row|patient|subject|person|sample|case|user|customer|client|record"
_NUMBER = r"id|nr|no|num|number|index|key"
_IDENTIFIER = re.compile(rf"(.*[\W_])?({_NUMBER})|({_WHO})[\W_]?({_NUMBER})?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Table:
    """One owner's rows as read from a file.

    Attributes
    ----------
    X : ndarray or csr_array of shape (n, m)
        Real values, float32 or float64. A ``.npy`` of such values stays a read-only map of the file.
    features : tuple of str or None
        Column names, where the format has them.
    rows : tuple of str or None
        Row identifiers, where the file has them. They stay with the owner.
    """

    X: Any
    features: tuple[str, ...] | None = None
    rows: tuple[str, ...] | None = None


def as_real(X: Any, where: str) -> Any:
    """Fix the dtype, once: small integers, booleans and float16 become float32, other integers float64.

    float32 holds every integer up to 2**24, so 8- and 16-bit integers lose nothing and take half the memory of float64.

    Parameters
    ----------
    X : ndarray or sparse matrix
        Any numeric dtype.
    where : str
        What to call the data in an error.

    Returns
    -------
    ndarray or sparse matrix
        ``X`` itself where it was float32 or float64 in native byte order, else a copy.

    Examples
    --------
    >>> import numpy as np
    >>> from fedfactor.data.table import as_real
    >>> as_real(np.array([[0, 255]], dtype="uint8"), "pixels").dtype
    dtype('float32')
    """
    kind, size = X.dtype.kind, X.dtype.itemsize
    if kind not in "biuf":
        raise DataError(
            f"{where} holds {X.dtype} values, but a factorisation needs real numbers. Convert or drop those columns."
        )
    small = size <= 2 or (kind == "f" and size == 4)
    real = X.astype(np.float32 if small else np.float64, copy=False)
    # A cast map is no map any more, though NumPy keeps calling it one.
    return np.asarray(real) if isinstance(real, np.memmap) and real is not X else real


def refuse_bomb(path: Path, unfolded: int, max_bytes: int | None) -> None:
    """Refuse a file that says it unfolds to an absurd size, before anything is allocated for it.

    Parameters
    ----------
    path : Path
        The file on disk.
    unfolded : int
        Bytes that its header or its content so far asks for.
    max_bytes : int or None
        The caller's own limit. None: 1 GB or fifty times the size on disk, whichever is more.

    Raises
    ------
    DataError
        If it asks for more.
    """
    stored = path.stat().st_size
    limit = max(_ROOMY, _RATIO * stored) if max_bytes is None else max_bytes
    if unfolded > limit:
        raise DataError(
            f"{path} takes {stored:,} bytes on disk but unfolds to {unfolded:,} or more, over the limit of {limit:,}. "
            f"It may be damaged or made to exhaust memory. If you trust it, pass max_bytes={unfolded}."
        )


def refuse_duplicates(path: Path, names: Iterable[str]) -> None:
    """Refuse a table in which two columns share a name."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise DataError(
            f"{path} names the column {twice[0]!r} more than once ({len(twice)} such names). Owners' columns are "
            "matched by name, so every name must be unique: rename or drop the duplicates."
        )


def finish_table(path: Path, X: Any, features: Any, rows: Any, missing_values: Any) -> Table:
    """Check shape, names and values, fix the dtype, and close the table."""
    if X.ndim != 2:
        raise DataError(
            f"{path} holds an array of shape {X.shape}, but a table has rows and columns. Reshape it to 2-D."
        )
    n, m = X.shape
    if n == 0 or m == 0:
        raise DataError(f"{path} is empty: it has {n} rows and {m} columns. Leave this owner out, or check the export.")
    features, rows = _names(path, features, m, "column"), _names(path, rows, n, "row")
    refuse_duplicates(path, features or ())
    X = as_real(X, str(path))
    if not isinstance(X, np.memmap):  # a map is not read on opening; a Federation looks at its values before it runs
        _check_values(path, X, features, isinstance(missing_values, float) and math.isnan(missing_values))
    if features and rows is None:
        _warn_of_identifiers(path, X, features[0])
    return Table(X, features, rows)


def _warn_of_identifiers(path: Path, X: Any, name: str) -> None:
    """Say so when the first column seems to number the rows: its values would be factored, and sums of them sent."""
    if sparse.issparse(X) or len(X) < 3 or not _IDENTIFIER.fullmatch(name.strip()):
        return
    column = np.asarray(X[:, 0])
    if np.array_equal(column, np.trunc(column)) and len(np.unique(column)) == len(column):
        warnings.warn(
            f"{path}: the first column, {name!r}, holds another whole number in every row, and its name sounds like an "
            "identifier. It is factored like any feature, and sums over it are sent. Drop it, or leave its name empty, "
            "which makes it name the rows.",
            UserWarning,
            stacklevel=4,
        )


def _names(path: Path, names: Any, expected: int, what: str) -> tuple[str, ...] | None:
    if names is None:
        return None
    names = tuple(str(name) for name in names)
    if len(names) != expected:
        raise DataError(f"{path} has {expected} {what}s but {len(names)} {what} names. Give one name for each.")
    return names


def _check_values(path: Path, X: Any, features: tuple[str, ...] | None, nan_is_missing: bool) -> None:
    values = X.data.reshape(-1, 1) if sparse.issparse(X) else X
    step = max(1, _BLOCK // values.shape[1])
    for start in range(0, values.shape[0], step):
        block = values[start : start + step]
        bad = np.isinf(block) if nan_is_missing else ~np.isfinite(block)
        if not bad.any():
            continue
        i, j = (int(position) for position in np.argwhere(bad)[0])
        value = block[i, j]
        i += start
        if sparse.issparse(X):
            i, j = int(np.searchsorted(X.indptr, i, side="right")) - 1, int(X.indices[i])
        _complain(path, i, repr(features[j]) if features else str(j), value)


def _complain(path: Path, row: int, column: str, value: float) -> None:
    if np.isinf(value):
        raise DataError(
            f"{path} holds an infinite value in row {row}, column {column}. Remove or cap it before factoring."
        )
    raise DataError(
        f"{path} lacks a value in row {row}, column {column} (the first such cell; rows count from 0), and "
        "missing_values does not say that NaN marks missing cells. Pass missing_values=float('nan'), on the command "
        "line --missing-values nan, or fill them."
    )
