"""The round of all engines: sampling of clients, receiving and validating uploads, the server's step, the record.

An engine defines how messages reach its clients (:class:`Clients`); everything else is the same for threads,
processes, a virtual clock, MPI and a real federation.
"""

from __future__ import annotations

import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from fedfactor.core.algorithm import Algorithm, LocalFactors, Meta, Round, Scatter, Score, Uplink, one_of
from fedfactor.core.errors import CheckpointError, NotFiniteError, ProtocolError
from fedfactor.core.pytree import Tree, add_up, freeze, kind_of, leaves, nbytes, tree_sum
from fedfactor.core.run import RoundRecord, Run, Status
from fedfactor.core.threads import limit_threads
from fedfactor.core.wire import Spec, check_message, checksum, receive
from fedfactor.engines.callbacks import Callbacks
from fedfactor.engines.capabilities import client_groups, rejected_by, with_learned
from fedfactor.engines.checkpoint import Snapshot, environment
from fedfactor.engines.client_sampling import Participation, participants, rule_name
from fedfactor.engines.engine import check_fit, downloads
from fedfactor.linalg.cuda.transfers import Glance

if TYPE_CHECKING:
    from fedfactor.privacy.pipeline import Channel, ChannelReceiver

logger = logging.getLogger("fedfactor")

MOST_UNSURE = 64
"""Uploads on a GPU that are held, at most, before they are checked for non-finite values."""


class Receiver:
    """Aggregates the uploads of one round as they arrive, in name order: a running sum, or a mapping for ``gather``.

    With `groups`, client → group, there is a running sum for each group, and each client is handed that of its own.

    An upload that holds NaN or infinity, or that `doubt` finds impossible, is rejected as if its sender were
    unavailable, and the sender is listed in ``rejected``: each upload is validated before it is added, so one bad
    client does not end the run of all others. An upload with another schema than announced is a fault of the code, and
    raises.
    """

    asks_later: ClassVar[bool] = True
    """Whether uploads may be aggregated before they are checked for non-finite values."""

    forgiving: ClassVar[bool] = False
    """Whether uploads with another schema than announced are rejected instead of ending the run."""

    def __init__(
        self,
        expected: Mapping[type, Spec],
        doubt: Callable[[Tree], str] = lambda up: "",
        groups: Mapping[str, str] | None = None,
    ) -> None:
        self._groups = dict(groups or {})
        self._by_group = dict[str, Tree]()
        self._expected = {kind: spec for kind, spec in expected.items() if hasattr(kind, "uplink")}
        self._doubt = doubt
        self.present: list[str] = []
        self.rejected: dict[str, str] = {}
        self.bytes_up = 0
        self._kind: type | None = None
        self._sum: Tree = None
        self._sure: Tree = None
        self._unsure: dict[str, Tree] = {}
        self._gathered: dict[str, Tree] = {}

    def add(self, name: str, up: Tree) -> None:
        """Validate one upload; aggregate it, or reject it with a reason."""
        later = getattr(up, "uplink", "") == Uplink.SUM and _on_card(up)
        try:
            check_message(up, self._expected, ask_card=not later)
            wrong = self._doubt(up)
        except NotFiniteError as error:
            wrong = str(error)
        except ProtocolError as error:
            raise ProtocolError(f"Client {name!r}: {error}") from None
        if wrong:
            self.reject(name, wrong)
            return
        if self._kind not in (None, type(up)):
            raise ProtocolError(f"Client {name!r} sent {type(up).__name__} in a round of {self._kind.__name__}.")
        self._kind = kind_of(up)
        self.present.append(name)
        self.bytes_up += nbytes(up)
        if up.uplink == Uplink.GATHER:
            self._gathered[name] = up
            return
        if name in self._groups:
            before = self._by_group.get(self._groups[name])
            self._by_group[self._groups[name]] = up if before is None else tree_sum((before, up))
            return
        if later:
            self._unsure[name] = up
        if self._sum is None:
            self._sum = freeze(up)
        else:  # the sum before uploads that may have to be dropped must be kept
            self._sum = tree_sum((self._sum, up)) if later else add_up(self._sum, up)
        if len(self._unsure) == MOST_UNSURE:
            self.settle()

    def settle(self) -> bool:
        """Check deferred GPU uploads for non-finite values and drop invalid ones. Return whether any were dropped.

        They are held until then, because nothing can be subtracted from a sum again.
        """
        held = self._unsure
        self._unsure = {}
        if not held or _finite(checksum(self._sum)):
            self._sure = self._sum
            return False
        self._sum = self._sure
        self.present = [name for name in self.present if name not in held]
        before = len(self.rejected)
        for name, up in held.items():
            try:
                check_message(up, self._expected)
            except NotFiniteError as error:
                self.bytes_up -= nbytes(up)
                self.reject(name, str(error))
                continue
            self.present.append(name)
            self._sum = up if self._sum is None else tree_sum((self._sum, up))
        self._sure = self._sum
        return len(self.rejected) > before

    def reject(self, name: str, why: str) -> None:
        """Reject the upload of a client, and record the reason."""
        self.rejected[name] = why

    def replace_by(self, total: Tree, present: Mapping[str, int], rejected: Mapping[str, str]) -> None:
        """Take a sum that was formed elsewhere, from the uploads of these clients, with the bytes of each."""
        self._sum = total
        self.present = list(present)
        self.rejected = dict(rejected)
        self.bytes_up = sum(present.values())

    def put_group(self, group: str, total: Tree, present: Mapping[str, int], rejected: Mapping[str, str]) -> None:
        """Take the sum of a group that was formed elsewhere."""
        if present:
            self._by_group[group] = total
        self.present, self.rejected = sorted([*self.present, *present]), {**self.rejected, **rejected}
        self.bytes_up += sum(present.values())

    @property
    def complete(self) -> bool:
        """Whether all required clients take part: all members of groups."""
        return self._groups.keys() <= set(self.present)

    @property
    def combined(self) -> Tree:
        """What the server step takes: the sum, or the mapping."""
        if self.rejected and not self.present:
            raise ProtocolError("No upload could be used. " + " ".join(f"{n}: {w}" for n, w in self.rejected.items()))
        if self._groups:
            return {name: self._by_group[group] for name, group in self._groups.items()}
        return self._gathered or self._sum


