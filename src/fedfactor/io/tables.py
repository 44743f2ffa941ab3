"""What every reader returns, and what is decided once, here, for every format: ids, text, yes/no, long tables."""

from __future__ import annotations

import math
import re
import shlex
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedfactor.core.errors import DataError
from fedfactor.core.id_columns import looks_like_ids, names_ids
from fedfactor.core.input_validation import as_real, is_sparse
from fedfactor.core.printable_text import listed
from fedfactor.io.file_content import NO_ID, Content, Missing, Reading
from fedfactor.io.formats.delimited_text import numbers_of
from fedfactor.io.long_tables import Roles, latest, pivot, roles_of, times_of

__all__ = ["NotNumbers", "Table", "finish_table"]

_DATE = re.compile(r"(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3\d{2,4})([T ]\d{1,2}:\d\d\S*)?")
_BLOCK = 1 << 22  # cells checked in one go: the check must not take as much memory as the matrix


@dataclass(frozen=True, slots=True)
class Table:
    """One client's rows as read from a file.

    Attributes
    ----------
    X : ndarray or csr_array of shape (n, m)
        Real values, float32 or float64. A ``.npy`` of such values stays a read-only map of the file.
    features : tuple of str or None
        Column names, where the format has them.
    row_ids : tuple of str or None
        Row identifiers, where the file has them. They stay with the client.
    id_name : str or None
        The column that the identifiers came from.
    missing_values : None, nan, number or "unstored"
        What marks a missing cell: as was asked, or as a long table of ratings implies.
    said : str
        One line: what was taken for what.
    """

    X: Any
    features: tuple[str, ...] | None = None
    row_ids: tuple[str, ...] | None = None
    id_name: str | None = None
    missing_values: Missing = None
    said: str = ""

    @property
    def rows(self) -> tuple[str, ...] | None:
        """The row ids by their former name."""
        warnings.warn("Table.rows is now Table.row_ids; the old name goes in 0.3.", DeprecationWarning, stacklevel=2)
        return self.row_ids


class NotNumbers(DataError):
    """Columns that hold text where numbers are needed: all of them by name, so that one answer serves for all.

    ``columns`` maps each to its first such cell and the row of it.
    """

    def __init__(self, where: object, content: Content, columns: dict[str, tuple[str, int]]) -> None:
        self.columns = columns
        name, (cell, i) = next(iter(columns.items()))
        others = [repr(other) for other in list(columns)[1:]]
        kind = "a date, not a number" if is_date(cell) else "not a number"
        if cell.strip()[:1] in ("<", ">"):
            kind += " (a censored value: --censored limit, half or missing)"
        more = f" The same holds for {listed(others)}." if others else ""
        which, one, each = ("columns", "one", "them") if others else ("column", "it", "it")
        super().__init__(
            f"{where}, {content.place(i)}, column {name!r}: {cell!r} is {kind}, which a factorisation needs.{more} "
            f"Leave the {which} out (--drop {shlex.quote(','.join(columns))}; in Python drop={list(columns)!r}), take "
            f"{one} for ids (--id {shlex.quote(name)}), encode {each}, or leave what is missing empty."
        )


def is_date(cell: str) -> bool:
    """Return whether a value is a date, with or without a time of day.

    Examples
    --------
    >>> [is_date(cell) for cell in ("2024-07-16", "16.7.2024", "7/16/24 10:30", "2024-07-16T10:30:00Z", "1.5", "red")]
    [True, True, True, True, False, False]
    """
    return bool(_DATE.fullmatch(cell.strip()))


