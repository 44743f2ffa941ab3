"""The clients of an MPI job as one rank reaches them: its own at hand, the others through collectives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from fedfactor.core.errors import ClientUnavailable
from fedfactor.core.federation import Federation
from fedfactor.core.protocol import Algorithm, LocalFactors, Meta, Round, Scatter, Score
from fedfactor.core.tree import Tree, freeze, nbytes, tree_map
from fedfactor.core.wire import receive, to_bytes
from fedfactor.engines.local.pool import ThreadPool
from fedfactor.engines.mpi.collectives import Collectives, frames, pack_kinds, unframe, unpack_kinds
from fedfactor.engines.round import Receiver, Receiving, Told, receive_bytes

if TYPE_CHECKING:
    from fedfactor.privacy.session import Channel

REJECTED, PRESENT = 1, 2


class OwnClients(ThreadPool):
    """The owners that one rank holds."""

    def __init__(self, group: Collectives, algorithm: Algorithm, mine: Federation | None, meta: Meta) -> None:
        super().__init__(algorithm, mine, meta, 1)
        self.group, self.expected, self.speaks = group, algorithm.messages(meta), group.rank == 0
        self.uploads = {kind: spec for kind, spec in self.expected.items() if hasattr(kind, "uplink")}

    def end(self, down: Tree) -> Iterator[tuple[str, LocalFactors | None, Score]]:
        """Let them finish; the scores of all ranks' clients are told to all."""
        kept: dict[str, LocalFactors | None] = {}
        told: dict[str, list[float]] = {}
        for name, kept[name], score in super().end(down):
            told[name] = [float(score.sse), float(score.n), float(score.total)]
        everyone = {name: figures for rank in self.group.hear_all(told) for name, figures in rank.items()}
        for name in self.meta.clients:
            yield name, kept.get(name), Score.of(*everyone[name])

    def about(self) -> dict[str, Any]:
        """Tell the size of the job, and what this rank sent."""
        return {"ranks": self.group.size, "rank_sent_bytes": self.group.sent}


