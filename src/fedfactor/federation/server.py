"""The coordinator's side: a SuperLink that knows the parties' keys, and runs that it starts."""

from __future__ import annotations

import json
import os
import shutil
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fedfactor.core.errors import DataError
from fedfactor.core.files import private_folder, write_atomic
from fedfactor.federation import children
from fedfactor.federation.children import ChildError
from fedfactor.federation.keys import public_pem
from fedfactor.federation.terms import Terms, TermsError

APP = {
    "pyproject.toml": """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "fedfactor-run"
version = "1.0.0"
description = "Names the apps of the installed fedfactor; holds no code of its own."
license = "Apache-2.0"
dependencies = []

[tool.hatch.build.targets.wheel]
packages = ["."]

[tool.flwr.app]
publisher = "fedfactor"

[tool.flwr.app.components]
serverapp = "fedfactor_run:server"
clientapp = "fedfactor_run:client"

[tool.flwr.app.config]
""",
    "fedfactor_run.py": """\
from fedfactor.engines.flower.apps import client_app as client
from fedfactor.engines.flower.apps import server_app as server

__all__ = ["client", "server"]
""",
}


class Coordinator:
    """The server's folder, and what is done with it.

    Parameters
    ----------
    file : path
        ``federation.toml``.
    folder : path, optional
        By default ``server`` beside the file.
    """

    def __init__(self, file: str | Path, folder: str | Path | None = None) -> None:
        self.file = Path(file)
        self.terms = Terms.read(file)
        self.folder = Path(folder) if folder is not None else self.file.resolve().parent / "server"
        self.child: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """What the SuperLink says."""
        return self.folder / "superlink.log"

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.terms.address[1]

    def prepare(self) -> None:
        """Write down what the server app will need; refuse a folder without certificates."""
        children.need_flower()
        for name in ("server.pem", "server.key"):
            if not (self.folder / name).exists():
                raise DataError(f"{self.folder / name} is not there. Make it with: fedfactor federation init")
        private_folder(self.folder)
        write_atomic(self.folder / "ca.pem", self.terms.content["server"]["certificate"].encode(), mode=0o644)
        write_atomic(self.folder / "agreement.json", self.terms.agreement().to_json())
        write_atomic(self.folder / "features.json", json.dumps(list(self.terms.features)).encode(), mode=0o644)
        write_atomic(self.folder / "preprocess.json", json.dumps(self.terms.content["preprocess"]).encode(), mode=0o644)
        keys = {name: public_pem(party["key"]).decode() for name, party in self.terms.content["parties"].items()}
        about = {"policy": asdict(self.terms.policy()), "keys": keys}
        write_atomic(self.folder / "server.json", json.dumps(about, indent=1).encode())
        home = private_folder(self.folder / "flower")
        connection = (
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\n'
            f'root-certificates = "{(self.folder / "ca.pem").resolve()}"\n'
        )
        write_atomic(home / "config.toml", connection.encode())

    def serve(self, patience: float = 120.0) -> None:
        """Start the SuperLink and register every party's key; returns when it is ready."""
        self.prepare()
        host = self.terms.address[0]
        bind = host if host in ("127.0.0.1", "localhost", "::1") else "0.0.0.0"
        folder = self.folder.resolve()
        command = [
            sys.executable, "-m", "fedfactor.engines.flower.superlink",
            "--host", "127.0.0.1" if bind == "localhost" else bind, "--port", str(self.port),
            "--ssl-ca-certfile", f"{folder / 'ca.pem'}", "--ssl-certfile", f"{folder / 'server.pem'}",
            "--ssl-keyfile", f"{folder / 'server.key'}", "--enable-supernode-auth",
            "--disable-runtime-dependency-installation", "--database", f"{folder / 'superlink.db'}",
        ]  # fmt: skip
        self.child = children.start(command, self.log, self._environment())
        try:
            self._await(time.monotonic() + patience)
            self._register()
        except BaseException:
            self.close()
            raise

    def _environment(self) -> dict[str, str]:
        folder = str(self.folder.resolve())
        return {
            "FEDFACTOR_SERVER": folder,
            "FLWR_HOME": str(Path(folder) / "flower"),
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.5",
        }

    def _await(self, end: float) -> None:
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        address = f"https://127.0.0.1:{self.port}/health"
        while True:
            if self.child is not None and self.child.poll() is not None:
                raise ChildError(f"Flower's SuperLink ended at once. {self.log} says:\n{children.tail(self.log)}")
            try:
                with urllib.request.urlopen(address, context=context, timeout=5):
                    return
            except urllib.error.HTTPError:
                return
            except ssl.SSLError as error:
                raise ChildError(f"The server's certificate does not stand up to its authority: {error}.") from None
            except OSError as error:
                if isinstance(getattr(error, "reason", None), ssl.SSLError):
                    raise ChildError(f"The server's certificate does not stand up to its authority: {error}.") from None
            if time.monotonic() > end:
                raise ChildError(f"Flower's SuperLink did not answer on port {self.port}. See {self.log}.")
            time.sleep(0.3)

    def _register(self) -> None:
        from fedfactor.engines.flower.control import register_keys

        keys = [public_pem(party["key"]) for party in self.terms.content["parties"].values()]
        authority = self.terms.content["server"]["certificate"].encode()
        os.environ["NO_PROXY"] = os.environ["no_proxy"] = children.without_proxy()
        register_keys(f"127.0.0.1:{self.port}", authority, keys)

    def _flwr(self, *words: str) -> subprocess.CompletedProcess[str]:
        flwr = Path(sys.executable).parent / "flwr"
        return subprocess.run(
            [str(flwr), *words], env=children.quiet_environment(self._environment()), capture_output=True, text=True,
            timeout=180, check=False,
        )  # fmt: skip

    def start(self, *, again: bool = False) -> None:
        """Start a run, or let an interrupted one go on."""
        finished = (self.folder / "result" / "run.json").exists()
        if finished and not again and not self._unfinished():
            raise DataError(f"{self.folder / 'result'} holds a finished run. Start another one with --again.")
        if again:
            self.forget()
        kept = self.folder / "agreement.json"
        if not kept.exists():
            raise DataError(f"Nothing is served from {self.folder}. Begin with: fedfactor serve {self.file}")
        if json.loads(kept.read_bytes())["terms"] != self.terms.fingerprint:
            raise TermsError(f"{self.file} changed since the server was started. Start fedfactor serve again.")
        (self.folder / "stop").unlink(missing_ok=True)
        (self.folder / "status.json").unlink(missing_ok=True)
        app = private_folder(self.folder / "app")
        for name, text in APP.items():
            write_atomic(app / name, text.encode())
        done = self._flwr("run", str(app.resolve()), "here")
        if done.returncode != 0:
            raise ChildError(f"The run was not taken: {(done.stdout + done.stderr).strip()[-800:]}")

    def _unfinished(self) -> bool:
        record: dict[str, Any] = json.loads((self.folder / "result" / "run.json").read_bytes())
        return set(record["finished"]) != set(record["clients"])

    def forget(self) -> None:
        """Drop the last run; its result must have been fetched."""
        for name in ("checkpoint", "result"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for name in ("run", "survey.safetensors", "status.json"):
            (self.folder / name).unlink(missing_ok=True)

    def stop(self) -> None:
        """Ask the run to end after the present round; every client then keeps what was reached."""
        if not (self.folder / "agreement.json").exists():
            raise DataError(f"Nothing is served from {self.folder}, so there is no run to stop.")
        state = self.status().get("state")
        if state in ("finished", "paused", "failed"):
            raise DataError(f"No round goes on that could be the last one: the run is {state}.")
        write_atomic(self.folder / "stop", b"")

    def status(self) -> dict[str, Any]:
        """Read where the run stands."""
        file = self.folder / "status.json"
        if not file.exists():
            return {
                "state": "not started",
                "clients": list(self.terms.names),
                "rounds": self.terms.content["run"]["rounds"],
            }
        return json.loads(file.read_bytes())

    def wait(self, patience: float) -> dict[str, Any]:
        """Wait until the run finished, paused or failed."""
        end = time.monotonic() + patience
        while time.monotonic() < end:
            status = self.status()
            if status.get("state") in ("finished", "paused", "failed"):
                return status
            self.check()
            time.sleep(0.3)
        raise ChildError(f"The run did not end in {patience:g} s; it stands at {self.status()}.")

    def check(self) -> None:
        """Raise when the SuperLink ended by itself."""
        if self.child is not None and self.child.poll() is not None:
            raise ChildError(f"Flower's SuperLink ended. {self.log} says:\n{children.tail(self.log)}")

    def close(self) -> None:
        """End the SuperLink."""
        if self.child is not None:
            children.end(self.child)
            self.child = None
