"""Options of every command that reads a table, defined once, and the line that says what was taken for what."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from fedfactor.core.column_scales import SCALES
from fedfactor.core.missing_policies import missing_choices, parse_missing
from fedfactor.io.file_content import Reading
from fedfactor.io.formats import endings

ENDINGS = " ".join(endings())
"""What files may end in, for people."""

_MOST_LINES = 12
_PANEL = "How files are read"
_BEFORE = "Before the first round"


def _option(*names: str, panel: str, text: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=panel, show_default=False)


_READING: dict[str, Any] = {
    "id": Annotated[
        str | None,
        _option("--id", panel=_PANEL, text="Column that names the rows; none: no column does. Found by default."),
    ],
    "columns": Annotated[
        list[str] | None,
        _option("--columns", panel=_PANEL, text="Take these columns only: names, or lab_*."),
    ],
    "drop": Annotated[list[str] | None, _option("--drop", panel=_PANEL, text="Leave these columns out.")],
    "sep": Annotated[
        str | None, _option("--sep", panel=_PANEL, text="What separates cells of a text file. Found by default.")
    ],
    "decimal": Annotated[
        str | None, _option("--decimal", panel=_PANEL, text="Decimal sign of a text file. Found by default.")
    ],
    "layer": Annotated[
        str | None, _option("--layer", panel=_PANEL, text="For .h5ad: this layer instead of X. For .h5: this matrix.")
    ],
    "long": Annotated[
        bool | None,
        _option("--long/--wide", panel=_PANEL, text="One line for each cell (user, item, rating)? Found by default."),
    ],
    "repeated_ids": Annotated[
        bool, _option("--repeated-ids", panel=_PANEL, text="Rows may share an id, as several visits of one patient do.")
    ],
    "encoding": Annotated[
        str | None,
        _option("--encoding", panel=_PANEL, text="Encoding of a text file. By default UTF-8, else Windows-1252."),
    ],
    "skip": Annotated[int | None, _option("--skip", panel=_PANEL, text="Lines above the header of a text file.")],
    "thousands": Annotated[
        str | None, _option("--thousands", panel=_PANEL, text="Thousands separator: comma or point.")
    ],
    "censored": Annotated[
        str | None,
        _option("--censored", panel=_PANEL, text="Value of cells such as <0.5 or >300: limit, half or missing."),
    ],
    "how": Annotated[
        str | None,
        _option("--how", panel=_PANEL, text="Columns of files that differ: intersection, or union with missing cells."),
    ],
    "user": Annotated[
        str | None, _option("--user-column", "--user", panel=_PANEL, text="Long table: column of users.")
    ],
    "item": Annotated[
        str | None, _option("--item-column", "--item", panel=_PANEL, text="Long table: column of items.")
    ],
    "value": Annotated[
        str | None, _option("--value-column", "--value", panel=_PANEL, text="Long table: column of ratings.")
    ],
    "max_bytes": Annotated[
        int | None, _option("--max-bytes", panel=_PANEL, text="What a file may unfold to in memory.")
    ],
}
_MISSING: dict[str, Any] = {
    "missing_values": Annotated[
        str | None,
        _option(
            "--missing",
            "--missing-values",
            panel=_PANEL,
            text=f"What marks a missing cell: {missing_choices()}.",
        ),
    ],
}
_STEPS: dict[str, Any] = {
    "library_size": Annotated[
        float | None, _option("--library-size", panel=_BEFORE, text="Bring every row to this sum, for example 10000.")
    ],
    "log1p": Annotated[bool, _option("--log1p", panel=_BEFORE, text="Take ln(1 + x) of every cell.")],
    "binarize": Annotated[
        float | None, _option("--binarize", panel=_BEFORE, text="1 where a cell exceeds this, else 0.")
    ],
    "select": Annotated[
        int | None,
        _option("--select", panel=_BEFORE, text="Keep so many columns, those that spread most."),
    ],
    "tf_idf": Annotated[bool, _option("--tf-idf", panel=_BEFORE, text="Weigh columns by how rare they are.")],
    "scale": Annotated[
        str | None,
        _option("--scale", panel=_BEFORE, text=f"Divide columns by all owners' {', '.join(SCALES)} (quantile 0.9)."),
    ],
}


def reads(*, prepares: bool = True, marks_missing: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of reading; it gets ``reading`` and, with `prepares`, ``steps``.

    ``reading()`` makes a :class:`Reading` of what was given, and of its own arguments for what was not. What the reader
    says goes to the screen, unless the command is quiet.
    """
    options = {**_READING, **(_MISSING if marks_missing else {}), **(_STEPS if prepares else {})}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(command, include_extras=True)
        own = [
            parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY)
            for name, parameter in inspect.signature(command).parameters.items()
            if name not in ("reading", "steps")
        ]
        added = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=False if kind.__origin__ is bool else None,
                annotation=kind,
            )
            for name, kind in options.items()
        ]

        @wraps(command)
        def run(**given: Any) -> None:
            words = {name: given.pop(name) for name in options}

            def reading(
                **instead: Any,
            ) -> Reading:  # called by the command, which reports errors
                return reading_of(instead | {name: word for name, word in words.items() if word is not None})

            given["reading"] = reading
            if prepares:
                given["steps"] = steps_of(words)
            with telling(bool(given.get("quiet"))):
                command(**given)

        run.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
        run.__annotations__ = {each.name: each.annotation for each in (*own, *added)}
        return run

    return decorate


