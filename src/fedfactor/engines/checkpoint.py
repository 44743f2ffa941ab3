"""A run on disk: one file, replaced atomically, from which a killed run resumes with identical results."""

from __future__ import annotations

import functools
import json
import platform
import zlib
from dataclasses import asdict, dataclass, replace
from importlib import import_module, metadata
from os import PathLike
from pathlib import Path
from typing import Any, cast

import numpy as np

from fedfactor.core.algorithm import Algorithm, Meta, Scatter, algorithm_tag, settings_of
from fedfactor.core.atomic_files import write_atomic
from fedfactor.core.client_data import HALVES, Federation, Shard
from fedfactor.core.errors import CheckpointError, ProtocolError
from fedfactor.core.former_identifiers import current_algorithm
from fedfactor.core.input_validation import is_sparse
from fedfactor.core.pytree import Tree, leaves, to_numpy
from fedfactor.core.run import RoundRecord
from fedfactor.core.wire import from_bytes, read_header, to_bytes


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where a run is kept, and how often it is written.

    The file holds every client's private state: it is readable by its owner only, and belongs in a simulation or on
    one's own disk, never on a wire.
    """

    folder: Path
    every: int = 1

    def __post_init__(self) -> None:
        """Refuse an interval that never comes."""
        if self.every < 1:
            raise ValueError(f"every={self.every} must be at least 1: the number of rounds between two checkpoints.")

    @classmethod
    def of(cls, where: Any) -> Checkpoint | None:
        """Take a folder, a ready Checkpoint, or None."""
        if where is None or isinstance(where, Checkpoint):
            return where
        folder: Any = where
        if not isinstance(where, (str, PathLike)):
            raise TypeError(f"checkpoint={folder!r} must be a folder, a Checkpoint, or None.")
        return cls(Path(folder))

    @property
    def file(self) -> Path:
        """The one file."""
        return Path(self.folder) / "run.safetensors"

    def save(self, snapshot: Snapshot) -> None:
        """Write a snapshot so that a reader finds the old one or the new one, never a part."""
        Path(self.folder).mkdir(mode=0o700, parents=True, exist_ok=True)
        write_atomic(self.file, snapshot.to_bytes(), mode=0o600)

    def accept_versions(self, threads: int) -> dict[str, tuple[Any, Any]]:
        """Let a kept run be resumed with the versions that are installed now; return what differed.

        The run no longer has the bits of an undisturbed one. What was paid for its rounds is not lost.
        """
        if not self.file.exists():
            return {}
        try:
            snapshot = Snapshot.from_bytes(self.file.read_bytes())
        except (ProtocolError, KeyError, ValueError) as error:
            raise CheckpointError(f"{self.file} is not a usable checkpoint ({error}).") from None
        kept = snapshot.fingerprint
        now = environment(threads)
        changed = {name: (kept.get(name), value) for name, value in now.items() if kept.get(name) != value}
        if changed:
            self.save(replace(snapshot, fingerprint={**kept, **now}))
        return changed

    def load(self, fingerprint: dict[str, Any]) -> Snapshot | None:
        """Read the snapshot, if there is one, and refuse it when it belongs to another run."""
        if not self.file.exists():
            return None
        try:
            snapshot = Snapshot.from_bytes(self.file.read_bytes())
        except (ProtocolError, KeyError, ValueError) as error:
            raise CheckpointError(
                f"{self.file} is not a usable checkpoint ({error}). Delete it to start again."
            ) from None
        kept = {**snapshot.fingerprint}
        if "algorithm" in kept:
            kept["algorithm"] = current_algorithm(kept["algorithm"])
        differing = _difference(kept, fingerprint)
        if differing:
            key, before, now = differing
            raise CheckpointError(
                f"{self.file} belongs to another run: its {key} was {before!r}, now it is {now!r}. Going on would not "
                "give the same bits. Use another folder, or delete this one."
            )
        return snapshot


def _difference(before: dict[str, Any], now: dict[str, Any], within: str = "") -> tuple[str, Any, Any] | None:
    """Find the first thing in which two fingerprints differ; what only one of them has, such as a noise, counts."""
    for key in (*now, *(key for key in before if key not in now)):
        both: list[Any] = [before.get(key), now.get(key)]
        if both[0] == both[1]:
            continue
        name = f"{within}{key}"
        if all(isinstance(part, dict) for part in both):
            return _difference(both[0], both[1], f"{name} of " if key == "data" else f"{name}.")
        return name, both[0], both[1]
    return None


FORMAT = 2
"""Of files of unfinished runs; raised whenever states or what stands beside them change."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything a run needs to go on: states, the last download, the history, and what it must match."""

    next_round: int
    server: Tree
    down: Tree
    clients: dict[str, Tree]
    history: tuple[RoundRecord, ...]
    fingerprint: dict[str, Any]
    ended: str = ""

    def to_bytes(self) -> bytes:
        """Write as safetensors with JSON beside the arrays."""
        names = sorted(self.clients)
        scatter = sorted(self.down.items) if isinstance(self.down, Scatter) else None
        tree = {
            "server": self.server,
            "down": self.down if scatter is None else {str(i): self.down.items[n] for i, n in enumerate(scatter)},
            "clients": {str(i): self.clients[name] for i, name in enumerate(names)},
        }
        about = {
            "format": FORMAT,
            "next_round": self.next_round,
            "clients": names,
            "scatter": scatter,
            # Whole attendance is the rule; a thousand names a round would swell the header.
            "history": [{**asdict(r), "participants": _but(r.participants, names)} for r in self.history],
            "fingerprint": self.fingerprint,
            "ended": self.ended,
        }
        text = json.dumps(about)
        return to_bytes(tree, {"about": text, "checksum": _checksum(text, tree)})

    @classmethod
    def from_bytes(cls, data: bytes) -> Snapshot:
        """Read what :meth:`to_bytes` wrote."""
        beside = read_header(data, limit=1 << 30)[1]
        about: Any = json.loads(beside["about"])
        if not isinstance(about, dict):
            raise ValueError("it is a message, but not one about a run")
        about = cast(dict[str, Any], about)
        if about.get("format", 1) != FORMAT:
            by = cast(dict[str, Any], about.get("fingerprint") or {}).get("fedfactor", "another version")
            raise ValueError(
                f"it was written by fedfactor {by}, whose unfinished runs this version cannot go on with: finish the "
                "run with that version, or start it again"
            )
        tree = from_bytes(data)
        if _checksum(beside["about"], tree) != beside["checksum"]:
            raise ValueError("its checksum is wrong: some of its bytes have changed")
        down = tree["down"]
        if about["scatter"] is not None:
            down = Scatter({name: down[str(i)] for i, name in enumerate(about["scatter"])})
        everyone = about["clients"]
        records: Any = (
            {
                **r,
                "participants": tuple(_but(r["participants"], None, everyone)),
                "rejected": tuple(r.get("rejected", ())),
            }
            for r in about["history"]
        )
        return cls(
            next_round=about["next_round"],
            server=tree["server"],
            down=down,
            clients={name: tree["clients"][str(i)] for i, name in enumerate(about["clients"])},
            history=tuple(RoundRecord(**r) for r in records),
            fingerprint=about["fingerprint"],
            ended=about["ended"],
        )


