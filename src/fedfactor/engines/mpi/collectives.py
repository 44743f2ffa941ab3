"""The ranks of an MPI job: few collectives, on plain buffers, with every byte that this rank hands over counted."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

import numpy as np

from fedfactor.core.errors import FedfactorError, MissingExtraError
from fedfactor.core.pytree import Tree, leaves, to_numpy, tree_map

LAUNCHERS = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MPI_LOCALNRANKS", "PMIX_SIZE", "SLURM_STEP_NUM_TASKS")
"""What launchers pass to their processes about the size of the job; the last is of ``srun``, and not of a batch script.
"""


def launched() -> int:
    """Return how many processes the launcher started; 1 without a launcher.

    Examples
    --------
    >>> launched()
    1
    """
    return max((int(os.environ[name]) for name in LAUNCHERS if os.environ.get(name, "").isdigit()), default=1)


class CollectiveError(FedfactorError, RuntimeError):
    """The MPI job is not the one that was asked for."""


class Collectives:
    """Wraps a communicator of mpi4py.

    Parameters
    ----------
    MPI : module
        ``mpi4py.MPI``.
    comm : communicator
        Usually ``MPI.COMM_WORLD``, duplicated so that our messages never meet those of others.
    """

    def __init__(self, MPI: Any, comm: Any) -> None:
        self.MPI = MPI
        self.comm = comm.Dup()
        self.rank: int = self.comm.Get_rank()
        self.size: int = self.comm.Get_size()
        self.sent = 0

    def check_size(self, asked: int | None) -> None:
        """Refuse a job of another size than requested, and one whose launcher uses another MPI than mpi4py."""
        told = launched()
        if self.size == 1 and told > 1:
            raise CollectiveError(
                f"The launcher started {told} processes, but MPI sees only this one: launcher and MPI library do not "
                f"belong together ({self.MPI.Get_library_version().splitlines()[0]}). Use the mpiexec that came "
                "with mpi4py's library, in the bin folder of this Python environment; with srun, choose the interface "
                "that the library was built for: srun --mpi=pmi2 or --mpi=pmix."
            )
        if asked is not None and asked != self.size:
            raise CollectiveError(
                f"{asked} ranks were asked for, but the job has {self.size}. Start it with mpiexec -n {asked}."
            )

    def ranks_here(self) -> tuple[int, int]:
        """Count the ranks on this machine, which share its cores and its GPUs, and state which of them this one is."""
        here = self.comm.Split_type(self.MPI.COMM_TYPE_SHARED)
        count: int = here.Get_size()
        place: int = here.Get_rank()
        here.Free()
        return count, place

    def part(self, ranks: Sequence[int]) -> Collectives:
        """Make a communicator of some ranks, this one among them; each of them must call this, and no other party."""
        members = self.comm.Get_group().Incl(list(ranks))
        comm = self.comm.Create_group(members)
        found = Collectives(self.MPI, comm)
        comm.Free()
        members.Free()
        return found

    def add_up(self, buffer: np.ndarray) -> np.ndarray:
        """Add buffers of all ranks, in whatever order MPI finds fast."""
        total = np.empty_like(buffer)
        self.sent += buffer.nbytes
        self.comm.Allreduce(buffer, total, op=self.MPI.SUM)
        return total

    def all_bytes(self, data: bytes) -> list[bytes]:
        """Send the bytes of every rank to all ranks, in rank order."""
        sizes = np.empty(self.size, np.int64)
        self.comm.Allgather(np.array([len(data)], np.int64), sizes)
        whole = np.empty(int(sizes.sum()), np.uint8)
        starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
        self.sent += len(data) + 8
        self.comm.Allgatherv(np.frombuffer(data, np.uint8), [whole, (sizes, starts), self.MPI.BYTE])
        return [whole[a : a + n].tobytes() for a, n in zip(starts, sizes, strict=True)]

    def to_root(self, data: bytes) -> list[bytes]:
        """Bring bytes of all ranks to rank 0; other ranks get nothing."""
        sizes = np.empty(self.size, np.int64) if self.rank == 0 else None
        self.comm.Gather(np.array([len(data)], np.int64), sizes, root=0)
        self.sent += (len(data) + 8) * (self.rank != 0)
        if sizes is None:
            self.comm.Gatherv(np.frombuffer(data, np.uint8), None, root=0)
            return []
        whole = np.empty(int(sizes.sum()), np.uint8)
        starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
        self.comm.Gatherv(np.frombuffer(data, np.uint8), [whole, (sizes, starts), self.MPI.BYTE], root=0)
        return [whole[a : a + n].tobytes() for a, n in zip(starts, sizes, strict=True)]

    def from_root(self, parts: Sequence[bytes] | bytes | None) -> bytes:
        """Send bytes from rank 0: one for each rank, or the same for all."""
        many = np.array([0 if isinstance(parts, bytes) else 1], np.int64)
        self.comm.Bcast(many, root=0)
        if many[0]:
            return self._scatter(parts if not isinstance(parts, bytes) else None)
        size = np.array([len(parts) if isinstance(parts, bytes) else 0], np.int64)
        self.comm.Bcast(size, root=0)
        whole = (
            np.frombuffer(bytearray(parts), np.uint8) if isinstance(parts, bytes) else np.empty(int(size[0]), np.uint8)
        )
        self.sent += (int(size[0]) + 16) * (self.rank == 0)
        self.comm.Bcast(whole, root=0)
        return whole.tobytes()

    def _scatter(self, parts: Sequence[bytes] | None) -> bytes:
        size = np.empty(1, np.int64)
        sizes = None if parts is None else np.array([len(part) for part in parts], np.int64)
        self.comm.Scatter(sizes, size, root=0)
        mine = np.empty(int(size[0]), np.uint8)
        if parts is None or sizes is None:
            self.comm.Scatterv(None, mine, root=0)
            return mine.tobytes()
        whole = np.frombuffer(b"".join(parts), np.uint8)
        self.sent += int(sizes.sum())
        starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
        self.comm.Scatterv([whole, (sizes, starts), self.MPI.BYTE], mine, root=0)
        return mine.tobytes()

    def tell_all(self, value: Any) -> Any:
        """Send a value of rank 0 to all ranks, as JSON."""
        return json.loads(self.from_root(json.dumps(value).encode() if self.rank == 0 else None))

    def hear_all(self, value: Any) -> list[Any]:
        """Send the values of all ranks to all ranks, as JSON."""
        return [json.loads(data) for data in self.all_bytes(json.dumps(value).encode())]

    def flag(self, value: int) -> int:
        """Send one small number of rank 0 to all ranks."""
        box = np.array([value], np.int8)
        self.comm.Bcast(box, root=0)
        return int(box[0])

    def abort(self, message: str) -> NoReturn:
        """End the whole job, now, with a message: waiting for a rank that will never come is worse."""
        sys.stderr.write(f"\nfedfactor: {message}\n")
        sys.stderr.flush()
        sys.stdout.flush()
        self.comm.Abort(1)
        raise SystemExit(1)


def missing(error: Exception) -> MissingExtraError:
    """Return which package is missing, or that it found no MPI library."""
    if isinstance(error, ImportError) and "mpi4py" in str(error) and "cannot load" not in str(error):
        return MissingExtraError.named("mpi4py", "mpi", "The MPI engine")
    return MissingExtraError(
        f"mpi4py found no MPI library ({error}). Run: pip install mpi4py mpich, which brings MPICH, or load your "
        "cluster's MPI module."
    )


def frames(parts: Iterable[tuple[str, bytes]]) -> bytes:
    """Write named byte strings as one."""
    parts = list(parts)
    head = json.dumps([[name, len(data)] for name, data in parts]).encode()
    return b"".join([len(head).to_bytes(8, "little"), head, *(data for _, data in parts)])


def unframe(data: bytes) -> list[tuple[str, bytes]]:
    """Read what :func:`frames` wrote.

    Examples
    --------
    >>> unframe(frames([("a", b"12"), ("b", b"")]))
    [('a', b'12'), ('b', b'')]
    """
    size = int.from_bytes(data[:8], "little")
    position = 8 + size
    found: list[tuple[str, bytes]] = []
    for name, length in json.loads(data[8:position]):
        found.append((name, data[position : position + length]))
        position += length
    return found


def pack_kinds(tree: Tree) -> dict[str, np.ndarray]:
    """Lay the leaves of each dtype end to end: one buffer, so one collective, where all leaves are alike.

    Examples
    --------
    >>> from fedfactor.core.algorithm import Score
    >>> pack_kinds(Score.of(1, 2, 3))
    {'float64': array([1., 2., 3.])}
    """
    found: dict[str, list[np.ndarray]] = {}
    for _, leaf in leaves(tree):
        array = to_numpy(leaf)
        found.setdefault(str(array.dtype), []).append(array.ravel())
    return {kind: np.concatenate(found[kind]) for kind in sorted(found)}


def unpack_kinds(buffers: dict[str, np.ndarray], like: Tree) -> Tree:
    """Cut buffers made by :func:`pack_kinds` into leaves of the shapes of ``like``."""
    position = dict.fromkeys(buffers, 0)

    def cut(leaf: Any) -> np.ndarray:
        array = to_numpy(leaf)
        kind, start = str(array.dtype), position[str(array.dtype)]
        position[kind] = start + array.size
        return buffers[kind][start : start + array.size].reshape(array.shape)

    return tree_map(cut, like)
