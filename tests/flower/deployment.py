"""Flower's own processes on this machine, started with the commands of its documentation."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil

from fedfactor.core.wire import from_bytes
from fedfactor.federation import terms_writer
from fedfactor.federation.fingerprint_words import terms_words
from fedfactor.federation.processes import free_port
from fedfactor.federation.terms import DEFAULTS
from fedfactor.federation.trial import Trial

ROOT = Path(__file__).parents[2]
APP = ROOT / "deploy" / "flower_app"
PATIENCE = 900.0

ENDED = ("finished", "paused", "failed")
"""States after which the same command changes nothing; a run that was interrupted is resumed by it."""

LOOK = 20.0
"""Seconds between two looks whether Flower ended a run."""

LOST = "Failed to push task output"

FLOWERS = [Path(path) for path in os.environ.get("FEDFACTOR_FLOWERS", sys.prefix).split(os.pathsep)]
"""Environments with a version of Flower each, in which its commands run; by default the present one."""


class Processes:
    """Commands of one version of Flower; every process that they leave is ended by its pid."""

    def __init__(self, root: Path, flower: Path) -> None:
        self.root, self.bin = root, flower / "bin"
        self.children: dict[str, subprocess.Popen[bytes]] = {}
        root.mkdir(parents=True, exist_ok=True)
        self.bad = root / "bad.json"
        words = self.command("flower-superlink", "--help").stdout
        self.one_port = "--port PORT" in words  # since 1.41 everything is served over HTTP at one port
        self.ordered = 0.0
        self.words: list[Any] = []
        self.repeated: list[dict[str, Any]] = []
        self.looked = 0.0

    def environment(self, home: str) -> dict[str, str]:
        folder = self.root / "homes" / home
        folder.mkdir(parents=True, exist_ok=True)
        return {
            **{key: value for key, value in os.environ.items() if not key.startswith("FLWR")},
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(map(str, [ROOT / "src", ROOT, ROOT / "tests" / "flower" / "spoiled"])),
            "FEDFACTOR_TEST_BAD": str(self.bad),
            "FLWR_HOME": str(folder),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "NO_PROXY": "127.0.0.1,localhost",
            "OMP_NUM_THREADS": "1",
        }

    def command(self, *words: Any, home: str = "coordinator") -> subprocess.CompletedProcess[str]:
        found = shutil.which(str(words[0]), path=self.environment(home)["PATH"])
        return subprocess.run(
            [str(found), *map(str, words[1:])], capture_output=True, text=True, check=False,
            timeout=PATIENCE, env=self.environment(home), cwd=self.root,
        )  # fmt: skip

    def start(self, name: str, *words: Any) -> subprocess.Popen[bytes]:
        with (self.root / f"{name}.log").open("ab") as log:
            self.children[name] = subprocess.Popen(
                [str(self.bin / words[0]), *map(str, words[1:])], stdout=log, stderr=log,
                stdin=subprocess.DEVNULL, env=self.environment(name), cwd=self.root,
            )  # fmt: skip
        return self.children[name]

    def said(self, name: str) -> str:
        return (self.root / f"{name}.log").read_text(errors="replace")

    def family(self, name: str) -> list[psutil.Process]:
        try:
            parent = psutil.Process(self.children[name].pid)
            return [parent, *parent.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def signal(self, name: str, number: int) -> None:
        """Send a signal to a process and to all that it started."""
        family = self.family(name)
        for process in family:
            try:
                process.send_signal(number)
            except psutil.NoSuchProcess:
                continue
        if number == signal.SIGKILL:
            psutil.wait_procs(family, timeout=30)
            self.children[name].wait(30)

    def close(self) -> None:
        for name in self.children:
            self.signal(name, signal.SIGKILL)

    def connect(self, port: int, authority: Path | None) -> None:
        """Write Flower's configuration of the connection that ``flwr`` uses."""
        trust = "insecure = true" if authority is None else f'root-certificates = "{authority}"'
        text = f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{port}"\n{trust}\n'
        self.environment("coordinator")
        (self.root / "homes" / "coordinator" / "config.toml").write_text(text)

    def superlink(self, port: int, *more: Any) -> int:
        """Start a SuperLink; return the port of its Control API."""
        control = port if self.one_port else free_port()
        where = ["--host", "127.0.0.1", "--port", port, "--disable-runtime-dependency-installation"]
        if not self.one_port:
            where = ["--fleet-api-address", f"127.0.0.1:{port}", "--control-api-address", f"127.0.0.1:{control}"]
            where += ["--serverappio-api-address", f"127.0.0.1:{free_port()}"]
            where += ["--simulationio-api-address", f"127.0.0.1:{free_port()}"]
        self.start("superlink", "flower-superlink", *where, "--database", self.root / "superlink.db", *more)
        return control

    def flwr_run(self, *config: Any, app: Path = APP, simulation: int = 0) -> None:
        """Run an app, with so many simulated nodes; waits for the SuperLink, which may be starting."""
        words = ["flwr", "run", app, "here", "--run-config", " ".join(map(str, config))]
        if simulation:
            words += ["--federation-config", f"num-supernodes={simulation}"]
        self.words = words
        self.ordered, self.looked = time.time(), time.monotonic()
        until(lambda: self.answered(*words), "flwr run", self.said_all)

    def supervise(self, folder: Path) -> None:
        """Give the command of a run again where Flower ended it, as on a machine with too much to do.

        Ray has thirty seconds to start, and a task that reports late counts as failed. Neither depends on the app.
        """
        if time.monotonic() - self.looked < LOOK:
            return
        self.looked = time.monotonic()
        runs = json.loads(self.command("flwr", "list", "here", "--format", "json").stdout or "{}").get("runs", [])
        newest = max(runs, key=lambda run: run["pending-at"], default={"status": "pending"})
        if newest["status"].startswith("finished") and status_of(folder, self.ordered)["state"] not in ENDED:
            self.repeated.append(newest)
            until(lambda: self.answered(*self.words), "flwr run", self.said_all)

    def answered(self, *words: Any) -> bool:
        """Run a command of ``flwr``; it fails while the SuperLink is being started."""
        done = self.command(*words)
        if self.children["superlink"].poll() is not None:
            raise RuntimeError(f"The SuperLink ended.\n{self.said('superlink')[-4000:]}")
        if done.returncode and "unavailable" not in (done.stdout + done.stderr).lower():
            raise RuntimeError(done.stdout + done.stderr)
        return done.returncode == 0

    def said_all(self) -> str:
        runs = self.command("flwr", "list", "here", "--format", "json").stdout
        number = re.search(r'"run-id": "?([0-9]+)', runs)
        if number is not None:
            self.command("sh", "-c", f"flwr log {number[1]} here --show > server-app.log 2>&1")
        logs = sorted(self.root.glob("*.log"))
        return "\n".join(f"== {log.stem}\n{self.said(log.stem)[-4000:]}" for log in logs)


