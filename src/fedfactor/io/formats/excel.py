"""Excel workbooks (``.xlsx``), by openpyxl: the first sheet, its cells read as the text reader reads a CSV file."""

from __future__ import annotations

import csv
import datetime
import tempfile
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedfactor.core.errors import DataError, MissingExtraError
from fedfactor.io.file_content import Content, Reading, refuse_bomb
from fedfactor.io.formats import delimited_text


def read(path: Path, reading: Reading) -> Content:
    """Read the first sheet; what decides about text columns, ids and missing cells is the reader of text files."""
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "sheet.csv"
        title = _write_sheet(path, text, reading)
        try:
            found = delimited_text.read(text, _as_text(reading))
        except DataError as error:
            raise DataError(str(error).replace(str(text), str(path))) from error
    found.said[:1] = [f"sheet {title!r}"]
    return found


def names(path: Path, reading: Reading) -> list[str]:
    """Read the column names alone."""
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "sheet.csv"
        _write_sheet(path, text, reading)
        return delimited_text.names(text, _as_text(reading))


def _as_text(reading: Reading) -> Reading:
    """Numbers of a sheet have no notation of their own; text in its cells may still be censored values."""
    return replace(reading, sep=",", decimal=None, thousands=None, encoding="utf-8")


def _write_sheet(path: Path, text: Path, reading: Reading) -> str:
    """Write the cells of the first sheet as CSV and return its title."""
    try:
        from openpyxl import load_workbook
    except ImportError as error:
        raise MissingExtraError.named("openpyxl", "excel", f"Reading {path}") from error
    try:
        with zipfile.ZipFile(path) as packed:
            refuse_bomb(path, sum(each.file_size for each in packed.infolist()), reading.max_bytes)
        book = load_workbook(path, read_only=True, data_only=True)
    except DataError:
        raise
    except Exception as error:  # openpyxl has no error of its own for damaged files
        raise DataError(f"{path} is not a readable Excel workbook ({error}). Export it as CSV.") from error
    try:
        sheet = book.worksheets[0]
        with text.open("w", encoding="utf-8", newline="") as file:
            rows = ([_cell(value) for value in row] for row in sheet.iter_rows(values_only=True))
            csv.writer(file).writerows(row if any(row) else [] for row in rows)  # blank rows keep their numbers
        return str(sheet.title)
    finally:
        book.close()


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime.datetime | datetime.date):
        return value.isoformat()
    return repr(value) if isinstance(value, float) else str(value)
