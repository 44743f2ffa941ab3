"""Checkpoints of an MPI job: one file per rank and generation, so that a kill between two ranks loses nothing."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedfactor.core.algorithm import Algorithm, Meta
from fedfactor.core.atomic_files import write_atomic
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import CheckpointError, ProtocolError
from fedfactor.core.wire import read_header
from fedfactor.engines.checkpoint import Checkpoint, Snapshot, fingerprint
from fedfactor.engines.mpi.collectives import Collectives

_NAME = re.compile(r"round-(\d+)\.rank-(\d+)\.safetensors")


class RankCheckpoints:
    """Writes ``round-N.rank-R.safetensors``; an older generation goes only when every rank has written the new one."""

    def __init__(self, checkpoint: Checkpoint, group: Collectives) -> None:
        self.folder = Path(checkpoint.folder)
        self.every = checkpoint.every
        self.group = group
        self.last = 0

    def _file(self, number: int) -> Path:
        return self.folder / f"round-{number}.rank-{self.group.rank}.safetensors"

    def _mine(self) -> dict[int, Path]:
        found: dict[int, Path] = {}
        for path in self.folder.glob("round-*.safetensors"):
            match = _NAME.fullmatch(path.name)
            if match and int(match[2]) == self.group.rank:
                found[int(match[1])] = path
        return found

    def save(self, snapshot: Snapshot) -> None:
        """Write this rank's part, wait for the others, and drop what is older."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(self._file(snapshot.next_round), snapshot.to_bytes(), mode=0o600)
        self.group.comm.Barrier()
        self.last = snapshot.next_round
        for number, path in self._mine().items():
            if number != snapshot.next_round:
                path.unlink()

    def _refuse_foreign(self) -> None:
        """Refuse, on every rank, files of a job with another number of ranks: ours would be mixed up with them."""
        files = [path for path in self.folder.glob("round-*") if _NAME.fullmatch(path.name)]
        counts: list[int] = [_about(path)["fingerprint"].get("ranks", 0) for path in files]
        odd = self.group.tell_all(next((count for count in counts if count != self.group.size), None))
        if odd is not None:
            raise CheckpointError(
                f"{self.folder} was written by a job of {odd} ranks, but this one has {self.group.size}. Start {odd} "
                "ranks, use another folder, or delete this one."
            )

    def load(self, fingerprint: dict[str, Any]) -> Snapshot | None:
        """Read the newest generation that every rank has; refuse it on all ranks when any rank's part does not fit."""
        mine = self._mine()
        everywhere: list[list[int]] = self.group.hear_all(sorted(mine))
        common = set(mine).intersection(*everywhere)
        if not common:
            self._refuse_foreign()
            return None
        newest = max(common)
        problem = ""
        snapshot = None
        try:
            snapshot = Snapshot.from_bytes(mine[newest].read_bytes())
            differing = [key for key in fingerprint if snapshot.fingerprint.get(key) != fingerprint[key]]
            if differing:
                key = differing[0]
                problem = (
                    f"belongs to another run: its {key} was {snapshot.fingerprint.get(key)!r}, now {fingerprint[key]!r}"
                )
        except (ProtocolError, KeyError, ValueError) as error:
            problem = f"is not usable ({error})"
        for rank, text in enumerate(self.group.hear_all(problem)):
            if text:
                name = f"round-{newest}.rank-{rank}.safetensors"
                raise CheckpointError(f"{self.folder / name} {text}. Use another folder, or delete this one.")
        self.last = newest
        return snapshot


def mark_of(
    algorithm: Algorithm, mine: Federation | None, meta: Meta, seed: int, threads: int, group: Collectives
) -> dict[str, Any]:
    """Name all that a resumed rank must share with the rank that was interrupted."""
    own = mine.names if mine is not None else ()
    about = fingerprint(algorithm, mine, replace(meta, clients=own), seed, threads)  # type: ignore[arg-type]
    return {**about, "ranks": group.size, "everyone": list(meta.clients)}


def progress(folder: Path) -> tuple[int, int] | None:
    """Return the seed and the next round of an unfinished MPI job, from any rank's newest file."""
    found = [(int(match[1]), path) for path in folder.glob("round-*") if (match := _NAME.fullmatch(path.name))]
    if not found:
        return None
    number, path = max(found)
    return int(_about(path)["fingerprint"]["seed"]), number


def _about(path: Path) -> dict[str, Any]:
    try:
        about: dict[str, Any] = json.loads(read_header(path.read_bytes(), limit=1 << 30)[1]["about"])
        return {**about, "fingerprint": dict(about["fingerprint"])}
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is damaged ({error}). Delete it, or start again.") from None
