"""Thirty-five faults in one run over https: right state and advice within 30 s, the run goes on, the same bits.

Each fault is put into a run that goes on, with real processes, keys and TLS, behind a relay that can cut, delay, reset
and corrupt connections. For each fault a check says what has to be seen, where, within 30 s; then the fault is mended
as the manual says, and two more rounds have to be completed. In the end the run is stopped, and the factors of all
parties are compared with those of the local engine after as many rounds. A second run, with noise, has parties and the
server killed in it: each ledger holds each round once. Two folders lie on small file systems, which takes the right to
mount.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from claims import _flower as real
from fedfactor.engines.checkpoint import Snapshot
from fedfactor.federation import certificates, processes, terms_writer
from fedfactor.federation.coordinator import Coordinator
from fedfactor.federation.results import client_status, server_status
from fedfactor.federation.trial import Trial
from fedfactor.network.client_storage import ClientFolder

SECONDS, PATIENCE = 30.0, 240.0
TODAY = (
    "a party is killed",
    "the server is killed",
    "the cable is cut",
    "a party's disk is full",
    "the coordinator's disk is full",
    "join twice",
    "serve twice",
    "start twice",
    "the journal is changed",
)
"""Faults that the table of docs/howto/troubleshooting.md had before."""


class Relay:
    """Forwards TCP connections to the server, well or badly."""

    def __init__(self, server: int) -> None:
        self._server = server
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listening.getsockname()[1])
        self.mode = "pass"
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, daemon=True).start()

    def set(self, mode: str) -> None:
        """Change what happens to connections, and cut those that are open."""
        self.mode = mode
        for line in list(self._open):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            line, _ = self._listening.accept()
            if self.mode == "cut":
                line.close()
                continue
            self._open.add(line)
            if self.mode == "silent":
                continue
            try:
                other = socket.create_connection(("127.0.0.1", self._server), 10)
            except OSError:
                line.close()
                continue
            self._open.add(other)
            for one, two in ((line, other), (other, line)):
                threading.Thread(target=self._pump, args=(one, two), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        passed = 0
        try:
            source.settimeout(3.0 if self.mode == "idle" else None)
            while data := source.recv(1 << 16):
                passed += len(data)
                if self.mode == "late":
                    time.sleep(0.5)
                if self.mode == "reset" and passed > 4000:
                    break
                if self.mode == "corrupt" and passed > 1500:
                    data = data[:-1] + bytes([data[-1] ^ 1])
                target.sendall(data)
        except OSError:
            pass
        for line in (source, target):
            self._open.discard(line)
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
                line.close()


class World:
    """A run that goes on, and what can be done to it."""

    def __init__(self, root: Path, changes: dict[str, Any], mounts: bool) -> None:
        self.trial = Trial(root / "all", real.write_rows(root), changes)
        self.inner = processes.free_port()
        self.relay = Relay(self.inner)
        content = self.trial.terms.content
        server = {**content["server"], "address": f"127.0.0.1:{self.relay.port}"}
        self.trial.terms = terms_writer.save(self.trial.toml, {**content, "server": server})
        self.place = self.trial.coordinator = Coordinator(self.trial.toml)
        self.mounted = [self.trial.folder("west"), self.place.folder] if mounts else []
        for folder in self.mounted:
            aside = shutil.copytree(folder, root / "aside") if folder.exists() else None
            folder.mkdir(mode=0o700, exist_ok=True)
            self._sh("mount", "-t", "tmpfs", "-o", "size=40m,mode=0700", "tmpfs", folder)
            if aside:
                shutil.copytree(aside, folder, dirs_exist_ok=True)
        self.serve()
        for name in real.PARTIES:
            self.trial.join(name)
        self.until(lambda: len(self.status()["connected"]) == 3)
        self.place.start()

    @staticmethod
    def _sh(*words: Any) -> None:
        subprocess.run(list(map(str, words)), check=True)

    def serve(self) -> None:
        """Serve behind the relay."""
        self.trial.serve("--listen", f"127.0.0.1:{self.inner}")

    def restart(self) -> None:
        """Serve, and resume the run."""
        self.serve()
        self.place.start()

    def status(self) -> dict[str, Any]:
        """Return what the coordinator sees."""
        return server_status(self.place)

    def party(self, name: str = "west") -> str:
        """Return how a party describes its connection."""
        return str(client_status(self.trial.folder(name))["connection"])

    def said(self, name: str = "west") -> str:
        """Return what a party printed."""
        return (self.trial.folder(name) / "join.log").read_text(errors="replace")

    def end(self, name: str = "west", signal: int = 15) -> None:
        """End a party with a signal."""
        child = self.trial.members[name]
        child.send_signal(signal)
        child.wait(60)

    def until(self, true: Callable[[], Any], patience: float = PATIENCE) -> float:
        """Wait until something is seen; return the seconds it took."""
        began = time.monotonic()
        while True:
            with suppress(OSError, ValueError, KeyError):
                if true():
                    return round(time.monotonic() - began, 1)
            if time.monotonic() - began > patience:
                raise TimeoutError("not seen in time")
            time.sleep(0.2)

    def unavailable(self, name: str = "west") -> bool:
        """Return whether the coordinator sees that a party is not connected."""
        return any(line.startswith(name) for line in self.status()["not_connected"])

    def settled(self) -> None:
        """Wait until all is well, so that the next fault is not taken for seen because of the last one."""
        self.until(lambda: self.status()["state"] == "running" and len(self.status()["connected"]) == 3)
        self.until(lambda: all(self.party(name).startswith("connected") for name in real.PARTIES))

    def goes_on(self) -> float:
        """Wait for two more rounds; a run that is paused at its deadline is started again, as its advice says."""
        round_before = int(self.place.status().get("round", 0))

        def further() -> bool:
            if self.status()["state"] == "paused" and len(self.status()["connected"]) == 3:
                self.place.start()
            return int(self.place.status().get("round", 0)) >= round_before + 2

        return self.until(further)

    def fails(self, *words: Any) -> str:
        """Give a command that must fail; return what it says."""
        command = [sys.executable, "-m", "fedfactor", *map(str, words)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p or "." for p in sys.path)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
        assert done.returncode in (2, 75), (done.returncode, done.stdout, done.stderr)
        return done.stderr

    def joins(self, *more: Any) -> str:
        """Join as west, which must fail; return what it says."""
        words = ["--data", self.trial.files["west"], "--key", self.trial.root / "west.key"]
        words += ["--folder", self.trial.folder("west"), "--yes", *more]
        return self.fails("join", self.trial.toml, *words)

    def close(self) -> None:
        """End all processes."""
        self.relay.set("pass")
        self.trial.__exit__(None, None, None)
        for folder in self.mounted:
            self._sh("umount", folder)


Fault = Callable[[World], Iterator[Callable[[], Any] | None]]
FAULTS: dict[str, Fault] = {}


def fault(name: str) -> Callable[[Fault], Fault]:
    """Register a fault: a generator that does it, yields what has to be seen (None: nothing), and mends it."""

    def register(made: Fault) -> Fault:
        FAULTS[name] = made
        return made

    return register


def _ended(name: str, signal: int) -> None:
    @fault(name)
    def _(w: World) -> Iterator[Callable[[], Any] | None]:
        w.end(signal=signal)
        yield lambda: w.unavailable() and "no fedfactor join runs" in w.party()
        w.trial.join("west")


_ended("a party is killed", 9)
_ended("a party is ended by SIGTERM", 15)
_ended("a party is interrupted at the terminal", 2)


def _served(name: str, signal: int) -> None:
    @fault(name)
    def _(w: World) -> Iterator[Callable[[], Any] | None]:
        assert w.trial.server is not None
        w.trial.server.send_signal(signal)
        w.trial.server.wait(60)
        yield lambda: w.status()["state"] == "interrupted" and f"fedfactor serve {w.trial.toml}" in w.status()["advice"]
        w.restart()


_served("the server is killed", 9)
_served("the server is ended by SIGTERM", 15)
_served("the server is interrupted at the terminal", 2)


def _relayed(name: str, mode: str, seen: Callable[[World], Any] | None) -> None:
    @fault(name)
    def _(w: World) -> Iterator[Callable[[], Any] | None]:
        w.relay.set(mode)
        yield None if seen is None else (lambda: seen(w))
        if seen is None:
            w.goes_on()
        w.relay.set("pass")


_relayed("the cable is cut", "cut", lambda w: w.unavailable() and w.party().startswith("NOT connected"))
_relayed("a firewall drops packets silently", "silent", lambda w: w.unavailable())
_relayed("a device resets long connections", "reset", None)
_relayed("a device corrupts bytes", "corrupt", lambda w: w.party().startswith("NOT connected"))
_relayed("a slow link", "late", None)
_relayed("a proxy ends silent connections after 3 s", "idle", None)


@fault("a party hangs")
def _(w: World) -> Iterator[Callable[[], Any] | None]:
    w.trial.members["west"].send_signal(19)
    yield w.unavailable
    w.trial.members["west"].send_signal(18)


@fault("a party hangs twice for a moment")
def _(w: World) -> Iterator[Callable[[], Any] | None]:
    for _ in range(2):
        w.trial.members["west"].send_signal(19)
        time.sleep(2)
        w.trial.members["west"].send_signal(18)
        time.sleep(1)
    yield lambda: w.status()["state"] == "running" and w.party().startswith("connected")


@fault("a party is restarted four times in a row")
def _(w: World) -> Iterator[Callable[[], Any] | None]:
    for _ in range(4):
        w.end(signal=9)
        w.trial.join("west")
    w.settled()  # starting a process takes as long as the machine needs
    yield lambda: w.status()["state"] == "running"


@fault("a power cut at all of them")
def _(w: World) -> Iterator[Callable[[], Any] | None]:
    for name in real.PARTIES:
        real.kill_member(w.trial, name)
    real.kill_server(w.trial)
    yield lambda: w.status()["state"] == "interrupted" and "fedfactor start" in w.status()["advice"]
    for name in real.PARTIES:
        w.trial.join(name)
    w.restart()


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    """Fill a small file system to its last byte."""
    ballast = folder / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(1 << 16)):
            pass
    try:
        yield
    finally:
        ballast.unlink()


@fault("a party's disk is full")
def _(w: World) -> Iterator[Callable[[], Any] | None]:
    with filled(w.trial.folder("west")):
        yield lambda: w.trial.members["west"].poll() == 75 and w.unavailable()
    w.trial.join("west")


@fault("the coordinator's disk is full")
def _(w: World) -> Iterator[Callable[[], Any] | None]:
    with filled(w.place.folder):
        assert w.trial.server is not None
        child = w.trial.server
        yield lambda: child.poll() == 75 and "kB are free" in (w.trial.root / "serve.log").read_text()
    w.restart()


@fault("a party's folder becomes read-only")
def _(w: World) -> Iterator[Callable[[], Any] | None]:
    w.end()  # a file system with open files stays writable
    w._sh("mount", "-o", "remount,ro", w.trial.folder("west"))
    try:
        yield w.unavailable
        assert "Read-only file system" in w.joins()
    finally:
        w._sh("mount", "-o", "remount,rw", w.trial.folder("west"))
    w.trial.join("west")


def _spoiled(name: str, file: str, spoil: Callable[[bytes], bytes], words: str) -> None:
    @fault(name)
    def _(w: World) -> Iterator[Callable[[], Any] | None]:
        w.end()
        path = w.trial.folder("west") / file
        before = path.read_bytes()
        path.write_bytes(spoil(before))
        printed = len(w.said())
        w.trial.join("west")
        if words:
            yield lambda: words in w.said()[printed:]
            with suppress(ProcessLookupError, subprocess.TimeoutExpired):
                w.end()
            path.write_bytes(before)
            w.trial.join("west")
        else:
            yield lambda: w.party().startswith("connected")


def _flipped(data: bytes) -> bytes:
    return data[:-9] + bytes([data[-9] ^ 64]) + data[-8:]


_spoiled("a party's state is cut off", "state.safetensors", lambda data: data[: len(data) // 2], "Restore it")
_spoiled("a bit of a party's rows changes", "data/X.npy", _flipped, "checksum is wrong")
_spoiled("a bit of a party's agreement changes", "agreement.json", _flipped, "cannot be read")
_spoiled("a party's list of what was sent is torn", "sent.jsonl", lambda data: data + b'{"time": "2', "")
_spoiled("a party's note on its connection is garbage", "connection.json", lambda data: b"\x00\xff", "")
_spoiled("a party's session is garbage", "session", lambda data: b"xyz", "")


@fault("the coordinator's note on who is connected is garbage")
def _(w: World) -> Iterator[Callable[[], Any] | None]:
    (w.place.folder / "presence.json").write_bytes(b"\x00{")
    yield lambda: len(w.status()["connected"]) == 3


@fault("the checkpoint is cut off")
def _(w: World) -> Iterator[Callable[[], Any] | None]:
    w.trial.end_server()
    file = w.place.folder / "checkpoint" / "run.safetensors"
    before = file.read_bytes()
    file.write_bytes(before[: len(before) // 2])
    w.serve()
    w.place.start()
    yield lambda: w.status()["state"] == "failed" and "not a usable checkpoint" in w.status()["reason"]
    file.write_bytes(before)
    w.place.start()


@fault("an upgrade in mid-run")
def _(w: World) -> Iterator[Callable[[], Any] | None]:
    w.trial.end_server()
    file = w.place.folder / "checkpoint" / "run.safetensors"
    kept = Snapshot.from_bytes(file.read_bytes())
    file.write_bytes(replace(kept, fingerprint={**kept.fingerprint, "numba": "0.1"}).to_bytes())
    w.serve()
    w.place.start()
    yield lambda: w.status()["state"] == "failed" and "--accept-versions" in w.status()["reason"]
    assert w.place.start(accept_versions=True)


@fault("the server's certificate is not valid yet")
def _(w: World) -> Iterator[Callable[[], Any] | None]:
    w.trial.end_server()
    before = [(w.place.folder / name).read_bytes() for name in ("server.pem", "server.key")]
    from unittest.mock import patch

    late = certificates.now().replace(year=certificates.now().year + 1)
    with patch.object(certificates, "datetime") as clock:
        clock.now.return_value = late
        certificates.make_server_certificate(w.place.folder, ["127.0.0.1"], days=100)
    assert "is not valid before" in w.fails("serve", w.trial.toml, "--listen", f"127.0.0.1:{w.inner}")
    yield None
    for name, data in zip(("server.pem", "server.key"), before, strict=True):
        (w.place.folder / name).write_bytes(data)
    w.restart()


def _lost(name: str, file: Callable[[World], Path], words: str, party: bool) -> None:
    @fault(name)
    def _(w: World) -> Iterator[Callable[[], Any] | None]:
        path = file(w)
        if party:
            w.end()
        else:
            w.trial.end_server()
        before = path.read_bytes()
        path.unlink()
        said = w.joins() if party else w.fails("serve", w.trial.toml, "--listen", f"127.0.0.1:{w.inner}")
        assert words in said, said
        yield None
        path.write_bytes(before)
        path.chmod(0o600)
        if party:
            w.trial.join("west")
        else:
            w.restart()


_lost("a party's key is gone", lambda w: w.trial.root / "west.key", "is not there", True)
_lost("the server's key is gone", lambda w: w.place.folder / "server.key", "is not there", False)


@fault("federation.toml is cut off at a party")
def _(w: World) -> Iterator[Callable[[], Any] | None]:
    w.end()
    before = w.trial.toml.read_bytes()
    w.trial.toml.write_bytes(before[: len(before) - 200])
    said = w.joins()
    assert "Ask for the file again" in said or "lists no party" in said or "needs the entry key" in said, said
    yield None
    w.trial.toml.write_bytes(before)
    w.trial.join("west")


@fault("join twice")
def _(w: World) -> Iterator[Callable[[], Any] | None]:
    assert "takes part from" in w.joins()
    yield None


@fault("serve twice")
def _(w: World) -> Iterator[Callable[[], Any] | None]:
    assert "is served already" in w.fails("serve", w.trial.toml, "--listen", f"127.0.0.1:{w.inner}")
    yield None


@fault("start twice")
def _(w: World) -> Iterator[Callable[[], Any] | None]:
    assert "A run goes on" in w.fails("start", w.trial.toml)
    yield None


@fault("the journal is changed")
def _(w: World) -> Iterator[Callable[[], Any] | None]:
    file = w.place.folder / "journal.jsonl"
    before = file.read_bytes()
    file.write_bytes(before.replace(b'"deed": "served"', b'"deed": "Served"', 1))
    said = subprocess.run(
        [sys.executable, "-m", "fedfactor", "federation", "check", str(w.trial.toml), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert said.returncode == 3
    assert any("changed" in line["found"] for line in json.loads(said.stdout) if line["state"] == "wrong"), said.stdout
    yield None
    size = len(before)
    file.write_bytes(before + file.read_bytes()[size:])


@fault("a party may open no more files")
def _(w: World) -> Iterator[Callable[[], Any] | None]:
    pid = w.trial.members["west"].pid
    usual = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (12, usual[1]))
    yield lambda: w.unavailable() or w.trial.members["west"].poll() is not None
    resource.prlimit(pid, resource.RLIMIT_NOFILE, usual) if w.trial.members["west"].poll() is None else None
    if w.trial.members["west"].poll() is not None:
        w.trial.join("west")


@fault("two hundred silent connections")
def _(w: World) -> Iterator[Callable[[], Any] | None]:
    lines = [socket.create_connection(("127.0.0.1", w.inner), 10) for _ in range(200)]
    yield lambda: w.status()["state"] == "running"
    w.goes_on()
    for line in lines:
        line.close()


def one_by_one(w: World, names: Iterable[str] = FAULTS) -> dict[str, Any]:
    """Put each fault into the run; return for each the seconds until it was seen, or what went wrong."""
    found: dict[str, Any] = {}
    for name in names:
        make = FAULTS[name]
        began = time.monotonic()
        try:
            w.settled()
            steps = make(w)
            seen = next(steps)
            found[name] = "as expected" if seen is None else w.until(seen, SECONDS)
            with suppress(StopIteration):
                next(steps)
            w.goes_on()
        except (AssertionError, TimeoutError, OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
            found[name] = f"FAILED: {type(error).__name__}: {error}"[:500]
            recover(w)
        print(f"{name}: {found[name]} ({time.monotonic() - began:.0f} s)", flush=True)
    return found


def recover(w: World) -> None:
    """Bring the run back after a fault that was not handled as expected, so that the next one is tried at all."""
    w.relay.set("pass")
    if w.trial.server is None or w.trial.server.poll() is not None:
        w.serve()
    for name in real.PARTIES:
        w.trial.members[name].send_signal(18) if w.trial.members[name].poll() is None else w.trial.join(name)
    if not w.place.running:
        with suppress(Exception):
            w.place.start()


def same_bits(w: World) -> float:
    """Stop the run, and compare what the parties took home with the local engine after as many rounds."""
    w.place.stop()
    ended = w.place.wait(PATIENCE)
    assert ended["state"] == "finished", ended
    rounds = len(real.history(w.trial))
    content = w.trial.terms.content
    w.trial.terms = type(w.trial.terms).of({**content, "run": {**content["run"], "rounds": rounds}})
    return real.largest_difference(real.factors(w.trial), real.local(w.trial.files, w.trial).factors)


def paid_once(root: Path) -> dict[str, Any]:
    """Run with noise while parties, the server and the cable fail; count what the ledgers hold."""
    noise = {"protect": "dp", "epsilon": 1.0, "row_bound": 5.0, "rows": 135.0, "minimum_rows": 5, "report_error": False}
    w = World(root, {**real.terms("PooledNMF", 12, tol=0.0), "privacy": noise}, mounts=False)
    try:
        done = 0
        for name in ("a party is killed", "the server is killed", "the cable is cut", "a power cut at all of them"):
            real.wait_for_round(w.trial, done + 1, PATIENCE)
            steps = FAULTS[name](w)
            next(steps)
            with suppress(StopIteration):
                next(steps)
            done = int(w.place.status().get("round", 0))
        ended = w.place.wait(PATIENCE)
        entries = {name: len(ClientFolder(w.trial.folder(name)).ledger.entries()) for name in real.PARTIES}  # type: ignore[union-attr]
        return {"state": ended["state"], "rounds": ended["round"], "entries": entries}
    finally:
        w.close()


def claim() -> dict:
    with tempfile.TemporaryDirectory() as root:
        w = World(
            Path(root), real.terms("PooledNMF", 100_000, {"deadline": 60, "gather": 200, "absent": 200}, tol=0.0), True
        )
        try:
            found = one_by_one(w)
            difference = same_bits(w)
        finally:
            w.close()
    with tempfile.TemporaryDirectory() as root:
        paid = paid_once(Path(root))
    wrong = [name for name, seen in found.items() if isinstance(seen, str) and seen.startswith("FAILED")]
    new = [name for name in found if name not in TODAY]
    once = paid["state"] == "finished" and set(paid["entries"].values()) == {12}
    holds = not wrong and difference == 0.0 and once and len(found) >= 30 and len(new) >= 20
    return {"faults": found, "new": len(new), "difference": difference, "noise": paid, "holds": holds}
