"""What looks like an identifier, and must not be factored unless requested."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

_WHO = r"row|patient|subject|person|sample|case|user|customer|client|record|participant|cell|barcode|visit|encounter"
_STRONG = re.compile(
    r"(.*[\W_])?(id|ids|identifier|uuid|guid|mrn|ssn|pid)|(?-i:.*[a-z])(?-i:ID|Id)"
    rf"|({_WHO})[\W_]?(id|nr|no|num|number|key|name)?",
    re.IGNORECASE,
)
_WEAK = re.compile(r"(.*[\W_])?(nr|no|num|number|index|key|code)|", re.IGNORECASE)
_FEW = 3
_DIGITS = 5  # whole numbers of this many digits or more, all of one length and all different, are hardly measurements
_MANY = 20


def names_ids(name: str) -> bool:
    """Return whether a column name suggests identifiers whatever the cells hold: ``id``, ``patient_id``, ``sample no``.

    Examples
    --------
    >>> names_ids("patient_id"), names_ids("userId"), names_ids("grid"), names_ids("mass index")
    (True, True, False, False)
    """
    return bool(_STRONG.fullmatch(name.strip()))


def looks_like_ids(name: str, values: Any) -> bool:
    """Return whether a column of numbers identifies rows: whole numbers, each once, and a name or a form that says so.

    The form is a plain count of the rows (0, 1, 2, ... or 1, 2, 3, ...), or long numbers of one length.

    Examples
    --------
    >>> looks_like_ids("patient_id", np.array([17, 4, 9])), looks_like_ids("age", np.array([17, 4, 9]))
    (True, False)
    """
    column = np.asarray(values)
    if len(column) < _FEW or not np.isfinite(column).all() or not np.array_equal(column, np.trunc(column)):
        return False
    if len(np.unique(column)) < len(column):
        return False
    if names_ids(name) or _WEAK.fullmatch(name.strip()):
        return True
    if len(column) < _MANY:
        return False
    least = float(column.min())
    most = float(column.max())
    counted = least in (0.0, 1.0) and np.array_equal(column, np.arange(len(column)) + least)
    long = least >= 10 ** (_DIGITS - 1) and len(str(int(least))) == len(str(int(most)))
    return bool(counted or long)
