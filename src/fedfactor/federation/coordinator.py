"""The coordinator's side: a SuperLink that knows the parties' keys, and runs that it starts."""

from __future__ import annotations

import fcntl
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

from fedfactor.core.atomic_files import alone_with, private_folder, read_json, write_atomic
from fedfactor.core.errors import DataError
from fedfactor.federation import certificates
from fedfactor.federation import processes as children
from fedfactor.federation.connectivity import CERTIFY, SOON, explain, moment
from fedfactor.federation.keys import public_pem
from fedfactor.federation.processes import ChildError
from fedfactor.federation.progress import APART, is_locked
from fedfactor.federation.terms import Terms, TermsError
from fedfactor.network.coordinator_journal import Journal
from fedfactor.network.server import ABANDON, ENDED

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
from fedfactor.network.flower.apps import client_app as client
from fedfactor.network.flower.apps import server_app as server

__all__ = ["client", "server"]
""",
}


SERVING, PRESENCE, REMOVED = "serving.lock", "presence.json", "removed.json"
"""Files in the server's folder: held while it is served; who is connected; who was removed without new terms."""

BESIDE = ("features.json", "preprocess.json", "survey.safetensors")
"""What is kept beside an earlier version's result, so that it can be read under terms that changed since."""

LEAST_ROOM = 8 << 20
"""Bytes on the disk of a folder that is served below which nothing works any more: databases, logs, checkpoints."""

STARTING = "starting"
"""State of a run between its order and its first word."""


