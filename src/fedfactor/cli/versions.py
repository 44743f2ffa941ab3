"""``fedfactor federation versions``, ``next`` and ``stability``: what runs left, what comes next, what is stable."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedfactor.cli.console import Debug, console, polite
from fedfactor.cli.shared_options import Server, Toml


def _place(file: Path, folder: Path | None) -> Path:
    return folder or file.resolve().parent / "server"


def versions(file: Toml, folder: Server = None, debug: Debug = False) -> None:
    """List the versions of the model: each run with its components, what it started at, and who took part.

    Beside each stands how like the last version it is, component by component (cosines of the best match). Runs with
    other seeds, or without one of the parties, so say which components are stable.

    Example: fedfactor federation versions federation.toml
    """
    from fedfactor.federation.model_versions import alike
    from fedfactor.federation.model_versions import versions as listed
    from fedfactor.federation.results import from_anywhere
    from fedfactor.network.coordinator_journal import Journal

    place = _place(file, folder)
    with polite(debug), from_anywhere(place):
        found = listed(place)
        deeds = Journal(place).lines()
        ended = {deed["run"]: deed["time"] for deed in deeds if deed["deed"] == "run finished"}
        last = found[-1] if found else None
        for number, version in enumerate(found, 1):
            begun = f"begun at {', '.join(version.parents)}" if version.parents else "begun again"
            typer.echo(f"{number}  run {version.run}  {version.components or 'no components at the server'}")
            if version.run in ended:
                begun = f"finished {ended[version.run]}; {begun}"
            typer.echo(f"   {begun}; terms {version.terms[:16]}; {', '.join(version.parties)}")
            if last is not version and last is not None and version.components and last.components:
                same = ", ".join(f"{each:.3f}" for each in alike(last.V, version.V)) or "other columns"
                typer.echo(f"   components of the last version, found here: {same}")
    if not found:
        typer.echo("No run has finished yet.")


def go_on(
    file: Toml,
    folder: Server = None,
    run: Annotated[str, typer.Option(help="The run to start at; by default the last.", show_default=False)] = "",
    debug: Debug = False,
) -> None:
    """Let the next run start at the components of an earlier one: write their fingerprint into the terms.

    Example: fedfactor federation next federation.toml
    """
    from fedfactor.federation.model_versions import start_next_at

    with polite(debug):
        terms = start_next_at(file, _place(file, folder), run)
    typer.echo(
        f"The next run starts at {terms.start}. That is a new agreement:\n"
        f"  send {file} to {', '.join(terms.names)}, who join with --accept-changes;\n"
        f"  fedfactor serve {file} (again), then fedfactor start {file} --again"
    )


def stability_of(file: Toml, folder: Server = None, debug: Debug = False) -> None:
    """See which components are stable: run again with other seeds, and without each party, as the terms allow.

    On the server's machine, while fedfactor serve is running and the parties are connected. Says of each component of
    the last run the cosine with its match in each further run. Parties count those runs, and take no results home.

    Example: fedfactor federation stability federation.toml
    """
    from rich.table import Table

    from fedfactor.federation.coordinator import Coordinator
    from fedfactor.federation.stability import ordered

    with polite(debug):
        found = ordered(Coordinator(file, folder), typer.echo)
    shown = Table("component", *found, box=None, pad_edge=False)
    for number, row in enumerate(zip(*found.values(), strict=True)):
        shown.add_row(str(number), *(f"{each:.3f}" for each in row))
    console().print(shown)
    least = [min(row) for row in zip(*found.values(), strict=True)]
    typer.echo(f"Least of each component: {', '.join(f'{each:.3f}' for each in least)}. Near 1: always found again.")
