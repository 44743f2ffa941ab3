"""Texts of others, made safe to show."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: object) -> str:
    r"""Return a text in which nothing can move a reader's cursor, hide a line or turn the direction of writing.

    Examples
    --------
    >>> printable("good\x1b[2Kbad")
    'good?[2Kbad'
    """
    return "".join(c if c.isprintable() else "?" for c in str(text))
