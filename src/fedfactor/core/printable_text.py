"""Texts of others, made safe to show."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["listed", "printable"]


def printable(text: object) -> str:
    r"""Return a text in which nothing can move a reader's cursor, hide a line or turn the direction of writing.

    Examples
    --------
    >>> printable("good\x1b[2Kbad")
    'good?[2Kbad'
    """
    return "".join(c if c.isprintable() else "?" for c in str(text))


def listed(names: Iterable[object], most: int = 6, between: str = ", ") -> str:
    """Write some names and how many more there are.

    Examples
    --------
    >>> listed(["hb", "crp", "na"], most=2)
    'hb, crp and 1 more'
    """
    known = list(map(str, names))
    more = f" and {len(known) - most} more" if len(known) > most else ""
    return between.join(known[:most]) + more
