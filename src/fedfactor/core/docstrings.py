"""Docstrings in the form of numpydoc, cut into their sections and put together again."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from inspect import cleandoc
from types import FunctionType

WIDTH = 100
"""Columns of generated text."""


def split_sections(doc: str) -> tuple[str, dict[str, str]]:
    r"""Cut a docstring into what comes before its sections, and the sections by title.

    Examples
    --------
    >>> head, sections = split_sections("Say it.\n\nNotes\n-----\nLoud.")
    >>> head, sections
    ('Say it.', {'Notes': 'Loud.'})
    """
    lines = cleandoc(doc).split("\n")
    titles = [
        at
        for at in range(len(lines) - 1)
        if lines[at] and set(lines[at + 1]) == {"-"} and len(lines[at]) == len(lines[at + 1])
    ]
    sections = {
        lines[at]: "\n".join(lines[at + 2 : end]).strip("\n")
        for at, end in zip(titles, [*titles, len(lines)][1:], strict=True)
    }
    return "\n".join(lines[: titles[0]] if titles else lines).strip(), sections


def join_sections(head: str, sections: Mapping[str, str]) -> str:
    """Undo :func:`split_sections`."""
    return "\n\n".join([head, *(f"{title}\n{'-' * len(title)}\n{text}" for title, text in sections.items())])


def indented(words: str) -> str:
    """Break words into lines and indent them, as below the heading of an entry."""
    lines = [textwrap.fill(part, WIDTH, break_long_words=False, break_on_hyphens=False) for part in words.split("\n")]
    return textwrap.indent("\n".join(lines), "    ")


def split_entries(section: str) -> dict[str, str]:
    r"""Cut a section into its entries, by name.

    Examples
    --------
    >>> list(split_entries("a : int\n    One.\nb : int\n    Two."))
    ['a', 'b']
    """
    parts = re.split(r"\n(?=\S)", section) if section else []
    return {part.partition(" : ")[0]: part for part in parts}


def completed(doc: str, overridden: str) -> str:
    r"""Add what the docstring of an overridden method says, and this one does not, of parameters and of the result.

    Examples
    --------
    >>> completed("Say it twice.", "Say it.\n\nParameters\n----------\na : int\n    One.").split("\n")[-2:]
    ['a : int', '    One.']
    """
    head, sections = split_sections(doc)
    theirs = split_sections(overridden)[1]
    entries = split_entries(theirs.get("Parameters", "")) | split_entries(sections.get("Parameters", ""))
    made = {"Parameters": "\n".join(entries.values())} if entries else {}
    made |= {"Returns": theirs["Returns"]} if "Returns" in theirs else {}
    return join_sections(head, made | {title: text for title, text in sections.items() if title != "Parameters"})


def complete_methods(cls: type) -> None:
    """Let the public methods of a class tell what those that they override tell of parameters and results."""
    for name, method in vars(cls).items():
        if isinstance(method, FunctionType) and not name.startswith("_"):
            theirs = (vars(base)[name] for base in _ours(cls) if base is not cls and name in vars(base))
            method.__doc__ = completed(method.__doc__ or "", getattr(next(theirs, None), "__doc__", None) or "")


def entries_of_bases(cls: type, title: str) -> str:
    """Join a section of the docstrings of a class and its bases; entries of the class replace those of its bases."""
    found: dict[str, str] = {}
    for base in reversed(_ours(cls)):
        found |= split_entries(split_sections(vars(base).get("__doc__") or "")[1].get(title, ""))
    return "\n".join(found.values())


def with_formula(head: str, doc: str) -> str:
    r"""Put the first formula of another docstring below the summary, unless there is one already.

    Examples
    --------
    >>> with_formula("Say it.\n\nLoud.", "Tell it.\n\n.. math:: x^2\n\nSquared.").split("\n\n")
    ['Say it.', '.. math:: x^2', 'Loud.']
    """
    formula = re.search(r"\.\. math::.*?(?=\n\n|\Z)", split_sections(doc)[0], re.DOTALL)
    if formula is None or ".. math::" in head:
        return head
    summary, _, rest = head.partition("\n\n")
    return "\n\n".join(filter(None, [summary, formula[0], rest]))


def _ours(cls: type) -> list[type]:
    """List a class and its bases, those of other libraries left out."""
    return [base for base in cls.__mro__ if base.__module__.startswith("fedfactor.")]
