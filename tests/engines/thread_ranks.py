"""The ranks of an MPI job as threads of this process: the few calls of mpi4py that the engine makes, on its buffers."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np

from fedfactor.engines.mpi.engine import MPIEngine


class Status:
    """Who sent what has come, and how much it is."""

    def Get_count(self, kind):
        return self.count

    def Get_source(self):
        return self.source


class Request:
    """A message on its way: it has arrived."""

    def Wait(self):
        return None

    @staticmethod
    def Waitall(requests):
        return None


MPI = SimpleNamespace(
    SUM="sum", BYTE="byte", COMM_TYPE_SHARED="shared", ANY_SOURCE=-1, Status=Status, Request=Request,
    Get_library_version=lambda: "threads of one process\n",
)  # fmt: skip


class Job:
    """What the ranks of one job share."""

    def __init__(self, size):
        self.size, self.meeting, self.said = size, threading.Barrier(size, timeout=30), [None] * size
        self.mail, self.lock = [[] for _ in range(size)], threading.Lock()
        self.teams = {}

    def team(self, ranks):
        """Return the job of some of the ranks, the same for all of them; it ends when this one does."""
        with self.lock:
            found = self.teams.setdefault(tuple(ranks), Job(len(ranks)))
            if self.meeting.broken:
                found.meeting.abort()
            return found

    def abort(self):
        with self.lock:
            for each in (self, *self.teams.values()):
                each.meeting.abort()


class Rank:
    """A communicator, as one rank holds it."""

    def __init__(self, job, rank):
        self.job, self.rank = job, rank

    def Dup(self):
        return self

    def Split_type(self, kind):
        return self

    def Free(self):
        return None

    def Get_group(self):
        return SimpleNamespace(Incl=lambda ranks: SimpleNamespace(ranks=ranks, Free=lambda: None))

    def Create_group(self, members):
        return Rank(self.job.team(members.ranks), members.ranks.index(self.rank))

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return self.job.size

    def _hear(self, value):
        """What every rank says, in rank order."""
        self.job.said[self.rank] = value
        self.job.meeting.wait()
        found = list(self.job.said)
        self.job.meeting.wait()
        return found

    def Barrier(self):
        self._hear(None)

    def Allreduce(self, mine, total, op):
        total[...] = sum(self._hear(mine.copy()))

    def Allgather(self, mine, whole):
        whole[...] = np.concatenate(self._hear(mine.copy()))

    def Allgatherv(self, mine, target):
        self._lay(self._hear(mine.copy()), target)

    def Gather(self, mine, whole, root):
        parts = self._hear(mine.copy())
        if self.rank == root:
            whole[...] = np.concatenate(parts)

    def Gatherv(self, mine, target, root):
        parts = self._hear(mine.copy())
        if self.rank == root:
            self._lay(parts, target)

    def _lay(self, parts, target):
        whole, (sizes, starts), _ = target
        for part, size, start in zip(parts, sizes, starts, strict=True):
            assert len(part) == size
            whole[start : start + size] = part

    def Bcast(self, box, root):
        box[...] = self._hear(box.copy())[root]

    def Scatter(self, sizes, size, root):
        size[...] = self._hear(None if sizes is None else sizes.copy())[root][self.rank]

    def Scatterv(self, source, mine, root):
        whole, (sizes, starts), _ = self._hear(source)[root]
        mine[...] = whole[starts[self.rank] : starts[self.rank] + sizes[self.rank]]

    def Abort(self, code):
        """End the job; a little later, since other ranks that found the same should say so, too."""
        threading.Timer(0.05, self.job.abort).start()

    def Isend(self, data, to, tag):
        with self.job.lock:
            self.job.mail[to].append((self.rank, tag, data[0].copy()))
        return Request()

    def _find(self, source, tag):
        with self.job.lock:
            mine = self.job.mail[self.rank]
            return next((each for each in mine if each[1] == tag and source in (each[0], MPI.ANY_SOURCE)), None)

    def Iprobe(self, source, tag, status):
        if self.job.meeting.broken:
            raise RuntimeError("another rank ended the job")
        found = self._find(source, tag)
        if found is not None:
            status.source, status.count = found[0], len(found[2])
        return found is not None

    def Recv(self, target, source, tag):
        found = self._find(source, tag)
        with self.job.lock:
            mine = self.job.mail[self.rank]
            del mine[next(i for i, each in enumerate(mine) if each is found)]
        target[0][...] = found[2]


def on_ranks(size, work):
    """Let every rank of a job do something; what each returned, or the error of the first that failed by itself."""
    job, done, failed = Job(size), [None] * size, {}

    def do(rank):
        try:
            done[rank] = work(Rank(job, rank))
        except BaseException as error:
            failed[rank] = error
            threading.Timer(0.05, job.abort).start()  # those who wait for this rank would wait in vain

    threads = [threading.Thread(target=do, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[min(failed, key=lambda rank: (isinstance(failed[rank], threading.BrokenBarrierError), rank))]
    return done


class ThreadedMPI:
    """An engine for the checks of engines: every run is a job of some ranks, and all ranks' factors come back."""

    channels = True

    def __init__(self, ranks=2, **settings):
        self.ranks, self.settings = ranks, settings

    def run(self, algorithm, federation, **options):
        runs = self.all_runs(algorithm, federation, **options)
        factors = {name: kept for run in runs for name, kept in run.factors.items()}
        return replace(runs[0], factors={name: factors[name] for name in sorted(factors)})

    def all_runs(self, algorithm, federation, **options):
        return on_ranks(
            self.ranks, lambda comm: MPIEngine(comm=comm, **self.settings).run(algorithm, federation, **options)
        )
