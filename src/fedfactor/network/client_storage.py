"""A client's own folder: what it agreed to, its rows, its state, and every byte it ever sent.

The folder is readable by its owner only. A process that serves one message and ends finds everything here: rows are
mapped, not read, and state and answer are one file that is replaced in one step, so that a kill leaves both or neither.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from fedfactor.core.algorithm import Algorithm, Meta
from fedfactor.core.atomic_files import private_folder, write_atomic
from fedfactor.core.checksummed_files import file_digest, read_checked, write_checked
from fedfactor.core.client_data import Shard
from fedfactor.core.errors import CheckpointError, DataError
from fedfactor.core.input_validation import is_sparse
from fedfactor.core.pytree import Tree, freeze
from fedfactor.core.rollback_detection import SKETCH, Witness
from fedfactor.core.wire import from_bytes, read_header, to_bytes
from fedfactor.engines.local.worker_process import algorithm_of
from fedfactor.network.answer_limits import AnsweredCounts
from fedfactor.network.message_format import Head, Payload

if TYPE_CHECKING:
    from fedfactor.privacy.ledger import Ledger
    from fedfactor.privacy.pipeline import Channel

LEDGER = "ledger.jsonl"
"""What was spent on a party's rows, in its folder, unless ``ledger.path`` there names another file."""

PUBLIC = "fedfactor.algorithms"
"""Where the algorithms are that an agreement may name."""

FORMAT = 3
"""Of ``agreement.json``; those of format 2 have no checksum, and are read as well."""

_CHECKED = re.compile(rb'\{\n "sha256": "([0-9a-f]{64})",\n')
"""How a file of format 3 begins: with the SHA-256 of all that follows."""

REFUSALS = 1000
"""Refusals of one day that a party lists in ``sent.jsonl``."""

IDENTIFIER = "folder.id"
"""Random identifier of a party's folder, drawn once: the coordinator does not know it and cannot choose it."""

