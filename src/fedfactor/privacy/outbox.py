"""Noised uploads, kept until the run has moved on: what went out once goes out again, byte for byte."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from fedfactor.core.errors import CheckpointError
from fedfactor.core.files import private_folder, write_atomic
from fedfactor.core.protocol import Round
from fedfactor.core.wire import from_bytes, to_bytes
from fedfactor.privacy.channel import Site
from fedfactor.privacy.flat_upload import Parcel
from fedfactor.privacy.minimums import RefusedError

__all__ = ["Outbox"]


class Outbox:
    """A folder of parcels by round and client.

    Drawing noise a second time for the same round would hand out two noisy copies of one value, and their mean has
    less noise than was paid for. So rounds whose parcels were deleted are refused for good.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self._folder = private_folder(Path(folder) / "outbox")
        self._run = run

    def _file(self, site: Site) -> Path:
        name = hashlib.sha256(f"{self._run}\0{site.name}".encode()).hexdigest()[:16]
        return self._folder / f"{site.at.index:06d}-{name}.safetensors"

    @property
    def settled(self) -> int:
        """First round whose parcels were not deleted yet."""
        file = self._folder / "settled"
        return int(file.read_text()) if file.exists() else -1

    def find(self, site: Site) -> Parcel | None:
        """Return what this client sent in this round, if it did; refuse a round that was sent and forgotten."""
        if site.at.index < self.settled:
            raise CheckpointError(
                f"Round {site.at.index} was released before, its checkpoint is gone, and noise must not be drawn for "
                f"it again under the same entry of the ledger. Use another folder than {self._folder.parent}: the run "
                "is then a new one, and the ledger of the data set counts it."
            )
        file = self._file(site)
        if not file.exists():
            return None
        return Parcel.of(from_bytes(file.read_bytes()))

    def keep(self, site: Site, parcel: Parcel) -> None:
        """Write a parcel down; returns when it is on the disk."""
        write_atomic(self._file(site), to_bytes(parcel.tree()))

    def release(self, at: Round, present: Sequence[str]) -> None:
        """Write down who is in the sum of a round, before it is opened; refuse to open it with others in it.

        Two sums of the same parcels differ by the parcel of the one who is missing, and that holds only a share of the
        noise.
        """
        file, names = self._folder / f"{at.index:06d}-cohort.json", sorted(present)
        if not file.exists():
            write_atomic(file, json.dumps(names).encode())
        elif (before := json.loads(file.read_text())) != names:
            odd = min(set(before) ^ set(names))
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
