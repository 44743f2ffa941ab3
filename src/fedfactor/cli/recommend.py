"""``fedfactor recommend`` and ``fedfactor predict``: ask a fitted recommender, by the ids of its files."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from fedfactor.cli.console import Debug, console, polite
from fedfactor.core.errors import DataError
from fedfactor.core.printable_text import printable

Result = Annotated[Path, typer.Argument(help="A folder that fedfactor fit wrote from ratings.", show_default=False)]
Owner = Annotated[
    str | None, typer.Option(help="The users' owner; needed where two owners use one id.", show_default=False)
]
Table = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="A .csv file for the answer; the screen by default.", show_default=False),
]


def recommend(
    result: Result,
    user: Annotated[
        list[str] | None,
        typer.Option("--user", "-u", help="User id; repeatable. Default: all users.", show_default=False),
    ] = None,
    n: Annotated[int, typer.Option("-n", help="Items for each user.", min=1)] = 10,
    seen: Annotated[bool, typer.Option("--seen", help="Also items that the user rated already.")] = False,
    owner: Owner = None,
    out: Table = None,
    debug: Debug = False,
) -> None:
    """List the best items for users, by the ids of the files that were fitted.

    Example: fedfactor fit ratings.csv -a pooled-cf -k 8 -o out && fedfactor recommend out --user 42
    """
    with polite(debug):
        model = _model(result)
        _check_out(out)
        users = _ids(user, next(iter(model.users_.values()))) if user else _all_users(model, owner)
        items, scores = model.recommend(users, n=min(n, len(model.items_)), exclude_seen=not seen, client=owner)
        lines = [
            (str(who), str(item), f"{score:.4f}")
            for who, row, own in zip(users, items, scores, strict=True)
            for item, score in zip(row, own, strict=True)
            if np.isfinite(score)
        ]
        _answer(("user", "item", "score"), lines, out)


def predict(
    result: Result,
    user: Annotated[
        list[str] | None, typer.Option("--user", "-u", help="Whose; may be given again.", show_default=False)
    ] = None,
    item: Annotated[
        list[str] | None, typer.Option("--item", "-i", help="Of what; one for each user.", show_default=False)
    ] = None,
    pairs: Annotated[
        Path | None, typer.Option(help="A .csv file with columns of users and items instead.", show_default=False)
    ] = None,
    owner: Owner = None,
    out: Table = None,
    debug: Debug = False,
) -> None:
    """Predict ratings of (user, item) pairs, by the ids of the files that were fitted.

    Examples: fedfactor predict out --user 42 --item 318; fedfactor predict out --pairs test.csv -o predicted.csv
    """
    with polite(debug):
        model = _model(result)
        _check_out(out)
        who, what = (user or [], item or []) if pairs is None else _pairs(pairs)
        if not who or len(who) != len(what):
            raise ValueError("Give as many --user as --item, at least one of each, or a file with --pairs.")
        known = next(iter(model.users_.values()))
        found = model.predict(_ids(who, known), _ids(what, model.items_), client=owner)
        lines = [(u, i, f"{score:.4f}") for u, i, score in zip(who, what, found, strict=True)]
        _answer(("user", "item", "predicted"), lines, out)


def _model(result: Path) -> Any:
    from fedfactor.saved_models.estimator_folder import load

    model = load(result)
    if not hasattr(model, "recommend"):
        raise DataError(
            f"{result} is a result of {type(model).__name__}, which recommends nothing. Fit ratings with -a pooled-cf, "
            "or use fedfactor transform."
        )
    return model


def _all_users(model: Any, owner: str | None) -> list[Any]:
    if owner is not None and owner not in model.users_:
        raise DataError(f"No owner is called {owner!r}; the run knew {', '.join(model.users_)}.")
    if owner is None and len(model.users_) > 1:
        everybody = [each for own in model.users_.values() for each in own.tolist()]
        if len(set(everybody)) < len(everybody):
            raise DataError("Several owners use one user id. Say whose users: --owner NAME.")
        return everybody
    return (model.users_[owner] if owner else next(iter(model.users_.values()))).tolist()


def _ids(words: Sequence[str], known: np.ndarray) -> list[Any]:
    """Read ids as the model has them: as numbers where those are numbers."""
    if known.dtype.kind not in "iu":
        return list(words)
    try:
        return [int(word) for word in words]
    except ValueError:
        odd = next(word for word in words if not word.strip().lstrip("-").isdecimal())
        raise DataError(
            f"{odd!r} is not known: the ids of this result are whole numbers, such as {known[0]}."
        ) from None


def _pairs(path: Path) -> tuple[list[str], list[str]]:
    from fedfactor.io.long_tables import roles_of

    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is no text in UTF-8 (byte {error.start}). Save it as .csv in UTF-8, with columns user and item."
        ) from None
    with io.StringIO(text, newline="") as file:
        reader = csv.DictReader(file)
        names = list(reader.fieldnames or ())
        roles = roles_of(names) or roles_of([*names, "rating"])
        if roles is None:
            raise DataError(
                f"{path} has the columns {', '.join(names[:6])}, none of which names users and items. Call them user "
                "and item."
            )
        rows = list(reader)
    if any(not row[roles.who] or not row[roles.what] for row in rows):
        raise DataError(f"{path} has a line without a user or an item. Leave it out.")
    return [row[roles.who] for row in rows], [row[roles.what] for row in rows]


def _check_out(out: Path | None) -> None:
    if out is not None and out.suffix.lower() != ".csv":
        raise ValueError(f"-o {out}: the answer is written as .csv.")
    if out is not None and not out.parent.is_dir():
        raise ValueError(f"-o {out}: there is no folder {out.parent}. Make it first.")


def _answer(heads: tuple[str, ...], lines: Iterable[tuple[str, ...]], out: Path | None) -> None:
    """Write to a file readable by its owner only, as lines for a pipe, or as a table for people."""
    if out is not None:
        from fedfactor.core.atomic_files import write_atomic

        rows = [",".join(_cell(each) for each in line) for line in (heads, *lines)]
        write_atomic(out, ("\n".join(rows) + "\n").encode(), 0o600)
        typer.echo(f"{out}: {len(rows) - 1} lines, readable by you only.")
        return
    if not sys.stdout.isatty():
        typer.echo("\n".join(",".join(_cell(each) for each in line) for line in (heads, *lines)))
        return
    from rich.table import Table as Shown
    from rich.text import Text

    table = Shown(*heads, box=None, pad_edge=False)
    for line in lines:
        table.add_row(*(Text(printable(each)) for each in line))
    console().print(table)


def _cell(text: str) -> str:
    from fedfactor.io.formats.delimited_text import harmless

    text = harmless(text)
    return '"' + text.replace('"', '""') + '"' if any(sign in text for sign in ',"\n\r') else text
