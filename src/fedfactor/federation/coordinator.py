"""The coordinator's folder: what is served from it, and the runs that are started, watched and kept there.

``fedfactor serve`` holds the folder (:mod:`fedfactor.federation.serving`). Other commands on the same machine
order runs from it, and read where they stand, by files in the folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedfactor.core.atomic_files import alone_with, private_folder, read_json, write_atomic
from fedfactor.core.errors import DataError
from fedfactor.engines.checkpoint import Checkpoint
from fedfactor.federation import certificates, former_files
from fedfactor.federation.connectivity import CERTIFY, SOON, moment
from fedfactor.federation.keys import public_pem
from fedfactor.federation.processes import ChildError, PassingError, need_federation
from fedfactor.federation.progress_lines import APART, is_locked
from fedfactor.federation.terms import Terms, TermsError
from fedfactor.network.coordinator_journal import Journal
from fedfactor.network.server import ABANDON, ENDED

if TYPE_CHECKING:
    from fedfactor.federation.serving import Serving

SERVING = "serving.lock"
PRESENCE = "presence.json"
REMOVED = "removed.json"
"""Files in the server's folder: held while it is served; who is connected; who was removed without new terms."""

AGREED = "terms.json"
"""File in the server's folder: the terms that are served, for parties that have to consent to them."""

READY = "ready.json"
ORDER = "order.json"
"""Files in the server's folder: where it listens, once it does; and an order that the serving process run."""

BESIDE = ("features.json", "preprocess.json", "survey.safetensors")
"""What is kept beside an earlier version's result, so that it can be read under terms that changed since."""

STARTING = "starting"
"""State of a run between its order and its first word."""


