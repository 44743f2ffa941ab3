"""A run across organisations, seen from the server: rounds over a post, each kept on disk before the next begins."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.core.errors import CheckpointError
from fedfactor.core.files import private_folder, write_atomic
from fedfactor.core.protocol import Round, Scatter, Score, download_for, settings_of
from fedfactor.core.run import RoundRecord
from fedfactor.core.tree import Tree, freeze, tree_sum, type_tag
from fedfactor.core.wire import Leaf, Spec, check_message, from_bytes, to_bytes
from fedfactor.engines.base import Inbox, check_fit, participants
from fedfactor.engines.checkpoint import Checkpoint, Snapshot, environment
from fedfactor.engines.remote.client_folder import Agreement
from fedfactor.engines.remote.column_sums import Ask, survey_messages
from fedfactor.engines.remote.exchange import Exchange, NotEnough, Tally, Transport, WaitingRules
from fedfactor.engines.remote.message import Head, Kind
from fedfactor.engines.remote.secure_sum import Begin, Counts, collect, counts_messages, uploads
from fedfactor.engines.remote.stream import flow
from fedfactor.threads import limit_threads

SCORE: dict[type, Spec] = {
    Score: {name: Leaf("float64", ()) for name in ("sse", "n", "total")},
    Ask: {"nothing": Leaf("float64", ())},
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run leaves at the server: no factors of anybody, only what was shared."""

    run: str
    status: str
    history: tuple[RoundRecord, ...]
    down: Tree
    scores: Mapping[str, Score]
    finished: tuple[str, ...]
    rejected: Mapping[str, int]

    def summary(self, agreement: Agreement) -> dict[str, Any]:
        """Plain data for ``run.json``."""
        total = tree_sum(self.scores.values()) if self.scores else None
        return {
            "algorithm": agreement.algorithm.rpartition(":")[2],
            "settings": agreement.settings,
            "terms": agreement.terms,
            "run": self.run,
            "seed": agreement.seed,
            "status": self.status,
            "rounds": len(self.history),
            "clients": list(agreement.meta.clients),
            "finished": list(self.finished),
            "relative_error": None if total is None else total.relative_error,
            "errors": {name: score.relative_error for name, score in self.scores.items()},
            "bytes_up": sum(r.bytes_up for r in self.history),
            "bytes_down": sum(r.bytes_down for r in self.history),
            "seconds": sum(r.seconds for r in self.history),
            "rejected": dict(self.rejected),
            "environment": environment(agreement.threads),
            "history": [asdict(r) for r in self.history],
        }


