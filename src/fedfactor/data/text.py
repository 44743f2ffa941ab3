"""Tables as text: ``.csv``, ``.tsv``, with or without ``.gz``.

One reader, the standard library's, for every machine. pandas is faster, but it is optional here, and its default float
parser may differ in the last bit from Python's: two readers would give two answers. Values go straight into one growing
buffer of doubles, so the memory needed is that of the matrix and one line. For large data prefer ``.npz`` or Parquet.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

import numpy as np

from fedfactor.core.errors import DataError
from fedfactor.data.table import refuse_bomb

__all__ = ["read_text"]

_LONGEST = 1 << 27
_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "#n/a"})


class _NotANumber(Exception):
    """Raised inside this module with (column, cell, where)."""


def read_text(path: Path, max_bytes: int | None) -> tuple[np.ndarray, list[str], list[str] | None]:
    """Read a header of feature names and rows of numbers; a first column that is not all numbers names the rows."""
    try:
        try:
            return _parse(path, False, max_bytes)
        except _NotANumber as error:
            if error.args[0]:
                raise
            return _parse(path, True, max_bytes)
    except _NotANumber as error:
        raise DataError(
            f"{path}, {error.args[2]}: {error.args[1]!r} is not a number, which a factorisation needs (only a first "
            "column of text is read as row ids): drop the column, encode it, or leave missing cells empty."
        ) from None
    except (UnicodeDecodeError, csv.Error, EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{path} is not readable as text ({error}). Export it again as UTF-8 CSV.") from error


def _lines(path: Path) -> Iterator[list[str]]:
    name = path.name.lower().removesuffix(".gz")
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
        yield from csv.reader(_bounded(path, file), delimiter="\t" if name.endswith(".tsv") else ",", strict=True)


def _bounded(path: Path, file: TextIO) -> Iterator[str]:
    """Yield lines, but do not let one line of a compressed file fill the memory."""
    while line := file.readline(_LONGEST):
        if len(line) == _LONGEST:
            raise DataError(
                f"{path} has a line of {_LONGEST:,} characters or more: no table. Check how it was exported."
            )
        yield line


def _parse(path: Path, has_ids: bool, max_bytes: int | None) -> tuple[np.ndarray, list[str], list[str] | None]:
    lines = _lines(path)
    header = next(lines, None)
    if header is None:
        raise DataError(f"{path} is empty. A table has a header line of column names, then one line for each row.")
    values, rows, n = array("d"), [], 0
    for number, cells in enumerate(lines, start=2):
        if not cells:
            continue  # a blank line, often the last
        if not n:
            header, has_ids = _layout(path, header, cells, has_ids)
        if len(cells) != len(header) + has_ids:
            raise DataError(
                f"{path}, line {number}: {len(cells)} cells where the header names {len(header) + has_ids}. "
                "Check the delimiter (.csv has commas, .tsv tabs) and unquoted commas."
            )
        n += 1
        if has_ids:
            rows.append(cells.pop(0))
        try:
            values.extend(_numbers(cells))
        except _NotANumber as error:
            j, cell = error.args
            raise _NotANumber(j + has_ids, cell, f"line {number}, column {header[j]!r}") from None
        if n % 256 == 0 or len(cells) > 1 << 16:
            refuse_bomb(path, len(values) * 8, max_bytes)
    if not n:
        raise DataError(f"{path} has a header but no rows. Leave this owner out, or check the export.")
    return np.frombuffer(values, dtype=np.float64).reshape(n, len(header)), header, rows if has_ids else None


def _layout(path: Path, header: list[str], cells: list[str], has_ids: bool) -> tuple[list[str], bool]:
    """Tell from the header and the first row whether the first column names the rows; return the features."""
    width = len(cells)
    # R writes no name above its row names, pandas an empty one: then the first column is ids even if numeric.
    # (One cell more, and empty, is a trailing comma instead: refused by the caller.)
    has_ids = has_ids or (len(header) == width - 1 and cells[-1] != "") or (not header[0].strip() and width > 1)
    features = header[1:] if has_ids and len(header) == width else header
    if not features:
        raise DataError(
            f"{path} has one column, {header[0]!r}, and it holds no numbers. Check the delimiter (.csv has commas, "
            ".tsv tabs)."
        )
    _check_header(path, features)
    return features, has_ids


def _numbers(cells: list[str]) -> list[float]:
    try:
        if "_" not in "".join(cells):  # float("1_000") is 1000.0 in Python; in a table it is a slip
            return [float(cell) for cell in cells]
    except ValueError:
        pass
    return [_number(j, cell) for j, cell in enumerate(cells)]


def _number(j: int, cell: str) -> float:
    if cell.strip().lower() in _MISSING:
        return np.nan
    try:
        if "_" not in cell:
            return float(cell)
    except ValueError:
        pass
    raise _NotANumber(j, cell)


def _check_header(path: Path, header: list[str]) -> None:
    try:
        numbers = [float(name) for name in header]
    except ValueError:
        return
    # Numbers as names are fine when they list columns in order (0, 1, 2 or movie ids); else it is the first row.
    if any(number != int(number) for number in numbers if np.isfinite(number)) or np.any(np.diff(numbers) <= 0):
        raise DataError(
            f"{path} seems to have no header: its first line holds the numbers {', '.join(header[:4])}, .... "
            "It would be lost as names. Put a line of column names on top."
        )