def finish_table(where: object, content: Content, reading: Reading) -> Table:
    """Decide what the columns are, check shape, names and values, fix the dtype, and report what was done."""
    said = list(content.said)
    if len(content.X.shape) != 2:
        raise DataError(
            f"{where} holds an array of shape {content.X.shape}, but a table has rows and columns. Reshape it to 2-D."
        )
    if content.features is None and (reading.columns or reading.drop or reading.id not in (None, NO_ID)):
        raise DataError(f"{where} does not name its columns, so none can be chosen by name. Use a format with names.")
    roles = roles_of([name for name in content.order if reading.takes(name)], reading) if content.order else None
    missing = reading.missing_values
    if roles is not None:
        X, features, ids, older = _pivoted(where, content, roles)
        id_name: str | None = roles.who
        said.append(f"a long table: {roles.who} as rows, {roles.what} as columns, {roles.value} as values")
        if older:
            said.append(f"of cells listed more than once the latest by {roles.when}: {older:,} older lines left out")
        if roles.rest:
            said.append(f"left out: {', '.join(roles.rest)}")
        if isinstance(missing, float) and math.isnan(missing):
            missing = None  # no cell of a long table is NaN: what is missing is not listed
        if missing is None and roles.rated:
            missing = "unstored"
            said.append("what is not listed is missing")
    else:
        X, features, ids, id_name = _decided(where, content, reading, said)
    n, m = X.shape
    if n and not m and (content.order or content.features):
        raise DataError(
            f"{where} has no column of numbers left (of {listed(content.order)}). Check the separator (--sep), or name "
            "the columns to take (--columns)."
        )
    if n == 0 or m == 0:
        raise DataError(
            f"{where} is empty: it has {n} rows and {m} columns. Leave this owner out, or check the export."
        )
    features = _names(where, features, m, "column")
    ids = _names(where, ids, n, "row")
    _refuse_twice(where, features)
    _check_ids(where, ids, id_name, reading, content)
    X = as_real(X, str(where))
    if not isinstance(X, np.memmap):  # a map is not read on opening; a Federation looks at its values before it runs
        lacking = _check_values(where, X, features, content, isinstance(missing, float) and math.isnan(missing))
        if lacking:
            said.append(f"{lacking:,} cells missing ({lacking / (n * m):.1%})")
    line = f"{where}: {n:,} rows × {m:,} columns"
    if is_sparse(X):
        line += f", {len(X.data) / (n * m):.2%} of the cells stored"
    return Table(X, features, ids, id_name, missing, "; ".join([line, *said]) + ".")


def _pivoted(where: object, content: Content, roles: Roles) -> tuple[Any, list[str], list[str], int]:
    """Make the matrix; also return how many lines were dropped because a later one has the same cell."""

    def text(name: str) -> Sequence[str]:
        if name in content.texts:
            return content.texts[name]()
        return [f"{value:.15g}" for value in _column(content, name).tolist()]

    assert roles.value is not None
    if roles.value in content.texts:
        values, wrong = numbers_of(content.texts[roles.value](), content.decimal)
        if values is None:
            # Without its values no long table is left to look at, so this is no column that could be dropped.
            cell = content.texts[roles.value]()[wrong]
            raise DataError(str(NotNumbers(where, content, {roles.value: (cell, wrong)})))
    else:
        values = _column(content, roles.value)
    who = text(roles.who)
    what = text(roles.what)
    older = 0
    if roles.when is not None and len(set(zip(who, what, strict=True))) < len(who):
        when = times_of(text(roles.when))
        kept = None if when is None else latest(who, what, when)
        if kept is not None:
            older = len(who) - len(kept)
            places: list[int] = kept.tolist()
            who = [who[i] for i in places]
            what = [what[i] for i in places]
            values = values[kept]
    X, rows, columns = pivot(where, roles, who, what, values)
    return X, columns, rows, older


def _column(content: Content, name: str) -> np.ndarray:
    return np.asarray(content.X[:, (content.features or []).index(name)])


