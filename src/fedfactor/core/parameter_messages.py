"""Parameters in words: their types and bounds, for tables of parameters and error messages."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from typing import Any, Literal, Protocol, Union, get_args, get_origin

__all__ = ["Bounds", "bounds_words", "must_be", "type_words", "types_of", "wanted"]


class Bounds(Protocol):
    """Bounds of a number; None where there is none."""

    @property
    def at_least(self) -> float | None:
        """Lowest value."""
        ...

    @property
    def above(self) -> float | None:
        """Bound below which and at which no value lies."""
        ...

    @property
    def at_most(self) -> float | None:
        """Highest value; infinity allows infinity itself."""
        ...

    @property
    def below(self) -> float | None:
        """Bound above which and at which no value lies."""
        ...


def bounds_words(bounds: Bounds) -> str:
    """Describe the range of a number; empty if it is unbounded.

    Examples
    --------
    >>> from fedfactor.core.parameters import Declared
    >>> bounds_words(Declared(at_least=0, below=2)), bounds_words(Declared(above=0))
    ('in [0, 2)', 'above 0')
    """
    low = bounds.at_least if bounds.above is None else bounds.above
    high = bounds.at_most if bounds.below is None else bounds.below
    if low is None and high is None:
        return ""
    if high is None or high == math.inf:
        return f"above {low:g}" if bounds.above is not None else f"at least {low:g}"
    if low is None:
        return f"below {high:g}" if bounds.below is not None else f"at most {high:g}"
    return f"in {'[' if bounds.above is None else '('}{low:g}, {high:g}{']' if bounds.below is None else ')'}"


def type_words(kind: Any, bounds: str, *, optional: bool) -> str:
    """Describe a type as numpydoc writes it; ``optional``: None is the default and goes without saying.

    Examples
    --------
    >>> type_words(float | Literal["same"] | None, "at least 0", optional=True)
    'float, at least 0 or "same"'
    """
    parts = [part for part in types_of(kind) if not (optional and part is type(None))]
    named = [_kind_words(part) for part in parts]
    if bounds:
        joint = " " if bounds.startswith("in") else ", "
        named = [f"{name}{joint}{bounds}" if name in ("int", "float") else name for name in named]
    if len(named) > 1:
        named = [*named[:-2], f"{named[-2]} or {named[-1]}"]
    return ", ".join(named)


def types_of(kind: Any) -> tuple[Any, ...]:
    """List the alternatives of a type, those of all literals as one."""
    parts = get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)
    words = tuple(each for part in parts if get_origin(part) is Literal for each in get_args(part))
    others = tuple(part for part in parts if get_origin(part) is not Literal)
    if not words:
        return others
    return (Literal[words], *others) if get_origin(parts[0]) is Literal else (*others, Literal[words])


def _shown(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _kind_words(part: Any) -> str:
    if get_origin(part) is Literal:
        choices = ", ".join(map(_shown, get_args(part)))
        return choices if len(get_args(part)) == 1 else f"{{{choices}}}"
    if part is Any:
        return "object"
    if part is type(None):
        return "None"
    origin = get_origin(part)
    inside = [_kind_words(each) for each in get_args(part) if each is not Ellipsis]
    if origin is None:
        return str(getattr(part, "__name__", part))
    if issubclass(origin, Mapping):
        return f"mapping of {inside[0]} to {inside[1]}"
    return f"{origin.__name__.lower()} of {inside[0]}" if len(set(inside)) == 1 else f"{origin.__name__.lower()}"


def must_be(bounds: str) -> str:
    """Return the end of a sentence with the range in which a number must lie."""
    if bounds == "above 0":
        return "be positive"
    return f"lie {bounds}" if bounds.startswith("in") else f"be {bounds}" if bounds else "be a finite number"


def wanted(part: Any, bounds: str) -> str:
    """Describe the values of one type, for error messages."""
    if part is bool:
        return "True or False"
    if part is str:
        return "a text"
    if get_origin(part) is Literal:
        return " or ".join(map(repr, get_args(part)))
    if get_origin(part) is tuple:
        inside = get_args(part)
        noun = {int: "whole numbers", float: "numbers"}.get(inside[0], "parts")
        count = "" if inside[-1] is Ellipsis else f"{len(inside)} "
        return f"a tuple of {count}{noun} {bounds}".strip()
    if part not in (int, float):
        return _kind_words(part) if part is type(None) else f"a {_kind_words(part)}"
    noun = "whole number" if part is int else "number"
    if bounds == "above 0":
        return f"a positive {noun}"
    return f"a {noun} of {bounds}" if bounds.startswith("at ") else f"a {noun} {bounds}".strip()
