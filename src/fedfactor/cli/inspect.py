"""``fedfactor inspect``: look at a file before anything is done with it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from fedfactor.cli.console import Debug, polite, size
from fedfactor.cli.reading_options import reads
from fedfactor.cli.run_summary import uploads
from fedfactor.core.algorithm import Meta
from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.input_validation import is_sparse
from fedfactor.core.missing_policies import split_missing
from fedfactor.core.printable_text import listed, printable
from fedfactor.core.pytree import Array, is_list
from fedfactor.io.file_content import Reading
from fedfactor.io.tables import NotNumbers, is_date
from fedfactor.io.uneven_columns import outliers

_APART = 100.0  # columns whose scales differ by more than this are worth a word


@reads(prepares=False)
def inspect(
    file: Annotated[Path, typer.Argument(help="A table, in any format that fit reads.", show_default=False)],
    debug: Debug = False,
    *,
    reading: Callable[..., Reading],
) -> None:
    """Show how a file is interpreted, its problems, which algorithms apply and what would be shared. Nothing is sent.

    Example: fedfactor inspect patients.csv
    """
    with polite(debug):
        how = reading()
        lenient = how if how.missing_values is not None else reading(missing_values="nan")
        table, words = _loaded(file, replace(lenient, repeated_ids=True))
        if how.missing_values is None and is_sparse(table.X) and np.isfinite(table.X.data).all():
            table = replace(table, missing_values=table.missing_values if table.missing_values == "unstored" else None)
        facts = facts_of(table)
        kind = kind_of(facts)
        lines = [
            f"{facts['rows']:,} rows × {facts['columns']:,} columns of numbers"
            + (f", {size(table.X.data.nbytes)} in memory." if hasattr(table.X.data, "nbytes") else "."),
            f"Columns: {listed(table.features)}." if table.features else "The columns have no names.",
            f"Row ids: {table.id_name or 'yes'}; they stay with you." if table.row_ids else "The rows have no ids.",
            f"Cells: {facts['said']}.",
        ]
        drop = f" --drop {shlex.quote(','.join(words))}" if words else ""
        if words:
            kinds = {name: "dates" if is_date(cell) else "text" for name, cell in words.items()}
            which = [f"{name} ({kinds[name]}, such as {cell!r})" for name, cell in words.items()]
            lines.append(f"Not numbers: {listed(which)}. Leave them out when you fit:{drop}.")
        options = given_options(how) + drop
        if facts["missing"] and not (how.missing_values is not None or kind == "ratings"):
            lines.append("Cells are missing: say --missing nan when you fit.")
            options += " --missing nan"
        if facts["apart"] is not None and kind in ("amounts",):
            small, large, times = facts["apart"]
            lines.append(f"Scales differ: {large!r} is {times:,.0f} times as large as {small!r}. Use --scale rms.")
            options += " --scale rms"
        problems = problems_of(table, how)
        lines += ["", "Problems:", *(f"  {line}" for line in problems)] if problems else []
        found = advice(kind, file, options, facts["columns"])
        lines += ["", "What can be run on it:", *(f"  {line}" for line in found)]
        lines += ["", "What would be sent to the server by the first of these, with 5 components:"]
        lines += [f"  {line}" for line in shared_by(kind, facts)]
    for line in lines:
        typer.echo(printable(line))


def _loaded(file: Path, how: Reading) -> tuple[Any, dict[str, str]]:
    """Read a file without its columns of text, and give those with a cell each: they need not be dropped to inspect the
    file.
    """
    from fedfactor.io.read import load

    try:
        return load(file, how), {}
    except NotNumbers as error:
        found = {name: cell for name, (cell, _) in error.columns.items()}
        return load(file, replace(how, drop=(*how.drop, *found))), found


_OPTIONS = (
    "layer",
    "id",
    "sep",
    "decimal",
    "encoding",
    "skip",
    "thousands",
    "censored",
    "columns",
    "drop",
    "user",
    "item",
    "value",
)


def given_options(how: Reading) -> str:
    """Write the options that the file was read with, for the commands that are suggested.

    Examples
    --------
    >>> given_options(Reading(layer="counts", drop=("a", "b")))
    ' --layer counts --drop a,b'
    """
    values = {name: getattr(how, name, None) for name in _OPTIONS}
    words = {name: ",".join(value) if is_list(value) else value for name, value in values.items() if value}
    return "".join(
        f" --{name} {shlex.quote('tab' if word == chr(9) else word)}"
        for name, word in ((name, str(word)) for name, word in words.items())
    )


def problems_of(table: Any, how: Reading) -> list[str]:
    """List what fit refuses or what makes a fit misleading: repeated ids, negative and empty columns, outliers.

    Examples
    --------
    >>> from fedfactor.io.tables import Table
    >>> problems_of(Table(np.array([[1.0, -1.0], [2.0, 3.0]]), ("crp", "ldl")), Reading())
    ["Negative cells in 'ldl' (1, the least -1): algorithms other than PooledPCA take values from 0 upwards."]
    """
    found: list[str] = []
    ids = table.row_ids or ()
    if len(set(ids)) < len(ids) and not how.repeated_ids:
        twice = [name for name, count in Counter(ids).items() if count > 1]
        found.append(
            f"Row ids repeat: {listed([repr(each) for each in twice])} in {table.id_name!r}. Remove rows, or use "
            "--repeated-ids (rows of one person) or --id none."
        )
    if is_sparse(table.X):
        return found
    X, mask = split_missing(table.X, table.missing_values)
    cells = np.asarray(X, np.float64)
    seen = np.ones(cells.shape, bool) if mask is None else np.asarray(mask, bool)
    for j in range(cells.shape[1]):
        name = repr(str(table.features[j])) if table.features else f"column {j}"
        column = cells[seen[:, j], j]
        if not column.size:
            found.append(f"{name} is empty. Leave it out: --drop {shlex.quote(name.strip(chr(39)))}.")
        elif (column < 0).any():
            found.append(
                f"Negative cells in {name} ({int((column < 0).sum())}, the least {column.min():g}): algorithms other "
                "than PooledPCA take values from 0 upwards."
            )
    far = outliers(Federation({"this file": Shard(cells, seen, table.features)})) if table.features else ""
    return [*found, far] if far else found


def facts_of(table: Any) -> dict[str, Any]:
    """Count what a table holds.

    Examples
    --------
    >>> from fedfactor.io.tables import Table
    >>> facts = facts_of(Table(np.array([[0.0, 1.0], [1.0, 0.0]])))
    >>> facts["binary"], facts["said"]
    (True, 'zeros and ones, 50 % of them zero')
    """
    X, mask = split_missing(table.X, table.missing_values)
    n, m = X.shape
    stored = isinstance(mask, str)
    if is_sparse(X):
        values = X.data
        cells = n * m
        seen = X.nnz if stored else n * m
        zeros = 0 if stored else n * m - np.count_nonzero(values)
    else:
        values = X if mask is None else X[np.asarray(mask)]
        cells = n * m
        seen = values.size
        zeros = int((values == 0).sum())
    values = np.asarray(values)
    whole = bool(values.size) and bool((values == np.floor(values)).all())
    binary = whole and bool(((values == 0) | (values == 1)).all())
    negative = bool(values.size) and bool((values < 0).any())
    missing = 0.0 if not cells else 1 - seen / cells
    rated = stored and table.missing_values == "unstored"
    kind = "zeros and ones" if binary else "counts" if whole and not negative and not rated else "numbers"
    kind = "ratings" if rated else "numbers, some negative" if negative else kind
    said = kind + (f", {100 * zeros / max(seen, 1):.0f} % of them zero" if zeros else "")
    said += f", {100 * missing:.0f} % missing" if missing else ""
    return {
        "rows": n,
        "columns": m,
        "binary": binary,
        "whole": whole,
        "negative": negative,
        "missing": missing,
        "rated": rated,
        "zeros": zeros / max(seen, 1),
        "said": said,
        "apart": _apart(X, mask, table.features),
        "dtype": str(X.dtype),
    }


def _apart(X: Array, mask: Any, features: Any) -> tuple[str, str, float] | None:
    """Name the columns of the smallest and the largest scale where they are far apart."""
    if isinstance(mask, str) or not X.shape[1]:
        return None
    known: Any = X if mask is None else np.where(np.asarray(mask), X, 0)
    squares = known.power(2) if is_sparse(known) else np.square(known)
    scale = np.sqrt(np.asarray(squares.mean(axis=0), np.float64).ravel())
    there = np.flatnonzero(scale > 0)
    if len(there) < 2:
        return None
    low = there[np.argmin(scale[there])]
    high = there[np.argmax(scale[there])]
    times = float(scale[high] / scale[low])
    low_name, high_name = (f"column {j}" if features is None else str(features[j]) for j in (low, high))
    return (low_name, high_name, times) if times >= _APART else None


def kind_of(facts: dict[str, Any]) -> str:
    """Say in one word what a table is for a method."""
    if facts["rated"]:
        return "ratings"
    if facts["negative"]:
        return "negative"
    if facts["binary"]:
        return "yes/no"
    return "counts" if facts["whole"] and facts["zeros"] > 0.3 else "amounts"


def advice(kind: str, file: Path, options: str = "", columns: int = 100) -> list[str]:
    """Write commands that fit a kind of table.

    Examples
    --------
    >>> advice("ratings", Path("r.csv"))[0]
    'fedfactor fit r.csv -a pooled-cf -o out      recommendations'
    """
    name = f"{shlex.quote(file.name)}{options}"
    k = max(1, min(5, columns - 1))
    ranks = f"2-{max(2, min(10, columns - 1))}"
    found = {
        "ratings": [
            (f"fedfactor fit {name} -a pooled-cf -o out", "recommendations"),
            ("fedfactor recommend out --user ID", "the best items for a user"),
            (f"fedfactor fit {name} -a pooled-ease -o out", "items by items, from signs of interest"),
        ],
        "yes/no": [
            (f"fedfactor rank {name} -a pooled-bmf -k {ranks}", "how many patterns"),
            (f"fedfactor fit {name} -a pooled-bmf -k {k} -o out", "patterns of ones"),
            (f"fedfactor fit {name} -k {k} -o out", "parts with weights"),
        ],
        "counts": [
            (f"fedfactor fit {name} -k {k} --set loss=kullback-leibler -o out", "topics; counts as counts"),
            (f"fedfactor fit {name} -k {k} --library-size 10000 --log1p -o out", "rows of different sums"),
            (f"fedfactor rank {name} -k {ranks} --set loss=kullback-leibler", "how many components"),
        ],
        "amounts": [
            (f"fedfactor fit {name} -k {k} -o out", "parts that add up"),
            (f"fedfactor rank {name} -k {ranks}", "how many components"),
            (f"fedfactor compare {name} OTHER_FILES -k {k}", "whether it pays to factor together"),
        ],
        "negative": [
            ("no method as it is", "all take values from 0 upwards; shift or drop the columns with negative ones"),
        ],
    }[kind]
    wide = max(len(command) for command, _ in found)
    return [f"{command:<{wide}}      {what}" for command, what in found]


def shared_by(kind: str, facts: dict[str, Any]) -> list[str]:
    """List what an owner of such a table would send with the first command of :func:`advice`, and what it would not."""
    from fedfactor import algorithms

    if kind == "negative":
        return ["nothing: there is nothing to run."]
    method = getattr(algorithms, {"ratings": "PooledCF", "yes/no": "PooledBMF"}.get(kind, "PooledNMF"))(5)
    method = replace(method, loss="kullback-leibler") if kind == "counts" else method
    meta = Meta(facts["columns"], ("you", "another"), facts["dtype"], bool(facts["missing"]))
    said = [line.replace("Each owner sent", "You would send") for line in uploads(method, meta)]
    return [
        *said,
        "The names of the columns, once, so that owners can match them.",
        "Never: rows, row ids, U. With --privacy secure-sum the server sees sums of all owners only.",
    ]