def _but(value: Any, usual: Any, instead: Any = None) -> Any:
    """Swap the usual value for a short one, or back."""
    same = list(value) == usual if value is not None and usual is not None else value is usual
    return instead if same else value


def environment(threads: int) -> dict[str, Any]:
    """Name what can change the last bit of a result: versions, and threads per product."""
    packages = ("fedfactor", "numpy", "scipy", "numba")
    found: dict[str, Any] = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "blas_threads": threads,
    }
    return found | {package: _version(package) for package in packages}


@functools.cache
def _version(package: str) -> str:
    """Return the version of a package; looking it up takes a millisecond."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "none"


def fingerprint(algorithm: Algorithm, federation: Federation, meta: Meta, seed: int, threads: int) -> dict[str, Any]:
    """Name all that a resumed run must share with the run that was interrupted."""
    digests = {name: _digest(federation.shard(name)) for name in meta.clients}
    about = {
        "algorithm": algorithm_tag(type(algorithm)),
        "settings": settings_of(algorithm),
        "seed": seed,
        "dtype": meta.dtype,
        "features": meta.n_features,
        "clients": list(meta.clients),
        "data": digests,
        **environment(threads),
    }
    return json.loads(json.dumps(about, default=str))


def _checksum(text: str, tree: Tree) -> str:
    crc = zlib.crc32(text.encode())
    for path, leaf in leaves(tree):
        crc = zlib.crc32(to_numpy(leaf).data, zlib.crc32(path.encode(), crc))
    return f"{crc:08x}"


def _digest(shard: Shard) -> str:
    # Enough to notice the wrong file, or rows in another order; it is not meant to withstand an attacker.
    rows = getattr(shard.X, "rows", shard.X)
    mask = shard.mask
    if shard.dtype in HALVES:
        rows = rows.view(import_module("torch").int16)  # NumPy has no type for some halves
    if "sparse_csr" in str(getattr(rows, "layout", "")):
        parts = [rows.values(), rows.col_indices(), rows.crow_indices()]
    else:
        parts = [rows.data, rows.indices, rows.indptr] if is_sparse(rows) else [rows]
    if mask is not None:
        parts.append(np.asarray(mask == "stored") if isinstance(mask, str) else mask)
    crc = 0
    for part in parts:
        crc = zlib.crc32(to_numpy(part).data, crc)
    return f"{tuple(rows.shape)} {crc:08x}"
