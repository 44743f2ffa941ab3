"""``fedfactor federation versions`` and ``next``: what runs left, and what the next one starts at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedfactor.cli.console import Debug, polite
from fedfactor.cli.shared_options import Server, Toml

if TYPE_CHECKING:
    from fedfactor.federation.model_versions import Version


def _place(file: Path, folder: Path | None) -> Path:
    return folder or file.resolve().parent / "server"


def versions(
    file: Toml,
    folder: Server = None,
    as_json: Annotated[bool, typer.Option("--json", help="One object per version, for programs.")] = False,
    debug: Debug = False,
) -> None:
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
        if as_json:
            typer.echo(json.dumps([_plain(version, found[-1], ended) for version in found], indent=1))
            return
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


def _plain(version: Version, last: Version, ended: dict[str, str]) -> dict[str, Any]:
    """Return a version as plain data, with the cosines of its components with those of the last one."""
    from fedfactor.federation.model_versions import alike

    about = {name: getattr(version, name) for name in ("run", "components", "parents", "parties", "terms")}
    both = bool(version.components and last.components)
    return {**about, "finished": ended.get(version.run), "cosines": alike(last.V, version.V) if both else None}


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
        f"  fedfactor serve {file} (again): {', '.join(terms.names)} consent with fedfactor accept;\n"
        f"  then fedfactor start {file} --again"
    )