class RankClients(OwnClients):
    """The owners of this rank, and the way to those of the others.

    Parameters
    ----------
    group : Collectives
        The ranks.
    algorithm, mine, meta
        What is computed, and over which owners of this rank.
    rooted : bool
        Whether the server is on rank 0 alone; else it is on every rank.
    summed : bool
        Whether sums are formed by MPI in one collective; else every upload comes to every server, in name order.
    drop_outs : bool
        Whether clients may stay away.
    followed : bool
        Whether callbacks on rank 0 could end the run.
    channel : Channel, optional
        What protects uploads on their way.
    """

    def __init__(
        self,
        group: Collectives,
        algorithm: Algorithm,
        mine: Federation,
        meta: Meta,
        *,
        rooted: bool,
        summed: bool,
        drop_outs: bool,
        followed: bool,
        channel: Channel | None = None,
    ) -> None:
        super().__init__(group, algorithm, mine, meta)
        self.rooted, self.summed, self.drop_outs, self.followed = rooted, summed, drop_outs, followed
        self.holds_server, self.apart = not rooted or group.rank == 0, channel is not None
        self.channel, self.now = channel, 0

    # ------------------------------------------------------------------ up
    def exchange(self, down: Tree, at: Round, receiver: Receiving) -> None:
        """Let this rank's clients take a step, and bring what all ranks' clients send to where the server is."""
        self.now = at.index
        sent = ((name, self._sent(name, up, at, down)) for name, up in self.steps(down, at))
        ups = {name: up for name, up in sent if up is not None}
        if self.summed:
            assert isinstance(receiver, Receiver)  # what goes through a channel is not summed by MPI
            self._reduce(ups, receiver)
            return
        data = frames((name, to_bytes(up)) for name, up in ups.items())
        arrived = self.group.to_root(data) if self.rooted else self.group.all_bytes(data)
        for name, part in sorted(pair for rank in map(unframe, arrived) for pair in rank):
            receive_bytes(receiver, name, part, self.uploads)

    def _sent(self, name: str, up: Tree, at: Round, down: Tree) -> Tree:
        """Say what travels of one upload; a client that stays away is an error unless that was allowed."""
        if up is None and not self.drop_outs:
            raise ClientUnavailable(f"{name!r} stayed away; say MPIEngine(drop_outs=True) where that may happen.")
        return up if up is None or self.channel is None else self.channel.sender.sent(name, up, at, down)

    def _reduce(self, ups: dict[str, Tree], receiver: Receiver) -> None:
        """Add this rank's uploads, then all ranks' sums, in one collective for each dtype.

        A number for each client travels along: whether its upload is in the sum or was left out. So all ranks know the
        same of a bad upload, without a message more.
        """
        for name, up in ups.items():
            receiver.add(name, up)
        like = next(iter(ups.values()))
        total = receiver.combined if receiver.present else tree_map(np.zeros_like, like)
        flags = {**dict.fromkeys(receiver.rejected, REJECTED), **dict.fromkeys(receiver.present, PRESENT)}
        buffers = pack_kinds(total)
        first, names = next(iter(buffers)), self.meta.clients
        buffers[first] = np.append(buffers[first], np.array([flags.get(n, 0) for n in names], buffers[first].dtype))
        found = {kind: self.group.add_up(buffer) for kind, buffer in buffers.items()}
        found[first], told = np.split(found[first], [-len(names)])
        size = nbytes(like)  # of sums, all uploads are of one size
        present = {n: size for n, flag in zip(names, told, strict=True) if flag == PRESENT}
        rejected = {n: receiver.rejected.get(n, "") for n, flag in zip(names, told, strict=True) if flag == REJECTED}
        receiver.replace_by(unpack_kinds(found, total), present, rejected)

    # ------------------------------------------------------------------ down
    def publish(self, told: Told | None, down: Tree) -> tuple[Told, Tree]:
        """Bring what rank 0 did to all ranks; nothing travels where every rank is the server."""
        if not self.rooted:
            return super().publish(told, down)
        about: dict[str, Any] = self.group.tell_all(None if told is None else asdict(told))
        about |= {"present": tuple(about["present"]), "rejected": tuple(about["rejected"])}
        told = Told(**about)
        data = self.group.from_root(self._reply(down) if self.group.rank == 0 else None)
        if self.group.rank == 0:
            return told, down
        found = {name: freeze(receive(part, self.expected)) for name, part in unframe(data)}
        return told, found[""] if "" in found else Scatter(found)

    def _reply(self, down: Tree) -> Any:
        """Write a broadcast, or for each rank the parts of its own clients."""
        if not isinstance(down, Scatter):
            return frames([("", to_bytes(down))])
        whole, more = divmod(self.meta.n_clients, self.group.size)
        starts = [rank * whole + min(rank, more) for rank in range(self.group.size + 1)]
        parts: list[bytes] = []
        for first, last in pairwise(starts):
            own = [name for name in self.meta.clients[first:last] if name in down.items]
            parts.append(frames((name, to_bytes(down.items[name])) for name in own))
        return parts

    def decide(self, ended: str) -> str:
        """Let rank 0 decide, so that no rounding lets ranks part ways; silent where nothing could end the run."""
        if type(self.algorithm).converged is Algorithm.converged and not self.followed:
            return ""
        words = ("", "converged", "stopped")
        return words[self.group.flag(words.index(ended))]

    def failure(self, error: BaseException, saved: int | None) -> str:
        """Say where and why the job ended, and how it goes on."""
        few = f"{', '.join(self.names[:3])}{'…' * (len(self.names) > 3)}"
        again = f" The same command goes on from round {saved}." if saved else ""
        reason = f"{type(error).__name__}: {error}".rstrip(".")
        return (
            f"rank {self.group.rank} of {self.group.size} (owners {few}) failed in round {self.now}, so the job ends: "
            f"{reason}.{again}"
        )
