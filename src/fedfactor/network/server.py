"""A run across organisations, seen from the server: each round is kept on disk before the next begins."""

from __future__ import annotations

import fcntl
import json
import math
import os
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.core.algorithm import Scatter, Score, algorithm_tag, download_for, settings_of
from fedfactor.core.atomic_files import private_folder, write_atomic
from fedfactor.core.errors import CheckpointError, FedfactorError
from fedfactor.core.flattened_upload import restore
from fedfactor.core.pytree import Tree, tree_sum
from fedfactor.core.run import RoundRecord
from fedfactor.core.threads import limit_threads
from fedfactor.core.wire import Leaf, Spec, from_bytes, to_bytes
from fedfactor.engines.capabilities import started_at
from fedfactor.engines.checkpoint import Checkpoint, environment
from fedfactor.engines.engine import refuse_groups
from fedfactor.engines.round import Rounds
from fedfactor.network.asynchronous import Stream, last_step
from fedfactor.network.client_storage import Agreement
from fedfactor.network.column_survey import Ask, survey_messages
from fedfactor.network.exchange import Exchange, NotEnough, Tally, Transport
from fedfactor.network.message_format import Head, Kind
from fedfactor.network.remote_clients import RemoteClients
from fedfactor.network.secure_aggregation import Relay, one_message
from fedfactor.network.verified_messages import Counts, counts_messages
from fedfactor.network.waiting_rules import WaitingRules
from fedfactor.privacy.secure_aggregation.phases import Begin

SCORE: dict[type, Spec] = {
    Score: {name: Leaf("float64", ()) for name in ("sse", "n", "total")},
    Ask: {"nothing": Leaf("float64", ())},
}


ABANDON = "abandon"
REMOVED = "removed.json"
"""Files in the server's folder: end this run at once; do not wait for these clients any more."""


ENDED = ("finished", "paused", "failed", "interrupted")
"""States in which no round goes on. A run is interrupted when its process ends, in order or not."""

START = "start.safetensors"
"""File in the server's folder: the components that a run starts at, where the parties agreed on some."""


class AbandonedError(FedfactorError, RuntimeError):
    """A party started another run in the place of this one."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run leaves at the server: no private factors, only what was shared."""

    run: str
    status: str
    history: tuple[RoundRecord, ...]
    down: Tree
    scores: Mapping[str, Score]
    finished: tuple[str, ...]
    rejected: Mapping[str, int]
    privacy: Mapping[str, Any] | None = None

    def summary(self, agreement: Agreement) -> dict[str, Any]:
        """Plain data for ``run.json``."""
        total = tree_sum(self.scores.values()) if self.scores else None
        return {
            "algorithm": agreement.algorithm.rpartition(":")[2],
            "settings": agreement.settings,
            "terms": agreement.terms,
            "run": self.run,
            "seed": agreement.run_seed,
            "status": self.status,
            "rounds": len(self.history),
            "clients": list(agreement.meta.clients),
            "parents": [agreement.start] if agreement.start else [],
            "finished": list(self.finished),
            "relative_error": None if total is None else total.relative_error,
            "errors": {name: score.relative_error for name, score in self.scores.items()},
            "bytes_up": sum(r.bytes_up for r in self.history),
            "bytes_down": sum(r.bytes_down for r in self.history),
            "seconds": sum(r.seconds for r in self.history),
            "rejected": dict(self.rejected),
            "environment": environment(agreement.threads),
            "privacy": written(self.privacy) if self.privacy else UNPROTECTED,
            "history": [asdict(r) for r in self.history],
        }


