"""Declared ranges of columns: other units at one party are found there, before anything is sent.

Of each column with a range, the middle nine tenths of a party's own cells must lie in it. The comparison is made on the
party's machine; its outcome, and its quantiles, stay there.
"""

from __future__ import annotations

import csv
import io
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.core.errors import DataError
from fedfactor.core.input_validation import is_sparse
from fedfactor.core.printable_text import listed
from fedfactor.core.pytree import is_mapping

LOW = 0.05
HIGH = 0.95
"""Quantiles of a party's cells that must lie in the declared range."""

FIELDS = ("low", "high", "unit")


def read_units(path: str | os.PathLike[str]) -> dict[str, dict[str, Any]]:
    r"""Read a table with the columns ``column,low,high,unit``; an empty bound is none.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = pathlib.Path(folder, "units.csv")
    ...     _ = file.write_text("column,low,high,unit\nhb,5,20,g/dl\n")
    ...     read_units(file)
    {'hb': {'low': 5.0, 'high': 20.0, 'unit': 'g/dl'}}
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{path} is not UTF-8. Save it as CSV UTF-8.") from None
    head = text.partition("\n")[0]
    sep = max(",;\t", key=head.count)  # spreadsheets of many countries write semicolons, and decimal commas
    lines = list(csv.DictReader(io.StringIO(text, newline=""), delimiter=sep))
    if not lines or set(lines[0]) != {"column", *FIELDS}:
        raise DataError(f"{path} must have the columns column,low,high,unit, and a line for each declared range.")
    found: dict[str, dict[str, Any]] = {}
    for number, line in enumerate(lines, 2):
        try:
            bounds = {key: float(line[key].replace(",", ".")) for key in ("low", "high") if (line[key] or "").strip()}
        except ValueError:
            raise DataError(f"{path}, line {number}: low and high must be numbers, or empty.") from None
        if line["column"] in found:
            raise DataError(f"{path}, line {number}: {line['column']!r} has a range already.")
        found[str(line["column"])] = {**bounds, "unit": line["unit"] or ""}
    return found


def check_entries(units: Mapping[str, Any], features: Sequence[str]) -> str:
    """Return what is wrong with declared ranges; nothing when they are right."""
    odd = [name for name in units if features and name not in features]
    if odd:
        return f"[units] {listed(map(repr, odd), 12)} {'are' if len(odd) > 1 else 'is'} not among the agreed columns"
    for name, entry in units.items():
        if not is_mapping(entry) or set(entry) - set(FIELDS):
            return f"[units] {name!r} must be a range such as {{ low = 5.0, high = 20.0, unit = 'g/dl' }}"
        bounds = [entry.get("low", -math.inf), entry.get("high", math.inf)]
        if not all(type(bound) in (int, float) for bound in bounds) or not bounds[0] < bounds[1]:
            return f"[units] {name!r} needs numbers, low below high"
    return ""


def strange_columns(units: Mapping[str, Any], features: Sequence[str], X: Any, mask: Any) -> list[str]:
    """Return, for each column with cells outside the declared range, what was found; missing cells do not count.

    Examples
    --------
    >>> X = np.array([[132.0], [141.0], [128.0]])
    >>> strange_columns({"hb": {"low": 5, "high": 20, "unit": "g/dl"}}, ["hb"], X, None)
    ["'hb': nine tenths of your cells lie between 128 and 140, declared is 5 to 20 g/dl"]
    """
    said: list[str] = []
    for name, entry in units.items():
        j = list(features).index(name)
        column = X[:, [j]].toarray()[:, 0] if is_sparse(X) else np.asarray(X[:, j])
        if mask is not None and not isinstance(mask, str):
            column = column[np.asarray(mask)[:, j]]
        elif isinstance(mask, str):
            column = column[column != 0]
        column = column[np.isfinite(column)]
        if not column.size:
            continue
        low, high = np.quantile(column, [LOW, HIGH])
        if low < entry.get("low", -math.inf) or high > entry.get("high", math.inf):
            bounds = f"{_number(entry.get('low', '−∞'))} to {_number(entry.get('high', '∞'))}"
            wanted = f"{bounds} {entry.get('unit', '')}".strip()
            said.append(
                f"{name!r}: nine tenths of your cells lie between {low:.3g} and {high:.3g}, declared is {wanted}"
            )
    return said


def words(units: Mapping[str, Any]) -> str:
    """Return declared ranges in one line."""
    parts = [
        f"{n} {_number(e.get('low', ''))}…{_number(e.get('high', ''))} {e.get('unit', '')}".strip()
        for n, e in units.items()
    ]
    return ", ".join(parts)


def _number(value: float | str) -> str:
    """Write a bound for people.

    Examples
    --------
    >>> _number(18.700000000000003), _number(5), _number("∞")
    ('18.7', '5', '∞')
    """
    return value if isinstance(value, str) else f"{value:.6g}"
