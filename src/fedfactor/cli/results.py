"""``fedfactor info`` and ``fedfactor transform``: look at a finished run, and use it for new rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from fedfactor.cli.console import Debug, console, duration, polite, size
from fedfactor.cli.reading_options import reads
from fedfactor.cli.run_folder import Place
from fedfactor.cli.shared_options import Folder
from fedfactor.core.algorithm import LocalFactors
from fedfactor.core.errors import DataError
from fedfactor.core.input_validation import check_features, check_values
from fedfactor.core.missing_policies import split_missing
from fedfactor.core.printable_text import printable
from fedfactor.core.pytree import is_mapping
from fedfactor.io.file_content import Reading, Rows, write_rows
from fedfactor.io.formats import endings, format_of
from fedfactor.io.run_record import Preprocessed, part_of, read_record


def info(folder: Folder, debug: Debug = False) -> None:
    """Say what a folder of results holds: algorithm and settings, errors, traffic, privacy, whose factors.

    Example: fedfactor info out/
    """
    from fedfactor.io.result_folder import has_results, owner_from_file, read_components

    with polite(debug):
        saved = Place(folder).saved()
        if saved:
            typer.echo(f"Unfinished run, {saved[1]} rounds done. The command that began it goes on from there.")
            if not has_results(folder):
                return
        V, features = read_components(folder)
        record = read_record(folder)
        private = sorted(owner_from_file(path.name) for path in (folder / "private").glob("*.safetensors"))
    ended = f", {record['status']}" if "status" in record else ""
    lines = [
        f"{record['algorithm']}, seed {record['seed']}: {record['rounds']} rounds{ended}",
        f"V: {V.shape[0]} components × {V.shape[1]} features, {V.dtype}, {'named' if features else 'without names'}",
        f"settings: {_settings(record)}",
        _steps(record),
        _lineage(record),
        _errors(record),
        _traffic(record),
        privacy_line(record),
        f"private U of {len(private)} owners: {', '.join(private) or 'none'}",
    ]
    screen = console()
    for line in filter(None, lines):
        screen.print(printable(line), markup=False)  # a folder of others may hold anything


def _settings(record: dict[str, Any]) -> str:
    """Write the settings that are not left to privacy or to their defaults' None."""
    return ", ".join(f"{name}={value}" for name, value in record["settings"].items() if value is not None)


def _steps(record: dict[str, Any]) -> str:
    steps = part_of(record, "preprocess").get("steps")
    return f"before the first round: {', '.join(map(str, steps))}" if steps else ""


def _lineage(record: dict[str, Any]) -> str:
    parent = part_of(record, "asked").get("begun_from")
    if not is_mapping(parent):
        return ""
    return f"begun at components of a run with seed {parent.get('seed')}: {parent.get('components')}"


def privacy_line(record: dict[str, Any]) -> str:
    """Say which privacy holds, in one line.

    Examples
    --------
    >>> privacy_line({"privacy": {"mode": "dp", "epsilon": 2.5, "delta": 1e-5, "unit": "row"}})
    'privacy: dp, ε = 2.5, δ = 1e-05, unit row'
    >>> privacy_line({"privacy": {"mode": "none", "epsilon": "inf"}})
    'privacy: none, ε = ∞ (uploads reached the server in the clear)'
    """
    about = record.get("privacy")
    if not about:
        return "privacy: as the terms of the federation say" if "party" in record else ""
    mode = about.get("mode", "none")
    try:
        epsilon = float(about.get("epsilon", "inf"))
    except (TypeError, ValueError):
        raise DataError("run.json names an ε that is no number. Write the results again.") from None
    if epsilon == float("inf"):
        why = " (uploads reached the server in the clear)" if mode == "none" else ""
        return f"privacy: {mode}, ε = ∞{why}"
    delta = f", δ = {about['delta']:g}" if isinstance(about.get("delta"), float | int) else ""
    void = " (void: the noise came from a seed)" if about.get("void") else ""
    return f"privacy: {mode}, ε = {epsilon:.3g}{delta}, unit {about.get('unit')}{void}"


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
    up = size(record["bytes_up"])
    down = size(record["bytes_down"])
    took = f" in {duration(record['seconds'])}" if record.get("seconds") is not None else ""
    return f"sent {up} up and {down} down{took}"


@reads(prepares=False)
def transform(
    folder: Folder,
    rows: Annotated[Path, typer.Argument(help="A file of new rows.", show_default=False)],
    out: Annotated[
        Path, typer.Option("--out", "-o", help=f"Where U goes: {' '.join(endings(writes=True))}.", show_default=False)
    ],
    debug: Debug = False,
    *,
    reading: Callable[..., Reading],
) -> None:
    """Find U of new rows with the components of a finished run; nothing is sent anywhere.

    FOLDER was written by fedfactor fit or fedfactor results; ROWS is a file of new rows, in any format that fit reads.
    They are preprocessed as the rows of that run were, and matched by column name; their ids go with U.

    Example: fedfactor transform out/ new_patients.csv -o u.csv
    """
    from fedfactor.io.read import load_for
    from fedfactor.io.result_folder import read_components
    from fedfactor.saved_models.run_folder import method_of

    with polite(debug):
        format_of(out, writes=True)
        V, features = read_components(folder)
        record = read_record(folder)
        method: Any = method_of(record, folder, V.shape[0])
        asked = part_of(record, "asked")
        table = load_for(rows, features, reading(missing_values=asked.get("missing_values"), layer=asked.get("layer")))
        X, mask = split_missing(_matched(rows.name, table, features, V.shape[1]), table.missing_values)
        done = Preprocessed.of(record.get("preprocess"), X.shape[1], folder / "run.json")
        X = X if done is None else done.apply(X)
        check_values(rows.name, X, mask, method.domain, features, table.row_ids)
        if mask is not None and not method.handles_missing:
            raise ValueError(f"{record['algorithm']} needs complete rows. Fill the missing cells first.")
        try:
            U = method.fold_in(X, LocalFactors(np.empty((0, V.shape[0]), V.dtype), V), mask)
        except TypeError as error:  # a number that became text
            raise DataError(
                f"{folder / 'run.json'} holds settings that cannot be ({error}). Run fedfactor fit again."
            ) from None
        names = tuple(f"component_{j}" for j in range(U.shape[1]))
        about = {"algorithm": str(record["algorithm"]), "seed": str(record["seed"])}
        write_rows(out, Rows(U, names, table.row_ids, table.id_name, V, features, rows, about))
    typer.echo(f"{out}: U of {U.shape[0]} rows, {U.shape[1]} components, readable by you only.")


def _matched(name: str, table: Any, features: tuple[str, ...] | None, columns: int) -> Any:
    """Bring new rows into the order of the components' columns."""
    X = table.X
    if X.shape[1] != columns:
        raise DataError(f"{name} has {X.shape[1]} columns, but the components have {columns}. Give the same features.")
    if features is not None and table.features is not None:
        order = check_features(name, table.features, "the components", features)
        X = X if order is None else X[:, np.asarray(order)]
    return X
