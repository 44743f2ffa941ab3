"""Tables as text: ``.csv``, ``.tsv``, with or without ``.gz``; separator and decimal sign are found.

One reader, the standard library's, for every machine: Arrow and pandas are optional here, and a second reader would
give a second answer to odd cells. Values go straight into one growing buffer of doubles, so the memory needed is that
of the matrix and one line. For large data prefer ``.npz`` or Parquet.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from fedfactor.core.atomic_files import write_atomic
from fedfactor.core.errors import DataError
from fedfactor.core.id_columns import names_ids
from fedfactor.io.file_content import NO_ID, Content, Reading, refuse_bomb
from fedfactor.io.long_tables import long_names

_LONGEST = 1 << 27
_SAMPLE = 100  # lines
_RESTARTS = 30
_MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "#n/a", ".", "?"})
WORDS = {
    **dict.fromkeys(("true", "yes", "y", "ja", "oui", "si", "sí"), 1.0),
    **dict.fromkeys(("false", "no", "n", "nein", "nee", "non"), 0.0),
}
"""Cells of yes/no columns, in small letters. Not t and f: a column of one sex would be read as no."""
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", " ": "spaces"}
_FALLBACK = "cp1252"
"""Encoding of most exports that are not UTF-8: Windows-1252, which has all letters of Latin-1."""
_CENSORED = re.compile(r"\s*[<>]=?\s*(?=[\d.,])")
_CENSORING = {
    "limit": "the limit is taken",
    "half": "half the limit is taken below a limit, the limit above one",
    "missing": "taken as missing",
}
_GROUPED = {
    ",": re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?"),
    ".": re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d+)?"),
}
_SURELY_GROUPED = {  # with decimals or several groups: 7,200 alone may be seven
    ",": re.compile(r"[+-]?[1-9]\d{0,2}((,\d{3})+\.\d+|(,\d{3}){2,})"),
    ".": re.compile(r"[+-]?[1-9]\d{0,2}((\.\d{3})+,\d+|(\.\d{3}){2,})"),
}
_COMMA_NUMBER = re.compile(r"[+-]?\d+,\d+([eE][+-]?\d+)?")
_POINT_NUMBER = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")


class _Text(Exception):
    """Raised inside this module with the column of a cell that is not a number."""


@dataclass(slots=True)
class _Layout:
    """How the file is written, and which columns are what."""

    sep: str
    decimal: str
    header: list[str]
    width: int
    unnamed: bool  # the first column has no name: it names the rows
    text: set[int]
    skip: set[int]

    @property
    def names(self) -> list[str]:
        """A name for every column; the empty one for row names."""
        return self.header if len(self.header) == self.width else ["", *self.header]


def read(path: Path, reading: Reading) -> Content:
    """Read a header of names and lines of cells; columns that hold anything but numbers are kept as text."""
    try:
        return _read(path, reading)
    except UnicodeError as error:
        if reading.encoding is None:
            try:
                found = _read(path, replace(reading, encoding=_FALLBACK))
            except (UnicodeError, DataError):
                pass  # no text of that kind either
            else:
                found.said.append(f"not UTF-8, read as {_FALLBACK} (another with --encoding)")
                return found
        raise DataError(
            f"{path} is not readable as text ({error}). Name its encoding (--encoding latin-1), or export it as UTF-8."
        ) from error


def _read(path: Path, reading: Reading) -> Content:
    try:
        layout = _sniff(path, reading)
        for _ in range(_RESTARTS):
            try:
                return _parse(path, layout, reading)
            except _Text as found:  # what came before it was taken for numbers, so begin again
                layout.text.add(found.args[0])
        raise DataError(
            f"{path} has more than {_RESTARTS} columns that are text further down. Name the columns to take "
            "(--columns), or those to leave out (--drop)."
        )
    except LookupError as error:
        raise DataError(f"--encoding {reading.encoding} is not known ({error}). Use utf-8, cp1252, latin-1.") from None
    except (csv.Error, EOFError, OSError, zlib.error) as error:
        if isinstance(error, OSError) and not isinstance(error, gzip.BadGzipFile):
            raise
        raise DataError(f"{path} is not readable as text ({error}). Export it again as UTF-8 CSV.") from error


def names(path: Path, reading: Reading) -> list[str]:
    """Read the column names alone."""
    try:
        found = _sniff(path, reading)
    except UnicodeError:
        if reading.encoding is not None:
            raise
        found = _sniff(path, replace(reading, encoding=_FALLBACK))
    return [name for name in found.names if name]


def _open(path: Path, reading: Reading) -> TextIO:
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    with opener(path, "rb") as file:
        mark = file.read(2)
    encoding = "utf-16" if mark in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"  # the first is Excel's "Unicode text"
    file: Any = opener(path, "rt", encoding=reading.encoding or encoding, newline="")
    for _ in range(reading.skip):
        file.readline(_LONGEST)
    return file


def _bounded(path: Path, file: TextIO) -> Iterator[str]:
    """Yield lines, but do not let one line of a compressed file fill the memory."""
    while line := file.readline(_LONGEST):
        if len(line) == _LONGEST:
            raise DataError(
                f"{path} has a line of {_LONGEST:,} characters or more: no table. Check how it was exported."
            )
        yield line


def _sniff(path: Path, reading: Reading) -> _Layout:
    """Find separator, decimal sign and layout from the first lines."""
    usual = "\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ","
    with _open(path, reading) as file:
        lines = list(islice(_bounded(path, file), _SAMPLE))
    if not lines:
        raise DataError(f"{path} is empty. A table has a header line of column names, then one line for each row.")
    sep = reading.sep or _separator(lines, usual)
    sample = [cells for cells in csv.reader(lines, delimiter=sep, strict=True, skipinitialspace=sep == " ") if cells]
    if not sample:
        raise DataError(f"{path} holds only blank lines. A table has a header line, then one line for each row.")
    header = sample[0]
    rows = sample[1:]
    if not rows:
        raise DataError(f"{path} has a header but no rows. Leave this owner out, or check the export.")
    decimal = reading.decimal or _decimal(rows, sep)
    width = len(rows[0])
    # R writes no name above its row names, pandas an empty one: then the first column is ids even if numeric.
    # (One cell more, and empty, is a trailing comma instead: refused below.)
    short = len(header) == width - 1 and rows[0][-1] != ""
    layout = _Layout(sep, decimal, header, len(header) + short, short or not header[0].strip(), set(), set())
    if not (layout.unnamed and layout.width > 1):
        layout.unnamed = False
    _check_header(path, layout, reading)
    names = layout.names
    if reading.id not in (None, NO_ID) or reading.columns:
        reading.check(str(path), [name for name in names if name])
    cells = long_names([name for name in names if name], reading)
    for j, name in enumerate(names):
        if j == 0 and layout.unnamed:
            layout.text.add(0)
        elif name == reading.id:
            layout.text.add(j)
        else:
            text = any(len(row) > j and _number(row[j], decimal, reading) is None for row in rows)
            if not reading.takes(name):
                (layout.text if reading.may_name_rows(name, j == 0 and text) else layout.skip).add(j)
            elif text or name in cells or (names_ids(name) and reading.id != NO_ID):
                layout.text.add(j)
    return layout


def _separator(lines: list[str], usual: str) -> str:
    """Take the separator that cuts all lines alike, the usual one for the ending if it does."""
    best = usual
    most = 1
    for sep in (usual, *(each for each in SEPARATORS if each != usual)):
        try:
            widths = [len(cells) for cells in csv.reader(lines, delimiter=sep, strict=True) if cells]
        except csv.Error:
            continue
        rows = widths[1:]
        if not rows or max(widths) < 2:
            continue
        alike = len(set(rows)) == 1 and rows[0] - widths[0] in (0, 1)
        if sep == usual and widths[0] > 1 and (alike or rows[0] == widths[0]):
            return sep
        if alike and widths[0] > most:
            best = sep
            most = widths[0]
    return best


def _decimal(rows: list[list[str]], sep: str) -> str:
    if sep == ",":
        return "."
    cells = [cell.strip() for row in rows for cell in row]
    commas = sum(bool(_COMMA_NUMBER.fullmatch(cell)) for cell in cells)
    points = sum(bool(_POINT_NUMBER.fullmatch(cell)) for cell in cells)
    return "," if commas > points else "."


def _parse(path: Path, layout: _Layout, reading: Reading) -> Content:
    names = layout.names
    width = layout.width
    decimal = layout.decimal
    taken = [j for j in range(width) if j not in layout.text and j not in layout.skip]
    texts: dict[int, list[str]] = {j: [] for j in sorted(layout.text)}
    plain = len(taken) == width and decimal == "."
    values = array("d")
    places = array("q")
    size = 0
    said_words: set[int] = set()
    censored = 0
    for line, cells in _lines(path, layout, reading):
        places.append(line)
        for j, column in texts.items():
            column.append(cells[j])
            size += len(cells[j]) + 56
        picked = cells if plain else [cells[j] for j in taken]
        try:
            values.extend(_numbers(picked, decimal))
        except ValueError:
            for j, cell in zip(taken, picked, strict=True):
                number = _number(cell, decimal, reading)
                if number is None:
                    raise _Text(j) from None
                if _CENSORED.match(cell):
                    censored += 1
                if cell.strip().lower() in WORDS:
                    said_words.add(j)
                values.append(number)
        if len(places) % 256 == 0 or width > 1 << 16:
            refuse_bomb(path, len(values) * 8 + size, reading.max_bytes)
    refuse_bomb(path, len(values) * 8 + size, reading.max_bytes)
    if not places:
        raise DataError(f"{path} has a header but no rows. Leave this owner out, or check the export.")
    X = np.frombuffer(values, dtype=np.float64).reshape(len(places), len(taken))
    said = [f"cells apart by {SEPARATORS.get(layout.sep, layout.sep)}"]
    if decimal == ",":
        said.append("decimal comma")
    if said_words:
        said.append(f"{len(said_words)} yes/no columns as 1/0")
    if censored:
        said.append(f"{censored:,} censored values: {_CENSORING[reading.censored or '']}")
    found = Content(X, [names[j] for j in taken], said=said, place=lambda i: f"line {places[i]}")
    found.decimal = decimal
    found.order = [name for j, name in enumerate(names) if not (j == 0 and layout.unnamed)]
    if layout.unnamed:
        ids = texts.pop(0)
        if reading.id is None:
            found.row_ids = ids
    found.texts = {names[j]: lambda column=column: column for j, column in texts.items()}
    return found


def _lines(path: Path, layout: _Layout, reading: Reading) -> Iterator[tuple[int, list[str]]]:
    """Yield the number and the cells of each line below the header; refuse one that is longer or shorter."""
    previous = 1 + reading.skip
    begun = False
    with _open(path, reading) as file:
        reader = csv.reader(_bounded(path, file), delimiter=layout.sep, strict=True, skipinitialspace=layout.sep == " ")
        for cells in reader:
            line = previous
            previous = reader.line_num + 1 + reading.skip
            if not cells:
                continue  # a blank line, often the last
            if not begun:
                begun = True
                continue  # the header
            if len(cells) != layout.width:
                raise DataError(
                    f"{path}, line {line}: {len(cells)} cells where the header names {layout.width}. The separator is "
                    f"taken to be {SEPARATORS.get(layout.sep, layout.sep)!r} (another with --sep)."
                )
            yield line, cells


def _numbers(cells: list[str], decimal: str) -> list[float]:
    if "_" in "".join(cells):  # float("1_000") is 1000.0 in Python; in a table it is a slip
        raise ValueError
    if decimal == ".":
        return [float(cell) for cell in cells]
    return [float(_turned(cell)) for cell in cells]


def _turned(cell: str) -> str:
    if "." in cell:
        raise ValueError
    return cell.replace(",", ".")


def _number(cell: str, decimal: str = ".", reading: Reading | None = None) -> float | None:
    """Read one cell: a number, a word for yes or no, NaN where it is empty; None when it is text."""
    word = cell.strip().lower()
    if word in _MISSING:
        return np.nan
    if word in WORDS:
        return WORDS[word]
    try:
        return None if "_" in cell else float(cell if decimal == "." else _turned(cell))
    except ValueError:
        return _written_number(word, decimal, reading)


def _written_number(word: str, decimal: str, reading: Reading | None) -> float | None:
    """Read thousands separators where no other reading is possible or they were named, and censored values.

    Examples
    --------
    >>> [_written_number(word, ",", Reading(censored="half")) for word in ("7.200,5", "<0,5", "7.200", "red")]
    [7200.5, 0.25, None, None]
    """
    censored = None if reading is None else reading.censored
    if (mark := _CENSORED.match(word)) and censored is not None:
        limit = _number(word[mark.end() :], decimal, reading)
        if limit is None or censored == "missing":
            return None if limit is None else np.nan
        return limit / 2 if censored == "half" and word[0] == "<" else limit
    group = "." if decimal == "," else ","
    named = reading is not None and reading.thousands == group
    if not (_GROUPED if named else _SURELY_GROUPED)[group].fullmatch(word):
        return None
    return float(word.replace(group, "").replace(",", "."))


def numbers_of(cells: Sequence[str], decimal: str = ".") -> tuple[np.ndarray | None, int]:
    """Read a column of text as numbers; None and the first place that is none.

    Examples
    --------
    >>> numbers_of(["1", "yes", ""])[0].tolist(), numbers_of(["1", "red"])
    ([1.0, 1.0, nan], (None, 1))
    """
    found = array("d")
    for place, cell in enumerate(cells):
        number = _number(cell, decimal)
        if number is None:
            return None, place
        found.append(number)
    return np.frombuffer(found, np.float64) if found else np.zeros(0), -1


def _check_header(path: Path, layout: _Layout, reading: Reading) -> None:
    names = [name for j, name in enumerate(layout.names) if j or not layout.unnamed]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise DataError(
            f"{path} names the column {twice[0]!r} more than once ({len(twice)} such names). Owners' columns are "
            "matched by name, so every name must be unique: rename or drop the duplicates."
        )
    try:
        numbers = [float(name) for name in names]
    except ValueError:
        return
    # Numbers as names are fine when they list columns in order (0, 1, 2 or movie ids); else it is the first row.
    if any(number != int(number) for number in numbers if np.isfinite(number)) or np.any(np.diff(numbers) <= 0):
        raise DataError(
            f"{path} seems to have no header: its first line holds the numbers {', '.join(names[:4])}, .... "
            "It would be lost as names. Put a line of column names on top."
        )


def write(path: Path, rows: Any) -> None:
    """Write components as columns; ids, where there are some, are the first column."""
    text = io.StringIO()
    sep = "\t" if path.name.lower().removesuffix(".gz").endswith(".tsv") else ","
    writer = csv.writer(text, lineterminator="\n", delimiter=sep)
    writer.writerow(
        [*(() if rows.row_ids is None else (harmless(rows.id_name or "row"),)), *map(harmless, rows.features)]
    )
    for i, values in enumerate(np.asarray(rows.X).tolist()):
        writer.writerow(values if rows.row_ids is None else [harmless(rows.row_ids[i]), *values])
    data = text.getvalue().encode("utf-8", "surrogatepass")
    write_atomic(path, gzip.compress(data) if path.suffix.lower() == ".gz" else data)


def harmless(cell: str) -> str:
    """Put a quote before text that a spreadsheet would run as a formula; numbers stay as they are.

    Examples
    --------
    >>> harmless("=HYPERLINK(1)"), harmless("-5"), harmless("anna")
    ("'=HYPERLINK(1)", '-5', 'anna')
    """
    cell = cell.replace("\r\n", "\n").replace("\r", "\n")  # bare, a writer leaves it unquoted
    if cell[:1] not in ("=", "+", "-", "@", "\t", "\r", "\n"):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell
