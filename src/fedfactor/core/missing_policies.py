"""Rules that state which cells are missing: one vocabulary for Python, the command line and federation terms.

A rule is None (no cell is missing), NaN or another number (cells of that value are missing), or the name of a policy.
A new policy is one function in this file, marked with :func:`missing_policy`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np

from fedfactor.core.errors import DataError
from fedfactor.core.input_validation import is_sparse

__all__ = [
    "MissingValues",
    "accepts_sparse",
    "check_missing",
    "fill_missing",
    "missing_choices",
    "missing_policy",
    "parse_missing",
    "split_missing",
]

MissingValues = float | str | None
Split = Callable[[Any], tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class _Policy:
    split: Split
    sparse: bool


_POLICIES: dict[str, _Policy] = {}


def missing_policy(name: str, *, sparse: bool) -> Callable[[Split], Split]:
    """Register a function that separates values from missingness under a name.

    Parameters
    ----------
    name : str
        What users write, in lower case.
    sparse : bool
        Whether it takes SciPy matrices.
    """

    def register(split: Split) -> Split:
        _POLICIES[name] = _Policy(split, sparse)
        return split

    return register


def missing_choices() -> str:
    """List the rules for a message or a help text.

    Examples
    --------
    >>> missing_choices()
    "none, nan, a number or 'unstored'"
    """
    *names, last = map(repr, _POLICIES)
    return f"{', '.join(['none', 'nan', 'a number', *names])} or {last}"


def parse_missing(value: Any, name: str = "missing_values") -> MissingValues:
    """Read a rule as it is written on the command line, in federation terms and in the record of a run.

    Parameters
    ----------
    value : str, float or None
    name : str
        What the user calls it, for the message.

    Examples
    --------
    >>> parse_missing("nan"), parse_missing("0"), parse_missing("Unstored"), parse_missing("none")
    (nan, 0.0, 'unstored', None)
    """
    if value is None:
        return None
    text = str(value).strip().lower()
    if text == "none":
        return None
    if text in _POLICIES:
        return text
    try:
        return float(value)
    except (TypeError, ValueError):
        raise DataError(f"{name} {value!r:.40} is not known. Use {missing_choices()}.") from None


def check_missing(missing_values: Any) -> None:
    """Refuse a rule that is not known."""
    if missing_values is None or (isinstance(missing_values, str) and missing_values in _POLICIES):
        return
    beyond = isinstance(missing_values, Integral) and abs(int(missing_values)) > sys.maxsize
    if beyond or not isinstance(missing_values, Real):
        raise DataError(f"missing_values={missing_values!r:.40} is not known. Use {missing_choices()}.")


def accepts_sparse(missing_values: Any) -> bool:
    """Return whether sparse rows can follow a rule: a stored value that means "missing" would need a dense mask."""
    if isinstance(missing_values, str) and missing_values in _POLICIES:
        return _POLICIES[missing_values].sparse
    return missing_values is None or missing_values == 0


def split_missing(X: Any, missing_values: MissingValues) -> tuple[Any, Any]:
    """Separate values from missingness; missing cells of a dense matrix become zero in a copy."""
    check_missing(missing_values)
    if missing_values is None:
        return X, None
    if isinstance(missing_values, str):
        return _POLICIES[missing_values].split(X)
    if is_sparse(X):
        if missing_values == 0:
            X = X.copy()
            X.eliminate_zeros()
            return X, "stored"
        raise DataError(
            f"missing_values={missing_values} cannot be distinguished in a sparse matrix. Store only the observed "
            "cells and use missing_values='unstored', or pass a dense matrix."
        )
    # As a number of X's own type: 0.1 in double precision equals no cell in single.
    mask = X == X if math.isnan(missing_values) else X != float(missing_values)
    return fill_missing(X, mask), mask


def fill_missing(X: Any, mask: Any) -> Any:
    """Return a copy of a dense matrix with zeros where the mask is False."""
    if hasattr(X, "detach"):
        return X.masked_fill(~mask, 0.0)
    return np.where(mask, X, np.zeros((), X.dtype))  # type: ignore[reportUnknownVariableType]


@missing_policy("unstored", sparse=True)
def _unstored(X: Any) -> tuple[Any, Any]:
    """Only stored cells of a sparse matrix were observed."""
    if not is_sparse(X):
        raise DataError("missing_values='unstored' needs a sparse matrix, but this one is dense. Use nan or a number.")
    return X, "stored"
