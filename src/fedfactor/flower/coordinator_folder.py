"""The coordinator's folder when Flower carries the messages: what the ServerApp reads and leaves there."""

from __future__ import annotations

from pathlib import Path

from fedfactor.core.atomic_files import read_json
from fedfactor.core.errors import DataError
from fedfactor.federation.coordinator import Coordinator
from fedfactor.federation.model_versions import put_start
from fedfactor.federation.terms import Terms
from fedfactor.network.coordinator_journal import Journal
from fedfactor.network.server import ABANDON, ENDED, Outcome, Server

AGAIN = "--run-config 'again=true'"


class Coordination:
    """One federation at the machine of the ServerApp.

    Parameters
    ----------
    folder : path
        Holds ``federation.toml``; the server's own files lie in ``server`` beside it.
    """

    def __init__(self, folder: Path) -> None:
        self._toml = folder / "federation.toml"
        if not self._toml.exists():
            raise DataError(
                f"{self._toml} is not there. In a deployment, make it with fedfactor federation init; in a simulation, "
                "give the data: --run-config \"data='/path/to/data'\""
            )
        self.terms = Terms.read(self._toml)
        self.server = folder / "server"

    def prepare(self, *, again: bool) -> None:
        """Write what readers of the folder need; forget an earlier run only when requested."""
        coordinator = Coordinator(self._toml, self.server)
        if again:
            coordinator.forget()
        record = self.server / "result" / "run.json"
        if record.exists():
            about = read_json(record)
            if set(about["finished"]) == set(about["clients"]):
                raise DataError(f"{record.parent} holds a finished run. Start another one with {AGAIN}.")
        coordinator.write_terms()
        put_start(self.terms, self.server)
        for name in ("stop", ABANDON):
            (self.server / name).unlink(missing_ok=True)

    def run(self, server: Server) -> Outcome:
        """Run, and record in the journal that it began and how it ended."""
        journal = Journal(self.server)
        resumed = (self.server / "checkpoint" / "run.safetensors").exists()
        journal.write("run goes on" if resumed else "run begun", run=server.run_id, engine="flower")
        try:
            return server.run()
        finally:
            about = read_json(self.server / "status.json")
            state = about["state"] if about["state"] in ENDED else "interrupted"
            journal.write(f"run {state}", run=server.run_id, round=about["round"], reason=about.get("reason", ""))
