"""An asynchronous MPI run: rank 0 merges what arrives and answers at once, the others never wait for each other."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from fedfactor.core.algorithm import Algorithm, LocalFactors, Meta, Round
from fedfactor.core.client_data import Federation
from fedfactor.core.pytree import Tree, freeze
from fedfactor.core.run import RoundRecord, Run, Status
from fedfactor.core.wire import receive, to_bytes
from fedfactor.engines.callbacks import Callbacks
from fedfactor.engines.checkpoint import Snapshot
from fedfactor.engines.mpi.collectives import Collectives, frames, unframe
from fedfactor.engines.mpi.rounds import OwnClients
from fedfactor.engines.round import Receiving, Rounds, receive_bytes

UPLOAD = 11
REPLY = 12
NAP = 1e-4
"""Seconds between two looks for messages: a rank that spins would take the core from one that works."""


class StreamClients(OwnClients):
    """All that one rank needs; rank 0 has the server and no clients."""

    def __init__(self, group: Collectives, algorithm: Algorithm, mine: Federation | None, meta: Meta) -> None:
        super().__init__(group, algorithm, mine, meta)
        self.holds_server = group.rank == 0
        self._arrived: deque[tuple[int, str, bytes]] = deque()
        self._seen = set[int]()
        self._held = list[int]()
        self._replies = list[Any]()
        self._began = time.perf_counter()
        self._clock = 0.0

    def run(self, rounds: int, seed: int, callbacks: Callbacks, threads: int) -> Run:
        """Serve or work until clients have taken ``rounds`` steps on average."""
        loop = Rounds(self.algorithm, self.meta, self, rounds * self.meta.n_clients, seed, callbacks=callbacks)
        told: Any = None
        if self.holds_server:
            status = loop.stream(self._take)
            assert loop.snapshot is not None
            self._end(loop.snapshot)
            told = [status, [asdict(record) for record in loop.snapshot.history]]
        else:
            self._work(loop.begin().down, seed)
        heard: tuple[Status, list[dict[str, Any]]] = self.group.tell_all(told)
        status, records = heard
        for each in records:
            each |= {"participants": tuple(each["participants"]), "rejected": tuple(each["rejected"])}
        return self._finish(loop, tuple(RoundRecord(**each) for each in records), status, threads)

    def _finish(self, loop: Rounds, history: tuple[RoundRecord, ...], status: Status, threads: int) -> Run:
        snapshot = loop.snapshot
        assert snapshot is not None
        down = freeze(self.algorithm.settle(snapshot.server, snapshot.down)) if self.holds_server else None
        data = self.group.from_root(to_bytes(down) if self.holds_server else None)
        down = freeze(receive(data, self.expected))
        loop.snapshot = replace(snapshot, down=down, history=history)
        run = loop.finish(status, threads, None if self.federation is None else self.federation.feature_names)
        if self.holds_server and hasattr(down, "V"):
            empty = np.zeros((0, np.shape(down.V)[0]))
            run = replace(run, factors={"": LocalFactors(empty, down.V)})
        return run

    def exchange(self, down: Tree, at: Round, receiver: Receiving) -> None:
        """Refuse: there are no rounds here."""
        raise NotImplementedError

    def note(self, record: RoundRecord, server: Tree, down: Tree) -> RoundRecord:
        """Record the time."""
        before = self._clock
        self._clock = time.perf_counter() - self._began
        metrics = {**record.metrics, "clock": self._clock}
        return replace(record, metrics=metrics, seconds=self._clock - before)

    # ------------------------------------------------------------------ rank 0
    def _take(self, loop: Rounds, snapshot: Snapshot) -> Snapshot:
        """Merge the next upload; those who wait are answered with the newest whenever nothing else has come."""
        began = time.perf_counter()
        if not self._arrived:
            if len(self._seen) == self.group.size - 1:  # the first exchange is a barrier: no rank runs ahead of it
                self._answer(frames([("go on", to_bytes(snapshot.down))]))
            self._listen()
        source, name, data = self._arrived.popleft()
        self._seen.add(source)
        self._held.append(source)

        def hand(to: Receiving) -> None:
            if data:  # nothing comes from a client that stayed away
                receive_bytes(to, name, data, self.uploads)

        return loop.arrival(snapshot, name, hand, began)

    def _answer(self, answer: bytes) -> None:
        data = [np.frombuffer(answer, np.uint8), self.group.MPI.BYTE]
        self._replies += [self.group.comm.Isend(data, source, REPLY) for source in self._held]
        self.group.sent += len(answer) * len(self._held)
        self._held = []

    def _end(self, snapshot: Snapshot) -> None:
        """Notify every rank, at its next upload, that no further one is needed."""
        working = self.group.size - 1
        while True:
            self._held += [source for source, _, _ in self._arrived]
            self._arrived.clear()
            working -= len(self._held)
            self._answer(frames([("end", b"")]))
            if not working:
                break
            self._listen()
        self.group.MPI.Request.Waitall(self._replies)

    def _listen(self) -> None:
        """Wait until something has come, then take all there is."""
        MPI = self.group.MPI
        comm = self.group.comm
        status = MPI.Status()
        while True:
            if not comm.Iprobe(MPI.ANY_SOURCE, UPLOAD, status):
                if self._arrived:
                    return
                time.sleep(NAP)
                continue
            data = np.empty(status.Get_count(MPI.BYTE), np.uint8)
            source: int = status.Get_source()
            comm.Recv([data, MPI.BYTE], source, UPLOAD)
            ((name, up),) = unframe(data.tobytes())
            self._arrived.append((source, name, up))

    # ------------------------------------------------------------------ other ranks
    def _work(self, down: Tree, seed: int) -> None:
        step = 0
        while True:
            for name in self.names:
                up = self.step(name, down, Round(seed, step, participants=(name,)))
                # One that stays away says so: a silent rank would be waited for without end.
                word, data = unframe(self._ask(frames([(name, b"" if up is None else to_bytes(up))])))[0]
                if word == "end":
                    return
                down = freeze(receive(data, self.expected))
            step += 1

    def _ask(self, data: bytes) -> bytes:
        MPI = self.group.MPI
        comm = self.group.comm
        self.group.sent += len(data)
        sending = comm.Isend([np.frombuffer(data, np.uint8), MPI.BYTE], 0, UPLOAD)
        status = MPI.Status()
        while not comm.Iprobe(0, REPLY, status):
            time.sleep(NAP)
        answer = np.empty(status.Get_count(MPI.BYTE), np.uint8)
        comm.Recv([answer, MPI.BYTE], 0, REPLY)
        sending.Wait()
        return answer.tobytes()

    # ------------------------------------------------------------------ all
    def publish(self, told: Any, down: Tree) -> Any:
        """Nothing: the answer to each client is its own, and the history is recorded at the end."""
        return told, down

    def failure(self, error: BaseException, saved: int | None) -> str:
        """Return where and why the job ended."""
        what = "the server" if self.group.rank == 0 else f"owners {', '.join(self.names)}"
        where = f"rank {self.group.rank} of {self.group.size} ({what})"
        return f"{where} failed, so the job ends: {type(error).__name__}: {error}"
