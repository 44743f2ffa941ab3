"""A party's side: its folder, and the process that makes requests to the server and answers."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import stat
import threading
import urllib.request
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedfactor.core.atomic_files import private_folder, read_json, write_atomic
from fedfactor.core.checksummed_files import file_digest
from fedfactor.core.client_data import Shard
from fedfactor.core.errors import DataError, FedfactorError
from fedfactor.core.rollback_detection import Witness
from fedfactor.federation import former_files
from fedfactor.federation import processes as children
from fedfactor.federation.connectivity import Connection, Reached, explain, probe
from fedfactor.federation.fingerprint_words import terms_words
from fedfactor.federation.gain import KEPT_OUT, divide
from fedfactor.federation.keys import identity_secret, line_of_private
from fedfactor.federation.processes import ChildError, PassingError
from fedfactor.federation.progress_lines import PartyWatch
from fedfactor.federation.row_loading import count_subjects, prepare_rows
from fedfactor.federation.terms import Terms, TermsError
from fedfactor.federation.vouching import needed, registry, strangers
from fedfactor.io.file_content import Reading
from fedfactor.network.client import COLUMNS, RemoteClient
from fedfactor.network.client_storage import WITNESS, ClientFolder
from fedfactor.network.connection_status import CONNECTION
from fedfactor.privacy.secure_aggregation.primitives import Identity

if TYPE_CHECKING:
    from fedfactor.network.https.client import Wire

ROW_IDS = "rows.json"
ROW_NAMES = "row-names.json"
"""What a party calls its rows, and how all parties call these where they hold columns; both stay in its folder."""


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
        self.file = Path(file)
        self.terms = Terms.read(file)
        self.key = Path(key)
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

    @classmethod
    def offered(cls, folder: Path, terms: Terms) -> Member:
        """Return the party of a folder under terms that it did not sign yet."""
        enrolment = folder / "enrolment.json"
        if enrolment.exists():
            name = read_json(enrolment)["invitation"]["party"]
        else:
            name = ClientFolder(folder).agreement.name
        if name not in terms.names:
            raise TermsError(f"These terms do not list {name!r}. Ask the coordinator.")
        member = cls.__new__(cls)
        member.terms = terms
        member.name = name
        member.folder = folder
        return member

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
        return self.terms.differences(Terms.of(kept["terms"]))

    def unknown(self) -> list[str]:
        """Return the parties whose keys were asserted by the coordinator only; empty where it does not matter.

        Keys count as known when this party confirmed them before, or when one that it knows vouches for them. Without
        secure aggregation they protect nothing between the parties.
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
            Agree to terms that changed; begin again with other rows.
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
        source = _source(data, reading, keep_out)
        kept = self._signed()
        known = registry(self.terms) if confirmed or self.terms.guarded else (kept or {}).get("known")
        if kept is not None and self._goes_on(kept, source, data, accept_changes, replace_data):
            self._compare_agreement()
            if kept.get("known") != known:
                self._sign({**kept, "known": known})
            return self._with_books(ClientFolder(self.folder), ledger, budget, raise_budget)
        shard = prepare_rows(data, self.terms, self.name, reading)
        before = "" if kept is None else kept.get("rows") or ClientFolder(self.folder).rows
        if keep_out and self.terms.by_columns:
            raise DataError("--keep-out leaves out rows, which all parties have in common. Leave it away.")
        store = self._file_rows(shard, keep_out)
        if self.terms.by_columns and reading is not None and reading.row_names is not None:
            write_atomic(self.folder / ROW_NAMES, Path(reading.row_names).read_bytes())
        self._sign({"terms": self.terms.content, "source": source, "known": known})
        return self._with_books(store, ledger, budget, raise_budget, before)

    def _refuse_strangers(self) -> None:
        """Refuse keys that only the coordinator asserts."""
        if unknown := self.unknown():
            least = needed(self.terms)
            dilution = (
                f"Under this noise {least} known parties must vouch for each new one: every party that is added makes "
                "each honest party's share of the noise smaller. "
            )
            raise TermsError(
                f"No party but the coordinator says that these are the keys of {', '.join(unknown)}. With keys of its "
                f"own in their place it would read what you send alone. {dilution if least > 1 else ''}Compare the "
                "words with the other parties by telephone, or face to face, and join with --fingerprint "
                f'"WORDS". The words here are: {self.words}'
            )

    def _compare_agreement(self) -> None:
        """Write the agreement of this folder again where it differs from the signed terms."""
        signed = self.terms.agreement(self.name).to_json()
        kept = ClientFolder(self.folder).agreement
        if kept.to_json() != signed:  # another version made it, or it was changed together with its checksum
            warnings.warn(
                f"{self.folder / 'agreement.json'} differs from the terms that this party signed up for. It was "
                "written again from them.",
                stacklevel=3,
            )
            write_atomic(self.folder / "agreement.json", signed)

    def _sign(self, content: dict[str, Any]) -> None:
        write_atomic(self.folder / "signed.json", json.dumps(content).encode())

    def _goes_on(
        self, kept: dict[str, Any], source: str, data: str | Path, accept_changes: bool, replace_data: bool
    ) -> bool:
        """Return whether this folder holds these terms and rows already; changes without consent are refused."""
        changes = self.changes()
        if changes and not accept_changes:
            raise TermsError(
                "These are not the terms that this party signed up for:\n  " + "\n  ".join(changes) + "\n"
                "Nothing was sent. If you agree with all of it, join with --accept-changes."
            )
        if kept["source"] != source and not replace_data:
            raise DataError(
                f"{data} is not the file that {self.folder} was made from. Join with --replace-data to begin again "
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
            warnings.warn(
                f"{witness.path} cannot be written ({error.strerror}): if {store.folder} is lost or put back "
                "from a copy, nothing remembers what its rows have cost.",
                stacklevel=2,
            )
        if ledger is not None:
            write_atomic(store.folder / "ledger.path", str(Path(ledger).resolve()).encode())
        decided = store.ledger_file.exists()
        books = store.ledger
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
        stop: threading.Event | None = None,
        say: Callable[[str], Any] = lambda line: None,
        certificate: Path | None = None,
    ) -> bool | None:
        """Serve messages until stopped; raise with a plain reason when the server refuses this party.

        Returns
        -------
        bool or None
            None when stopped. When the party consented to other terms, which :attr:`file` then holds: whether their
            words were compared with the other parties.

        Parameters
        ----------
        store : ClientFolder
            What :meth:`sign_up` returned.
        stop : threading.Event, optional
            Ends it.
        say : callable
            Receives what happens: connected or not and why, rounds, refusals, the end of a run.
        certificate : path, optional
            Certificate for this party's key by an authority of its own organisation.
        """
        children.need_federation()
        from fedfactor.federation.enrolment import Proposal
        from fedfactor.network.https.client import ForeignServer, PartyClient, TurnedAway

        stop = stop or threading.Event()
        with self._alone():
            former_files.remove_former(self.folder, former_files.PARTY)
            self._greet(say)
            watch = PartyWatch(store, self.terms.content["server"]["address"])
            remote = RemoteClient(store)
            client = PartyClient(
                remote, self.wire(certificate, remote.longest), self.folder.resolve(), self.terms.fingerprint
            )

            proposal = Proposal(self, say, certificate)
            changed = False

            def alive() -> bool:
                nonlocal changed
                for line in watch.news():
                    say(line)
                now = Connection.of(self.folder)
                changed = now is not None and proposal.consented(now.error)
                return not (changed or stop.is_set())

            try:
                client.serve(alive)
            except (TurnedAway, ForeignServer) as error:
                found = explain(error.args[0], self.terms.content["server"]["address"])
                raise ChildError(f"The server turned {self.name!r} away: {found.problem}; {found.remedy}.") from None
            return proposal.confirmed if changed else None

    def wire(self, certificate: Path | None = None, most: int = 1 << 16) -> Wire:
        """Return what makes requests to the server with this party's key, and reads at most so many bytes of each."""
        from fedfactor.network.https.client import Wire

        server = self.terms.content["server"]
        return Wire(server["address"], server["certificate"], self.key, certificate, most)

    def _greet(self, say: Callable[[str], Any]) -> None:
        """Look before the first message: refuse a server that may be another party, and say what will go wrong."""
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
                raise PassingError(
                    f"{self.name!r} takes part from {self.folder} already. End that fedfactor join first."
                ) from None
            yield
        finally:
            os.close(handle)


def _source(data: str | Path, reading: Reading | None, keep_out: float) -> str:
    """Return what rows were made from: the file, how it is read, and what share was kept out."""
    source = file_digest(data) if Path(data).is_file() else ""
    if reading is not None and reading != Reading():  # the same file read otherwise gives other rows
        source += f" {reading}"
    return source + (f" without {keep_out:g}" if keep_out else "")


def together(seats: Sequence[Callable[[], Any]], say: Callable[[str], Any]) -> None:
    """Serve several parties, each in a thread; raise at the end when one was turned away."""
    wrong: list[Exception] = []

    def serve(seat: Callable[[], Any]) -> None:
        try:
            seat()
        except (FedfactorError, OSError) as error:  # one whose disk is full, too
            say(str(error))
            wrong.append(error)  # the others go on

    threads = [threading.Thread(target=serve, args=(seat,), daemon=True) for seat in seats]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        for thread in threads:
            thread.join(0.5)
    for error in wrong:
        raise error


def stop_on_signals(stop: threading.Event) -> None:
    """Let an interrupt or a polite end set an event instead of tearing a step apart."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: stop.set())
