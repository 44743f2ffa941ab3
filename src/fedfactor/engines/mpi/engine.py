"""Runs any algorithm under ``mpiexec``: every rank opens only its own owners, and nothing waits for a dead rank."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from fedfactor.core.errors import FedfactorError, IncompatibleError
from fedfactor.core.federation import Facts, Federation, agree
from fedfactor.core.protocol import Algorithm, Meta
from fedfactor.core.run import Run
from fedfactor.engines.base import AnyCallback, Participation, check_fit
from fedfactor.engines.mpi.collectives import Collectives, missing
from fedfactor.engines.watch import Watchers
from fedfactor.privacy.plan import judge_rows
from fedfactor.threads import limit_threads, thread_limit


def load_mpi() -> Any:
    """Import mpi4py's MPI, which starts MPI; late, because only this engine needs it."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise missing(error) from error
    return MPI


@dataclass(frozen=True, slots=True)
class MPIEngine:
    """Runs the owners of a federation on the ranks of an MPI job; every rank calls it alike.

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
        Whether uploads are merged one by one as they arrive, with rank 0 as the server and no owners on it. None: as
        the algorithm is made.
    comm : communicator, optional
        Of mpi4py; by default all ranks.

    Notes
    -----
    Owners are dealt to ranks in name order, as evenly as they go. ``Run.factors`` holds the owners of this rank;
    ``Run.scores`` and the history are the same everywhere. Callbacks are called on rank 0.

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

    size: int | None = None
    reduction: Literal["allreduce", "ordered"] = "allreduce"
    trusted: bool = True
    drop_outs: bool = False
    asynchronous: bool | None = None
    comm: Any = None

    apart: ClassVar[bool] = True

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
        channel: Any = None,
    ) -> Run:
        """Run all rounds; resume when ``checkpoint`` holds an unfinished run of the same kind."""
        if channel is not None:
            raise IncompatibleError("The MPI engine carries plain uploads only: leave the channel out.")
        MPI = load_mpi()
        world = Collectives(MPI, MPI.COMM_WORLD if self.comm is None else self.comm)
        world.check_size(self.size)
        if self.reduction not in ("allreduce", "ordered"):
            raise ValueError(f"reduction={self.reduction!r} is not known. Use 'allreduce' or 'ordered'.")
        seed = int(world.tell_all(seed))
        job: Any = self._job(world, algorithm, federation, rounds, seed, participation)
        watch = Watchers(callbacks if world.rank == 0 else ())
        run: Run | None = None
        try:
            with limit_threads(job.threads):
                run = job.run(checkpoint, watch, bool(callbacks))
            return run  # type: ignore[return-value]
        except BaseException as error:
            if world.size > 1:
                world.abort(job.epitaph(error) + ("" if _plain(error) else f"\n{traceback.format_exc()}"))
            raise
        finally:
            watch.end(run)

    def _job(
        self,
        world: Collectives,
        algorithm: Algorithm,
        federation: Federation,
        rounds: int | None,
        seed: int,
        participation: Participation,
    ) -> Any:
        """Open this rank's owners, agree with the other ranks, and make ready."""
        from fedfactor.engines.mpi.rounds import RoundsJob
        from fedfactor.engines.mpi.stream import AsyncJob

        alone = (
            bool(getattr(type(algorithm), "asynchronous", False)) if self.asynchronous is None else self.asynchronous
        )
        if alone and not getattr(type(algorithm), "asynchronous", False):
            raise IncompatibleError(f"{type(algorithm).__name__} needs the uploads of all clients together.")
        if alone and world.size == 1 and self.asynchronous is None:
            alone = False  # one rank cannot be server and client at once; rounds do the same work
        own = self._share(world, federation.names, alone)
        openers = {name: federation.opener(name) for name in own}
        mine = Federation(openers, missing_values=federation.missing_values) if own else None
        meta = self._meet(world, mine, algorithm)
        rounds = algorithm.default_rounds if rounds is None else rounds
        if rounds < 1:
            raise ValueError(f"rounds={rounds} must be at least 1.")
        expected = check_fit(algorithm, meta)
        threads = max(1, thread_limit() // world.ranks_here())
        make = AsyncJob if alone else RoundsJob
        return make(self, world, algorithm, mine, meta, expected, rounds, seed, participation, threads)

    def _meet(self, world: Collectives, mine: Federation | None, algorithm: Algorithm) -> Meta:
        """Exchange facts about the owners, never their rows, and bring this rank's rows to what was agreed."""

        def facts() -> list[dict[str, Any]]:
            return [] if mine is None else [asdict(mine.facts(name)) for name in mine.names]

        found = [
            Facts(**{**each, "features": _tuple(each["features"]), "bounds": _tuple(each["bounds"])})
            for rank in world.hear_all(_together(world, facts))
            for each in rank
        ]
        found.sort(key=lambda each: each.name)
        meta = agree(found)
        if all(each.bounds is None for each in found):
            rows = {each.name: each.n_rows for each in found}
            judge_rows(getattr(algorithm, "n_components", 0), rows, simulation=self.trusted)
        _together(world, lambda: None if mine is None else mine.adopt(found[0], meta, algorithm.domain))
        return meta

    def _share(self, world: Collectives, names: tuple[str, ...], alone: bool) -> tuple[str, ...]:
        """Say which owners are this rank's."""
        workers, first = (world.size - 1, 1) if alone else (world.size, 0)
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
        place = world.rank - first
        if place < 0:
            return ()
        whole, more = divmod(len(names), workers)
        start = place * whole + min(place, more)
        return names[start : start + whole + (place < more)]


def _together(world: Collectives, work: Callable[[], Any]) -> Any:
    """Do this rank's part; when it fails on any rank, raise the first such error on all of them."""
    value, failed = None, None
    try:
        value = work()
    except Exception as error:
        failed = error
    told = world.hear_all(None if failed is None else f"{type(failed).__name__}: {failed}")
    if failed is not None:
        raise failed
    first = next(((rank, text) for rank, text in enumerate(told) if text is not None), None)
    if first is not None:
        raise FedfactorError(f"Rank {first[0]} could not begin. {first[1]}")
    return value


def _tuple(value: Any) -> Any:
    return None if value is None else tuple(value)


def _plain(error: BaseException) -> bool:
    """Tell errors that say enough by themselves from those that need a traceback."""
    return isinstance(error, (FedfactorError, KeyboardInterrupt))