def _on_card(message: Tree) -> bool:
    return any([getattr(leaf, "is_cuda", False) for _, leaf in leaves(message)])


def _finite(number: Any) -> bool:
    return number is None or math.isfinite(float(number))


Receiving: TypeAlias = "Receiver | ChannelReceiver"
"""What an engine passes the uploads of a round to: in the clear, or through a channel."""


def receive_bytes(receiver: Receiving, name: str, data: bytes, expected: Mapping[type, Spec]) -> None:
    """Deserialize an upload.

    Non-finite uploads are rejected; those with another schema raise unless `receiver` is forgiving.
    """
    try:
        up = freeze(receive(data, expected))
    except ProtocolError as error:
        if not receiver.forgiving and not isinstance(error, NotFiniteError):
            raise ProtocolError(f"Client {name!r}: {error}") from None
        receiver.reject(name, str(error))
    else:
        receiver.add(name, up)


def lacking(names: Iterable[str]) -> ProtocolError:
    """Return the error of a sum by group that lacks some of its clients."""
    return ProtocolError(
        f"A sum by group lacks {', '.join(names)}, who sent NaN or infinity, so the run ends: the settings let the "
        "method diverge."
    )


class Clients(ABC):
    """The clients of a run as one engine reaches them, and where their states live."""

    holds_server = True
    """Whether the server's state is in this process. Where it is not, the server's process returns what it did."""

    speaks = True
    """Whether this process is the one that warns; of several that know the same, one does."""

    apart = False
    """Whether uploads come from another process, and have therefore gone through the channel at their client."""

    served: Collection[str] | None = None
    """The clients whose groups' sums come to this process; None: all."""

    def begin(self, seed: int) -> None:
        """Make every client's first state."""

    def states(self) -> dict[str, Tree]:
        """Hand out the states that are kept here, to be saved."""
        return {}

    def restore(self, states: Mapping[str, Tree]) -> None:
        """Take up states that were saved."""

    @abstractmethod
    def exchange(self, down: Tree, at: Round, receiver: Receiving) -> None:
        """Let those who take part take one step; hand the receiver what they send, in name order, as it comes."""

    @abstractmethod
    def end(self, down: Tree) -> Iterator[tuple[str, LocalFactors | None, Score]]:
        """Let every client finish; the factors are None where they are not in this process."""

    def play(self, server: Tree, down: Tree, at: Round, *, ahead: bool) -> tuple[Tree, Tree, Tree] | None:
        """Play a whole round that was recorded: the server's state, the download, and that state with numbers at hand.

        None where rounds are not recorded; with `ahead` the next one may be begun before this one is looked at.
        """
        return None

    def traffic(self, down: Tree, at: Round, receiver: Receiving) -> tuple[int, int]:
        """Count the bytes that went up and down in a round."""
        return receiver.bytes_up, downloads(down, at.participants)

    def publish(self, told: Told | None, down: Tree) -> tuple[Told, Tree]:
        """Bring what the server did, and what it sends, to every process of the run."""
        assert told is not None
        return told, down

    def decide(self, ended: str) -> str:
        """Let every process of the run end alike."""
        return ended

    def stopped(self) -> bool:
        """Return, before a round, whether an external stop was requested."""
        return False

    def note(self, record: RoundRecord, server: Tree, down: Tree) -> RoundRecord:
        """Add to a record what only the engine knows."""
        return record

    def about(self) -> dict[str, Any]:
        """Return what the engine adds to the environment of a run."""
        return {}

    def close(self) -> None:
        """Let go of everything."""


