"""The ServerApp that Flower starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedfactor.core.errors import DataError
from fedfactor.federation.keys import public_pem
from fedfactor.flower import simulation
from fedfactor.flower.coordinator_folder import Coordination
from fedfactor.flower.transport import GridTransport
from fedfactor.network.server import Outcome, Server

server_app = ServerApp()


@server_app.main()
def _serve(grid: Grid, context: Context) -> None:
    """Run all rounds."""
    serve(grid, context)


@dataclass(frozen=True, slots=True)
class Settings:
    """The run configuration: ``[tool.flwr.app.config]`` and ``flwr run --run-config``.

    Parameters
    ----------
    folder : Path
        Folder of the federation on the machine of the ServerApp: ``federation.toml``, and ``server`` with the
        checkpoint and the result.
    data : Path, optional
        In Flower's simulation engine: a folder with one data file for each client.
    again : bool
        Start another run where the folder holds a finished or an interrupted one.
    terms : dict
        Entries ``simulation.SECTION.ENTRY``, such as ``simulation.algorithm.n_components``: the terms of a simulation,
        with the sections of ``federation.toml``. In a deployment that file alone counts, because parties signed it.
    """

    folder: Path
    data: Path | None
    again: bool
    terms: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Settings:
        """Read a run configuration."""
        paths = {key: key.split(".") for key in config if key not in ("folder", "data", "again")}
        odd = [key for key, path in paths.items() if path[0] != "simulation" or len(path) != 3]
        if odd:
            raise DataError(
                f"The run configuration has no entry {odd[0]!r}. Its entries are folder, data, again, and "
                "simulation.SECTION.ENTRY, with the sections and entries of federation.toml."
            )
        folder, data = (str(config.get(name, "")) for name in ("folder", "data"))
        for name, path in (("folder", folder), ("data", data)):
            if (name == "folder" or path) and not Path(path).is_absolute():
                raise DataError(
                    f"{name} = {path!r} is not an absolute path, and Flower starts apps in folders of its own. Give "
                    f"it on the command line: flwr run . --run-config \"{name}='$PWD/{path or 'federation'}'\""
                )
        terms: dict[str, dict[str, Any]] = {}
        for key, (_, section, entry) in paths.items():
            terms.setdefault(section, {})[entry] = config[key]
        return cls(Path(folder), Path(data) if data else None, bool(config.get("again", False)), terms)


def serve(grid: Grid, context: Context) -> Outcome:
    """Run a federation over a Flower grid, or resume it: the body of :data:`server_app`.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        What Flower passes to a ServerApp.
    context : flwr.app.Context
        Its ``run_config`` holds ``folder``, and in a simulation ``data`` and the terms.

    Returns
    -------
    Outcome
        What the run leaves at the server; the same lies in ``server/result`` in the folder.

    Raises
    ------
    NotEnough
        Too few parties answered. The run is kept: start it again with the same ``flwr run``.
    """
    settings = Settings.of(context.run_config)
    if settings.data is not None:
        simulation.prepare(settings.folder, settings.data, settings.terms)
    place = Coordination(settings.folder)
    place.prepare(again=settings.again)
    terms = place.terms
    keys = {name: public_pem(party["key"]) for name, party in terms.content["parties"].items()}
    policy = terms.policy()
    transport = GridTransport(grid, context.run_id, keys, terms.fingerprint, ttl=max(3600.0, 2 * policy.deadline))
    outcome = place.run(Server(place.server, terms.agreement(), policy, transport))
    if settings.data is not None:
        simulation.write_results(settings.folder, terms.names)
    _report(outcome, settings)
    return outcome


def _report(outcome: Outcome, settings: Settings) -> None:
    typer.echo(f"fedfactor: {len(outcome.history)} rounds, {outcome.status}; finished: {', '.join(outcome.finished)}.")
    for name, score in outcome.scores.items():
        typer.echo(f"fedfactor: {name}: relative error {score.relative_error:.6f}")
    where = settings.folder / ("results" if settings.data is not None else "server/result")
    typer.echo(f"fedfactor: results are in {where}.")