class Server:
    """One run of one federation.

    Parameters
    ----------
    folder : path
        The server's own folder: checkpoint, status and result.
    agreement : Agreement
        The terms that every party accepted.
    policy : WaitingRules
        Who must take part, and how long to wait.
    transport : Transport
        How messages travel.
    tells_end : bool
        Whether clients are notified of the end, and store their factors.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        agreement: Agreement,
        policy: WaitingRules,
        transport: Transport,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        tells_end: bool = True,
    ) -> None:
        self.folder = private_folder(folder)
        self.agreement = agreement
        self.policy = policy
        self.algorithm = agreement.make()
        self.meta = agreement.meta
        if agreement.start:
            self.algorithm = started_at(self.algorithm, from_bytes((self.folder / START).read_bytes())["V"])
        refuse_groups(self.algorithm, self.meta)
        self.run_id = self._name()
        self.tally = Tally()
        self.exchange = Exchange(
            transport, policy, self.tally, tick=self.tick, clock=clock, sleep=sleep, removed=self._removed
        )
        self.channel = agreement.channel(self.run_id, self.folder)
        links = () if self.channel is None else self.channel.links
        sums = self.folder / "sums.safetensors"
        self.relay = Relay(self.exchange, agreement, self.run_id, sums, links) if agreement.secure else None
        self.clients = Stream(self) if agreement.asynchronous else RemoteClients(self)
        self.loop = Rounds(
            self.algorithm,
            self.meta,
            self.clients,
            agreement.most_steps,
            agreement.run_seed,
            channel=self.channel,
            kept=Checkpoint(self.folder / "checkpoint"),
            mark=self._mark(),
        )
        self.expected = self.loop.expected
        self.ups = {kind: spec for kind, spec in self.expected.items() if hasattr(kind, "uplink")}
        self._said = (0.0, -1)
        self._tells_end = tells_end

    def run(self) -> Outcome:
        """Run, or go on where a killed server stopped."""
        with Lock(self.folder / "lock"), limit_threads(self.agreement.threads):
            try:
                clients = self.clients
                status = self.loop.stream(clients.turn) if isinstance(clients, Stream) else self.loop.run()
                outcome = self._finish(status)
            except NotEnough as error:
                who = {"refusing": error.refusing, "unavailable": error.unavailable}
                self.tick({"state": "paused", "reason": str(error), **who}, force=True)
                raise
            except SystemExit:
                self.tick({"state": "interrupted", "reason": "the server was stopped"}, force=True)
                raise
            except Exception as error:
                anew = ""
                if isinstance(error, CheckpointError):
                    anew = (
                        " Resume it with the versions installed now: fedfactor start --accept-versions (what was paid "
                        "is kept, bit-identity is not). Or begin again: fedfactor start --again."
                    )
                self.tick({"state": "failed", "reason": f"{type(error).__name__}: {error}{anew}"}, force=True)
                raise
            return outcome

    def _removed(self) -> frozenset[str]:
        file = self.folder / REMOVED
        return frozenset(json.loads(file.read_bytes())) if file.exists() else frozenset()

    def _name(self) -> str:
        file = self.folder / "run"
        if not file.exists():
            write_atomic(file, secrets.token_hex(8).encode())
        return file.read_text()

    def _mark(self) -> dict[str, Any]:
        mark = {
            "run": self.run_id,
            "terms": self.agreement.terms,
            "algorithm": algorithm_tag(type(self.algorithm)),
            "settings": settings_of(self.algorithm),
            "seed": self.agreement.run_seed,
            **environment(self.agreement.threads),
        }
        return json.loads(json.dumps(mark, default=str))

    # ------------------------------------------------------------------------------------------------------ phases
    def gather(self) -> None:
        """Wait until everyone is there, or until time is up and enough are."""
        self.exchange.gather(self.meta.clients)

    def survey(self) -> None:
        """Add up columns before round 0, where preprocessing or secure aggregation depends on them."""
        self.gather()
        file = self.folder / "survey.safetensors"
        names = self.meta.clients
        counted = self.agreement.counted
        if not self.agreement.survey and not counted:
            return
        expected = counts_messages(self.meta) if counted else survey_messages(self.meta)
        head = self.head("survey", 0)
        found = self.head("survey", 1)
        if not file.exists():
            if self.relay is not None:
                total = restore(*self.relay.collect(head, Begin(np.float64(0)), {Counts: expected[Counts]}, {}))
            else:
                sums = self.exchange.ask(head, dict.fromkeys(names, Ask(np.float64(0))), expected)
                total = tree_sum(sums.values())
            write_atomic(file, to_bytes({"sums": total}))
        told = self.surveyed if self.relay is None else self.relay.question(found, self.surveyed)
        self.exchange.ask(found, dict.fromkeys(names, told), expected)

    @property
    def surveyed(self) -> Any:
        """What columns add up to."""
        return from_bytes((self.folder / "survey.safetensors").read_bytes())["sums"]

    @property
    def since(self) -> dict[str, int]:
        """Return for each client the last of its steps that went into the server's state."""
        snapshot = self.loop.snapshot
        if snapshot is None:
            return {}
        if snapshot.clients:  # a run without rounds keeps what each client works on
            return {name: last_step(work) for name, work in snapshot.clients.items()}
        return {name: record.index for record in snapshot.history for name in record.participants}

    def _finish(self, status: str) -> Outcome:
        snapshot = self.loop.snapshot
        assert snapshot is not None
        down = self.loop.settled(snapshot.server, snapshot.down)
        messages = {name: download_for(down, name) for name in self.meta.clients}
        head = self.head("end", snapshot.next_round)
        if self.relay is not None:
            messages = dict.fromkeys(self.meta.clients, self.relay.question(head, one_message(messages)))
        sent = self.agreement.payload
        since = self.since
        if self.clients.stopped():  # what was reached is kept even where some parties refuse, or are unavailable
            self.exchange.policy = replace(self.policy, minimum=0, dropouts="continue")
        answers = self.exchange.ask(head, messages, SCORE, "exact", sent=sent, since=since) if self._tells_end else {}
        scores = {name: answer for name, answer in answers.items() if isinstance(answer, Score)}
        privacy = None if self.channel is None else self.channel.report(len(snapshot.history))
        outcome = Outcome(
            self.run_id,
            status,
            snapshot.history,
            down,
            scores,
            tuple(answers),
            dict(self.tally.rejected),
            privacy,
        )
        folder = private_folder(self.folder / "result")
        write_atomic(folder / "down.safetensors", to_bytes(_as_tree(down)))
        write_atomic(folder / "run.json", json.dumps(outcome.summary(self.agreement), indent=1).encode())
        self.tick({"state": "finished", "reason": outcome.status}, force=True)
        return outcome

    # ------------------------------------------------------------------------------------------------------- words
    def head(self, kind: Kind, index: int) -> Head:
        """Begin a message of this run."""
        return Head(kind, self.run_id, index, "", self.agreement.terms)

    def tick(self, about: Mapping[str, Any], force: bool = False) -> None:
        """Return where the run stands: after each round, and within one once a second."""
        now = time.monotonic()
        history = self.loop.snapshot.history if self.loop.snapshot else ()
        if not force and now - self._said[0] < 1.0 and len(history) == self._said[1]:
            return
        self._said = (now, len(history))
        if not force and (self.folder / ABANDON).exists():
            raise AbandonedError("another run was started in its place")
        status: dict[str, Any] = {
            "run": self.run_id,
            "time": time.time(),
            "round": len(history),
            "rounds": self.agreement.rounds,
            "clients": list(self.meta.clients),
            "participants": list(history[-1].participants) if history else [],
            "metrics": dict(history[-1].metrics) if history else {},
            "bytes_up": sum(r.bytes_up for r in history),
            "bytes_down": sum(r.bytes_down for r in history),
            "seconds": history[-1].seconds if history else 0.0,
            "rejected": dict(self.tally.rejected),
            "reasons": dict(self.tally.reasons),
            **about,
        }
        write_atomic(self.folder / "status.json", json.dumps(status, indent=1).encode())


UNPROTECTED = {"mode": "none", "epsilon": "inf", "sees": {"server": "every upload"}}
"""The privacy entry of the record of a run without protection of uploads."""


def written(report: Mapping[str, Any]) -> dict[str, Any]:
    """Make the report on a run's privacy fit for JSON, which has no infinity."""
    return {key: "inf" if value == math.inf else value for key, value in report.items()}


def _as_tree(down: Tree) -> Tree:
    return {"down": dict(down.items) if isinstance(down, Scatter) else down}


class Lock:
    """One server at a time: a killed one may take a moment to go."""

    def __init__(self, path: Path, patience: float = 90.0) -> None:
        self._path = path
        self._patience = patience
        self._handle = -1

    def __enter__(self) -> Lock:
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
