"""Runs any algorithm under ``mpiexec``: every rank opens only its own clients, and no rank waits for a dead one."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fedfactor.core.algorithm import Algorithm, Meta, Uplink
from fedfactor.core.client_data import Facts, Federation, agree
from fedfactor.core.errors import FedfactorError, IncompatibleError
from fedfactor.core.grid import even_bounds
from fedfactor.core.parameters import setting
from fedfactor.core.run import Run
from fedfactor.core.threads import limit_threads, thread_limit
from fedfactor.engines.checkpoint import Checkpoint
from fedfactor.engines.engine import check_fit, judge_small, sums_by_group
from fedfactor.engines.engine_base import Asked, Carrier
from fedfactor.engines.mpi.asynchronous import StreamClients
from fedfactor.engines.mpi.checkpoints import RankCheckpoints, mark_of
from fedfactor.engines.mpi.collectives import Collectives, missing
from fedfactor.engines.mpi.rounds import RankClients

if TYPE_CHECKING:
    pass


def load_mpi() -> Any:
    """Import mpi4py's MPI, which starts MPI; late, because only this engine needs it."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise missing(error) from error
    return MPI


def take_card(place: int) -> None:
    """Let this rank work on a GPU of its own, where clients bring tensors and the machine has several GPUs."""
    torch: Any = sys.modules.get("torch")  # callers that pass tensors have imported it
    if torch is not None and torch.cuda.is_available():
        torch.cuda.set_device(place % torch.cuda.device_count())