class UnsureError(DataError):
    """Something would be lost that the caller may not know of; said again with ``sure``, it is done."""


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
        self.journal = Journal(self.folder)
        self._serving = -1

    @property
    def log(self) -> Path:
        """What the SuperLink says."""
        return self.folder / "superlink.log"

    @property
    def port(self) -> int:
        """Where it listens."""
        return self.terms.address[1]

    def _has_papers(self) -> None:
        """Refuse a folder without certificates."""
        for name in ("server.pem", "server.key"):
            if not (self.folder / name).exists():
                raise DataError(f"{self.folder / name} is not there. Make it with: fedfactor federation init")

    def prepare(self) -> None:
        """Write down what the server app will need; refuse a folder without certificates."""
        children.need_flower()
        self._has_papers()
        private_folder(self.folder)
        write_atomic(self.folder / "ca.pem", self.terms.content["server"]["certificate"].encode(), mode=0o644)
        write_atomic(self.folder / "agreement.json", self.terms.agreement().to_json())
        write_atomic(self.folder / "features.json", json.dumps(list(self.terms.features)).encode(), mode=0o644)
        weights = self.terms.declared_weights()
        steps = {**self.terms.content["preprocess"], "weights": None if weights is None else weights.tolist()}
        write_atomic(self.folder / "preprocess.json", json.dumps(steps).encode(), mode=0o644)
        self._admit()
        home = private_folder(self.folder / "flower")
        connection = (
            f'[superlink]\ndefault = "here"\n\n[superlink.here]\naddress = "127.0.0.1:{self.port}"\n'
            f'root-certificates = "{(self.folder / "ca.pem").resolve()}"\n'
        )
        write_atomic(home / "config.toml", connection.encode())

    @property
    def here(self) -> str:
        """Where this machine speaks to its own server."""
        return f"127.0.0.1:{self.port}"

    def _admit(self) -> None:
        """Write down whose keys are let in: those in the file, without those who left the run that goes on."""
        gone = self.removed()
        parties = {name: party for name, party in self.terms.content["parties"].items() if name not in gone}
        keys = {name: public_pem(party["key"]).decode() for name, party in parties.items()}
        about = {"policy": asdict(self.terms.policy()), "keys": keys, "address": self.here}
        about["terms"] = self.terms.fingerprint
        write_atomic(self.folder / "server.json", json.dumps(about, indent=1).encode())

    def removed(self) -> list[str]:
        """Name those who were removed without a new agreement."""
        file = self.folder / REMOVED
        return json.loads(file.read_bytes()) if file.exists() else []

    def remove(self, name: str) -> bool:
        """Let the others go on without a party; False when that takes a new agreement, which the caller has to make.

        Where the terms let a run continue without some, those who are left need not agree to anything new: the party's
        key is shut out at once, also of a run that goes on, and nobody waits for it any more. A secure sum, and
        ``dropouts = "wait"``, are made with everybody.
        """
        policy, left = self.terms.policy(), set(self.terms.names) - {*self.removed(), name}
        if policy.dropouts == "wait" or len(left) < policy.minimum:
            return False
        write_atomic(self.folder / REMOVED, json.dumps(sorted({*self.removed(), name})).encode())
        if (self.folder / "server.json").exists():
            self._admit()
        self.journal.write("removed", party=name, how="the run goes on under the same terms")
        return True

    def certificate_words(self) -> str:
        """Check the server's certificate against the clock and its own address; return a warning, or nothing."""
        file, host = self.folder / "server.pem", self.terms.address[0]
        days = (certificates.expires(file) - certificates.now()).total_seconds() / 86400
        if days < 0:
            raise ChildError(f"The server's certificate ended {-days:.0f} days ago: no party would speak to it. Renew "
                             f"it: {CERTIFY}.")  # fmt: skip
        for name in (host, "127.0.0.1"):
            if not certificates.names_host(file, name):
                raise ChildError(
                    f"The server's certificate is not made out for {name}, "
                    f"{'where parties look for it' if name == host else 'where the server speaks to itself'}. "
                    f"Renew it: {CERTIFY}; or, with certificates of your own, have both names put in."
                )
        return f"the server's certificate ends in {days:.0f} days. Before that: {CERTIFY}" if days < SOON else ""

    def certificate_warning(self) -> str:
        """Say what is, or will be, wrong with the certificate; nothing when all is well."""
        try:
            return self.certificate_words()
        except ChildError as error:
            return str(error).rstrip(".")

    def serve(self, patience: float = 120.0) -> None:
        """Start the SuperLink and register every party's key; returns when it is ready."""
        self._alone()  # before anything is written: a server that is at work here reads the same files
        try:
            self._serve(patience)
        except BaseException:
            self.close()
            raise

    def _serve(self, patience: float) -> None:
        self.prepare()
        self.certificate_words()
        host = self.terms.address[0]
        bind = host if host in ("127.0.0.1", "localhost", "::1") else "0.0.0.0"
        folder = self.folder.resolve()
        self._await_port("127.0.0.1" if bind == "localhost" else bind)
        command = [
            sys.executable, "-m", "fedfactor.network.flower.superlink",
            "--host", "127.0.0.1" if bind == "localhost" else bind, "--port", str(self.port),
            "--ssl-ca-certfile", f"{folder / 'ca.pem'}", "--ssl-certfile", f"{folder / 'server.pem'}",
            "--ssl-keyfile", f"{folder / 'server.key'}", "--enable-supernode-auth",
            "--disable-runtime-dependency-installation", "--database", f"{folder / 'superlink.db'}",
        ]  # fmt: skip
        self.child = children.start(command, self.log, self._environment())
        self._await(time.monotonic() + patience)
        self._register()
        self.journal.write("served", terms=self.terms.fingerprint, parties=list(self.terms.names))

    def _alone(self) -> None:
        """Hold the folder while it is served: whoever looks can tell, and a second one is refused."""
        self._has_papers()
        if self._serving >= 0:  # of a SuperLink that died
            os.close(self._serving)
            self._serving = -1
        handle = os.open(self.folder / SERVING, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise DataError(f"{self.folder} is served already. End that fedfactor serve first.") from None
        os.utime(handle)
        self._serving = handle

    @property
    def served(self) -> bool:
        """Whether a ``fedfactor serve`` runs in this folder."""
        return is_locked(self.folder / SERVING)

    @property
    def running(self) -> bool:
        """Whether a run goes on: its process holds the folder, or was started a moment ago."""
        if not self.served:
            return False
        status, began = self.status(), (self.folder / SERVING).stat().st_mtime
        if status["state"] in ENDED:
            return False
        if status["state"] == STARTING:
            return status["time"] >= began and time.time() - status["time"] < 300.0
        return is_locked(self.folder / "lock")  # no clock is asked, which somebody may set back

    def presence(self) -> dict[str, tuple[bool, str]]:
        """Tell who is connected and since when, or who is not and when it was last seen, as the server last saw it."""
        return self._seen() if self.served else {}

    def _seen(self) -> dict[str, tuple[bool, str]]:
        """Read who was seen; whoever was connected to an earlier serving was last seen then."""
        file, serving = self.folder / PRESENCE, self.folder / SERVING
        if not file.exists():
            return {}
        looked = file.stat().st_mtime
        old = serving.exists() and looked < serving.stat().st_mtime
        seen: dict[str, tuple[bool, str]] = json.loads(file.read_bytes())
        now = {name: (False, moment(looked)) if there and old else (there, at) for name, (there, at) in seen.items()}
        return {name: (False, "") if at == APART and old else (there, at) for name, (there, at) in now.items()}

    def look(self) -> None:
        """Ask the SuperLink who is connected, and write it down for whoever wants to know."""
        from fedfactor.network.flower.control import connected
        from fedfactor.network.mailbox.transport import MailboxTransport

        try:
            mailbox = MailboxTransport(self.here, self.folder)
            known = {name: (here, moment(at)) for name, (here, at) in mailbox.since().items()}
            known |= {name: (False, APART) for name in mailbox.apart}
            mailbox.close()
            there = {name: told for name, told in known.items() if told[0]}
            if set(self.terms.names) <= {*there, *self.removed()}:
                found = {}
            else:
                found = connected(self.here, self.terms.content["server"]["certificate"].encode())
        except Exception:  # busy, or on its way down: the next look will tell
            return
        nodes = {n: found.get(public_pem(p["key"]).strip()) for n, p in self.terms.content["parties"].items()}
        before, seen = self._seen(), dict[str, tuple[bool, str]]()
        for name, node in nodes.items():
            online, since = there.get(name) or node or (False, "")
            # Of who is not there the mailbox knows the last word; of an earlier serving's, this file.
            last = known.get(name, (False, ""))[1] or before.get(name, (False, ""))[1].replace(APART, "")
            seen[name] = (online, since if online else last or since)
        seen = {name: told for name, told in seen.items() if name not in self.removed()}
        write_atomic(self.folder / PRESENCE, json.dumps(seen).encode())

    def _environment(self) -> dict[str, str]:
        folder = str(self.folder.resolve())
        return {
            "FEDFACTOR_SERVER": folder,
            "FLWR_HOME": str(Path(folder) / "flower"),
            "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "2",
            "MALLOC_ARENA_MAX": "2",  # threads of its own each kept what connections had needed
        }

    def _await_port(self, host: str, patience: float = 60.0) -> None:
        """Wait until nobody listens where this server will: one whose fedfactor serve was killed takes a while to go.

        Until then it would answer in the place of the new one, which could not begin.
        """
        end = time.monotonic() + patience
        while not children.is_free(host, self.port):
            if time.monotonic() > end:
                raise ChildError(
                    f"Somebody listens on port {self.port} already: another program, or a server that does not end. "
                    "End it, or agree on another port ([server] address)."
                )
            time.sleep(0.3)

    def _await(self, end: float) -> None:
        context = ssl.create_default_context(cafile=str(self.folder / "ca.pem"))
        address = f"https://127.0.0.1:{self.port}/health"
        while True:
            if self.child is not None and self.child.poll() is not None:
                raise ChildError(self._why("ended at once"))
            try:
                with urllib.request.urlopen(address, context=context, timeout=5):
                    return
            except urllib.error.HTTPError:
                return
            except OSError as error:
                if isinstance(error, ssl.SSLError) or isinstance(getattr(error, "reason", None), ssl.SSLError):
                    found = explain(error, self.here)
                    raise ChildError(f"{found.problem[0].upper()}{found.problem[1:]}. Renew it: {CERTIFY}.") from None
            if time.monotonic() > end:
                raise ChildError(f"Flower's SuperLink did not answer on port {self.port}. See {self.log}.")
            time.sleep(0.3)

    def _register(self) -> None:
        from fedfactor.network.flower.control import KeyTakenError, register_keys

        keys = [public_pem(party["key"]) for party in self.terms.content["parties"].values()]
        authority = self.terms.content["server"]["certificate"].encode()
        os.environ["NO_PROXY"] = os.environ["no_proxy"] = children.without_proxy()
        try:
            register_keys(self.here, authority, keys)
        except KeyTakenError as error:
            raise ChildError(
                f"Flower's database does not take a key back ({error}). Delete {self.folder / 'superlink.db'}, and the "
                "files beside it that begin alike, and serve again: parties are registered anew, and no run is lost."
            ) from None

    def _flwr(self, *words: str) -> subprocess.CompletedProcess[str]:
        flwr = Path(sys.executable).parent / "flwr"
        return subprocess.run(
            [str(flwr), *words], env=children.quiet_environment(self._environment()), capture_output=True, text=True,
            timeout=180, check=False,
        )  # fmt: skip

    def start(self, *, again: bool = False, sure: bool = False) -> None:
        """Start a run, or let an interrupted one go on.

        Parameters
        ----------
        again : bool
            Forget the last run and start another.
        sure : bool
            Also one that goes on, or that was interrupted and could go on.
        """
        if not (self.folder / "agreement.json").exists() or not (self.served or self.child is not None):
            raise DataError(f"Nothing is served from {self.folder}. Begin with: fedfactor serve {self.file}")
        with alone_with(self.folder / "start"):  # two at once would both find that no run goes on
            self._start(again, sure)

    def _start(self, again: bool, sure: bool) -> None:
        from fedfactor.federation.model_versions import put_start

        kept = self.folder / "agreement.json"
        if json.loads(kept.read_bytes())["terms"] != self.terms.fingerprint:
            raise TermsError(f"{self.file} changed since the server was started. Start fedfactor serve again.")
        self.journal.lines()  # one that was changed is told of before anything is done that belongs in it
        finished = (self.folder / "result" / "run.json").exists() and not self._unfinished()
        if self.running:
            state = self.status()
            where = f"A run goes on (round {state.get('round', 0)} of {state.get('rounds', '?')})"
            if not again:
                raise DataError(f"{where}. See fedfactor status; end it with fedfactor stop, or start --again.")
            if not sure:
                raise UnsureError(f"{where}; --again ends it and forgets what it reached.")
            self._abandon()
        elif finished and not again:
            raise DataError(f"{self.folder / 'result'} holds a finished run. Start another one with --again.")
        elif again and not (finished or sure or self._of_other_terms()) and self._checkpoint.exists():
            reached = self.status().get("round", "?")
            raise UnsureError(f"A run was interrupted after round {reached}; --again forgets what it reached, and "
                              "fedfactor start without it goes on.")  # fmt: skip
        if again:
            self.forget()
        elif self._of_other_terms():
            raise DataError("The interrupted run was made under other terms, and cannot go on under these. Start a new "
                            "one with --again.")  # fmt: skip
        put_start(self.terms, self.folder)
        for name in ("stop", ABANDON):
            (self.folder / name).unlink(missing_ok=True)
        about = {"state": STARTING, "time": time.time(), "clients": list(self.terms.names), "participants": []}
        about |= {"round": self.status().get("round", 0), "rounds": self.terms.content["run"]["rounds"]}
        write_atomic(self.folder / "status.json", json.dumps(about).encode())
        app = private_folder(self.folder / "app")
        for name, text in APP.items():
            write_atomic(app / name, text.encode())
        self.journal.write("started", terms=self.terms.fingerprint, again=again)
        done = self._flwr("run", str(app.resolve()), "here")
        if done.returncode != 0:
            (self.folder / "status.json").unlink(missing_ok=True)
            self.journal.write("run not taken")
            raise ChildError(f"The run was not taken: {(done.stdout + done.stderr).strip()[-800:]}")

    def _abandon(self, patience: float = 60.0) -> None:
        """End the run that goes on, at once, and wait until its process has let go of the folder."""
        write_atomic(self.folder / ABANDON, b"")
        end = time.monotonic() + patience
        while is_locked(self.folder / "lock") or self.status()["state"] == STARTING:
            if time.monotonic() > end:
                raise ChildError(f"The run did not end in {patience:g} s. End fedfactor serve, and begin it anew.")
            time.sleep(0.2)
        self.journal.write("abandoned", round=self.status().get("round", 0))

    @property
    def _checkpoint(self) -> Path:
        return self.folder / "checkpoint" / "run.safetensors"

    def _of_other_terms(self) -> bool:
        """Tell whether what was kept of a run belongs to other terms than these."""
        from fedfactor.core.wire import read_header

        if not self._checkpoint.exists():
            return False
        about = json.loads(read_header(self._checkpoint.read_bytes(), limit=1 << 30)[1].get("about", "{}"))
        kept = about.get("fingerprint", {}).get("terms", self.terms.fingerprint)
        return kept != self.terms.fingerprint

    def _unfinished(self) -> bool:
        record: dict[str, Any] = json.loads((self.folder / "result" / "run.json").read_bytes())
        return set(record["finished"]) != set(record["clients"])

    def forget(self) -> None:
        """Begin anew; what a finished run left is kept as an earlier version, by the name of the run."""
        result = self.folder / "result"
        if (result / "run.json").exists():
            kept = private_folder(self.folder / "runs") / read_json(result / "run.json")["run"]
            for name in BESIDE:
                if (self.folder / name).exists():
                    write_atomic(result / name, (self.folder / name).read_bytes())
            shutil.rmtree(kept, ignore_errors=True)
            result.rename(kept)
        for name in ("checkpoint", "result"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
        for name in ("run", "survey.safetensors", "status.json"):
            (self.folder / name).unlink(missing_ok=True)

    def stop(self) -> None:
        """Ask the run to end after the present round; every client then keeps what was reached."""
        if not (self.folder / "agreement.json").exists():
            raise DataError(f"Nothing is served from {self.folder}, so there is no run to stop.")
        state = self.status().get("state")
        if state in ENDED:
            raise DataError(f"No round goes on that could be the last one: the run is {state}.")
        write_atomic(self.folder / "stop", b"")
        self.journal.write("stopped")

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
            if status.get("state") in ENDED:
                return status
            self.check()
            time.sleep(0.3)
        raise ChildError(f"The run did not end in {patience:g} s; it stands at {self.status()}.")

    def check(self) -> None:
        """Raise when the SuperLink ended by itself."""
        if self.child is not None and self.child.poll() is not None:
            raise ChildError(self._why("ended"))

    def _why(self, how: str) -> str:
        """Say why the SuperLink is gone: in plain words where its disk is full, else in its own."""
        free = shutil.disk_usage(self.folder).free
        if free < LEAST_ROOM:
            return (
                f"Flower's SuperLink {how}: only {free >> 10} kB are free at {self.folder}. Make room, and start "
                "fedfactor serve again; what was reached is kept."
            )
        if self.child is not None:
            children.heard(self.child)
        return f"Flower's SuperLink {how}. {self.log} says:\n{children.tail(self.log)}"

    def close(self) -> None:
        """End the SuperLink."""
        if self.child is not None:
            children.end(self.child)
            self.child = None
        if self._serving >= 0:
            os.close(self._serving)
            self._serving = -1
