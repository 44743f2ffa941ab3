"""The reference engine: a whole federation on one machine. Every other engine must return what this one returns."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fedfactor.core.errors import CheckpointError, ProtocolError
from fedfactor.core.federation import Federation
from fedfactor.core.protocol import Algorithm, LocalFactors, Meta, Round, Scatter, Score
from fedfactor.core.run import RoundRecord, Run, Status
from fedfactor.core.tree import Tree, freeze
from fedfactor.core.wire import Spec, check_message
from fedfactor.engines.base import AnyCallback, Inbox, Participation, check_fit, downloads, participants, rule_name
from fedfactor.engines.checkpoint import Checkpoint, Snapshot, environment, fingerprint
from fedfactor.engines.local.pool import ClientPool, ThreadPool
from fedfactor.engines.watch import Watchers
from fedfactor.threads import limit_threads, thread_limit

if TYPE_CHECKING:
    from fedfactor.privacy.session import Channel

logger = logging.getLogger("fedfactor")


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """Runs every client on this machine.

    Parameters
    ----------
    backend : {"threads", "processes"}
        Threads share the data and suit kernels that let go of the interpreter lock, as ours do; processes suit client
        code that holds it. Both give the same bits.
    workers : int, optional
        Most threads that work at a time, and so clients served at a time; by default as many as the process was given
        (see :func:`fedfactor.threads.thread_limit`). Where there are fewer clients, each one's products use several.
    """

    backend: Literal["threads", "processes"] = "threads"
    workers: int | None = None

    simulation: ClassVar[bool] = True
    channels: ClassVar[bool] = True

    def run(
        self,
        algorithm: Algorithm,
        federation: Federation,
        *,
        rounds: int | None = None,
        seed: int = 0,
        participation: Participation = 1.0,
        checkpoint: Any = None,
        callbacks: Sequence[AnyCallback] = (),
        channel: Channel | None = None,
    ) -> Run:
        """Run all rounds; resume when ``checkpoint`` holds an unfinished run of the same kind."""
        meta = federation.prepare(algorithm.domain)
        expected = check_fit(algorithm, meta)
        rounds = algorithm.default_rounds if rounds is None else rounds
        if rounds < 1:
            raise ValueError(f"rounds={rounds} must be at least 1.")
        if not callable(participation):  # a share that cannot be is refused before any work
            participants(participation, Round(seed, 0), meta.clients)
        workers, threads = self._share_out(len(federation))
        allowed = self._allowed()
        with limit_threads(threads):
            crew = self._crew(algorithm, federation, meta, workers, threads)
            watch = Watchers(callbacks)
            run: Run | None = None
            try:
                loop = _Loop(algorithm, federation, meta, expected, crew, rounds, seed, participation, channel, allowed)
                run = loop.run(Checkpoint.of(checkpoint), threads, watch)
                return run
            finally:
                crew.close()
                watch.end(run)

    def _allowed(self) -> int:
        """Return how many threads may work at once, those of products and of the server included."""
        return thread_limit() if self.workers is None else min(self.workers, thread_limit())

    def _share_out(self, n_clients: int) -> tuple[int, int]:
        """Return how many clients are served at a time, and by how many threads each."""
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"workers={self.workers} must be at least 1.")
        # More workers than threads only when asked for: then they take turns.
        workers = min(thread_limit() if self.workers is None else self.workers, n_clients)
        return workers, max(1, self._allowed() // workers)

    def _crew(self, algorithm: Algorithm, federation: Federation, meta: Meta, workers: int, threads: int) -> ClientPool:
        if self.backend == "threads":
            return ThreadPool(algorithm, federation, meta, workers)
        if self.backend == "processes":
            from fedfactor.engines.local.processes import ProcessPool

            return ProcessPool(algorithm, federation, meta, workers, threads)
        raise ValueError(f"backend={self.backend!r} is not known. Use 'threads' or 'processes'.")


@dataclass(frozen=True, slots=True)
class _Loop:
    """One run, round by round."""

    algorithm: Algorithm
    federation: Federation
    meta: Meta
    expected: dict[type, Spec]
    crew: ClientPool
    rounds: int
    seed: int
    participation: Participation
    channel: Channel | None
    allowed: int

    def run(self, checkpoint: Checkpoint | None, threads: int, watch: Watchers) -> Run:
        mark = fingerprint(self.algorithm, self.federation, self.meta, self.seed, threads) if checkpoint else {}
        if checkpoint:
            mark["participation"] = rule_name(self.participation)
            mark |= self.channel.fingerprint() if self.channel else {}
        saved = checkpoint.load(mark) if checkpoint else None
        snapshot = self._start(mark) if saved is None else saved
        if saved is not None:
            if saved.next_round > self.rounds:
                raise CheckpointError(
                    f"The run that was kept has gone {saved.next_round} rounds, more than rounds={self.rounds}, and "
                    "there is no way back. Ask for as many, or use another folder."
                )
            self.crew.restore(saved.clients)
        elif checkpoint and self.channel and self.channel.noisy:
            # Noised uploads are kept from round 0 on: from another start they would be answers to another question.
            checkpoint.save(replace(snapshot, clients=self.crew.states()))
        watch.start(self.algorithm, self.meta, self.rounds, snapshot.next_round)
        status: Status = "rounds"
        while snapshot.next_round < self.rounds or snapshot.ended:
            if snapshot.ended:
                status = snapshot.ended  # type: ignore[assignment]
                break
            if self.channel and not self.channel.affords(snapshot.next_round):
                status = "budget"
                break
            snapshot = self._round(snapshot)
            stop = watch.round(snapshot.history[-1])  # watchers hear of the last round too
            if self.algorithm.converged(snapshot.server):
                snapshot = replace(snapshot, ended="converged")
            elif stop:
                snapshot = replace(snapshot, ended="stopped")
            if checkpoint and (snapshot.next_round % checkpoint.every == 0 or snapshot.ended):
                snapshot = replace(snapshot, clients=self.crew.states())
                checkpoint.save(snapshot)
                if self.channel:
                    self.channel.settled(snapshot.next_round)
        return self._finish(snapshot, status, threads)

    def _start(self, mark: dict[str, Any]) -> Snapshot:
        server, down = self.algorithm.init_server(self.meta, Round(self.seed, 0))
        self.crew.begin(self.seed)
        return Snapshot(0, freeze(server), self._send(down), {}, (), mark)

    def _round(self, snapshot: Snapshot) -> Snapshot:
        began = time.perf_counter()
        index, down = snapshot.next_round, snapshot.down
        at = Round(self.seed, index)
        asked = participants(self.participation, at, self.meta.clients)
        channel = self.channel
        plain = Inbox(self.expected, self.algorithm.doubt) if channel is None else None
        inbox = plain or channel.open(self.expected, asked, at, down)  # type: ignore[reportOptionalMemberAccess]
        for name, up in self.crew.step(asked, down, replace(at, participants=asked)):
            if up is not None:
                inbox.add(name, up)
        server = snapshot.server
        present = tuple(inbox.present)
        bytes_down = downloads(down, asked)
        if inbox.rejected and not present:
            raise ProtocolError(
                f"Every upload of round {index} was left out, so the run ends: {', '.join(inbox.rejected)} sent NaN, "
                "infinity, or what cannot be true. Where all do, the settings let the method diverge."
            )
        if present:  # a round nobody came to leaves everything as it was
            combined = inbox.combined if channel is None else channel.close(inbox)  # type: ignore[reportArgumentType]
            with limit_threads(self.allowed):  # the server works alone
                server, sent = self.algorithm.server_step(server, freeze(combined), replace(at, participants=present))
            server, down = freeze(server), self._send(sent)
        seconds = time.perf_counter() - began
        metrics = self.algorithm.report(server)
        rejected = tuple(sorted({*inbox.rejected, *self.algorithm.rejected(server)}))
        _tell(rejected, snapshot.history)
        record = RoundRecord(index, present, inbox.bytes_up, bytes_down, seconds, metrics, rejected)
        history = (*snapshot.history, record)
        return replace(snapshot, next_round=index + 1, server=server, down=down, history=history)

    def _send(self, down: Tree) -> Tree:
        if isinstance(down, Scatter):
            down = Scatter({name: freeze(part) for name, part in down.items.items()})
        else:
            down = freeze(down)
        for part in down.items.values() if isinstance(down, Scatter) else (down,):
            check_message(part, self.expected)
        return down

    def _finish(self, snapshot: Snapshot, status: Status, threads: int) -> Run:
        down = self._send(self.algorithm.settle(snapshot.server, snapshot.down))
        factors: dict[str, LocalFactors] = {}
        scores: dict[str, Score] = {}
        for name, kept, score in self.crew.end(down):
            factors[name], scores[name] = kept, score
        features = self.federation.feature_names
        about = environment(threads)
        privacy = None if self.channel is None else self.channel.report(len(snapshot.history))
        history = snapshot.history
        return Run(self.algorithm, self.seed, status, history, factors, scores, down, about, features, privacy)


def _tell(rejected: tuple[str, ...], history: tuple[RoundRecord, ...]) -> None:
    """Name, once in a run, a client of whom an upload was left out."""
    known = {name for record in history for name in record.rejected} if rejected else ()
    for name in rejected:
        if name not in known:
            logger.warning("An upload of client %r was left out: it is not finite, or cannot be true.", name)
