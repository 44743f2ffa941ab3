"""One asynchronous MPI run: rank 0 merges what arrives and answers at once, the others never wait for each other."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fedfactor.core.errors import IncompatibleError
from fedfactor.core.federation import Federation
from fedfactor.core.protocol import Algorithm, LocalFactors, Meta, Round, Score, download_for
from fedfactor.core.run import RoundRecord, Run, Status
from fedfactor.core.tree import Tree, freeze, nbytes
from fedfactor.core.wire import Spec, check_message, receive, to_bytes
from fedfactor.engines import client
from fedfactor.engines.base import Inbox, Participation
from fedfactor.engines.checkpoint import environment
from fedfactor.engines.mpi.collectives import Collectives, frames, unframe
from fedfactor.engines.watch import Watchers

UPLOAD, REPLY = 11, 12
NAP = 1e-4
"""Seconds between two looks for mail: a rank that spins would take the core from one that works."""


@dataclass
class AsyncJob:
    """All that one rank needs; rank 0 has the server and no owners."""

    engine: Any
    world: Collectives
    algorithm: Algorithm
    mine: Federation | None
    meta: Meta
    expected: dict[type, Spec]
    rounds: int
    seed: int
    participation: Participation
    threads: int
    now: int = 0

    def __post_init__(self) -> None:
        if self.participation != 1.0:
            raise IncompatibleError("In an asynchronous run clients come when they are ready; participation must be 1.")
        self.uploads = {kind: spec for kind, spec in self.expected.items() if hasattr(kind, "uplink")}
        self.downloads = {kind: spec for kind, spec in self.expected.items() if not hasattr(kind, "uplink")}

    def run(self, checkpoint: Any, watch: Watchers, watched: bool) -> Run:
        """Serve or work until clients have taken ``rounds`` steps on average."""
        if checkpoint is not None:
            raise IncompatibleError("An asynchronous MPI run keeps no checkpoint: its moments do not come again.")
        total = self.rounds * self.meta.n_clients
        watch.start(self.algorithm, self.meta, total, 0)
        server, down = self.algorithm.init_server(self.meta, Round(self.seed, 0))
        states: dict[str, Tree] = {}
        if self.world.rank == 0:
            status, history, down = self._serve(freeze(server), freeze(down), total, watch)
            told: Any = [status, [asdict(record) for record in history]]
        else:
            states = self._work(freeze(down))
            told = None
        status, records = self.world.tell_all(told)
        entries: list[dict[str, Any]] = [
            {**entry, "participants": tuple(entry["participants"]), "rejected": ()} for entry in records
        ]
        history = tuple(RoundRecord(**entry) for entry in entries)
        data = self.world.from_root(to_bytes(down) if self.world.rank == 0 else None)
        return self._finish(states, freeze(receive(data, self.downloads)), status, history)

    # ------------------------------------------------------------------ rank 0
    def _serve(self, server: Tree, down: Tree, total: int, watch: Watchers) -> tuple[Status, list[RoundRecord], Tree]:
        began, history, status = time.perf_counter(), list[RoundRecord](), "rounds"
        working, replies = self.world.size - 1, list[Any]()
        seen, held, closing = set[int](), list[int](), False
        while working:
            for source, name, up in self._mail():
                seen.add(source)
                held.append(source)
                if closing:
                    continue
                server, down, record = self._merge(server, name, up, len(history), began, history)
                history.append(record)
                stop = watch.round(record)
                if stop or self.algorithm.converged(server):
                    closing, status = True, "stopped" if stop else "converged"
                closing = closing or len(history) >= total
            if len(seen) == self.world.size - 1:  # the first exchange is a barrier: nobody runs ahead of the start
                # The queue is empty now, so everybody gets the newest.
                answer = frames([("end" if closing else "go on", b"" if closing else to_bytes(down))])
                data = [np.frombuffer(answer, np.uint8), self.world.MPI.BYTE]
                replies += [self.world.comm.Isend(data, source, REPLY) for source in held]
                self.world.sent += len(answer) * len(held)
                working -= len(held) * closing
                held = []
        self.world.MPI.Request.Waitall(replies)
        return status, history, freeze(self.algorithm.settle(server, down))  # type: ignore[return-value]

    def _merge(
        self, server: Tree, name: str, up: Tree, index: int, began: float, history: list[RoundRecord]
    ) -> tuple[Tree, Tree, RoundRecord]:
        at = Round(self.seed, index, participants=(name,))
        inbox = Inbox(self.expected)
        inbox.add(name, up)
        server, down = self.algorithm.server_step(server, freeze(inbox.combined), at)
        server, down = freeze(server), freeze(down)
        check_message(down, self.expected)
        clock = time.perf_counter() - began
        metrics = {**self.algorithm.report(server), "clock": clock}
        seconds = clock - (history[-1].metrics["clock"] if history else 0.0)
        return server, down, RoundRecord(index, (name,), inbox.bytes_up, nbytes(down), seconds, metrics)

    def _mail(self) -> list[tuple[int, str, Tree]]:
        """Wait until something has come, then take all there is."""
        MPI, comm = self.world.MPI, self.world.comm
        status, found = MPI.Status(), list[tuple[int, str, Tree]]()
        while True:
            if not comm.Iprobe(MPI.ANY_SOURCE, UPLOAD, status):
                if found:
                    return found
                time.sleep(NAP)
                continue
            data = np.empty(status.Get_count(MPI.BYTE), np.uint8)
            source: int = status.Get_source()
            comm.Recv([data, MPI.BYTE], source, UPLOAD)
            ((name, up),) = unframe(data.tobytes())
            found.append((source, name, freeze(receive(up, self.uploads))))

    # ------------------------------------------------------------------ other ranks
    def _work(self, down: Tree) -> dict[str, Tree]:
        assert self.mine is not None
        names = self.mine.names
        shards = {name: self.mine.shard(name) for name in names}
        states = {n: client.begin(self.algorithm, shards[n], self.meta, self.seed, n) for n in names}
        while True:
            for name in names:
                at = Round(self.seed, self.now, name, participants=(name,))
                states[name], up = client.step(self.algorithm, shards[name], states[name], download_for(down, name), at)
                if up is None:
                    continue
                check_message(up, self.expected)
                answer = self._exchange(frames([(name, to_bytes(up))]))
                word, data = unframe(answer)[0]
                if word == "end":
                    return states
                down = freeze(receive(data, self.downloads))
            self.now += 1

    def _exchange(self, data: bytes) -> bytes:
        MPI, comm = self.world.MPI, self.world.comm
        self.world.sent += len(data)
        sending = comm.Isend([np.frombuffer(data, np.uint8), MPI.BYTE], 0, UPLOAD)
        status = MPI.Status()
        while not comm.Iprobe(0, REPLY, status):
            time.sleep(NAP)
        answer = np.empty(status.Get_count(MPI.BYTE), np.uint8)
        comm.Recv([answer, MPI.BYTE], 0, REPLY)
        sending.Wait()
        return answer.tobytes()

    # ------------------------------------------------------------------ all
    def _finish(self, states: dict[str, Tree], down: Tree, status: Status, history: Any) -> Run:
        factors: dict[str, LocalFactors] = {}
        told: dict[str, list[float]] = {}
        for name, state in states.items():
            assert self.mine is not None
            factors[name], score = client.end(self.algorithm, self.mine.shard(name), state, download_for(down, name))
            told[name] = [float(score.sse), float(score.n), float(score.total)]
        everyone = {name: figures for rank in self.world.hear_all(told) for name, figures in rank.items()}
        scores = {name: Score.of(*everyone[name]) for name in self.meta.clients}
        about = {**environment(self.threads), "ranks": self.world.size, "rank_sent_bytes": self.world.sent}
        features = self.mine.feature_names if self.mine is not None else None
        if self.world.rank == 0:
            empty = np.zeros((0, np.shape(down.V)[0])) if hasattr(down, "V") else None
            factors = {} if empty is None else {"": LocalFactors(empty, down.V)}
        return Run(self.algorithm, self.seed, status, history, factors, scores, down, about, features)

    def epitaph(self, error: BaseException) -> str:
        """Say where and why the job ended."""
        what = "the server" if self.world.rank == 0 else f"owners {', '.join(self.mine.names if self.mine else ())}"
        where = f"rank {self.world.rank} of {self.world.size} ({what})"
        return f"{where} failed, so the job ends: {type(error).__name__}: {error}"
