"""The clients of an MPI job as one rank reaches them: its own at hand, the others through collectives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from fedfactor.core.algorithm import Algorithm, LocalFactors, Meta, Round, Scatter, Score, Uplink, one_of
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import ClientUnavailable, NotFiniteError, ProtocolError
from fedfactor.core.grid import even_bounds
from fedfactor.core.pytree import Tree, freeze, kind_of, nbytes, tree_map, visibility
from fedfactor.core.wire import Spec, receive, to_bytes
from fedfactor.engines.capabilities import client_groups
from fedfactor.engines.engine import downloads, sums_by_group
from fedfactor.engines.local.thread_pool import ThreadPool
from fedfactor.engines.mpi.collectives import Collectives, frames, pack_kinds, unframe, unpack_kinds
from fedfactor.engines.round import Receiver, Receiving, Told, lacking, receive_bytes

if TYPE_CHECKING:
    from fedfactor.privacy.pipeline import Channel

REJECTED = 1
"""Code of a client whose upload was rejected; larger numbers give the kind of the upload."""


class Whole:
    """Uploads of the form that was announced, as a collective needs them: all leaves that they may have.

    Leaves that a client may omit (telemetry) are zeros where it does; the code states this and the kind of the upload.
    """

    def __init__(self, uploads: Mapping[type, Spec]) -> None:
        self.kinds = list(uploads)
        self.uploads = uploads

    def _optional(self, kind: type) -> list[str]:
        return [path for path in self.uploads[kind] if "." not in path and visibility(kind, path) == "telemetry"]

    def filled(self, up: Tree) -> Tree:
        """Put zeros where an upload has nothing."""
        kind: Any = kind_of(up)
        spec = self.uploads[kind]
        absent = [path for path in self._optional(kind) if getattr(up, path) is None]
        return replace(up, **{path: np.zeros(spec[path].shape, spec[path].dtype) for path in absent}) if absent else up

    def code(self, up: Tree) -> int:
        """Write the kind of an upload, and what it lacks, as a small number above ``REJECTED``."""
        kind: Any = kind_of(up)
        lacks = sum(1 << i for i, path in enumerate(self._optional(kind)) if getattr(up, path) is None)
        return REJECTED + 1 + self.kinds.index(kind) + len(self.kinds) * lacks

    def _read(self, code: int) -> tuple[type, list[str]]:
        lacks, place = divmod(code - REJECTED - 1, len(self.kinds))
        kind = self.kinds[place]
        return kind, [path for i, path in enumerate(self._optional(kind)) if lacks >> i & 1]

    def nbytes(self, code: int, whole: int) -> int:
        """Return the size of an upload that would have so many bytes with nothing left out."""
        kind, absent = self._read(code)
        return whole - sum(self.uploads[kind][path].nbytes for path in absent)

    def cut(self, total: Tree, codes: Mapping[str, int]) -> Tree:
        """Take out of a sum what not all of its clients have; refuse one of several kinds."""
        absent: set[str] = set()
        first: type | None = None
        for name, code in codes.items():
            kind, lacks = self._read(code)
            first = first or kind
            if kind is not first:
                raise ProtocolError(f"Client {name!r} sent {kind.__name__} in a round of {first.__name__}.")
            absent.update(lacks)
        return replace(total, **dict.fromkeys(absent)) if absent else total


class OwnClients(ThreadPool):
    """The clients that one rank holds."""

    def __init__(self, group: Collectives, algorithm: Algorithm, mine: Federation | None, meta: Meta) -> None:
        super().__init__(algorithm, mine, meta, 1)
        self.group = group
        self.expected = algorithm.messages(meta)
        self.speaks = group.rank == 0
        self.uploads = {kind: spec for kind, spec in self.expected.items() if hasattr(kind, "uplink")}

    def end(self, down: Tree) -> Iterator[tuple[str, LocalFactors | None, Score]]:
        """Let them finish; the scores of all ranks' clients are sent to all."""
        kept: dict[str, LocalFactors | None] = {}
        told: dict[str, list[float]] = {}
        for name, kept[name], score in super().end(down):
            told[name] = [float(score.sse), float(score.n), float(score.total)]
        everyone = {name: figures for rank in self.group.hear_all(told) for name, figures in rank.items()}
        for name in self.meta.clients:
            yield name, kept.get(name), Score.of(*everyone[name])

    def about(self) -> dict[str, Any]:
        """Return the size of the job, and what this rank sent."""
        return {"ranks": self.group.size, "rank_sent_bytes": self.group.sent}


