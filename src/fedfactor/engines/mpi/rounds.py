"""One MPI run in rounds, as seen from one rank."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from fedfactor.core.errors import ClientUnavailable, IncompatibleError
from fedfactor.core.federation import Federation
from fedfactor.core.protocol import Algorithm, LocalFactors, Meta, Round, Scatter, Score, download_for
from fedfactor.core.run import RoundRecord, Run, Status
from fedfactor.core.tree import Tree, freeze, nbytes, tree_sum
from fedfactor.core.wire import Spec, check_message, from_bytes, receive, to_bytes
from fedfactor.engines import client
from fedfactor.engines.base import Inbox, Participation, downloads, participants
from fedfactor.engines.checkpoint import Checkpoint, Snapshot, environment
from fedfactor.engines.mpi.checkpoints import RankCheckpoints, mark_of
from fedfactor.engines.mpi.collectives import Collectives, frames, pack_kinds, unframe, unpack_kinds
from fedfactor.engines.watch import Watchers
from fedfactor.threads import limit_threads, thread_limit


@dataclass
class RoundsJob:
    """All that one rank needs: its owners, the algorithm, the world, and where the server is."""

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
    kept: RankCheckpoints | None = None

    def __post_init__(self) -> None:
        if self.mine is None:  # pragma: no cover - ranks are never more than owners
            raise IncompatibleError("A rank without owners cannot take part in rounds.")
        uploads = [kind for kind in self.expected if hasattr(kind, "uplink")]
        self.replicated = self.engine.trusted and all(kind.uplink == "sum" for kind in uploads)  # type: ignore[attr-defined]
        self.lean = not self.engine.drop_outs and self.participation == 1.0
        # The reference lets the server use all threads, and the number of threads can show in the last bit.
        exact = not self.replicated or self.engine.reduction == "ordered"
        self.server_threads = thread_limit() if exact else self.threads
        self.holds_server = self.replicated or self.world.rank == 0
        self.own = self.mine.names
        self.states: dict[str, Tree] = {}

    def run(self, checkpoint: Any, watch: Watchers, watched: bool) -> Run:
        """Run all rounds."""
        self.watched = bool(self.world.flag(int(watched)))
        snapshot = self._begin(Checkpoint.of(checkpoint))
        watch.start(self.algorithm, self.meta, self.rounds, snapshot.next_round)
        status: Status = "rounds"
        while snapshot.next_round < self.rounds or snapshot.ended:
            if snapshot.ended:
                status = snapshot.ended  # type: ignore[assignment]
                break
            self.now = snapshot.next_round
            snapshot = self._round(snapshot)
            stop = watch.round(snapshot.history[-1])
            snapshot = replace(snapshot, ended=self._ended(snapshot, stop))
            if self.kept and (snapshot.next_round % self.kept.every == 0 or snapshot.ended):
                snapshot = replace(snapshot, clients=dict(self.states))
                self.kept.save(snapshot)
        return self._finish(snapshot, status)

    def _begin(self, checkpoint: Checkpoint | None) -> Snapshot:
        mark = {}
        if checkpoint is not None:
            mark = mark_of(self.algorithm, self.mine, self.meta, self.seed, self.threads, self.world)
            self.kept = RankCheckpoints(checkpoint, self.world)
            saved = self.kept.load(mark)
            if saved is not None:
                self.states = dict(saved.clients)
                return saved
        server, down = self.algorithm.init_server(self.meta, Round(self.seed, 0))
        for name in self.own:
            shard = self._shard(name)
            self.states[name] = client.begin(self.algorithm, shard, self.meta, self.seed, name)
        return Snapshot(0, freeze(server) if self.holds_server else None, self._checked(down), {}, (), mark)

    def _shard(self, name: str) -> Any:
        assert self.mine is not None
        return self.mine.shard(name)

    def _round(self, snapshot: Snapshot) -> Snapshot:
        began = time.perf_counter()
        index, down = snapshot.next_round, snapshot.down
        at = Round(self.seed, index)
        asked = participants(self.participation, at, self.meta.clients)
        at = replace(at, participants=asked)
        ups: dict[str, Tree] = {}
        for name in (name for name in self.own if name in set(asked)):
            here, part = replace(at, client=name), download_for(down, name)
            self.states[name], up = client.step(self.algorithm, self._shard(name), self.states[name], part, here)
            if up is not None:
                check_message(up, self.expected)
                ups[name] = up
            elif self.lean:
                raise ClientUnavailable(f"{name!r} stayed away; say MPIEngine(drop_outs=True) where that may happen.")
        bytes_down = downloads(down, [n for n in asked if n in self.own]) if isinstance(down, Scatter) else None
        take = self._replicated if self.replicated else self._rooted
        server, down_new, present, bytes_up, metrics = take(snapshot, ups, at)
        if bytes_down is None:
            bytes_down = downloads(down, asked)
        else:
            bytes_down = sum(self.world.hear_all(bytes_down))
        record = RoundRecord(index, present, bytes_up, bytes_down, time.perf_counter() - began, metrics)
        history = (*snapshot.history, record)
        return replace(snapshot, next_round=index + 1, server=server, down=down_new, history=history)

    # ------------------------------------------------------------------ the server on every rank
    def _replicated(self, snapshot: Snapshot, ups: dict[str, Tree], at: Round) -> tuple[Any, ...]:
        if self.lean:
            present, bytes_up = at.participants, nbytes(next(iter(ups.values()))) * len(at.participants)
            combined = self._ordered(ups) if self.engine.reduction == "ordered" else self._reduced(ups)
        else:
            parts = (unframe(data) for data in self.world.all_bytes(_framed(ups)))
            inbox = Inbox(self.expected)
            for name, data in sorted(pair for rank in parts for pair in rank):
                inbox.add(name, freeze(from_bytes(data)))
            present, bytes_up, combined = tuple(inbox.present), inbox.bytes_up, inbox.combined
        if not present:
            return snapshot.server, snapshot.down, present, 0, self.algorithm.report(snapshot.server)
        here = replace(at, participants=present)
        with limit_threads(self.server_threads):
            server, down = self.algorithm.server_step(snapshot.server, freeze(combined), here)
        server = freeze(server)
        return server, self._checked(down), present, bytes_up, self.algorithm.report(server)

    def _reduced(self, ups: dict[str, Tree]) -> Tree:
        """Add this rank's uploads, then all ranks' sums, in one collective for each dtype."""
        own = tree_sum(ups.values())
        return unpack_kinds({kind: self.world.add_up(buffer) for kind, buffer in pack_kinds(own).items()}, own)

    def _ordered(self, ups: dict[str, Tree]) -> Tree:
        """Bring all uploads to all ranks, and add them in name order: owners lie on the ranks in that order."""
        like = next(iter(ups.values()))
        packed = [pack_kinds(up) for up in ups.values()]
        total: dict[str, np.ndarray] = {}
        for kind, example in packed[0].items():
            rows = self.world.all_equal_bytes(np.concatenate([each[kind] for each in packed]))
            rows = rows.reshape(-1, example.size)
            added = rows[0]
            for row in rows[1:]:
                added = added + row
            total[kind] = added
        return unpack_kinds(total, like)

    # ------------------------------------------------------------------ the server on rank 0
    def _rooted(self, snapshot: Snapshot, ups: dict[str, Tree], at: Round) -> tuple[Any, ...]:
        arrived = self.world.to_root(_framed(ups))
        server, down = snapshot.server, snapshot.down
        news: dict[str, Any] = {}
        reply: Any = None
        if self.world.rank == 0:
            uploads = {kind: spec for kind, spec in self.expected.items() if hasattr(kind, "uplink")}
            inbox = Inbox(self.expected)
            for name, data in sorted(pair for rank in map(unframe, arrived) for pair in rank):
                inbox.add(name, freeze(receive(data, uploads)))
            present = tuple(inbox.present)
            if present:
                here = replace(at, participants=present)
                with limit_threads(self.server_threads):
                    server, down = self.algorithm.server_step(server, freeze(inbox.combined), here)
                server, down = freeze(server), self._checked(down)
                reply = self._reply(down)
            news = {"present": present, "bytes_up": inbox.bytes_up, "metrics": self.algorithm.report(server)}
        news = self.world.tell_all(news)
        if news["present"]:
            down = self._received(self.world.from_root(reply), down)
        return server, down, tuple(news["present"]), news["bytes_up"], news["metrics"]

    def _reply(self, down: Tree) -> Any:
        """Write a broadcast, or for each rank the parts of its own clients."""
        if not isinstance(down, Scatter):
            return frames([("", to_bytes(down))])
        where = {name: rank for rank, names in enumerate(self._places()) for name in names}
        parts: list[list[tuple[str, bytes]]] = [[] for _ in range(self.world.size)]
        for name, part in down.items.items():
            parts[where[name]].append((name, to_bytes(part)))
        return [frames(part) for part in parts]

    def _places(self) -> list[tuple[str, ...]]:
        whole, more = divmod(self.meta.n_clients, self.world.size)
        starts = [rank * whole + min(rank, more) for rank in range(self.world.size + 1)]
        return [self.meta.clients[a:b] for a, b in pairwise(starts)]

    def _received(self, data: bytes, down: Tree) -> Tree:
        if self.world.rank == 0:
            return down
        found = {name: freeze(receive(part, self.expected)) for name, part in unframe(data)}
        return found[""] if "" in found else Scatter(found)

    # ------------------------------------------------------------------ ends
    def _ended(self, snapshot: Snapshot, stop: bool) -> str:
        """Let rank 0 decide, so that no rounding lets ranks part ways; silent where nothing could end the run."""
        can = type(self.algorithm).converged is not Algorithm.converged
        if not can and not self.watched:
            return ""
        mine = 0
        if self.world.rank == 0:
            mine = 1 if self.algorithm.converged(snapshot.server) else 2 if stop else 0
        return ("", "converged", "stopped")[self.world.flag(mine)]

    def _checked(self, down: Tree) -> Tree:
        down = Scatter({n: freeze(p) for n, p in down.items.items()}) if isinstance(down, Scatter) else freeze(down)
        for part in down.items.values() if isinstance(down, Scatter) else (down,):
            check_message(part, self.expected)
        return down

    def _settled(self, snapshot: Snapshot) -> Tree:
        """Let the server say what clients finish with, wherever it is."""
        if type(self.algorithm).settle is Algorithm.settle:
            return snapshot.down
        if self.replicated:
            return self._checked(self.algorithm.settle(snapshot.server, snapshot.down))
        down, reply = snapshot.down, None
        if self.world.rank == 0:
            down = self._checked(self.algorithm.settle(snapshot.server, down))
            reply = self._reply(down)
        return self._received(self.world.from_root(reply), down)

    def _finish(self, snapshot: Snapshot, status: Status) -> Run:
        snapshot = replace(snapshot, down=self._settled(snapshot))
        factors: dict[str, LocalFactors] = {}
        told: dict[str, list[float]] = {}
        for name in self.own:
            part = download_for(snapshot.down, name)
            factors[name], score = client.end(self.algorithm, self._shard(name), self.states.pop(name), part)
            told[name] = [float(score.sse), float(score.n), float(score.total)]
        everyone = {name: figures for rank in self.world.hear_all(told) for name, figures in rank.items()}
        scores = {name: Score.of(*everyone[name]) for name in self.meta.clients}
        about = {**environment(self.threads), "ranks": self.world.size, "rank_sent_bytes": self.world.sent}
        assert self.mine is not None
        features = self.mine.feature_names
        return Run(self.algorithm, self.seed, status, snapshot.history, factors, scores, snapshot.down, about, features)

    def epitaph(self, error: BaseException) -> str:
        """Say where and why the job ended, and how it goes on."""
        where = (
            f"rank {self.world.rank} of {self.world.size} (owners {', '.join(self.own[:3])}{'…' * (len(self.own) > 3)})"
        )
        saved = self.kept.last if self.kept else None
        again = f" The same command goes on from round {saved}." if saved else ""
        reason = f"{type(error).__name__}: {error}".rstrip(".")
        return f"{where} failed in round {self.now}, so the job ends: {reason}.{again}"


def _framed(ups: dict[str, Tree]) -> bytes:
    return frames((name, to_bytes(up)) for name, up in ups.items())
