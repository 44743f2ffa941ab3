"""What a file holds before anything is decided about it, and what a reader was asked to do."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from fedfactor.core.errors import DataError
from fedfactor.core.id_columns import names_ids
from fedfactor.core.printable_text import listed

Missing = float | str | None
NO_ID = "none"
"""The word for ``id`` that takes no column for ids, whatever it looks like."""

_ROOMY = 1 << 30  # up to 1 GB a file may unfold to any size ...
_RATIO = 50  # ... beyond that to fifty times what it takes on disk


@dataclass(frozen=True, slots=True)
class Reading:
    """How a table is to be read: what every command and :func:`fedfactor.read` take.

    Attributes
    ----------
    id : str or None
        The column that names the rows; ``"none"``: no column does. None: found by name and values.
    columns, drop : tuple of str
        Columns to take, and to leave out; ``*`` and ``?`` stand for any letters.
    sep, decimal : str or None
        Separator and decimal sign of text files; None: found.
    missing_values : None, nan, number or "unstored"
        What marks a missing cell.
    layer : str or None
        For ``.h5ad``: the layer to take instead of X. For other HDF5 files: where the matrix lies in it.
    long : bool or None
        Whether the file is a long table, one row for each cell; None: detected from its column names.
    repeated_ids : bool
        Whether several rows may share an id, as the rows of one patient do.
    max_bytes : int or None
        What the file may unfold to in memory; None: 1 GB or fifty times its size on disk, whichever is more.
    rows : (int, int) or None
        First row and the one after the last, of formats that can be read in part.
    encoding : str or None
        Encoding of text files; None: UTF-8 or UTF-16, and Windows-1252 where the bytes are neither.
    skip : int
        Lines above the header of a text file.
    thousands : {",", "."} or None
        Thousands separator of numbers; None: taken out where a number cannot be read otherwise (``1,234,567.8``).
    censored : {"limit", "half", "missing"} or None
        What ``<0.5`` and ``>300`` stand for; None: such a column is text.
    how : {"intersection", "union"} or None
        Columns that files of several clients are brought to; None: all must have the same.
    row_names : str or None
        File that maps row ids to what all parties of a federation call these rows, where parties hold columns.
    user, item, value : str or None
        Columns of a long table: which row a cell is in, which column, and what it holds. None: detected from their
        names.
    """

    id: str | None = None
    columns: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    sep: str | None = None
    decimal: str | None = None
    missing_values: Missing = None
    layer: str | None = None
    long: bool | None = None
    repeated_ids: bool = False
    max_bytes: int | None = None
    rows: tuple[int, int] | None = None
    encoding: str | None = None
    skip: int = 0
    thousands: str | None = None
    censored: str | None = None
    user: str | None = None
    item: str | None = None
    value: str | None = None
    how: str | None = None
    row_names: str | None = None
    _exact: frozenset[str] = field(init=False, repr=False, compare=False, default=frozenset())

    def __post_init__(self) -> None:
        object.__setattr__(self, "_exact", frozenset(self.columns))
        if self.sep is not None and (len(self.sep) != 1 or self.sep in '"\r\n'):
            raise DataError(f"The separator must be one character, not {self.sep!r}: for example ',' or ';' or a tab.")
        if self.decimal not in (None, ".", ","):
            raise DataError(f"The decimal sign must be '.' or ',', not {self.decimal!r}.")
        if self.thousands not in (None, ".", ",") or (self.thousands is not None and self.thousands == self.decimal):
            raise DataError(
                f"The thousands separator must be ',' or '.', and not the decimal sign: {self.thousands!r}."
            )
        if self.censored not in (None, "limit", "half", "missing"):
            raise DataError(f"censored={self.censored!r} is not known. Use 'limit', 'half' or 'missing'.")
        if self.how not in (None, "intersection", "union"):
            raise DataError(f"--how {self.how} is not known. Use intersection or union.")
        if self.skip < 0:
            raise DataError(f"skip={self.skip} must be at least 0: the number of lines above the header.")
        if self.sep is not None and self.sep == self.decimal:
            raise DataError(f"{self.sep!r} cannot separate cells and decimals at once.")

    def takes(self, name: str) -> bool:
        """Return whether a column is wanted."""
        if self.columns and name not in self._exact and not matches(name, self.columns):
            return False
        return not matches(name, self.drop)

    def may_name_rows(self, name: str, first_text: bool) -> bool:
        """Return whether a column that was not asked for may still name the rows: only a dropped one may not."""
        return self.id is None and not matches(name, self.drop) and (first_text or names_ids(name))

    def check(self, where: str, names: Sequence[str]) -> None:
        """Refuse words that name no column of the file; what was to be dropped may be absent."""
        known = set(names)
        for word in (*self.columns, *(() if self.id in (None, NO_ID) else (self.id,))):
            if word not in known and not any(matches(name, (word,)) for name in names):
                close = difflib.get_close_matches(str(word), list(names), 1)
                hint = f" Did you mean {close[0]!r}?" if close else f" It has {listed(names)}."
                raise DataError(f"{where} has no column {word!r}.{hint}")


def matches(name: str, words: Iterable[str]) -> bool:
    """Return whether a name is one of the words, or fits one with ``*`` or ``?`` in it."""
    return any(name == word or (_is_pattern(word) and fnmatchcase(name, word)) for word in words)


def _is_pattern(word: str) -> bool:
    return "*" in word or "?" in word


@dataclass(slots=True)
class Content:
    """A matrix, and what lies beside it in the file.

    Attributes
    ----------
    X : array or sparse matrix of shape (n, m)
        The columns of numbers.
    features : list of str or None
        Their names.
    row_ids, id_name : list of str, str, or None
        Ids that the format itself sets apart: a frame's index, cell names, a first column without a name.
    texts : dict of str to function
        Columns of text, read when called; and columns whose name means ids, as text so that no digit is lost.
    order : list of str
        All names as they stand in the file, to state which comes first.
    place : function
        Says where row i is, for people.
    decimal : str
        Decimal sign of numbers among the texts.
    said : list of str
        What the reader found out: separator, decimal sign, layer.
    """

    X: Any
    features: list[str] | None = None
    row_ids: Sequence[str] | None = None
    id_name: str | None = None
    texts: dict[str, Callable[[], Sequence[str]]] = field(default_factory=dict[str, Callable[[], Sequence[str]]])
    order: list[str] = field(default_factory=list[str])
    place: Callable[[int], str] = "row {}".format
    decimal: str = "."
    said: list[str] = field(default_factory=list[str])


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of U on their way to a file, with what they are called.

    Attributes
    ----------
    X : array of shape (n, k)
        U.
    features : tuple of str
        Names of the components.
    row_ids, id_name : tuple of str, str, or None
        Row ids, and the column that holds them.
    components, columns : array of shape (k, m), tuple of str, or None
        V and the names of its columns, for formats that have room for them.
    source : Path or None
        The file that the rows were read from.
    about : dict
        What made them: algorithm, seed and the like.
    """

    X: Any
    features: tuple[str, ...]
    row_ids: tuple[str, ...] | None = None
    id_name: str | None = None
    components: Any = None
    columns: tuple[str, ...] | None = None
    source: Path | None = None
    about: dict[str, Any] = field(default_factory=dict[str, Any])


def write_rows(path: Path, rows: Rows) -> None:
    """Write U to a file whose ending names the format; readable by its owner only."""
    from fedfactor.io.formats import format_of

    format_of(path, writes=True)[0].load().write(path, rows)


def refuse_bomb(path: Path, unfolded: int, max_bytes: int | None) -> None:
    """Refuse a file that claims to unpack to an absurd size, before anything is allocated for it.

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
            f"It may be damaged or made to exhaust memory. If you trust it, allow it: --max-bytes {unfolded}, in "
            f"Python max_bytes={unfolded}."
        )