@dataclass(frozen=True, slots=True)
class MPIEngine(Carrier):
    """Runs the clients of a federation on the ranks of an MPI job; every rank makes the same call.

    Parameters
    ----------
    size : int, optional
        Ranks that the job must have. None takes what there is, and still refuses a job whose launcher and library do
        not belong together, which would silently run N jobs of one rank.
    reduction : {"allreduce", "ordered"}
        How sums are formed where the server is on every rank: by MPI, fastest, equal to the reference up to rounding;
        or in name order, with the reference's bits.
    trusted : bool
        True: ranks may see the sums, so all of them take the server's step on one all-reduced buffer. False, and always
        when single uploads are needed: the server is on rank 0 alone, and others see what it sends them.
    drop_outs : bool
        Whether clients may stay away from a round. It takes a message more; without it a client that stays away is an
        error.
    asynchronous : bool, optional
        Whether uploads are merged one by one as they arrive, with rank 0 as the server and no clients on it. None: as
        the algorithm is made.
    comm : communicator, optional
        Of mpi4py; by default all ranks.

    Notes
    -----
    Clients are dealt to ranks in name order, as evenly as they go. Where torch is imported and there are GPUs, the
    ranks of a machine take one each, in turn, before clients are opened: ``lambda: torch.load(...).cuda()`` lands
    there. ``Run.factors`` holds the clients of this rank; ``Run.scores`` and the history are the same everywhere.
    Callbacks are called on rank 0.

    Examples
    --------
    Without a launcher there is one rank, which is enough to try it:

    >>> import numpy as np, fedfactor
    >>> from fedfactor.algorithms import PooledNMF
    >>> X = np.random.default_rng(0).random((40, 6))
    >>> engine = MPIEngine(size=1)  # doctest: +SKIP
    >>> fedfactor.run(PooledNMF(2), [X[:10], X[10:]], engine=engine, rounds=3, seed=0).V.shape  # doctest: +SKIP
    (2, 6)
    """

    size: int | None = setting("", default=None, at_least=1)
    reduction: Literal["allreduce", "ordered"] = "allreduce"
    trusted: bool = True
    drop_outs: bool = False
    asynchronous: bool | None = None
    comm: Any = None

    apart: ClassVar[bool] = True
    channels: ClassVar[bool] = True

    def _carry(self, asked: Asked) -> Run:
        MPI = load_mpi()
        group = Collectives(MPI, MPI.COMM_WORLD if self.comm is None else self.comm)
        group.check_size(self.size)
        asked = replace(asked, seed=int(group.tell_all(asked.seed)))
        followed = bool(group.flag(int(len(asked.told) > 0)))
        if group.rank:
            asked.told.mute()  # the first rank notifies for all
        algorithm = asked.algorithm
        federation = asked.federation
        seed = asked.seed
        here, place = group.ranks_here()
        take_card(place)
        alone = self._without_rounds(group, algorithm)
        own = self._share(group, federation.names, alone)
        openers = {name: federation.opener(name) for name in own}
        mine = Federation(openers, missing_values=federation.missing_values) if own else None
        meta = self._meet(group, mine, algorithm)
        check_fit(algorithm, meta)
        allowed = thread_limit()
        threads = max(1, allowed // here)
        clients = None
        kept = Checkpoint.of(asked.checkpoint)
        ranked = None if kept is None else RankCheckpoints(kept, group)
        asked = asked.meeting(meta)
        try:
            with limit_threads(threads):
                if alone:
                    clients = self._stream(group, asked, mine, meta)
                    return clients.run(asked.rounds, seed, asked.told, threads)
                assert mine is not None
                clients = self._clients(group, asked, mine, meta, followed)
                mark = mark_of(algorithm, mine, meta, seed, threads, group) if ranked else None
                # The reference lets the server use all threads, and the number of threads can show in the last bit.
                exact = clients.rooted or self.reduction == "ordered"
                used = allowed if exact else threads
                loop = asked.loop(meta, clients, kept=ranked, mark=mark, server_threads=used)
                run = loop.finish(loop.run(), threads, mine.feature_names)
                clients.close()
            return run
        except BaseException as error:
            if group.size > 1 and clients is not None:
                why = clients.failure(error, ranked.last if ranked else None)
                group.abort(why + ("" if _plain(error) else f"\n{traceback.format_exc()}"))
            raise

    def _without_rounds(self, group: Collectives, algorithm: Algorithm) -> bool:
        """Return whether uploads are merged as they arrive."""
        made_for = bool(getattr(type(algorithm), "asynchronous", False))
        if self.asynchronous and not made_for:
            raise IncompatibleError(f"{type(algorithm).__name__} needs the uploads of all clients together.")
        if self.asynchronous is None:  # one rank cannot be server and client at once; rounds do the same work
            return made_for and group.size > 1
        return self.asynchronous

    def _clients(self, group: Collectives, asked: Asked, mine: Federation, meta: Meta, followed: bool) -> RankClients:
        """Return where the server is, and how uploads come to it."""
        algorithm = asked.algorithm
        participation = asked.participation
        channel: Any = asked.channel
        gathers = any(getattr(kind, "uplink", "") == Uplink.GATHER for kind in algorithm.messages(meta))
        whole = not self.drop_outs and participation == 1.0 and channel is None
        if channel is not None and channel.hides:
            raise IncompatibleError(
                "The MPI engine has no secure aggregation: its sums are formed by MPI itself, which every rank must "
                "trust. Use the local engine to simulate one, or a real federation."
            )
        if sums_by_group(algorithm, meta) and not (whole and self.trusted):
            raise IncompatibleError(
                f"{type(algorithm).__name__} sums by groups of ranks, which know nothing of each other's: every client "
                "must come to every round, and ranks must trust each other. Leave out participation, drop_outs and "
                "trusted=False."
            )
        return RankClients(
            group,
            algorithm,
            mine,
            meta,
            rooted=gathers or not self.trusted,
            summed=whole and not gathers and self.trusted and self.reduction == "allreduce",
            drop_outs=self.drop_outs or participation != 1.0,
            followed=followed,
            channel=channel,
        )

    def _stream(self, group: Collectives, asked: Asked, mine: Federation | None, meta: Meta) -> StreamClients:
        if asked.participation != 1.0:
            raise IncompatibleError("In an asynchronous run clients come when they are ready; participation must be 1.")
        if asked.checkpoint is not None:
            raise IncompatibleError("An asynchronous MPI run keeps no checkpoint: its moments do not come again.")
        if asked.channel is not None:
            raise IncompatibleError("Without rounds every upload is merged alone, and no channel protects that.")
        return StreamClients(group, asked.algorithm, mine, meta)

    def _meet(self, group: Collectives, mine: Federation | None, algorithm: Algorithm) -> Meta:
        """Exchange facts about the clients, never their rows, and bring this rank's rows to what was agreed."""

        def facts() -> list[dict[str, Any]]:
            return [] if mine is None else [asdict(mine.facts(name)) for name in mine.names]

        found = [
            Facts(**{**each, **{word: _tuple(each[word]) for word in ("features", "bounds", "place")}})
            for rank in group.hear_all(_together(group, facts))
            for each in rank
        ]
        found.sort(key=lambda each: each.name)
        meta = agree(found)
        if all(each.bounds is None for each in found):
            rows = {each.name: each.n_rows for each in found}
            judge_small(algorithm, rows, simulation=self.trusted)
        _together(group, lambda: None if mine is None else mine.adopt(found[0], meta, algorithm.domain))
        return meta

    def _share(self, group: Collectives, names: tuple[str, ...], alone: bool) -> tuple[str, ...]:
        """Return which clients are this rank's."""
        workers, first = (group.size - 1, 1) if alone else (group.size, 0)
        if workers < 1:
            raise IncompatibleError(
                "An asynchronous run needs a rank for the server and one for clients: mpiexec -n 2."
            )
        if workers > len(names):
            extra = " besides the server" if alone else ""
            raise IncompatibleError(
                f"The job has {workers} ranks{extra} but only {len(names)} owners: a rank would have nothing to do. "
                f"Use at most {len(names) + first} ranks, or split the data into more parts."
            )
        place = group.rank - first
        bounds = even_bounds(len(names), workers)
        return names[bounds[place] : bounds[place + 1]] if place >= 0 else ()


def _together(group: Collectives, work: Callable[[], Any]) -> Any:
    """Do this rank's part; when it fails on any rank, raise the first such error on all of them."""
    value = None
    failed = None
    try:
        value = work()
    except Exception as error:
        failed = error
    told = group.hear_all(None if failed is None else f"{type(failed).__name__}: {failed}")
    if failed is not None:
        raise failed
    first = next(((rank, text) for rank, text in enumerate(told) if text is not None), None)
    if first is not None:
        raise FedfactorError(f"Rank {first[0]} could not begin. {first[1]}")
    return value


def _tuple(value: Any) -> Any:
    return None if value is None else tuple(value)


def _plain(error: BaseException) -> bool:
    """Distinguish errors that say enough by themselves from those that need a traceback."""
    return isinstance(error, (FedfactorError, KeyboardInterrupt))
