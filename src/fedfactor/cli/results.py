"""``fedfactor info`` and ``fedfactor transform``: look at a finished run, and use it for new rows."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from fedfactor.algorithms.names import algorithm_class
from fedfactor.cli.console import Debug, console, duration, polite, size
from fedfactor.cli.place import Place
from fedfactor.cli.settings import missing
from fedfactor.core.checks import check_features, check_values, split_missing
from fedfactor.core.errors import DataError
from fedfactor.core.files import write_atomic
from fedfactor.core.protocol import LocalFactors
from fedfactor.core.text import printable

Folder = Annotated[Path, typer.Argument(help="A folder written by fedfactor fit.", show_default=False)]

_SAID = ("algorithm", "settings", "seed", "rounds", "relative_error")
_OF_ALL = ("status", "bytes_up", "bytes_down", "seconds")
_OF_ONE = ("bytes_sent", "letters")  # a party of a federation knows what it sent itself


def info(folder: Folder, debug: Debug = False) -> None:
    """Say what a folder of results holds."""
    from fedfactor.data.results import owner_from_file, read_components

    with polite(debug):
        saved = Place(folder).saved()
        if saved:
            typer.echo(f"Unfinished run, {saved[1]} rounds done. The command that began it goes on from there.")
            return
        V, features = read_components(folder)
        record = _record(folder)
        private = sorted(owner_from_file(path.name) for path in (folder / "private").glob("*.safetensors"))
    ended = f", {record['status']}" if "status" in record else ""
    lines = [
        f"{record['algorithm']}, seed {record['seed']}: {record['rounds']} rounds{ended}",
        f"V: {V.shape[0]} components × {V.shape[1]} features, {V.dtype}, {'named' if features else 'without names'}",
        _errors(record),
        _traffic(record),
        f"private U of {len(private)} owners: {', '.join(private) or 'none'}",
    ]
    screen = console()
    for line in filter(None, lines):
        screen.print(printable(line), markup=False)  # a folder of others may hold anything


def _errors(record: dict[str, Any]) -> str:
    """Say the error: of all owners and of the worst, or what a party of a federation knows of it."""
    if record.get("relative_error") is None:
        return ""
    whose = f" of {record['party']}'s rows" if "party" in record else ""
    errors: dict[str, float] = record.get("errors") or {}
    worst = record.get("worst_client")
    if worst is None and errors:
        name = max(errors, key=lambda owner: errors[owner])
        worst = {"name": name, "relative_error": errors[name]}
    more = f", worst owner {worst['name']}: {worst['relative_error']:.5f}" if worst else ""
    return f"relative error{whose} {record['relative_error']:.5f}{more}"


def _traffic(record: dict[str, Any]) -> str:
    """Say what was sent: by all, or by one party of a federation."""
    if "bytes_sent" in record:
        return f"sent {size(record['bytes_sent'])} in {record['letters']} letters"
    up, down = size(record["bytes_up"]), size(record["bytes_down"])
    return f"sent {up} up and {down} down in {duration(record['seconds'])}"


def transform(
    folder: Folder,
    rows: Annotated[Path, typer.Argument(help="A file of new rows.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="Where U goes: .csv or .npy.", show_default=False)],
    missing_values: Annotated[
        str | None,
        typer.Option("--missing-values", help="As in fedfactor fit; by default as in that run.", show_default=False),
    ] = None,
    debug: Debug = False,
) -> None:
    """Find U of new rows with the components of a finished run; nothing is sent anywhere.

    FOLDER was written by fedfactor fit; ROWS is a file of new rows, in any format that fit reads.
    """
    from fedfactor.data.io import load_table
    from fedfactor.data.results import read_components

    with polite(debug):
        if out.suffix not in (".csv", ".npy"):
            raise ValueError(f"{out} must end in .csv or .npy.")
        V, features = read_components(folder)
        record = _record(folder)
        method = algorithm_class(record["algorithm"])(**record["settings"])
        absent = missing(record.get("asked", {}).get("missing_values") if missing_values is None else missing_values)
        table = load_table(rows, missing_values=absent)
        X, mask = split_missing(_matched(rows.name, table, features, V.shape[1]), absent)
        check_values(rows.name, X, mask, method.domain)
        if mask is not None and not method.handles_missing:
            raise ValueError(f"{record['algorithm']} needs complete rows. Fill the missing cells first.")
        U = method.fold_in(X, LocalFactors(np.empty((0, V.shape[0]), V.dtype), V), mask)
        write_atomic(out, _csv(U, table.row_ids) if out.suffix == ".csv" else _npy(U))
    typer.echo(f"{out}: U of {U.shape[0]} rows, {U.shape[1]} components, readable by you only.")


def _record(folder: Path) -> dict[str, Any]:
    path = folder / "run.json"
    try:
        record = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise DataError(f"{path} is not there. Give a folder written by fedfactor fit.") from None
    except ValueError as error:
        raise DataError(f"{path} is not JSON ({error}). Run fedfactor fit again.") from None
    known = record if isinstance(record, dict) else {}
    lacking = [name for name in (*_SAID, *(_OF_ONE if "party" in known else _OF_ALL)) if name not in known]
    if lacking:
        raise DataError(f"{path} does not say {lacking[0]!r}: it is no record of a run. Run fedfactor fit again.")
    return record


def _matched(name: str, table: Any, features: tuple[str, ...] | None, columns: int) -> Any:
    """Bring new rows into the order of the components' columns."""
    X = table.X
    if X.shape[1] != columns:
        raise DataError(f"{name} has {X.shape[1]} columns, but the components have {columns}. Give the same features.")
    if features is not None and table.features is not None:
        order = check_features(name, table.features, "the components", features)
        X = X if order is None else X[:, np.asarray(order)]
    return X


def _csv(U: np.ndarray, rows: Sequence[str] | None) -> bytes:
    import csv

    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    head = [f"component_{j}" for j in range(U.shape[1])]
    writer.writerow(head if rows is None else ["row", *head])
    for i, values in enumerate(U.tolist()):
        writer.writerow(values if rows is None else [rows[i], *values])
    return text.getvalue().encode("utf-8", "surrogatepass")


def _npy(U: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, U, allow_pickle=False)
    return buffer.getvalue()
