"""Runs any algorithm on a Dask cluster: every worker opens its own clients, and this process is the server."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from fedfactor.core.algorithm import Round
from fedfactor.core.errors import IncompatibleError, MissingExtraError, WorkerError
from fedfactor.core.parameters import setting
from fedfactor.core.run import Run
from fedfactor.core.threads import limit_threads, thread_limit
from fedfactor.engines.checkpoint import Checkpoint
from fedfactor.engines.client_sampling import participants
from fedfactor.engines.engine import check_fit, judge_small
from fedfactor.engines.engine_base import Asked, Carrier

if TYPE_CHECKING:
    pass


def load_dask() -> Any:
    """Import Dask's ``distributed``; late, because only this engine needs it."""
    try:
        import distributed
    except ImportError as error:
        raise MissingExtraError.named("distributed", "dask", "The Dask engine") from error
    return distributed


@dataclass(frozen=True, slots=True)
class DaskEngine(Carrier):
    """Runs the clients of a federation on the workers of a Dask cluster.

    Parameters
    ----------
    scheduler : str, distributed.Client or None
        Address such as ``"tcp://10.0.0.1:8786"``, or a client of a cluster. None: the client that is open in this
        process, else a cluster of this machine's cores for the one run.
    reduction : {"tree", "ordered"}
        How sums are formed: along a tree of workers, equal to the reference up to rounding; or in name order, from
        worker to worker, with the reference's bits.
    workers : int, optional
        Wait for so many workers before the run begins; None takes those that are there.
    patience : float
        Seconds to wait for a scheduler, and for workers.

    Notes
    -----
    A Dask cluster belongs to one organisation: workers run whatever code they are sent, so this engine is for one's own
    data on one's own machines. Clients are dealt to workers in name order. A worker opens files itself, so their paths
    must be the same everywhere; rows that lie in this process are sent. All factors come back to this process.

    Examples
    --------
    >>> import numpy as np, fedfactor
    >>> from fedfactor.algorithms import PooledNMF
    >>> X = np.random.default_rng(0).random((40, 6))
    >>> engine = DaskEngine("tcp://10.0.0.1:8786")
    >>> fedfactor.run(PooledNMF(2), [X[:10], X[10:]], engine=engine, rounds=3).V.shape  # doctest: +SKIP
    (2, 6)
    """

    scheduler: Any = None
    reduction: Literal["tree", "ordered"] = "tree"
    workers: int | None = setting("", default=None, at_least=1)
    patience: float = setting("", default=30.0, above=0)

    apart: ClassVar[bool] = True
    channels: ClassVar[bool] = True

    def _carry(self, asked: Asked) -> Run:
        from fedfactor.engines.dask.clients import DaskClients

        algorithm = asked.algorithm
        seed = asked.seed
        with self._client() as client, client.as_current():
            clients = DaskClients(client, asked.federation)
            clients.ordered = self.reduction == "ordered"
            try:
                meta = clients.meet(algorithm)
                check_fit(algorithm, meta)
                if not callable(asked.participation):
                    participants(asked.participation, Round(seed, 0), meta.clients)
                if all(each.bounds is None for each in clients.facts):
                    judge_small(algorithm, {each.name: each.n_rows for each in clients.facts}, simulation=True)
                asked = asked.meeting(meta)
                channel: Any = asked.channel
                if channel is not None and channel.hides:
                    raise IncompatibleError(
                        "The Dask engine has no secure aggregation: its workers trust each other. Use the local "
                        "engine to simulate one, or a real federation."
                    )
                clients.adopt(channel)
                kept = Checkpoint.of(asked.checkpoint)
                how = {} if clients.ordered else {"sums along a tree of": len(clients.own)}
                with limit_threads(thread_limit()):
                    mark = clients.mark(seed, **how) if kept else None
                    loop = asked.loop(meta, clients, kept=kept, mark=mark)
                    return loop.finish(loop.run(), 1, clients.facts[0].features)
            finally:
                clients.close()

    @contextmanager
    def _client(self) -> Generator[Any]:
        """Reach the cluster, and leave it, or end it, as it was found."""
        dask = load_dask()
        if self.scheduler is not None and not isinstance(self.scheduler, str):
            yield self._filled(self.scheduler)
            return
        if self.scheduler is None:
            try:
                found = dask.default_client()
            except ValueError:
                found = None
            if found is not None:
                yield self._filled(found)
                return
            count = self.workers or thread_limit()
            with (
                dask.LocalCluster(count, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as cluster,
                dask.Client(cluster, set_as_default=False) as client,
            ):
                yield self._filled(client)
            return
        try:
            client = dask.Client(self.scheduler, timeout=self.patience, set_as_default=False)
        except (OSError, TimeoutError) as error:
            raise WorkerError(
                f"No Dask scheduler answers at {self.scheduler} ({error}). Start one with: dask scheduler; it prints "
                "its address."
            ) from error
        with client:
            yield self._filled(client)

    def _filled(self, client: Any) -> Any:
        """Wait until the cluster has workers."""
        try:
            client.wait_for_workers(self.workers or 1, timeout=self.patience)
        except TimeoutError:
            raise WorkerError(
                f"The Dask cluster has {len(client.nthreads())} workers, but {self.workers or 1} are needed. Start "
                "more: dask worker ADDRESS, on each machine."
            ) from None
        return client