WITNESS = "witness.path"
"""Names the file beside the party's key that remembers, too, how much these rows answered and paid."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """What a party signed up for, in the words of engines.

    Parameters
    ----------
    name : str
        The party's own name; empty at the server.
    terms : str
        Fingerprint of the file that all parties read.
    algorithm : str
        Import name of the algorithm.
    settings : dict
        Its fields.
    meta : Meta
        What is public about the data.
    seed, rounds : int
        Of the run.
    payload : {"exact", "float16"}
        How arrays travel.
    threads : int
        Threads per product, which is part of the bits.
    survey : {"", "tf-idf", "scale"}
        Column weights that are found from summed columns before round 0.
    report_score : bool
        Whether a client sends its final error to the server.
    protect : {"none", "secure-sum", "dp"}
        Whether the server sees each upload, only their sum, or only their sum with noise.
    noise : dict
        For ``"dp"``: budget, unit and bounds, and the noise multiplier that follows from them.
    links : tuple of dict
        What else becomes of an upload, in order: links of :mod:`fedfactor.privacy` by name, each with its settings.
    registry : dict of str to str
        For secure aggregation: the key with which each party signs, in hexadecimal.
    least : tuple of int
        For secure aggregation: rows and parties that must fill a column, or it is left out.
    limits : tuple of int, int, str, str
        Most runs, most rounds in all of them, last and first day; 0 and nothing are no limit.
    start : str
        Fingerprint of the components of an earlier version that a run starts at; empty when it begins again.
    federation : str
        Random identifier of the federation; its name in terms of format 1.
    further_seeds : int
        How many other seeds runs may have, by which the stability of components is judged.
    seed_number : int
        At the server: which of these seeds a run has.
    """

    name: str
    terms: str
    algorithm: str
    settings: dict[str, Any]
    meta: Meta
    seed: int
    rounds: int
    payload: Payload = "exact"
    threads: int = 1
    survey: str = ""
    report_score: bool = True
    protect: str = "none"
    noise: dict[str, Any] = field(default_factory=dict[str, Any])
    links: tuple[dict[str, Any], ...] = ()
    registry: dict[str, str] = field(default_factory=dict[str, str])
    least: tuple[int, int] = (0, 0)
    limits: tuple[int, int, str] | tuple[int, int, str, str] = (0, 0, "")
    start: str = ""
    federation: str = ""
    further_seeds: int = 0
    seed_number: int = 0

    @property
    def run_seed(self) -> int:
        """Seed of the server's random numbers in this run."""
        return self.numbered_seed(self.seed_number)

    def numbered_seed(self, number: int) -> int:
        """Return one of the agreed seeds: the run's own (0), or one of those that stability is judged by."""
        return (self.seed + number) % (1 << 63)

    @property
    def asynchronous(self) -> bool:
        """Whether clients go on without waiting for each other."""
        return bool(getattr(type(self.make()), "asynchronous", False))

    @property
    def most_steps(self) -> int:
        """Steps that one client can be asked for: without rounds, a fast one takes those of others too."""
        return self.rounds * (self.meta.n_clients if self.asynchronous else 1)

    def make(self) -> Algorithm:
        """Build the algorithm; only one of this library's own, because a folder must not be able to name code."""
        room, _, name = self.algorithm.partition(":")
        if (room == PUBLIC or room.startswith(f"{PUBLIC}.")) and name in dir(import_module(PUBLIC)):
            return algorithm_of(f"{PUBLIC}:{name}", self.settings)  # wherever its file lay when this was written
        raise DataError(f"{self.algorithm!r} is not an algorithm of fedfactor. The folder was changed.")

    @property
    def secure(self) -> bool:
        """Whether the server sees sums only."""
        return self.protect != "none"

    @property
    def counted(self) -> bool:
        """Whether rows are counted by column before round 0, for the columns that too few fill; never beside noise."""
        return self.protect == "secure-sum"

    def channel(self, run: str = "", folder: Path | None = None) -> Channel | None:
        """Make what protects uploads, for a client or (with its folder) for the server; None: nothing does."""
        if not self.secure and not self.links:
            return None
        from fedfactor.privacy.transform_registry import agreed_channel

        return agreed_channel(
            self.links, self.make(), self.meta, run, secure=self.secure, noise=self.noise, folder=folder
        )

    def to_json(self) -> bytes:
        """Write as JSON, with a checksum of itself."""
        text = (json.dumps({"format": FORMAT, **asdict(self)}, indent=1) + "\n").encode().removeprefix(b"{\n")
        return b'{\n "sha256": "' + hashlib.sha256(text).hexdigest().encode() + b'",\n' + text

    @classmethod
    def of(cls, data: bytes) -> Agreement:
        """Read what :meth:`to_json` wrote, or refuse it when a bit changed."""
        checked = _CHECKED.match(data)
        if checked and hashlib.sha256(data[checked.end() :]).hexdigest().encode() != checked[1]:
            raise DataError("its checksum is wrong")
        raw: dict[str, Any] = json.loads(data)
        number = raw.pop("format", None)
        if checked:
            raw.pop("sha256")
        if number not in ((FORMAT,) if checked else (2,)):
            raise DataError(f"it is of format {str(number)[:40]}, and this version reads up to {FORMAT}")
        about: dict[str, Any] = raw.pop("meta")
        names = tuple(about.pop("clients"))
        for name in ("least", "limits", "links"):
            if name in raw:
                raw[name] = tuple(raw[name])
        return cls(**raw, meta=Meta(clients=names, **about))

    @classmethod
    def read(cls, folder: Path) -> Agreement:
        """Read the one of a party's or the server's folder, or of a result in it."""
        file = folder / "agreement.json"
        try:
            return cls.of(file.read_bytes())
        except FileNotFoundError:
            raise DataError(f"{folder} is no party's folder. Make one with fedfactor join.") from None
        except (DataError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(
                f"{file} cannot be read ({error}): another version of fedfactor wrote it, or it was changed. Take "
                "results out with the version that wrote it, and join again with a new folder."
            ) from None


@dataclass(frozen=True, slots=True)
class Kept:
    """What a client keeps with its last answer.

    The state before the step is among it, for the case that the answer comes too late and does not count; and, where
    sums are verified, what the protocol needs (see :mod:`fedfactor.network.verified_client`).
    """

    head: Head
    answer: bytes
    state: Tree = None
    before: Tree = None
    protocol: Tree = None


class ClientFolder:
    """One client's folder."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._refused = ("", 0)

    @cached_property
    def agreement(self) -> Agreement:
        """What the client signed up for."""
        return Agreement.read(self.folder)

    @cached_property
    def shard(self) -> Shard:
        """The rows, mapped from the disk."""
        about = self._about
        mapped = self._mapped
        if about["sparse"]:
            # SciPy has no types.
            from scipy.sparse import csr_array  # pyright: ignore[reportMissingTypeStubs, reportUnknownVariableType]

            parts = (mapped("data"), mapped("indices"), mapped("indptr"))
            X = cast("Any", csr_array)(parts, shape=tuple(about["shape"]))
        else:
            X = mapped("X")
        mask = mapped("mask") if about["mask"] == "array" else about["mask"]
        return Shard(X, mask, None)

    @cached_property
    def counted(self) -> np.ndarray | None:
        """Return which rows take part, where only some of each subject's do; None: all."""
        return self._mapped("counted") if "counted" in self._about["sha256"] else None

    def _mapped(self, name: str) -> Any:
        file = self.folder / "data" / f"{name}.npy"
        if file_digest(file) != self._about["sha256"][name]:
            raise CheckpointError(f"{file} is damaged: its checksum is wrong. Join with --replace-data.")
        return np.load(file, mmap_mode="r", allow_pickle=False)

    @cached_property
    def _about(self) -> dict[str, Any]:
        """What the rows are, and the checksum of each of their files."""
        return json.loads(read_checked(self.folder / "data" / "about.json"))

    @property
    def rows(self) -> str:
        """Fingerprint of the rows as they take part, after the agreed preprocessing."""
        return hashlib.sha256(json.dumps(self._about, sort_keys=True).encode()).hexdigest()

    @property
    def scope(self) -> str:
        """What keeps this party's releases under these terms apart from those of other federations in one ledger."""
        file = self.folder / IDENTIFIER
        if not file.exists():
            write_atomic(file, secrets.token_hex(16).encode())
        return hashlib.sha256(f"{file.read_text()}\0{self.agreement.terms}".encode()).hexdigest()[:32]

    @cached_property
    def sketch(self) -> list[str]:
        """The smallest digests of single rows, by which most of them are known again in another order or company."""
        X = self.shard.X
        mask = self.shard.mask
        digests: set[str] = set()
        for i in range(X.shape[0]):
            ends = slice(X.indptr[i], X.indptr[i + 1]) if self._about["sparse"] else None
            parts = [X[i]] if ends is None else [X.indices[ends], X.data[ends]]
            if isinstance(mask, np.ndarray):
                parts.append(mask[i])
            digests.add(hashlib.sha256(b"|".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest())
            if len(digests) > 64 * SKETCH:
                digests = set(sorted(digests)[:SKETCH])
        return [digest[:16] for digest in sorted(digests)[:SKETCH]]

    @property
    def answered(self) -> AnsweredCounts:
        """What these rows have answered, and how much more they may."""
        return AnsweredCounts(self.folder, self.rows, self.agreement.limits, self.witness)

    @property
    def witness(self) -> Witness | None:
        """The witness that records beside this folder what it answered and paid; None where the party has no such
        place.
        """
        file = self.folder / WITNESS
        return Witness(file.read_text()) if file.exists() else None

    @property
    def ledger(self) -> Ledger | None:
        """The books of these rows: where there are some already, or new ones where noise was agreed on."""
        from fedfactor.privacy.ledger import Ledger

        path = self.ledger_file
        noise = self.agreement.noise
        if not path.exists():
            if noise:  # the budget is that of one run, unless the client decided on another before
                made = Ledger(
                    path, epsilon=noise["epsilon"], delta=noise["delta"], unit=noise["unit"], witness=self.witness
                )
                made.belong(self.rows)
            elif (channel := self.agreement.channel()) is None or not channel.sender.noisy:
                return None
        return Ledger(path, witness=self.witness)

    @property
    def ledger_file(self) -> Path:
        """Where the books of these rows are kept, or would be."""
        elsewhere = self.folder / "ledger.path"
        return Path(elsewhere.read_text()) if elsewhere.exists() else self.folder / LEDGER

    def left(self) -> str:
        """Return how many runs and rounds are left."""
        return self.answered.left()

    def spent(self) -> str:
        """Return what these rows have cost of their budget; nothing where they have none."""
        ledger = self.ledger
        if ledger is None:
            return ""
        cost = f"ε = {ledger.epsilon():.3g} of {ledger.budget:g} is spent (δ = {ledger.delta:g}, unit {ledger.unit})"
        return f"Budget       {cost}; kept in {ledger.path}"

    @classmethod
    def make(
        cls, folder: str | os.PathLike[str], agreement: Agreement, shard: Shard, counted: np.ndarray | None = None
    ) -> ClientFolder:
        """Set a folder up: rows first, the agreement last, so that a half-made folder is not taken for a whole one.

        ``counted`` states which rows take part in rounds, where not all of them may.
        """
        store = cls(private_folder(folder))
        data = private_folder(store.folder / "data")
        X = shard.X
        mask = shard.mask
        parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr} if is_sparse(X) else {"X": X}
        if mask is not None and not isinstance(mask, str):
            parts["mask"] = mask
        if counted is not None:
            parts["counted"] = counted
        for name, array in parts.items():
            _write_npy(data / f"{name}.npy", array)
        kept = mask if mask is None or isinstance(mask, str) else "array"
        sums = {name: file_digest(data / f"{name}.npy") for name in parts}
        about = {"sparse": is_sparse(X), "shape": list(X.shape), "mask": kept, "sha256": sums}
        write_checked(data / "about.json", json.dumps(about).encode())
        write_atomic(store.folder / "agreement.json", agreement.to_json())
        return store

    @contextmanager
    def locked(self) -> Generator[None]:
        """Keep other processes of this client out: a killed one may still be on its way down."""
        handle = os.open(self.folder / "lock", os.O_CREAT | os.O_RDWR, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def load(self) -> Kept | None:
        """Return what was kept with the last answer; None at the start."""
        file = self.folder / "state.safetensors"
        if not file.exists():
            return None
        data = read_checked(file)
        try:
            head = Head.of(read_header(data, limit=1 << 30)[1]["letter"])
            tree = from_bytes(data)
            answer: bytes = tree.pop("answer").tobytes()
            # Version 0.2 also kept the bond of secure aggregation, which ended with its run.
            parts = {name: freeze(part) for name, part in tree.items() if name in ("state", "before", "protocol")}
            return Kept(head, answer, **parts)
        except (ValueError, KeyError) as error:
            raise CheckpointError(f"{file} is damaged ({error}). Restore it from a back-up, or join again.") from None

    def save(self, kept: Kept) -> None:
        """Keep states and answer together: a crash leaves the old ones or the new ones."""
        answer = np.frombuffer(kept.answer, np.uint8)
        tree = {"state": kept.state, "before": kept.before, "protocol": kept.protocol, "answer": answer}
        write_checked(self.folder / "state.safetensors", to_bytes(tree, {"letter": json.dumps(asdict(kept.head))}))

    def log(self, head: Head, answer: bytes, why: str = "") -> None:
        """Write down what is about to be sent: one line each, and the bytes in a file of their own.

        ``why`` is the reason of a refusal. It stays here: the server learns that there is one, and no more. All
        refusals have the same text, so their bytes are not kept; and only so many of a day are listed, because a
        hostile server could fill the disk with them.
        """
        if why and self._refusals_today() >= REFUSALS:
            return
        digest = hashlib.sha256(answer).hexdigest()
        file = private_folder(self.folder / "sent") / f"{digest}.safetensors"
        again = file.exists()
        if not again and not why:
            write_atomic(file, answer)
        line = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "run": head.run,
            "kind": head.kind,
            "index": head.index,
            "bytes": len(answer),
            "sha256": digest,
            "again": again,
        }
        if why:
            line["reason"] = why
        handle = os.open(self.folder / "sent.jsonl", os.O_CREAT | os.O_RDWR, 0o600)
        with os.fdopen(handle, "r+b") as file:
            whole = file.seek(0, os.SEEK_END)
            file.seek(max(whole - 1, 0))
            if file.read() not in (b"", b"\n"):  # a full disk or a power cut tore a line: what it is about never left
                file.seek(0)
                whole = file.truncate(file.read().rfind(b"\n") + 1)
            file.seek(whole)
            file.write((json.dumps(line) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())

    def _refusals_today(self) -> int:
        """Count a refusal, and return how many were listed today before it."""
        today = time.strftime("%Y-%m-%d", time.gmtime())
        if self._refused[0] != today:
            self._refused = (today, sum("reason" in line and line["time"].startswith(today) for line in self.sent()))
        before = self._refused[1]
        self._refused = (today, before + 1)
        return before

    @staticmethod
    def run_of(folder: Path) -> str:
        """Name the run that a folder of results is of; empty when there is none."""
        file = folder / "factors.safetensors"
        return read_header(file.read_bytes(), limit=1 << 30)[1].get("run", "") if file.exists() else ""

    def results(self) -> dict[str, Path]:
        """Find the results of all runs, the last one last."""
        older = [path for path in (self.folder / "runs").glob("*") if self.run_of(path)]
        older.sort(key=lambda path: (path / "factors.safetensors").stat().st_mtime)
        found = {path.name: path for path in older}
        last = self.run_of(self.folder / "result")
        return {**found, last: self.folder / "result"} if last else found

    def sent(self) -> list[dict[str, Any]]:
        """List what was sent, oldest first."""
        file = self.folder / "sent.jsonl"
        *whole, _torn = file.read_bytes().split(b"\n") if file.exists() else [b""]
        return [json.loads(line) for line in whole]


def _write_npy(path: Path, array: Any) -> None:
    """Save for mapping; written beside and moved into place, because the old file may be mapped right now."""
    draft = path.with_suffix(".part")
    handle = os.open(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        np.save(file, np.ascontiguousarray(array), allow_pickle=False)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)