class Server:
    """One run of one federation.

    Parameters
    ----------
    folder : path
        The server's own folder: checkpoint, status and result.
    agreement : Agreement
        What everybody signed up for.
    policy : WaitingRules
        Who must take part, and how long to wait.
    post : Transport
        How letters travel.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        agreement: Agreement,
        policy: WaitingRules,
        post: Transport,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.folder, self.agreement, self.policy = private_folder(folder), agreement, policy
        self.algorithm, self.meta = agreement.make(), agreement.meta
        self.expected = check_fit(self.algorithm, self.meta)
        self.ups = {kind: spec for kind, spec in self.expected.items() if hasattr(kind, "uplink")}
        self.secure = agreement.protect != "none" and bool(uploads(self.expected))
        self.tally = Tally()
        self.exchange = Exchange(post, policy, self.tally, tick=self.tick, clock=clock, sleep=sleep)
        self.checkpoint = Checkpoint(self.folder / "checkpoint")
        self.snapshot: Snapshot | None = None
        self._said = 0.0
        self.run_id = ""

    def run(self) -> Outcome:
        """Run, or go on where a killed server stopped."""
        with _Lock(self.folder / "lock"), limit_threads(self.agreement.threads):
            self.run_id = self._name()
            try:
                snapshot = self.checkpoint.load(self._mark())
                self.snapshot = snapshot
                self.exchange.gather(self.meta.clients)
                if snapshot is None:
                    snapshot = self._start()
                outcome = self._finish(self._rounds(snapshot))
            except NotEnough as error:
                self.tick({"state": "paused", "reason": str(error)}, force=True)
                raise
            except Exception as error:
                self.tick({"state": "failed", "reason": f"{type(error).__name__}: {error}"}, force=True)
                raise
            return outcome

    def _name(self) -> str:
        file = self.folder / "run"
        if not file.exists():
            write_atomic(file, secrets.token_hex(8).encode())
        return file.read_text()

    def _mark(self) -> dict[str, Any]:
        mark = {
            "run": self.run_id,
            "terms": self.agreement.terms,
            "algorithm": type_tag(type(self.algorithm)),
            "settings": settings_of(self.algorithm),
            "seed": self.agreement.seed,
            **environment(self.agreement.threads),
        }
        return json.loads(json.dumps(mark, default=str))

    # ------------------------------------------------------------------------------------------------------ phases
    def _start(self) -> Snapshot:
        if self.agreement.survey or self.secure:
            self._survey()
        server, down = self.algorithm.init_server(self.meta, Round(self.agreement.seed, 0))
        snapshot = Snapshot(0, freeze(server), self.checked(down), {}, (), self._mark())
        self.checkpoint.save(snapshot)
        return snapshot

    def _survey(self) -> None:
        file, names = self.folder / "survey.safetensors", self.meta.clients
        expected = counts_messages(self.meta) if self.secure else survey_messages(self.meta)
        if not file.exists():
            head = self.head("survey", 0)
            if self.secure:
                begin = dict.fromkeys(names, Begin(np.float64(0)))
                total = collect(self.exchange, self.meta, head, begin, {Counts: expected[Counts]}, {})
            else:
                sums = self.exchange.ask(head, dict.fromkeys(names, Ask(np.float64(0))), expected)
                total = tree_sum(sums.values())
            write_atomic(file, to_bytes({"sums": total}))
        total = from_bytes(file.read_bytes())["sums"]
        self.exchange.ask(self.head("survey", 1), dict.fromkeys(names, total), expected)

    def _rounds(self, snapshot: Snapshot) -> Snapshot:
        if self.agreement.asynchronous:
            return flow(self, snapshot)
        while not snapshot.ended and snapshot.next_round < self.agreement.rounds:
            self.snapshot = snapshot
            if (self.folder / "stop").exists():
                snapshot = replace(snapshot, ended="stopped")
            else:
                snapshot = self._round(snapshot)
                if self.algorithm.converged(snapshot.server):
                    snapshot = replace(snapshot, ended="converged")
            self.checkpoint.save(snapshot)
        self.snapshot = snapshot
        return snapshot

    def _round(self, snapshot: Snapshot) -> Snapshot:
        began, index, down = time.perf_counter(), snapshot.next_round, snapshot.down
        at = Round(self.agreement.seed, index)
        asked = participants(1.0, at, self.meta.clients)
        letters = {name: download_for(down, name) for name in asked}
        head = replace(self.head("step", index), participants=asked)
        self.exchange.take_bytes()
        present, combined = self._uploads(head, letters, last_counted(snapshot))
        server, sent = self.algorithm.server_step(snapshot.server, freeze(combined), replace(at, participants=present))
        server = freeze(server)
        traffic, seconds = self.exchange.take_bytes(), time.perf_counter() - began
        metrics, rejected = self.algorithm.report(server), self.algorithm.rejected(server)
        record = RoundRecord(index, present, *traffic, seconds, metrics, rejected)
        history = (*snapshot.history, record)
        return replace(snapshot, next_round=index + 1, server=server, down=self.checked(sent), history=history)

    def _uploads(
        self, head: Head, letters: Mapping[str, Tree], since: Mapping[str, int]
    ) -> tuple[tuple[str, ...], Tree]:
        """Return who took part, and the sum of uploads (or all of them, for an algorithm that must see each)."""
        if self.secure:
            counts = from_bytes((self.folder / "survey.safetensors").read_bytes())["sums"]
            rare = counts.rare(self.agreement.least)
            return self.meta.clients, collect(self.exchange, self.meta, head, letters, self.expected, since, rare)
        inbox = Inbox(self.expected, self.algorithm.doubt)
        for name, up in self.exchange.ask(head, letters, self.ups, self.agreement.payload, since=since).items():
            inbox.add(name, up)
        for name, why in inbox.rejected.items():
            self.tally.count("impossible", name, why)
        need = len(letters) if self.policy.dropouts == "wait" else self.policy.minimum
        if inbox.rejected and len(inbox.present) < need:
            raise NotEnough(
                f"{head.kind} {head.index} got {len(inbox.present)} uploads that can be true, but {need} are needed. "
                + " ".join(f"{name}: {why}" for name, why in inbox.rejected.items())
            )
        return tuple(inbox.present), inbox.combined

    def _finish(self, snapshot: Snapshot) -> Outcome:
        down = self.checked(self.algorithm.settle(snapshot.server, snapshot.down))
        letters = {name: download_for(down, name) for name in self.meta.clients}
        head = self.head("end", snapshot.next_round)
        payload = self.agreement.payload
        answers = self.exchange.ask(head, letters, SCORE, "exact", sent=payload, since=last_counted(snapshot))
        scores = {name: answer for name, answer in answers.items() if isinstance(answer, Score)}
        outcome = Outcome(
            self.run_id, snapshot.ended or "rounds", snapshot.history, down, scores, tuple(answers),
            dict(self.tally.rejected),
        )  # fmt: skip
        folder = private_folder(self.folder / "result")
        write_atomic(folder / "down.safetensors", to_bytes(_as_tree(down)))
        write_atomic(folder / "run.json", json.dumps(outcome.summary(self.agreement), indent=1).encode())
        self.tick({"state": "finished", "reason": outcome.status}, force=True)
        return outcome

    # ------------------------------------------------------------------------------------------------------- words
    def head(self, kind: Kind, index: int) -> Head:
        """Begin a letter of this run."""
        return Head(kind, self.run_id, index, "", self.agreement.terms)

    def checked(self, down: Tree) -> Tree:
        """Freeze a download, and refuse one that was not announced."""
        if isinstance(down, Scatter):
            down = Scatter({name: freeze(part) for name, part in down.items.items()})
        else:
            down = freeze(down)
        for part in down.items.values() if isinstance(down, Scatter) else (down,):
            check_message(part, self.expected)
        return down

    def tick(self, about: Mapping[str, Any], force: bool = False) -> None:
        """Say where the run stands, at most once a second."""
        now = time.monotonic()
        if not force and now - self._said < 1.0:
            return
        self._said = now
        history = self.snapshot.history if self.snapshot else ()
        status: dict[str, Any] = {
            "run": self.run_id, "time": time.time(), "round": len(history), "rounds": self.agreement.rounds,
            "clients": list(self.meta.clients), "participants": list(history[-1].participants) if history else [],
            "metrics": dict(history[-1].metrics) if history else {},
            "bytes_up": sum(r.bytes_up for r in history), "bytes_down": sum(r.bytes_down for r in history),
            "rejected": dict(self.tally.rejected), "reasons": dict(self.tally.reasons), **about,
        }  # fmt: skip
        write_atomic(self.folder / "status.json", json.dumps(status, indent=1).encode())


def last_counted(snapshot: Snapshot) -> dict[str, int]:
    """Tell for each client the last of its steps that went into the server's state."""
    if snapshot.clients:  # a run without rounds keeps what each client works on
        return {name: int(work["step"]) - 1 for name, work in snapshot.clients.items()}
    return {name: record.index for record in snapshot.history for name in record.participants}


def _as_tree(down: Tree) -> Tree:
    return {"down": dict(down.items) if isinstance(down, Scatter) else down}


class _Lock:
    """One server at a time: a killed one may take a moment to go."""

    def __init__(self, path: Path, patience: float = 90.0) -> None:
        self._path, self._patience = path, patience
        self._handle = -1

    def __enter__(self) -> _Lock:
        self._handle = os.open(self._path, os.O_CREAT | os.O_RDWR, 0o600)
        end = time.monotonic() + self._patience
        while True:
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return self
            except BlockingIOError:
                if time.monotonic() >= end:
                    os.close(self._handle)
                    raise CheckpointError(
                        f"Another server is at work in {self._path.parent}. Stop it, or wait until it has ended."
                    ) from None
                time.sleep(0.2)

    def __exit__(self, *_: object) -> None:
        os.close(self._handle)
