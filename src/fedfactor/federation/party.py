"""A party's side: its folder, and the process that asks at the server and answers."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
import urllib.request
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedfactor.core.atomic_files import private_folder, write_atomic
from fedfactor.core.checksummed_files import file_digest
from fedfactor.core.client_data import Shard
from fedfactor.core.errors import DataError, MissingExtraError
from fedfactor.core.rollback_detection import Witness
from fedfactor.federation import processes as children
from fedfactor.federation.connectivity import Connection, Reached, explain, probe
from fedfactor.federation.fingerprint_words import terms_words
from fedfactor.federation.gain import KEPT_OUT, divide
from fedfactor.federation.keys import identity_secret, line_of_private
from fedfactor.federation.processes import ChildError
from fedfactor.federation.progress import PartyWatch
from fedfactor.federation.row_loading import count_subjects, prepare_rows
from fedfactor.federation.terms import Terms, TermsError
from fedfactor.federation.vouching import registry, strangers
from fedfactor.io.file_content import Reading
from fedfactor.network.client import COLUMNS, RemoteClient
from fedfactor.network.client_storage import WITNESS, ClientFolder
from fedfactor.network.connection_status import CONNECTION
from fedfactor.privacy.secure_aggregation.primitives import Identity

ROW_IDS = "rows.json"
"""What a party calls its rows; it stays in its folder."""

ACTIVATION = "Failed to activate SuperNode"


class Member:
    """One party: who it is, what it agreed to, and where its things lie.

    Parameters
    ----------
    file : path
        ``federation.toml``.
    key : path
        Its private key.
    folder : path, optional
        Its own folder; by default named after the party, in the working directory.
    """

    def __init__(self, file: str | Path, key: str | Path, folder: str | Path | None = None) -> None:
        self.terms, self.key = Terms.read(file), Path(key)
        line = line_of_private(key)
        names = [
            name
            for name, party in self.terms.content["parties"].items()
            if party["key"].split()[:2] == line.split()[:2]
        ]
        if not names:
            whom = self.terms.content["federation"]["contact"] or "the coordinator"
            raise TermsError(f"{file} lists no party with the key {key}. Ask {whom} to add it, and take the new file.")
        self.name = names[0]
        self.folder = Path(folder) if folder is not None else Path(self.name)
        self.node: subprocess.Popen[bytes] | None = None
        self._before = 0

    @property
    def log(self) -> Path:
        """What the SuperNode says."""
        return self.folder / "supernode.log"

    def _signed(self) -> dict[str, Any] | None:
        """Read what this folder signed up for; None when it is new."""
        file = self.folder / "signed.json"
        return json.loads(file.read_bytes()) if file.exists() else None

    @property
    def words(self) -> str:
        """What parties read to each other: made of all names, keys and terms."""
        return terms_words(self.terms.fingerprint)

    def changes(self) -> list[str]:
        """List what differs from the terms that this party signed up for; nothing before the first time."""
        kept = self._signed()
        if kept is None:
            return []
        limits = f"limits: version 0.1 knew none, and now you answer at most {self.terms.limits[0]} runs"
        return [limits] * _signed_with_0_1(kept) + self.terms.differences(Terms.of(kept["terms"]))

    def unknown(self) -> list[str]:
        """Name the parties whose keys are known from nobody but whoever wrote the file; empty where it does not matter.

        Keys count as known when this party confirmed them before, or when one that it knows vouches for them. Without
        a secure sum they protect nothing between the parties.
        """
        if not self.terms.guarded:
            return []
        kept = self._signed() or {}
        known: dict[str, Any] = kept.get("known") or {}
        return strangers(self.terms, known or {self.name: registry(self.terms)[self.name]})

    def sign_up(
        self,
        data: str | Path,
        *,
        accept_changes: bool = False,
        replace_data: bool = False,
        confirmed: bool = False,
        reading: Reading | None = None,
        keep_out: float = 0.0,
        ledger: str | Path | None = None,
        budget: float | None = None,
        raise_budget: bool = False,
    ) -> ClientFolder:
        """Agree to the terms with these rows; a folder that agreed to others, or holds other rows, is refused.

        Parameters
        ----------
        data : path
            The rows.
        accept_changes, replace_data : bool
            Agree to terms that changed; begin anew with other rows.
        confirmed : bool
            Whether :attr:`words` were compared with the other parties, by another way than through the coordinator.
        reading : Reading, optional
            How the file is read.
        keep_out : float
            Share of the rows that take no part, to see afterwards on them whether joining was worth it.
        ledger : path, optional
            The books of these rows, where other federations use them too; by default in this folder.
        budget : float, optional
            ε that these rows may cost in all runs together; by default that of the first one.
        raise_budget : bool
            Let the budget be more than was decided on before.
        """
        self.terms.agreement(self.name)  # terms that are not complete yet cannot be agreed to
        if not confirmed:
            self._refuse_strangers()
        source, kept = _source(data, reading, keep_out), self._signed()
        known = registry(self.terms) if confirmed or self.terms.guarded else (kept or {}).get("known")
        if kept is not None and self._goes_on(kept, source, data, accept_changes, replace_data):
            if kept.get("known") != known:
                self._sign({**kept, "known": known})
            return self._with_books(ClientFolder(self.folder), ledger, budget, raise_budget)
        shard = prepare_rows(data, self.terms, self.name, reading)
        if kept is None or _signed_with_0_1(kept):  # which filed rows without their checksums, and kept no books
            before = ""
        else:
            before = kept.get("rows") or ClientFolder(self.folder).rows
        store = self._file_rows(shard, keep_out)
        self._sign({"terms": self.terms.content, "source": source, "known": known})
        return self._with_books(store, ledger, budget, raise_budget, before)

    def _refuse_strangers(self) -> None:
        """Refuse keys that nobody but the coordinator vouches for."""
        if unknown := self.unknown():
            raise TermsError(
                f"Nobody but the coordinator says that these are the keys of {', '.join(unknown)}. With keys of its "
                "own in their place it would read what you send alone. Compare the words with the other parties by "
                f'telephone, or face to face, and join with --fingerprint "WORDS". The words here are: {self.words}'
            )

    def _sign(self, content: dict[str, Any]) -> None:
        write_atomic(self.folder / "signed.json", json.dumps(content).encode())

    def _goes_on(
        self, kept: dict[str, Any], source: str, data: str | Path, accept_changes: bool, replace_data: bool
    ) -> bool:
        """Tell whether this folder holds these terms and rows already; changes that nobody agreed to are refused."""
        changes = self.changes()
        if changes and not accept_changes:
            raise TermsError(
                "These are not the terms that this party signed up for:\n  " + "\n  ".join(changes) + "\n"
                "Nothing was sent. If you agree with all of it, join with --accept-changes."
            )
        if kept["source"] != source and not replace_data:
            raise DataError(
                f"{data} is not the file that {self.folder} was made from. Join with --replace-data to begin anew "
                "with other rows."
            )
        return not changes and kept["source"] == source

    def _file_rows(self, shard: Shard, keep_out: float) -> ClientFolder:
        """Put the rows that take part, and those kept out, into this party's folder, with what it proves itself by."""
        agreement = self.terms.agreement(self.name)
        private_folder(self.folder)
        shutil.rmtree(self.folder / KEPT_OUT, ignore_errors=True)
        if keep_out:
            shard, out = divide(shard, keep_out)
            if shard.n_rows < self.terms.least_rows:
                raise DataError(f"Only {shard.n_rows} rows would take part; {self.terms.least_rows} are needed.")
            ClientFolder.make(self.folder / KEPT_OUT, agreement, out)
        shard, counted = count_subjects(shard, self.terms, self.name)
        for old in ("state.safetensors", COLUMNS):  # which columns are rare was found of other rows, or other columns
            (self.folder / old).unlink(missing_ok=True)
        if agreement.protect != "none":
            secret = identity_secret(self.key)
            if Identity(secret).public.hex() != agreement.registry[self.name]:
                raise TermsError(f"[parties.{self.name}] sign is not the signing key of {self.key}.")
            write_atomic(self.folder / "identity.key", secret)
        store = ClientFolder.make(self.folder, agreement, shard, counted)
        write_atomic(self.folder / ROW_IDS, json.dumps(shard.row_ids).encode())
        return store

    def _with_books(
        self,
        store: ClientFolder,
        ledger: str | Path | None,
        budget: float | None,
        raise_budget: bool,
        before: str = "",
    ) -> ClientFolder:
        """Bind the books of these rows to them; what was spent on rows that this party replaced stays spent.

        A file beside the key remembers them as well: without this folder, or with an older copy of it, the same rows
        do not get their budget, nor their runs, a second time.
        """
        witness = Witness(self.key.resolve().with_name(self.key.name + ".books"))
        try:
            write_atomic(store.folder / WITNESS, str(witness.path).encode())
            store.answered.bind(witness, str(self.terms.content["federation"]["name"]), store.sketch)
        except OSError as error:
            (store.folder / WITNESS).unlink(missing_ok=True)
            warnings.warn(f"{witness.path} cannot be written ({error.strerror}): if {store.folder} is lost or put back "
                          "from a copy, nothing remembers what its rows have cost.", stacklevel=2)  # fmt: skip
        if ledger is not None:
            write_atomic(store.folder / "ledger.path", str(Path(ledger).resolve()).encode())
        decided, books = store.ledger_file.exists(), store.ledger
        if books is None:
            if ledger is not None or budget is not None:
                raise TermsError("A ledger and a budget are for terms with noise, and these have none.")
            return store
        if store.witness is not None:
            books.bind(store.witness, store.rows, store.sketch)
        if books.rows == before:
            books.take_over(store.rows)
        books.belong(store.rows)
        if budget is not None and budget != books.budget:
            if decided and budget > books.budget and not raise_budget:
                raise TermsError(
                    f"--budget {budget:g} is more than the ε = {books.budget:g} that was decided on for these rows. "
                    "That is a new decision about the people in them: say --raise-budget if it was made."
                )
            books.raise_budget(budget)
        return store

    def reach(self) -> Reached:
        """Look whether the server can be reached from here; nothing is found out where a proxy stands between."""
        host, port = self.terms.address
        if urllib.request.getproxies().get("https") and not urllib.request.proxy_bypass(host):
            return Reached()
        return probe(host, port, self.terms.content["server"]["certificate"])

    def join(
        self,
        store: ClientFolder,
        *,
        poll: float = 0.5,
        stop: threading.Event | None = None,
        patience: float = 60.0,
        say: Callable[[str], Any] = lambda line: None,
        supernode: bool = False,
    ) -> None:
        """Serve messages until stopped; raises with a plain reason when the server turns this party away.

        This process asks at the server's mailbox itself; with ``supernode`` one of Flower's nodes beside it does, for
        houses that let nothing else out. ``say`` is told what happens: connected or not and why, rounds, refusals, the
        end of a run.
        """
        os.environ["NO_PROXY"] = os.environ["no_proxy"] = children.without_proxy()
        stop, began = stop or threading.Event(), time.monotonic()
        with self._alone():
            self._greet(say)
            watch = PartyWatch(store, self.terms.content["server"]["address"])
            if not supernode:
                self._ask(store, _while(None, stop, watch, say))
                return
            children.need_flower()
            try:
                from fedfactor.network.flower.client_process import ClientProcess
            except ImportError as error:
                raise ChildError(f"This version of Flower keeps what we need elsewhere ({error}). Use 1.41.") from None
            try:
                while not stop.is_set():
                    port, secret = children.free_port(), secrets.token_hex(32).encode()
                    self._start_node(port, secret, poll)
                    self._await(port, time.monotonic() + 180.0)
                    node = self.node
                    assert node is not None
                    alive = _while(node, stop, watch, say)
                    if not ClientProcess(RemoteClient(store), f"127.0.0.1:{port}", secret).serve(alive):
                        self.close()  # it waits for an answer that will not come: begin with a fresh one
                        continue
                    if stop.is_set():
                        return
                    # A server takes a SuperNode that crashed for alive until it misses its heartbeats.
                    if ACTIVATION not in self._said() or time.monotonic() - began > patience:
                        raise ChildError(self._why())
                    stop.wait(2.0)
            finally:
                self.close()

    def _ask(self, store: ClientFolder, alive: Callable[[], bool]) -> None:
        """Serve the questions that lie in this party's box at the server."""
        try:
            from fedfactor.network.mailbox.node import ForeignServer, Node, TurnedAway
        except ModuleNotFoundError as error:
            raise MissingExtraError.named(error.name or "httpx", "flower", "A federation across machines") from None
        server = self.terms.content["server"]
        node = Node(RemoteClient(store), server["address"], server["certificate"], self.key, self.folder.resolve(),
                    self.terms.fingerprint)  # fmt: skip
        try:
            node.serve(alive)
        except (TurnedAway, ForeignServer) as error:
            found = explain(error.args[0], server["address"])
            raise ChildError(f"The server turned {self.name!r} away: {found.problem}; {found.remedy}.") from None

    def _greet(self, say: Callable[[str], Any]) -> None:
        """Look before the first message: refuse a server that may be somebody else, and say what will go wrong."""
        (self.folder / CONNECTION).unlink(missing_ok=True)
        found = self.reach()
        if found.foreign:
            raise ChildError(f"The server turned out to be another one: {found.problem}; {found.remedy}.")
        for warning in found.warnings():
            say(f"Warning: {warning}.")
        if (mode := stat.S_IMODE(self.key.stat().st_mode)) & 0o077:
            say(f"Warning: {self.key} can be read by others (mode {mode:04o}): chmod 600 {self.key}")

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Refuse a second process of the same party: the two would push each other out."""
        handle = os.open(self.folder / "join.lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise DataError(
                    f"{self.name!r} takes part from {self.folder} already. End that fedfactor join first."
                ) from None
            yield
        finally:
            os.close(handle)

    def _start_node(self, port: int, secret: bytes, poll: float) -> None:
        folder = self.folder.resolve()
        write_atomic(folder / "ca.pem", self.terms.content["server"]["certificate"].encode())
        write_atomic(folder / "node.secret", secret)
        host, number = self.terms.address
        command = [
            sys.executable, "-m", "fedfactor.network.flower.supernode", "--superlink", f"{host}:{number}",
            "--root-certificates", str(folder / "ca.pem"), "--auth-supernode-private-key", str(self.key.resolve()),
            "--host", "127.0.0.1", "--port", str(port), "--isolation", "process",
            "--superexec-auth-secret-file", str(folder / "node.secret"),
        ]  # fmt: skip
        self._before = self.log.stat().st_size if self.log.exists() else 0
        home = private_folder(folder / "flower")
        extra = {"FLWR_HOME": str(home), "FEDFACTOR_NODE_POLL": str(poll), "FEDFACTOR_NODE_FILE": str(folder / "node"),
                 "FEDFACTOR_NODE_TERMS": self.terms.fingerprint}  # fmt: skip
        self.node = children.start(command, self.log, extra)

    def _await(self, port: int, end: float) -> None:
        import socket

        while True:
            if self.node is not None and self.node.poll() is not None:
                if ACTIVATION in self._said():
                    return
                raise ChildError(self._why())
            with socket.socket() as probe:
                probe.settimeout(1)
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    return
            if time.monotonic() > end:
                raise ChildError(f"Flower's SuperNode did not start. {self.log} says:\n{children.tail(self.log)}")
            time.sleep(0.2)

    def _said(self) -> str:
        """Read what the present node said; what earlier ones did stands before it."""
        if self.node is not None:
            children.heard(self.node)
        if not self.log.exists():
            return ""
        data = self.log.read_bytes()
        return data[self._before if self._before <= len(data) else 0 :].decode(errors="replace")

    def _why(self) -> str:
        last = Connection.of(self.folder)
        if ACTIVATION in self._said() and (last is None or last.error.startswith("HTTP")):
            return (
                "The server takes this party for present already: another fedfactor join with this key runs somewhere, "
                f"or ended less than a minute ago. End that one, or try again. Details are in {self.log}."
            )
        if last is not None and not last.connected:
            found = explain(last.error, self.terms.content["server"]["address"])
            return f"The server turned {self.name!r} away: {found.problem}; {found.remedy}. Details are in {self.log}."
        return f"Flower's SuperNode ended. {self.log} says:\n{children.tail(self.log)}"

    def close(self) -> None:
        """End the SuperNode."""
        if self.node is not None:
            children.end(self.node)
            self.node = None


def _signed_with_0_1(kept: dict[str, Any]) -> bool:
    """Tell whether a folder agreed to terms, and filed its rows, with version 0.1."""
    return "limits" not in kept["terms"]


def _source(data: str | Path, reading: Reading | None, keep_out: float) -> str:
    """Say what rows were made from: the file, how it is read, and what share was kept out."""
    source = file_digest(data) if Path(data).is_file() else ""
    if reading is not None and reading != Reading():  # the same file read otherwise gives other rows
        source += f" {reading}"
    return source + (f" without {keep_out:g}" if keep_out else "")


def _while(
    node: subprocess.Popen[bytes] | None, stop: threading.Event, watch: PartyWatch, say: Callable[[str], Any]
) -> Callable[[], bool]:
    def alive() -> bool:
        for line in watch.news():
            say(line)
        return not stop.is_set() and (node is None or node.poll() is None)

    return alive


def stop_on_signals(stop: threading.Event) -> None:
    """Let an interrupt or a polite end set an event instead of tearing a step apart."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
