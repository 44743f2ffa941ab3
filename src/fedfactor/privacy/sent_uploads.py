"""Noised uploads, kept until the run has moved on: what went out once goes out again, byte for byte, or not at all.

Noise that is drawn twice for one round, and paid for once, has a mean with less of it. So a round is sealed before it
is opened: ``releases.jsonl``, which only grows, names the run, the folder that it belongs to, and the digest of every
parcel of a sealed round. Where the folder is a copy, or parcels of a sealed round are gone or others, nothing goes on.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from fedfactor.core.algorithm import Round
from fedfactor.core.atomic_files import private_folder, write_atomic
from fedfactor.core.checksummed_files import read_checked, write_checked
from fedfactor.core.errors import CheckpointError
from fedfactor.core.flattened_upload import Parcel
from fedfactor.core.hash_chain import Chain
from fedfactor.core.transforms import Site
from fedfactor.core.wire import from_bytes, to_bytes
from fedfactor.privacy.minimums import RefusedError

__all__ = ["Outbox", "run_name"]


def run_name(folder: Path | None) -> str:
    """Name a run; one that is kept in a folder finds its name there again.

    The name stands in the first line of what the run released: who deletes that gets another name, and pays again.
    """
    if folder is None:
        return secrets.token_hex(8)
    chain = _releases(private_folder(folder))
    with chain.alone():
        if not chain.lines():
            chain.append({"run": secrets.token_hex(8), "place": _place(folder)})
        return str(chain.lines()[0]["run"])


def _releases(folder: Path) -> Chain:
    return Chain(folder / "releases.jsonl")


def _place(folder: Path) -> list[int]:
    """Distinguish a folder from its copies."""
    about = folder.stat()
    return [about.st_dev, about.st_ino]


class _Lock:
    """Keeps other processes out of a folder for as long as this process needs it."""

    def __init__(self, folder: Path) -> None:
        self._handle = os.open(folder / "outbox.lock", os.O_CREAT | os.O_RDWR, 0o600)
        with contextlib.suppress(ImportError):
            import fcntl

            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise CheckpointError(
                    f"Another process is at work in {folder}: the two would draw different noise for one round. Wait "
                    "until it has ended, or use another folder."
                ) from None

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._handle)


_held: WeakValueDictionary[str, _Lock] = WeakValueDictionary()


def _lock(folder: Path) -> _Lock:
    name = str(folder.resolve())
    lock = _held.get(name)
    if lock is None:
        lock = _held[name] = _Lock(folder)
    return lock


class Outbox:
    """The noised uploads of one run, by round and client, and what was done with them.

    Parameters
    ----------
    folder : Path
        Where the run is kept. No other process may work there meanwhile.
    run : str
        Its name, from :func:`run_name`.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self._parent = private_folder(folder)
        self._lock = _lock(self._parent)
        self._folder = private_folder(self._parent / "outbox")
        self._run = run
        self._chain = _releases(self._parent)
        with self._chain.alone():
            if not self._chain.lines():
                self._chain.append({"run": run, "place": _place(self._parent)})
        first, *others = self._chain.lines()
        if first["place"] != _place(self._parent):
            raise CheckpointError(
                f"{folder} is a copy of the folder in which this run began, or was put back from one. Noise that the "
                "other may have drawn since is not known here, and a second draw would go unpaid. Begin a new run in "
                "another folder."
            )
        self._sealed: dict[int, dict[str, Any]] = {int(line["round"]): line for line in others}
        self._kept: dict[int, dict[str, str]] = {}

    def _name(self, site: Site) -> str:
        return hashlib.sha256(f"{self._run}\0{site.name}".encode()).hexdigest()[:16]

    def _file(self, site: Site) -> Path:
        return self._folder / f"{site.at.index:06d}-{self._name(site)}.safetensors"

    @property
    def settled(self) -> int:
        """First round whose parcels were not deleted yet."""
        file = self._folder / "settled"
        return int(file.read_text()) if file.exists() else -1

    def find(self, site: Site) -> Parcel | None:
        """Return what this client sent in this round, if it did; refuse a round that was sealed and is not here."""
        index = site.at.index
        file = self._file(site)
        sealed = self._sealed.get(index, {"parcels": {}})["parcels"].get(self._name(site))
        if index < self.settled or (sealed is not None and not file.exists()):
            raise CheckpointError(
                f"Round {index} was released before and its uploads are gone, and noise must not be drawn for it again "
                f"under the same entry of the ledger. Use another folder than {self._parent}: the run is then a new "
                "one, and the ledger of the data set counts it."
            )
        if not file.exists():
            return None
        data = read_checked(file)
        digest = hashlib.sha256(data).hexdigest()
        if sealed not in (None, digest):
            raise CheckpointError(
                f"{file} is not what was released in round {index}. Restore it, or begin a new run in another folder."
            )
        self._kept.setdefault(index, {})[self._name(site)] = digest
        return Parcel.of(from_bytes(data))

    def keep(self, site: Site, parcel: Parcel) -> None:
        """Write a parcel down; returns when it is on the disk."""
        data = to_bytes(parcel.tree())
        write_checked(self._file(site), data)
        self._kept.setdefault(site.at.index, {})[self._name(site)] = hashlib.sha256(data).hexdigest()

    def release(self, at: Round, present: Sequence[str]) -> None:
        """Seal a round before it is opened: who is in it, and what each one sent. Refuse to open it with others in it.

        Two sums of the same parcels differ by the parcel of the one who is missing, and that holds only a share of the
        noise.
        """
        names = sorted(present)
        before = self._sealed.get(at.index)
        if before is None:
            line = {"round": at.index, "cohort": names, "parcels": self._kept.get(at.index, {})}
            with self._chain.alone():
                self._chain.append(line)
            self._sealed[at.index] = line
        elif before["cohort"] != names:
            odd = min(set(before["cohort"]) ^ set(names))
            raise RefusedError(
                f"The sum of round {at.index} was opened before, and {odd!r} has come or gone since: the difference of "
                "the two sums would show one upload with too little noise. Go on when the same clients are there, or "
                "begin a new run in another folder."
            )

    def forget(self, before: int) -> None:
        """Delete what rounds before this one sent: a checkpoint has them behind it."""
        write_atomic(self._folder / "settled", str(max(before, self.settled)).encode())
        for file in self._folder.glob("[-0-9]*-*"):
            if int(file.name[:6]) < before:
                file.unlink(missing_ok=True)