class RankClients(OwnClients):
    """The clients of this rank, and the way to those of the others.

    Parameters
    ----------
    group : Collectives
        The ranks.
    algorithm, mine, meta
        What is computed, and over which clients of this rank.
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
        self.rooted = rooted
        self.summed = summed
        self.drop_outs = drop_outs
        self.followed = followed
        self.holds_server = not rooted or group.rank == 0
        self.apart = channel is not None
        self.channel = channel
        self.now = 0
        self.grouped = sums_by_group(algorithm, meta)
        self.served = self.names if self.grouped else None
        self._teams = dict[tuple[str, ...], Collectives]()
        self._sizes = dict[type, tuple[int, int]]()
        bounds = even_bounds(meta.n_clients, group.size)
        self.dealt = [meta.clients[first:last] for first, last in pairwise(bounds)]

    # ------------------------------------------------------------------ up
    def exchange(self, down: Tree, at: Round, receiver: Receiving) -> None:
        """Let this rank's clients take a step, and bring what all ranks' clients send to where the server is."""
        self.now = at.index
        sent = ((name, self._sent(name, up, at, down)) for name, up in self.steps(down, at))
        ups = {name: up for name, up in sent if up is not None}
        if not self.grouped:
            self._bring(ups, receiver, self.group, self.meta.clients)
            return
        assert isinstance(receiver, Receiver)  # no channel carries sums by group
        groups = client_groups(self.algorithm, one_of(down), self.meta)
        # Every rank goes through its groups in the same order, so that none waits for one who waits for it.
        for label in sorted({groups[name] for name in self.names}):
            names = tuple(name for name in self.meta.clients if groups[name] == label)
            part = Receiver(self.expected, self.algorithm.doubt)
            self._bring({name: up for name, up in ups.items() if name in names}, part, self._team(names), names)
            if part.rejected:
                raise lacking(part.rejected)
            receiver.put_group(label, part.combined, {name: nbytes(ups[name]) for name in names if name in ups}, {})
        receiver.present = list(self.meta.clients)  # a missing rank has ended the job

    def _bring(self, ups: Mapping[str, Tree], receiver: Receiving, team: Collectives, names: Sequence[str]) -> None:
        """Bring what clients of some ranks send to where the server is."""
        if self.grouped and team.size == 1:
            for name, up in ups.items():
                receiver.add(name, up)
            return
        if self.summed:
            assert isinstance(receiver, Receiver)  # what goes through a channel is not summed by MPI
            self._reduce(ups, receiver, team, names)
            return
        data = frames((name, to_bytes(up)) for name, up in ups.items())
        arrived = team.to_root(data) if self.rooted else team.all_bytes(data)
        for name, part in sorted(pair for rank in map(unframe, arrived) for pair in rank):
            receive_bytes(receiver, name, part, self.uploads)

    def _team(self, names: tuple[str, ...]) -> Collectives:
        """Return the ranks that hold these clients, as a communicator of their own."""
        if names not in self._teams:
            ranks = [rank for rank, own in enumerate(self.dealt) if set(own) & set(names)]
            self._teams[names] = self.group.part(ranks)
        return self._teams[names]

    def traffic(self, down: Tree, at: Round, receiver: Receiving) -> tuple[int, int]:
        """Count the bytes that went up and down; of groups, those of other ranks are asked for once a kind."""
        if not self.grouped:
            return super().traffic(down, at, receiver)
        kind = kind_of(one_of(down))
        if kind not in self._sizes:
            told: list[list[int]] = self.group.hear_all([receiver.bytes_up, downloads(down, self.names)])
            self._sizes[kind] = sum(up for up, _ in told), sum(got for _, got in told)
        return self._sizes[kind]

    def close(self) -> None:
        """Give back the communicators of groups; every rank must come here, so only a run that ended well does."""
        for names in sorted(self._teams):
            self._teams.pop(names).comm.Free()

    def about(self) -> dict[str, Any]:
        """Return what this rank sent to all, and to its groups."""
        found = super().about()
        return {**found, "rank_sent_bytes": self.group.sent + sum(team.sent for team in self._teams.values())}

    def _sent(self, name: str, up: Tree, at: Round, down: Tree) -> Tree:
        """Return what travels of one upload; a client that stays away is an error unless that was allowed."""
        if up is None and not self.drop_outs:
            raise ClientUnavailable(f"{name!r} stayed away; say MPIEngine(drop_outs=True) where that may happen.")
        if up is None or self.channel is None:
            return up
        try:
            return self.channel.sender.sent(name, up, at, down)
        except NotFiniteError:
            if up.uplink == Uplink.GATHER:  # seen one by one: the server leaves it out, and names its sender
                return up
            raise

    def _reduce(self, ups: Mapping[str, Tree], receiver: Receiver, team: Collectives, names: Sequence[str]) -> None:
        """Add this rank's uploads, then those ranks' sums, in one collective for each dtype.

        A number for each client travels along: whether its upload is in the sum, of which form it was, or that it was
        left out. So all ranks know the same of an odd upload, without a message more.
        """
        for name, up in ups.items():
            receiver.add(name, up)
        whole = Whole(self.uploads)
        like = next(iter(ups.values()))
        total = whole.filled(receiver.combined if receiver.present else tree_map(np.zeros_like, like))
        flags = {**dict.fromkeys(receiver.rejected, REJECTED), **{n: whole.code(ups[n]) for n in receiver.present}}
        buffers = pack_kinds(total)
        first = next(iter(buffers))
        buffers[first] = np.append(buffers[first], np.array([flags.get(n, 0) for n in names], buffers[first].dtype))
        found = {kind: team.add_up(buffer) for kind, buffer in buffers.items()}
        found[first], told = np.split(found[first], [-len(names)])
        forms = {n: int(flag) for n, flag in zip(names, told, strict=True)}
        rejected = {n: receiver.rejected.get(n, "") for n, flag in forms.items() if flag == REJECTED}
        codes = {n: flag for n, flag in forms.items() if flag > REJECTED}
        size = nbytes(total)
        present = {n: whole.nbytes(flag, size) for n, flag in codes.items()}
        receiver.replace_by(whole.cut(unpack_kinds(found, total), codes), present, rejected)

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
        return [frames((name, to_bytes(down.items[name])) for name in own if name in down.items) for own in self.dealt]

    def decide(self, ended: str) -> str:
        """Let rank 0 decide, so that no rounding lets ranks part ways; silent where nothing could end the run."""
        if type(self.algorithm).converged is Algorithm.converged and not self.followed:
            return ""
        words = ("", "converged", "stopped")
        return words[self.group.flag(words.index(ended))]

    def failure(self, error: BaseException, saved: int | None) -> str:
        """Return where and why the job ended, and how it goes on."""
        few = f"{', '.join(self.names[:3])}{'…' * (len(self.names) > 3)}"
        again = f" The same command goes on from round {saved}." if saved else ""
        reason = f"{type(error).__name__}: {error}".rstrip(".")
        return (
            f"rank {self.group.rank} of {self.group.size} (owners {few}) failed in round {self.now}, so the job ends: "
            f"{reason}.{again}"
        )