def _decided(
    where: object, content: Content, reading: Reading, said: list[str]
) -> tuple[Any, list[str] | None, Sequence[str] | None, str | None]:
    """Distinguish ids from features; turn text that is numbers, or yes and no, into numbers; refuse other text."""
    if content.features is None:
        return content.X, None, content.row_ids, content.id_name
    found = _Columns(where, content, reading)
    # A name that means ids decides before the place: a date may stand further left.
    for name in sorted(found.texts, key=lambda each: not names_ids(each)):
        found.sort_text(name, found.texts[name]())
    if found.words:
        raise NotNumbers(where, content, found.words)
    kept = [name for name in content.features if reading.takes(name) and name != found.id_name]
    if found.guess and not is_sparse(content.X):
        for name in list(kept):
            values = _column(content, name)
            if name not in found.named and looks_like_ids(name, values):
                kept.remove(name)
                if found.ids is None:
                    found.ids = _as_ids(where, name, values)
                    found.id_name = name
                else:
                    found.left_out.append(name)
    if found.ids is not None:
        said.append(f"row ids: {found.id_name or 'the index'}")
    if found.left_out:
        said.append(f"left out: {listed(found.left_out)}")
    X, features = _assembled(content, kept, found.added)
    return X, features, found.ids, found.id_name


class _Columns:
    """What the columns of a table turn out to be: ids, numbers written as text, words, and what is left out."""

    def __init__(self, where: object, content: Content, reading: Reading) -> None:
        self.where = where
        self.content = content
        self.reading = reading
        self.ids = content.row_ids
        self.id_name = content.id_name
        self.left_out = [name for name in content.order if not reading.takes(name) and name != reading.id]
        self.texts = {name: content.texts[name] for name in content.order if name in content.texts}
        self.added: dict[str, np.ndarray] = {}
        self.words: dict[str, tuple[str, int]] = {}
        self.guess = reading.id is None
        self.named = matches_any(reading)
        if reading.id not in (None, NO_ID):
            self.id_name = name = reading.id
            self.ids = self.texts.pop(name)() if name in self.texts else _as_ids(where, name, _column(content, name))

    def sort_text(self, name: str, cells: Sequence[str]) -> None:
        """Return what a column of text is."""
        values, wrong = numbers_of(cells, self.content.decimal)
        looks = self.guess and name not in self.named
        if not self.reading.takes(name):  # not asked for: it may name the rows, and is nothing else
            if self.ids is None and (names_ids(name) or len(set(cells)) == len(cells)):
                self.ids = cells
                self.id_name = name
                self.left_out.remove(name)
        elif values is not None:
            self._sort_numbers(name, cells, values, looks)
        elif self.ids is None and looks and (names_ids(name) or self._names_rows(name, cells)):
            self.ids = cells
            self.id_name = name
        elif looks and names_ids(name):
            self.left_out.append(name)
        else:
            self.words[name] = cells[wrong], wrong

    def _names_rows(self, name: str, cells: Sequence[str]) -> bool:
        first = self.content.order[0] if self.content.order else None
        return _names_rows(cells, name == first, self.content.decimal)

    def _sort_numbers(self, name: str, cells: Sequence[str], values: np.ndarray, looks: bool) -> None:
        # By their text, too: long numbers may be different where doubles are not.
        differ = names_ids(name) and _whole(values) and len(set(cells)) == len(cells) > 2
        if looks and (differ or looks_like_ids(name, values)):
            if self.ids is None:
                self.ids = cells
                self.id_name = name
            else:
                self.left_out.append(name)
        elif looks and names_ids(name) and len(values) > 2 and _whole(values):
            if self.reading.repeated_ids and self.ids is None:
                self.ids = cells
                self.id_name = name
                return
            raise _repeated(self.where, name, cells, self.content)
        else:
            self.added[name] = values


def matches_any(reading: Reading) -> frozenset[str]:
    """Names that were asked for letter by letter: these are features, whatever they look like."""
    return frozenset(word for word in reading.columns if not set(word) & set("*?"))


def _assembled(content: Content, kept: list[str], added: dict[str, np.ndarray]) -> tuple[Any, list[str]]:
    """Put the columns together in the order of the file; without a copy when nothing changes."""
    features = content.features or []
    if not added and kept == features:
        return content.X, features
    position = {name: j for j, name in enumerate(features)}
    wanted = set(kept) | set(added)
    order = [name for name in (content.order or features) if name in wanted]
    if not added:
        return content.X[:, [position[name] for name in order]], order
    X = np.empty((content.X.shape[0], len(order)), np.float64)
    for j, name in enumerate(order):
        X[:, j] = added[name] if name in added else content.X[:, position[name]]
    return X, order