def until(found: Callable[[], Any], what: str, about: Callable[[], Any] = str, patience: float = PATIENCE) -> Any:
    """Wait for something; say what was there when it did not come."""
    end = time.monotonic() + patience
    while time.monotonic() < end:
        if value := found():
            return value
        time.sleep(0.3)
    raise TimeoutError(f"{what} did not come in {patience:g} s.\n{about()}")


def status_of(folder: Path, since: float = 0.0) -> dict[str, Any]:
    """Return the status of a run, unless it is older: until a ServerApp has started, that of the last run is there."""
    file = folder / "server" / "status.json"
    status = json.loads(file.read_bytes()) if file.exists() else {"time": 0.0}
    return status if status["time"] >= since else {"state": "not started", "round": 0}


def wait_for_end(processes: Processes, folder: Path) -> dict[str, Any]:
    def reached() -> bool:
        ended = status_of(folder, processes.ordered)["state"] in ENDED
        if not ended:
            processes.supervise(folder)
        return ended

    until(reached, "The end of the run", processes.said_all)
    return status_of(folder)


def factors_of(folder: Path, names: Any) -> dict[str, Any]:
    return {
        name: from_bytes((folder / name / "result" / "factors.safetensors").read_bytes())["factors"] for name in names
    }


class Deployment(Processes):
    """One SuperLink with TLS and node authentication, and one SuperNode for each party."""

    def __init__(self, root: Path, flower: Path, files: Mapping[str, Path], changes: Mapping[str, Any]) -> None:
        super().__init__(root, flower)
        self.folder = root / "federation"
        self.trial = Trial(self.folder, files, changes)
        self.port = self.trial.terms.address[1]
        self.authority = self.folder / "server" / "ca.crt"
        self.lost: dict[str, int] = {}

    def agree(self, name: str, *more: str, toml: Path | None = None) -> None:
        """Let a party agree to the terms with its rows."""
        words = ["join", toml or self.trial.toml, "--data", self.trial.files[name], "--yes", "--agree-only"]
        words += ["--key", self.folder / f"{name}.key", "--folder", self.folder / name]
        if toml is None:
            words += ["--fingerprint", terms_words(self.trial.terms.fingerprint)]
        done = subprocess.run(
            [sys.executable, "-m", "fedfactor", *map(str, words), *more], capture_output=True, text=True, check=False,
            timeout=PATIENCE, env=self.environment(name),
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr

    def serve(self) -> None:
        """Start the SuperLink."""
        server = self.folder / "server"
        control = self.superlink(
            self.port, "--ssl-ca-certfile", self.authority, "--ssl-certfile", server / "server.pem",
            "--ssl-keyfile", server / "server.key", "--enable-supernode-auth",
        )  # fmt: skip
        self.connect(control, self.authority)

    def register(self, name: str) -> None:
        """Register a party's key, once the SuperLink answers."""
        words = ["flwr", "supernode", "register", self.folder / f"{name}.key.pub", "here"]
        until(lambda: self.answered(*words), f"The registration of {name}", self.said_all)

    def start_node(self, name: str, *, folder: str = "") -> subprocess.Popen[bytes]:
        """Start a party's SuperNode."""
        own = free_port()
        config = f'folder="{self.folder / (folder or name)}" key="{self.folder / f"{name}.key"}"'
        where = ["--port", own] if self.one_port else ["--clientappio-api-address", f"127.0.0.1:{own}"]
        return self.start(
            name, "flower-supernode", "--superlink", f"127.0.0.1:{self.port}", "--root-certificates", self.authority,
            "--auth-supernode-private-key", self.folder / f"{name}.key", "--node-config", config, *where,
        )  # fmt: skip

    def join(self, name: str) -> None:
        """Start a party's SuperNode, as often as the SuperLink takes its last process to be alive."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            before = len(self.said(name)) if (self.root / f"{name}.log").exists() else 0
            child = self.start_node(name)
            until(lambda: "SuperNode ID" in self.said(name)[before:] or child.poll() is not None, name, self.said_all)  # noqa: B023
            if child.poll() is None:
                return
            time.sleep(5.0)
        raise TimeoutError(self.said(name)[-3000:])

    def rejoin(self, name: str) -> None:
        """Start a party's SuperNode again where it ended, as a supervisor of services does."""
        self.signal(name, signal.SIGKILL)
        self.join(name)

    def run(self, *config: str) -> None:
        """Let the coordinator run the federation."""
        self.flwr_run(f"folder='{self.folder}'", *config)

    def supervise(self, folder: Path) -> None:
        """Restart also a SuperNode that lost an answer, for which it would wait for ever.

        Flower gives a task up whose process does not report in time, as on a machine with too much to do.
        """
        super().supervise(folder)
        for name in self.trial.files:
            if name in self.children and self.said(name).count(LOST) > self.lost.get(name, 0):
                self.lost[name] = self.said(name).count(LOST)
                self.rejoin(name)

    def change(self, changes: Mapping[str, Any]) -> None:
        """Let all parties agree to other terms; SuperLink and SuperNodes stay."""
        kept = {part: self.trial.terms.content[part] for part in ("federation", "server", "features", "parties")}
        sections = {part: {**DEFAULTS[part], **changes.get(part, {})} for part in DEFAULTS if part not in kept}
        self.trial.terms = terms_writer.save(self.trial.toml, {**sections, **kept})
        for name in self.trial.files:
            self.agree(name, "--accept-changes")