class UnsureError(DataError):
    """Something would be lost that the caller may not know of; repeated with ``sure``, it is done."""


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
        self.serving: Serving | None = None
        self.journal = Journal(self.folder)
        self._lock = -1

    @property
    def log(self) -> Path:
        """What happened, line by line."""
        return self.folder / "events.log"

    @property
    def port(self) -> int:
        """The port at which parties reach the server."""
        return self.terms.address[1]

    def _has_papers(self) -> None:
        """Refuse a folder without certificates."""
        for name in ("server.pem", "server.key"):
            if not (self.folder / name).exists():
                raise DataError(f"{self.folder / name} is not there. Make it with: fedfactor federation init")

    def prepare(self) -> None:
        """Write what a run needs into the folder; refuse a folder without certificates."""
        need_federation()
        self._has_papers()
        private_folder(self.folder)
        write_atomic(self.folder / "ca.pem", self.terms.content["server"]["certificate"].encode(), mode=0o644)
        self.write_terms()
        write_atomic(self.folder / AGREED, json.dumps(self.terms.content).encode())
        self._admit()

    def write_terms(self) -> None:
        """Write what was agreed in the form in which runs, and readers of their results, need it."""
        private_folder(self.folder)
        write_atomic(self.folder / "agreement.json", self.terms.agreement().to_json())
        write_atomic(self.folder / "features.json", json.dumps(list(self.terms.features)).encode(), mode=0o644)
        weights = self.terms.declared_weights()
        steps = {**self.terms.content["preprocess"], "weights": None if weights is None else weights.tolist()}
        steps |= {"split": "columns"} if self.terms.by_columns else {}
        write_atomic(self.folder / "preprocess.json", json.dumps(steps).encode(), mode=0o644)

    def _admit(self) -> None:
        """Write down whose keys are let in: those in the file, without those who left the run that goes on."""
        gone = self.removed()
        parties = {name: party for name, party in self.terms.content["parties"].items() if name not in gone}
        keys = {name: public_pem(party["key"]).decode() for name, party in parties.items()}
        about = {"policy": asdict(self.terms.policy()), "keys": keys, "terms": self.terms.fingerprint}
        write_atomic(self.folder / "server.json", json.dumps(about, indent=1).encode())

    def removed(self) -> list[str]:
        """Name those who were removed without a new agreement."""
        file = self.folder / REMOVED
        return json.loads(file.read_bytes()) if file.exists() else []

    def remove(self, name: str) -> bool:
        """Let the others go on without a party; False when that takes a new agreement, which the caller has to make.

        Where the terms let a run continue without some, those who are left need not agree to anything new: the party's
        key is rejected at once, also in a running run, which does not wait for it any more. Secure aggregation, and
        ``dropouts = "wait"``, need every party.
        """
        policy = self.terms.policy()
        left = set(self.terms.names) - {*self.removed(), name}
        if policy.dropouts == "wait" or len(left) < policy.minimum:
            return False
        write_atomic(self.folder / REMOVED, json.dumps(sorted({*self.removed(), name})).encode())
        if (self.folder / "server.json").exists():
            self._admit()
        self.journal.write("removed", party=name, how="the run goes on under the same terms")
        return True

    def certificate_words(self) -> str:
        """Check the server's certificate against the clock and its own address; return a warning, or nothing."""
        file = self.folder / "server.pem"
        host = self.terms.address[0]
        days = (certificates.expires(file) - certificates.now()).total_seconds() / 86400
        if days < 0:
            raise ChildError(
                f"The server's certificate ended {-days:.0f} days ago: no party would speak to it. Renew it: {CERTIFY}."
            )
        if (begins := certificates.begins(file)) > certificates.now():
            raise ChildError(
                f"The server's certificate is not valid before {begins:%Y-%m-%d %H:%M} UTC: no party would accept "
                "it. Set the clock of this machine right (NTP), or renew the certificate: " + CERTIFY + "."
            )
        if not certificates.names_host(file, host):
            raise ChildError(
                f"The server's certificate is not made out for {host}, where parties look for it. Renew it: {CERTIFY}; "
                "or, with a certificate of your own, have this name put in."
            )
        return f"the server's certificate ends in {days:.0f} days. Before that: {CERTIFY}" if days < SOON else ""

    def certificate_warning(self) -> str:
        """Return what is, or will be, wrong with the certificate; nothing when all is well."""
        try:
            return self.certificate_words()
        except ChildError as error:
            return str(error).rstrip(".")

    def serve(self, listen: str = "", authorities: tuple[Path, ...] = ()) -> None:
        """Serve from this process until :meth:`close`; returns when parties can connect.

        Parameters
        ----------
        listen : str
            HOST:PORT where to listen, if that is not the address in the terms.
        authorities : tuple of path
            Authorities of organisations whose certificates are accepted for registered keys, too.
        """
        from fedfactor.federation.serving import Serving

        self._alone()  # before anything is written: a server that is at work here reads the same files
        try:
            self.prepare()
            self.certificate_words()
            self.serving = Serving(self, listen, authorities)
            write_atomic(self.folder / READY, json.dumps({"pid": os.getpid(), "listen": self.serving.where}).encode())
            self.journal.write("served", terms=self.terms.fingerprint, parties=list(self.terms.names))
        except BaseException:
            self.close()
            raise

    def _alone(self) -> None:
        """Hold the folder while it is served: observers can detect it, and a second server is refused."""
        self._has_papers()
        handle = os.open(self.folder / SERVING, os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            raise PassingError(
                f"{self.folder} is served already. End that fedfactor serve first; it takes some seconds to end."
            ) from None
        os.utime(handle)
        for name in (READY, ORDER):
            (self.folder / name).unlink(missing_ok=True)
        former_files.remove_former(self.folder, former_files.SERVER)
        self._lock = handle

    @property
    def served(self) -> bool:
        """Whether a ``fedfactor serve`` runs in this folder."""
        return is_locked(self.folder / SERVING)

    @property
    def ready(self) -> bool:
        """Whether parties can connect."""
        return self.served and (self.folder / READY).exists()

    @property
    def running(self) -> bool:
        """Whether a run goes on: it holds the folder, or was ordered a moment ago."""
        if not self.served:
            return False
        status = self.status()
        began = (self.folder / SERVING).stat().st_mtime
        if status["state"] in ENDED:
            return False
        if status["state"] == STARTING:
            return status["time"] >= began and time.time() - status["time"] < 300.0
        return is_locked(self.folder / "lock")  # no clock is asked, which may be set back

    def presence(self) -> dict[str, tuple[bool, str]]:
        """Return for each party since when it is connected, or when it was last seen."""
        return self._seen() if self.served else {}

    def _seen(self) -> dict[str, tuple[bool, str]]:
        """Read the times at which parties were last seen, including those of an earlier server process."""
        file = self.folder / PRESENCE
        serving = self.folder / SERVING
        if not file.exists():
            return {}
        looked = file.stat().st_mtime
        old = serving.exists() and looked < serving.stat().st_mtime
        seen: dict[str, tuple[bool, str]] = json.loads(file.read_bytes())
        now = {name: (False, moment(looked)) if there and old else (there, at) for name, (there, at) in seen.items()}
        return {name: (False, "") if at == APART and old else (there, at) for name, (there, at) in now.items()}

    def look(self) -> None:
        """Write down who is connected, for other commands; in the process that serves."""
        if self.serving is None:
            return
        known: dict[str, tuple[bool, str]] = {
            name: (here, moment(at)) for name, (here, at) in self.serving.queues.since().items()
        }
        known |= {name: (False, APART) for name in self.serving.queues.other_terms()}
        before = self._seen()
        seen = dict[str, tuple[bool, str]]()
        for name in self.terms.names:
            online, since = known.get(name, (False, ""))
            # Of a party that is not connected this serving knows when it was last seen; of an earlier one's, the file.
            seen[name] = (online, since or before.get(name, (False, ""))[1].replace(APART, ""))
        seen = {name: found for name, found in seen.items() if name not in self.removed()}
        write_atomic(self.folder / PRESENCE, json.dumps(seen).encode())

    def start(self, *, again: bool = False, sure: bool = False, accept_versions: bool = False) -> list[str]:
        """Start a run, or let an interrupted one go on.

        Parameters
        ----------
        again : bool
            Forget the last run and start another.
        sure : bool
            Also one that goes on, or that was interrupted and could go on.
        accept_versions : bool
            Resume a run that was begun with other versions of packages: it loses the bits of an undisturbed run.

        Returns
        -------
        list of str
            Versions that changed since the run was begun.
        """
        if not (self.folder / "agreement.json").exists() or not self.served:
            raise DataError(f"Nothing is served from {self.folder}. Begin with: fedfactor serve {self.file}")
        with alone_with(self.folder / "start"):  # two at once would both find that no run goes on
            return self._start(again, sure, accept_versions)

    def _start(self, again: bool, sure: bool, accept_versions: bool) -> list[str]:
        from fedfactor.federation.model_versions import put_start

        kept = self.folder / "agreement.json"
        if json.loads(kept.read_bytes())["terms"] != self.terms.fingerprint:
            raise TermsError(f"{self.file} changed since the server was started. Start fedfactor serve again.")
        self.journal.lines()  # a changed journal is reported before anything is appended
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
            raise UnsureError(
                f"A run was interrupted after round {reached}; --again forgets what it reached, and "
                "fedfactor start without it goes on."
            )
        if again:
            self.forget()
        elif self._of_other_terms():
            raise DataError(
                "The interrupted run was made under other terms, and cannot go on under these. Start a new "
                "one with --again."
            )
        put_start(self.terms, self.folder)
        for name in ("stop", ABANDON):
            (self.folder / name).unlink(missing_ok=True)
        changed: list[str] = []
        if accept_versions:
            found = Checkpoint(self.folder / "checkpoint").accept_versions(self.terms.content["run"]["threads"])
            changed = [f"{name} {before} became {now}" for name, (before, now) in found.items()]
            if changed:
                self.journal.write("versions accepted", changed=changed, round=self.status().get("round", 0))
        self._order_run(self.status())
        self.journal.write("started", terms=self.terms.fingerprint, again=again)
        return changed

    def _order_run(self, before: dict[str, Any]) -> None:
        """Let the serving process begin or resume the run."""
        about = {"state": STARTING, "time": time.time(), "clients": list(self.terms.names), "participants": []}
        about |= {"round": before.get("round", 0), "rounds": self.terms.content["run"]["rounds"]}
        write_atomic(self.folder / "status.json", json.dumps(about).encode())
        write_atomic(self.folder / ORDER, b"")

    def _abandon(self, patience: float = 60.0) -> None:
        """End the run that goes on, at once, and wait until its process has let go of the folder."""
        write_atomic(self.folder / ABANDON, b"")
        end = time.monotonic() + patience
        while is_locked(self.folder / "lock") or self.status()["state"] == STARTING:
            if time.monotonic() > end:
                raise ChildError(f"The run did not end in {patience:g} s. End fedfactor serve, and begin it again.")
            time.sleep(0.2)
        self.journal.write("abandoned", round=self.status().get("round", 0))

    @property
    def _checkpoint(self) -> Path:
        return self.folder / "checkpoint" / "run.safetensors"

    def _of_other_terms(self) -> bool:
        """Return whether what was kept of a run belongs to other terms than these."""
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
        """Begin again; what a finished run left is kept as an earlier version, by the name of the run."""
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

    def stop(self) -> bool:
        """End the run after the present round, or one that is paused at once; every client keeps what was reached.

        Returns
        -------
        bool
            Whether the run was not going on: it is resumed only to be ended.
        """
        if not (self.folder / "agreement.json").exists():
            raise DataError(f"Nothing is served from {self.folder}, so there is no run to stop.")
        state = self.status()
        if state["state"] in ("finished", "not started"):
            raise DataError(f"There is no run to stop: the last one is {state['state']}.")
        if self.running:
            write_atomic(self.folder / "stop", b"")
            self.journal.write("stopped")
            return False
        if not state.get("round"):
            raise DataError(
                "No round was completed, so there is no result to keep. Begin again: fedfactor start --again"
            )
        if not self.served:
            raise DataError(f"The run is {state['state']}, and is ended by fedfactor serve. Start that first.")
        if self._of_other_terms():
            raise DataError("The run was made under other terms, and its parties cannot end it under these.")
        with alone_with(self.folder / "start"):
            write_atomic(self.folder / "stop", b"")
            self._order_run(state)
            self.journal.write("stopped")
        return True

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
        raise PassingError(f"The run did not end in {patience:g} s; it stands at {self.status()}.")

    def check(self) -> None:
        """Raise when this process serves no more, although it was not stopped."""
        if self.serving is not None:
            self.serving.check()

    def close(self) -> None:
        """End serving."""
        if self.serving is not None:
            self.serving.close()
            self.serving = None
        if self._lock >= 0:
            (self.folder / READY).unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = -1
