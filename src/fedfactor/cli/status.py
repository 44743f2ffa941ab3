"""``fedfactor status``, ``results`` and ``federation check``: how it stands, at the server or at a party."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from fedfactor.cli.console import ATTENTION, Debug, console, polite, size
from fedfactor.cli.reading_options import reads
from fedfactor.cli.shared_options import Out, Server, Toml
from fedfactor.core.errors import DataError
from fedfactor.core.printable_text import printable
from fedfactor.core.pytree import is_list, is_mapping
from fedfactor.io.file_content import Reading


@reads(prepares=False, marks_missing=False)
def check(
    file: Toml,
    key: Annotated[Path | None, typer.Option(help="At a party: your private key.", show_default=False)] = None,
    data: Annotated[
        Path | None, typer.Option(help="At a party: your rows. They stay here.", show_default=False)
    ] = None,
    folder: Annotated[Path | None, typer.Option(help="Your own folder, or the server's.", show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One object per line checked, for programs.")] = False,
    debug: Debug = False,
    *,
    reading: Callable[..., Reading],
) -> None:
    """Look before a run, or during one, at all that may be wrong; with --key at a party, else at the coordinator.

    Of your rows nothing is sent. Ends with 3 when something is wrong.

    Example: fedfactor federation check federation.toml --key north.key --data rows.csv
    """
    from rich.table import Table
    from rich.text import Text

    from fedfactor.federation.coordinator import Coordinator
    from fedfactor.federation.preflight import check_coordinator, check_party_files

    with polite(debug):
        if key is not None:
            lines = check_party_files(file, key, folder, data, reading())
        else:
            lines = check_coordinator(Coordinator(file, folder))
    wrong = any(line.state == "wrong" for line in lines)
    if as_json:
        typer.echo(json.dumps([asdict(line) for line in lines], indent=1))
        raise typer.Exit(ATTENTION if wrong else 0)
    shown = Table("", "checked", "found", "what to do", box=None, pad_edge=False)
    for line in lines:
        mark = {"ok": "ok", "note": "note", "wrong": "WRONG"}[line.state]
        style = {"ok": "green", "note": "yellow", "wrong": "bold red"}[line.state]
        shown.add_row(Text(mark, style), Text(line.what), Text(printable(line.found)), Text(printable(line.remedy)))
    console().print(shown)
    if wrong:
        raise typer.Exit(ATTENTION)


def status(
    place: Annotated[
        Path, typer.Argument(help="federation.toml (at the server) or your own folder.", show_default=False)
    ],
    folder: Server = None,
    as_json: Annotated[bool, typer.Option("--json", help="Everything, for programs.")] = False,
    debug: Debug = False,
) -> None:
    """Say where a run stands: who is connected, rounds, who is in, error, bytes, refusals, privacy spent.

    Ends with 3 when something is to be done: a party is not connected, not served, paused, failed or interrupted.

    Example: fedfactor status federation.toml
    """
    from fedfactor.federation.results import status_of

    with polite(debug):
        about = status_of(place, folder)
    if as_json:
        typer.echo(json.dumps(about, indent=1))
    else:
        screen = console()
        for key, value in about.items():
            if value not in (None, "", [], {}):
                screen.print(f"{key.replace('_', ' '):13} {printable(_shown(key, value))}", markup=False)
    if about["state"] in STUCK or about.get("not_connected") or not about.get("served", about.get("connected")):
        raise typer.Exit(ATTENTION)


STUCK = ("paused", "failed", "interrupted")
"""States of a run in which something is to be done."""


def _shown(key: str, value: Any) -> str:
    """Write a value of the status for people."""
    if key.startswith("bytes"):
        return size(value)
    if isinstance(value, bool):
        return "yes" if value else "NO"
    if is_list(value):
        return ", ".join(map(str, value))
    if is_mapping(value):
        return "; ".join(f"{name}: {part}" for name, part in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def results(
    place: Annotated[
        Path, typer.Argument(help="Your own folder, or federation.toml at the server.", show_default=False)
    ],
    out: Out,
    run: Annotated[str, typer.Option("--run", help="Of this run; by default the last one that ended.")] = "",
    comma: Annotated[
        bool,
        typer.Option(
            "--comma", help="Tables with decimal commas and semicolons, as spreadsheets of many countries want."
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="What was written, for programs.")] = False,
    debug: Debug = False,
) -> None:
    """Write what you may have: V and the record of the run, and at a party its own U. As fedfactor fit does.

    Example: fedfactor results federation.toml -o out
    """
    from fedfactor.cli.export import write_tables
    from fedfactor.cli.report import write_report
    from fedfactor.federation.results import folder_of, going_on, write_result
    from fedfactor.io.result_folder import has_results, read_run

    with polite(debug):
        if has_results(out):
            raise DataError(f"{out} already holds results. Choose another folder with -o.")
        folder = folder_of(place)
        later = "" if run else going_on(folder)
        write_result(folder, out, run)
        about = read_run(out)
        tables = write_tables(out, comma)
        page = write_report(out)
    if as_json:
        shown = {name: about.get(name) for name in ("run", "rounds", "terms", "relative_error")}
        files = [str(path) for path in (page, *tables)]
        typer.echo(json.dumps({**shown, "out": str(out), "files": files, "later": later}, indent=1))
        return
    told = {name: about.get(name) for name in ("run", "rounds", "terms")}
    typer.echo(printable(f"Run {told['run']}: {told['rounds']} rounds, terms {str(told['terms'])[:16]}."))
    if later:
        typer.echo(printable(f"{later}; this is the last that did."))
    typer.echo(
        f"Results are in {out}. Open {page.name} in a browser, or the tables in a spreadsheet: "
        f"{', '.join(str(table.relative_to(out)) for table in tables)}."
    )