@dataclass(frozen=True, slots=True)
class Told:
    """What the server knows of a round that it closed."""

    present: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()
    bytes_up: int = 0
    bytes_down: int = 0
    metrics: Mapping[str, float] | None = None


class Kept(Protocol):
    """Where a run is kept."""

    @property
    def every(self) -> int:
        """Rounds between two checkpoints."""
        ...

    def load(self, fingerprint: dict[str, Any]) -> Snapshot | None:
        """Read what is there, or refuse it."""
        ...

    def save(self, snapshot: Snapshot) -> None:
        """Replace it."""
        ...


class Rounds:
    """One run, round by round.

    Parameters
    ----------
    algorithm, meta, clients
        The algorithm, its clients, and how they are reached.
    rounds : int, optional
        Rounds at most; the algorithm's own number when None. A run without rounds counts arrivals.
    seed : int
        Of every stream.
    participation : float or function
        Who is asked in a round.
    channel : Channel, optional
        What protects uploads; None in the clear.
    callbacks : Callbacks
        Notified of every round.
    kept : Kept, optional
        Where the run is kept, with ``mark``: all that a resumed run must share with it.
    server_threads : int, optional
        Threads of the server's own products; None leaves them as they are.
    """

    def __init__(
        self,
        algorithm: Algorithm,
        meta: Meta,
        clients: Clients,
        rounds: int,
        seed: int,
        *,
        participation: Participation = 1.0,
        channel: Channel | None = None,
        callbacks: Callbacks | None = None,
        kept: Kept | None = None,
        mark: Mapping[str, Any] | None = None,
        server_threads: int | None = None,
    ) -> None:
        self.algorithm = algorithm
        self.meta = meta
        self.clients = clients
        self.rounds = rounds
        self.seed = seed
        self.expected = check_fit(algorithm, meta)
        self.participation = participation
        self.channel = channel
        self.callbacks = Callbacks(()) if callbacks is None else callbacks
        self.kept = kept
        self.mark = dict(mark or {})
        if kept is not None:
            self.mark |= {"participation": rule_name(participation), **(channel.fingerprint() if channel else {})}
        self.server_threads = server_threads
        self.snapshot: Snapshot | None = None
        self._seen: tuple[Tree, Tree] = (None, None)

    # ------------------------------------------------------------------------------------------------ a whole run
    def run(self) -> Status:
        """Run all rounds, from the start or from what was kept; what they left is in ``snapshot``."""
        snapshot = self.begin()
        while self._goes_on(snapshot):
            if self.channel and not self.channel.affords(snapshot.next_round):
                return "budget"
            snapshot = self.follow(self.round(snapshot))
        return self._status()

    def stream(self, take: Callable[[Rounds, Snapshot], Snapshot]) -> Status:
        """Run without rounds: ``take`` merges what came with :meth:`arrival`, or returns the snapshot it was given."""
        snapshot = self.begin()
        while self._goes_on(snapshot):
            merged = take(self, snapshot)
            snapshot = snapshot if merged is snapshot else self.follow(merged)
        return self._status()

    def _goes_on(self, snapshot: Snapshot) -> bool:
        if snapshot.ended or snapshot.next_round >= self.rounds:
            return False
        if self.clients.stopped():
            self.snapshot = replace(snapshot, ended="stopped")
            if self.kept:
                self.kept.save(self.snapshot)
            return False
        return True

    def _status(self) -> Status:
        assert self.snapshot is not None
        return self.snapshot.ended or "rounds"  # type: ignore[return-value]

    def begin(self) -> Snapshot:
        """Make the first states, or restore those of a checkpoint, and notify the callbacks."""
        saved = self.kept.load(self.mark) if self.kept else None
        if saved is None:
            server, down = self.algorithm.init_server(self.meta, Round(self.seed, 0))
            self.clients.begin(self.seed)
            server = freeze(server) if self.clients.holds_server else None
            snapshot = Snapshot(0, server, self.checked(down), {}, (), self.mark)
            if self.kept:
                # Noised uploads are kept from round 0 on: from another start they would answer another question.
                self.kept.save(replace(snapshot, clients=self.clients.states()))
        else:
            if saved.next_round > self.rounds:
                raise CheckpointError(
                    f"The run that was kept has gone {saved.next_round} rounds, more than rounds={self.rounds}, and "
                    "there is no way back. Ask for as many, or use another folder."
                )
            self.snapshot = snapshot = saved
            self.clients.restore(saved.clients)
        self.snapshot = snapshot
        self.callbacks.start(self.algorithm, self.meta, self.rounds, snapshot.next_round)
        return snapshot

    def follow(self, snapshot: Snapshot) -> Snapshot:
        """Pass a finished round to the callbacks, decide whether it was the last one, and keep it."""
        stop = self.callbacks.round(snapshot.history[-1])  # they are notified of the last round too
        ended = ""
        if self.clients.holds_server:
            known, seen = self._seen
            server = seen if known is snapshot.server else snapshot.server
            ended = "converged" if self.algorithm.converged(server) else "stopped" if stop else ""
        snapshot = replace(snapshot, ended=self.clients.decide(ended))
        if self.kept and (snapshot.next_round % self.kept.every == 0 or snapshot.ended):
            snapshot = replace(snapshot, clients=self.clients.states() or snapshot.clients)
            self.kept.save(snapshot)
            if self.channel:
                self.channel.settled(snapshot.next_round)
        self.snapshot = snapshot
        return snapshot

    def finish(self, status: Status, threads: int, features: tuple[str, ...] | None) -> Run:
        """Let every client finish, and return the result of the run."""
        snapshot = self.snapshot
        assert snapshot is not None
        down = self.settled(snapshot.server, snapshot.down)
        factors: dict[str, LocalFactors] = {}
        scores: dict[str, Score] = {}
        for name, kept, scores[name] in self.clients.end(down):
            if kept is not None:
                factors[name] = kept
        about = {**environment(threads), **self.clients.about()}
        privacy = None if self.channel is None else self.channel.report(len(snapshot.history))
        history = snapshot.history
        keeps = getattr(self.algorithm, "totals", None) if self.clients.holds_server else None
        totals = None if keeps is None else keeps(snapshot.server)
        run = Run(
            with_learned(self.algorithm, down),
            self.seed,
            status,
            history,
            factors,
            scores,
            down,
            about,
            features,
            privacy,
            totals=totals,
        )
        if privacy is None:
            return run
        from fedfactor.privacy.publication import seal  # late: a run in the clear needs none of it

        return seal(run)

    # ------------------------------------------------------------------------------------------------- one round
    def round(self, snapshot: Snapshot) -> Snapshot:
        """Ask, receive, and let the server take its step."""
        began = time.perf_counter()
        at = Round(self.seed, snapshot.next_round)
        at = replace(at, participants=participants(self.participation, at, self.meta.clients))
        played = self._played(snapshot, at, began)
        if played is not None:
            return played
        receiver = self.receiver(at, snapshot.down)
        self.clients.exchange(snapshot.down, at, receiver)
        if receiver.rejected and not receiver.present and self.clients.holds_server:
            # A few of many who were asked alone may all be bad; a method that diverges does so everywhere.
            everybody = set(at.participants) == set(self.meta.clients)
            if everybody or self._only_rejected(snapshot, receiver.rejected):
                raise ProtocolError(
                    f"Every upload of round {at.index} was left out, so the run ends: {', '.join(receiver.rejected)} "
                    "sent NaN, infinity, or what cannot be true. Where all do, the settings let the method diverge."
                )
        if receiver.rejected and not receiver.complete:
            raise lacking(receiver.rejected)
        return self.close(snapshot, receiver, at, began)

    def arrival(self, snapshot: Snapshot, name: str, hand: Callable[[Receiving], None], began: float) -> Snapshot:
        """Merge what one client sent, in a run without rounds; a bad upload changes nothing, and is named."""
        at = Round(self.seed, snapshot.next_round, participants=(name,))
        receiver = self.receiver(at, snapshot.down)
        hand(receiver)
        if receiver.rejected and self._only_rejected(snapshot, [name]):
            raise ProtocolError(
                f"The last upload of every client was left out, so the run ends: {', '.join(self.meta.clients)} sent "
                "NaN, infinity, or what cannot be true. Where all do, the settings let the method diverge."
            )
        return self.close(snapshot, receiver, at, began)

    def _only_rejected(self, snapshot: Snapshot, last: Iterable[str]) -> bool:
        """Return whether every client sent what was left out, and no other did, since something could be used."""
        names = set(last)
        for record in reversed(snapshot.history):
            if record.participants:
                break
            names.update(record.rejected)
        return names.issuperset(self.meta.clients)

    def receiver(self, at: Round, down: Tree) -> Receiving:
        """Open a round for uploads."""
        if self.channel is None:
            groups = client_groups(self.algorithm, one_of(down), self.meta)
            here = self.clients.served
            own = {name: group for name, group in groups.items() if here is None or name in here}
            return Receiver(self.expected, self.algorithm.doubt, own)
        return self.channel.open(self.expected, at, down, encoded=self.clients.apart)

    def close(self, snapshot: Snapshot, receiver: Receiving, at: Round, began: float) -> Snapshot:
        """Take the server's step with what was received, and write the record; nothing received changes nothing."""
        server = snapshot.server
        down = snapshot.down
        told = None
        if self.clients.holds_server:
            server, down, seen = self._served(snapshot, receiver, at)
            self._seen = server, seen
            rejected = tuple(sorted({*receiver.rejected, *rejected_by(self.algorithm, seen)}))
            traffic = self.clients.traffic(snapshot.down, at, receiver)
            told = Told(tuple(receiver.present), rejected, *traffic, self.algorithm.report(seen))
        told, down = self.clients.publish(told, down)
        seconds = time.perf_counter() - began
        record = RoundRecord(
            at.index, told.present, told.bytes_up, told.bytes_down, seconds, told.metrics or {}, told.rejected
        )
        record = self.clients.note(record, server, down)
        self._warn(record, snapshot)
        history = (*snapshot.history, record)
        return replace(snapshot, next_round=at.index + 1, server=server, down=down, history=history)

    def _served(self, snapshot: Snapshot, receiver: Receiving, at: Round) -> tuple[Tree, Tree, Tree]:
        """Take the server's step; return its state, the download, and the state with its numbers at hand.

        Where uploads lie on a GPU, its values are fetched once, at the end of the round.
        """
        if not receiver.present or not receiver.complete:
            return snapshot.server, snapshot.down, snapshot.server
        combined = freeze(receiver.combined)
        present = tuple(receiver.present)
        with limit_threads(self.server_threads):
            server, sent = self.algorithm.server_step(snapshot.server, combined, replace(at, participants=present))
        later = receiver.asks_later and not isinstance(sent, Scatter)
        server = freeze(server)
        down = self.checked(sent, ask_card=not later)
        totals = {"up": checksum(combined), "down": checksum(down)} if later else {}
        seen = Glance({"server": server, "totals": totals}).read()
        if all(map(_finite, seen["totals"].values())):
            return server, down, seen["server"]
        if receiver.settle():
            return self._served(snapshot, receiver, at)
        return server, self.checked(down), seen["server"]

    def _played(self, snapshot: Snapshot, at: Round, began: float) -> Snapshot | None:
        """Replay the recorded CUDA graph for this round. Return None if no graph was recorded."""
        if self.channel is not None or not snapshot.history or snapshot.history[-1].participants != at.participants:
            return None
        done = self.clients.play(snapshot.server, snapshot.down, at, ahead=at.index + 1 < self.rounds)
        if done is None:
            return None
        server, down, seen = done
        self._seen = server, seen
        last = snapshot.history[-1]
        metrics = self.algorithm.report(seen)
        record = replace(last, index=at.index, seconds=time.perf_counter() - began, metrics=metrics)
        history = (*snapshot.history, record)
        return replace(snapshot, next_round=at.index + 1, server=server, down=down, history=history)

    def _warn(self, record: RoundRecord, snapshot: Snapshot) -> None:
        """Log, once in a run, a client with a rejected upload."""
        known = {name for past in snapshot.history for name in past.rejected} if record.rejected else ()
        for name in record.rejected:
            if name not in known and self.clients.speaks:
                logger.warning("An upload of owner %r was left out: it is not finite, or cannot be true.", name)

    # ------------------------------------------------------------------------------------------------- downloads
    def checked(self, down: Tree, *, ask_card: bool = True) -> Tree:
        """Freeze a download, and refuse one that was not announced."""
        if isinstance(down, Scatter):
            served = self.meta.clients if self.clients.served is None else self.clients.served
            without = [name for name in served if name not in down.items]
            if without:
                raise ProtocolError(
                    f"The server has nothing for client {without[0]!r}. A Scatter needs a part for every client, also "
                    "for those who did not come: they may come back, and all take their factors home."
                )
            down = Scatter({name: freeze(part) for name, part in down.items.items()})
        else:
            down = freeze(down)
        for part in down.items.values() if isinstance(down, Scatter) else (down,):
            try:
                check_message(part, self.expected, ask_card=ask_card)
            except NotFiniteError as error:
                raise NotFiniteError(
                    f"The server cannot go on: {error} Uploads that are finite one by one gave this: the settings let "
                    "the method diverge, or numbers are too large to be added."
                ) from None
            except ProtocolError as error:
                raise ProtocolError(f"The server cannot go on: {error}") from None
        return down

    def settled(self, server: Tree, down: Tree) -> Tree:
        """Return what clients finish with, from the server wherever it is."""
        if type(self.algorithm).settle is Algorithm.settle:
            return down
        if self.clients.holds_server:
            down = self.checked(self.algorithm.settle(server, down))
        return self.clients.publish(Told(), down)[1]