def reading_of(words: dict[str, Any]) -> Reading:
    """Build a :class:`Reading` from options.

    Examples
    --------
    >>> reading_of({"id": "who", "drop": ["a,b", "c"], "sep": "tab"}).drop
    ('a', 'b', 'c')
    """
    sep = words.get("sep")
    return Reading(
        id=words.get("id"),
        columns=_names(words.get("columns")),
        drop=_names(words.get("drop")),
        sep={"tab": "\t", r"\t": "\t", "space": " ", "comma": ",", "semicolon": ";"}.get(sep or "", sep),
        decimal={"comma": ",", "point": "."}.get(words.get("decimal") or "", words.get("decimal")),
        missing_values=math.nan
        if words.get("how") == "union" and words.get("missing_values") is None
        else parse_missing(words.get("missing_values"), "--missing"),
        layer=words.get("layer"),
        long=words.get("long"),
        max_bytes=words.get("max_bytes"),
        encoding=words.get("encoding"),
        skip=words.get("skip") or 0,
        thousands={"comma": ",", "point": "."}.get(words.get("thousands") or "", words.get("thousands")),
        censored=words.get("censored"),
        how=words.get("how"),
        user=words.get("user"),
        item=words.get("item"),
        value=words.get("value"),
        repeated_ids=bool(words.get("repeated_ids")),
    )


def _names(words: list[str] | None) -> tuple[str, ...]:
    return tuple(name.strip() for word in words or () for name in word.split(",") if name.strip())


def steps_of(words: dict[str, Any]) -> tuple[str, ...]:
    """Write options as steps, in the order in which they make sense: rows, cells, columns.

    Examples
    --------
    >>> steps_of({"log1p": True, "scale": "max", "library_size": 100.0})
    ('library-size 100', 'log1p', 'scale max')
    """
    found: list[str] = []
    if words.get("library_size") is not None:
        found.append(f"library-size {words['library_size']:g}")
    if words.get("log1p"):
        found.append("log1p")
    if words.get("binarize") is not None:
        found.append(f"binarize {words['binarize']:g}")
    if words.get("select") is not None:
        found.append(f"select {words['select']}")
    if words.get("tf_idf"):
        found.append("tf-idf")
    if words.get("scale") is not None:
        found.append(f"scale {words['scale']}")
    return tuple(found)


class _Teller(logging.Handler):
    """Prints each line once, and not too many of them."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.seen: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        """Print one line."""
        line = record.getMessage()
        if line in self.seen:
            return
        self.seen.add(line)
        if len(self.seen) <= _MOST_LINES:
            typer.echo(line, err=True)
        elif len(self.seen) == _MOST_LINES + 1:
            typer.echo("… and further files.", err=True)


@contextmanager
def telling(quiet: bool = False) -> Generator[None]:
    """Let the reader's lines go to the screen."""
    log = logging.getLogger("fedfactor.data")
    if quiet:
        yield
        return
    teller = _Teller()
    level = log.level
    log.addHandler(teller)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(teller)
        log.setLevel(level)
