"""Long tables: one line for each cell, such as ``userId,movieId,rating,timestamp``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fedfactor.core.errors import DataError
from fedfactor.core.pytree import Array
from fedfactor.io.file_content import Reading

_ID = r"(id|nr|no|key|name|code)?"
_WHO = re.compile(rf"(user|customer|member|person|patient|subject|reader|listener|cell|doc|document|row){_ID}")
_WHAT = re.compile(
    r"(item|movie|film|product|book|isbn|song|track|artist|article|business|gene|feature|word|term|code|column|col)"
    + _ID
)
_RATED = re.compile(r"rating|rate|stars?|score|grade")
_COUNTED = re.compile(r"value|count|counts|n|plays|weight|quantity|amount|freq|frequency|expression|x")
_WHEN = re.compile(r"timestamp|time|date|datetime|when|day")
_YEAR_FIRST = re.compile(r"\d{4}-\d\d-\d\d")


class Roles(NamedTuple):
    """The columns with the row, the column and the value of each cell."""

    who: str
    what: str
    value: str | None
    rated: bool
    rest: tuple[str, ...]

    @property
    def when(self) -> str | None:
        """The column with the time of a line, if there is one."""
        return next((name for name in self.rest if _WHEN.fullmatch(_plain(name))), None)


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name).lower()


def roles_of(names: Sequence[str], reading: Reading | None = None) -> Roles | None:
    """Recognize a long table by its column names; None when they do not show one.

    Examples
    --------
    >>> roles_of(["userId", "movieId", "rating", "timestamp"])
    Roles(who='userId', what='movieId', value='rating', rated=True, rest=('timestamp',))
    >>> roles_of(["patient_id", "age", "weight"]) is None
    True
    """
    wish = None if reading is None else reading.long
    if wish is False or (reading is not None and reading.id is not None and not wish):
        return None
    found: dict[str, str] = {} if reading is None else _named_roles(names, reading)
    wish = wish or bool(found)
    named = set(found.values())
    rest: list[str] = []
    for name in names:
        if name in named:
            continue
        plain = _plain(name)
        for role, pattern in (("who", _WHO), ("what", _WHAT), ("rated", _RATED), ("counted", _COUNTED)):
            if role not in found and pattern.fullmatch(plain):
                found[role] = name
                break
        else:
            rest.append(name)
    complete = {"who", "what"} <= set(found) and ("rated" in found or "counted" in found)
    if not complete or ({"rated", "counted"} <= set(found) and not (reading is not None and reading.value)):
        if wish:
            raise DataError(
                "A long table has a column of rows, one of columns and one of values, such as user, item and rating; "
                f"this one has {', '.join(names[:8])}. Name them: --user, --item and --value."
            )
        return None
    if not wish and not all(_WHEN.fullmatch(_plain(name)) for name in rest):
        return None
    value = found.get("rated") or found["counted"]
    return Roles(found["who"], found["what"], value, "rated" in found, tuple(rest))


def _named_roles(names: Sequence[str], reading: Reading) -> dict[str, str]:
    """Return the columns that were named for their role; a value named so is a rating."""
    asked = {"who": reading.user, "what": reading.item, "rated": reading.value}
    found = {role: name for role, name in asked.items() if name is not None}
    lacking = [name for name in found.values() if name not in names]
    if lacking:
        raise DataError(f"There is no column {lacking[0]!r}. The table has {', '.join(names[:8])}.")
    return found


def long_names(names: Sequence[str], reading: Reading) -> tuple[str, ...]:
    """Name the two columns of ids of a long table, which are read as text; none for other tables."""
    taken = [name for name in names if reading.takes(name)]
    roles = roles_of(taken, reading)
    return () if roles is None else (roles.who, roles.what)


def latest(who: Sequence[str], what: Sequence[str], when: np.ndarray) -> np.ndarray | None:
    """Choose the lines to keep where a cell is listed more than once: the latest of each; None where two are equal.

    Examples
    --------
    >>> latest(["a", "b", "a"], ["x", "x", "x"], np.array([5, 1, 9])).tolist()
    [1, 2]
    >>> latest(["a", "a"], ["x", "x"], np.array([5, 5])) is None
    True
    """
    i = sorted_ids(who)[1]
    j = sorted_ids(what)[1]
    order = np.lexsort((when, j, i))
    same = (np.diff(i[order]) == 0) & (np.diff(j[order]) == 0)
    if np.any(same & (when[order][1:] == when[order][:-1])):
        return None
    return np.sort(order[np.append(~same, True)])


def times_of(cells: Sequence[str]) -> np.ndarray | None:
    """Read times that can be put in order: numbers, or dates that begin with the year; None where they are neither.

    Examples
    --------
    >>> times_of(["1999-12-31", "2000-01-01 10:00"]).tolist()
    ['1999-12-31', '2000-01-01 10:00']
    >>> times_of(["31.12.1999", "1.1.2000"]) is None
    True
    """
    try:
        numbers = np.array([float(cell) for cell in cells])
        return numbers if np.isfinite(numbers).all() else None
    except ValueError:
        return np.array(cells) if all(_YEAR_FIRST.match(cell) for cell in cells) else None


def pivot(
    where: object, roles: Roles, who: Sequence[str], what: Sequence[str], values: Any
) -> tuple[Array, list[str], list[str]]:
    """Turn cells into a sparse matrix with the names of its rows and columns.

    Examples
    --------
    >>> X, rows, columns = pivot("a.csv", roles_of(["user", "item", "n"]), ["10", "9"], ["b", "a"], [1.0, 2.0])
    >>> X.toarray(), rows, columns
    (array([[2., 0.],
           [0., 1.]]), ['9', '10'], ['a', 'b'])
    """
    rows, i = sorted_ids(who)
    columns, j = sorted_ids(what)
    x = np.asarray(values, np.float64)
    for name, ids in ((roles.who, who), (roles.what, what)):
        empty = next((place for place, each in enumerate(ids) if each.strip() == ""), None)
        if empty is not None:
            raise DataError(f"{where}: the column {name!r} is empty in row {empty}. Fill it, or leave that line out.")
    if not np.isfinite(x).all():
        raise DataError(
            f"{where}: the column {roles.value!r} lacks a value in row {int(np.flatnonzero(~np.isfinite(x))[0])}. "
            "Leave that line out: what is not listed is not there."
        )
    from scipy import sparse

    X = sparse.coo_array((x, (i, j)), shape=(len(rows), len(columns))).tocsr()
    if X.nnz < len(x):
        order = np.lexsort((j, i))
        twice = int(order[np.flatnonzero((np.diff(i[order]) == 0) & (np.diff(j[order]) == 0))[0]])
        raise DataError(
            f"{where}: {roles.who} {who[twice]!r} has {roles.what} {what[twice]!r} more than once"
            f"{_told_when(roles)}. Keep one of them, for example the last."
        )
    return X, rows, columns


def _told_when(roles: Roles) -> str:
    return "" if roles.when is None else f", and {roles.when!r} does not say which line is the later"


def sorted_ids(ids: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Return the distinct ids, as numbers where they are numbers, and the index of each place's id."""
    known = sorted(set(ids))
    if all(each.isdecimal() and len(each) < 19 for each in known):
        known.sort(key=lambda each: (int(each), each))
    place = {each: position for position, each in enumerate(known)}
    return known, np.fromiter((place[each] for each in ids), np.int64, len(ids))