def _whole(values: np.ndarray) -> bool:
    return bool(np.isfinite(values).all() and np.array_equal(values, np.trunc(values)))


def _names_rows(cells: Sequence[str], first: bool, decimal: str) -> bool:
    """Distinguish names from a column of numbers with a slip in it; dates, and beyond the first column all, must
    differ.
    """
    once = len(set(cells)) == len(cells) > 1
    if first and not once and all(map(is_date, cells)):
        return False
    numbers = sum(numbers_of([cell], decimal)[0] is not None for cell in cells)
    return 2 * numbers <= len(cells) if first else numbers == 0 and once


def _as_ids(where: object, name: str, values: np.ndarray) -> list[str]:
    if values.size and float(np.nanmax(np.abs(values))) > 2**53:
        raise DataError(
            f"{where}: the ids in {name!r} have more digits than numbers keep apart. Say that they are ids: --id "
            f"{name}, in Python id={name!r}."
        )
    return [f"{value:.17g}" for value in values.tolist()]


def _repeated(where: object, name: str, ids: Sequence[str], content: Content) -> DataError:
    seen: dict[str, int] = {}
    for place, each in enumerate(ids):
        if each in seen:
            return DataError(
                f"{where}: the row ids in {name!r} are not unique: {each!r} stands in {content.place(seen[each])} and "
                f"in {content.place(place)}. Remove one of the rows, take another column for the ids (--id), or leave "
                f"this one out (--drop {name}). If it is a measurement, say so: --id none."
            )
        seen[each] = place
    return DataError(f"{where}: the row ids in {name!r} cannot be used. Leave them out: --drop {name}.")


def _check_ids(where: object, ids: Any, name: str | None, reading: Reading, content: Content) -> None:
    if ids is None or reading.repeated_ids or len(set(ids)) == len(ids):
        return
    raise _repeated(where, name or "index", ids, content)


def _names(where: object, names: Any, expected: int, what: str) -> tuple[str, ...] | None:
    if names is None:
        return None
    names = tuple(str(name) for name in names)
    if len(names) != expected:
        raise DataError(f"{where} has {expected} {what}s but {len(names)} {what} names. Give one name for each.")
    return names


def _refuse_twice(where: object, names: tuple[str, ...] | None) -> None:
    twice = [name for name, count in Counter(names or ()).items() if count > 1]
    if twice:
        raise DataError(
            f"{where} names the column {twice[0]!r} more than once ({len(twice)} such names). Owners' columns are "
            "matched by name, so every name must be unique: rename or drop the duplicates."
        )


def _check_values(
    where: object, X: Any, features: tuple[str, ...] | None, content: Content, nan_is_missing: bool
) -> int:
    """Look at every value once; return how many cells are missing."""
    values = X.data.reshape(-1, 1) if is_sparse(X) else X
    step = max(1, _BLOCK // values.shape[1])
    lacking = 0
    for start in range(0, values.shape[0], step):
        block = values[start : start + step]
        if np.isfinite(block).all():
            continue
        bad = np.isinf(block) if nan_is_missing else ~np.isfinite(block)
        lacking += int(np.isnan(block).sum())
        if not bad.any():
            continue
        i, j = (int(position) for position in np.argwhere(bad)[0])
        value = block[i, j]
        i += start
        if is_sparse(X):
            i, j = int(np.searchsorted(X.indptr, i, side="right")) - 1, int(X.indices[i])
        place = f"row {i}" if is_sparse(X) or features is None else content.place(i)
        _complain(where, place, repr(features[j]) if features else str(j), value)
    return lacking


def _complain(where: object, place: str, column: str, value: float) -> None:
    if np.isinf(value):
        raise DataError(
            f"{where} holds an infinite value in {place}, column {column}. Remove or cap it before factoring."
        )
    raise DataError(
        f"{where} lacks a value in {place}, column {column} (the first such cell), and nothing says "
        "that NaN marks missing cells. Say so with --missing nan (in a federation the coordinator does: federation "
        "init --missing nan, or missing_values = 'nan' in [preprocess]), in Python with missing_values=float('nan'); "
        "or fill them."
    )
