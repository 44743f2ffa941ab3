"""The reference engine: a whole federation on one machine. Every other engine must return what this one returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from fedfactor.core.algorithm import Algorithm, Meta, Round
from fedfactor.core.client_data import Federation
from fedfactor.core.parameters import setting
from fedfactor.core.run import Run
from fedfactor.core.threads import limit_threads, thread_limit
from fedfactor.engines.checkpoint import Checkpoint, fingerprint
from fedfactor.engines.client_sampling import participants
from fedfactor.engines.engine import check_fit
from fedfactor.engines.engine_base import Asked, Carrier
from fedfactor.engines.local.thread_pool import ThreadPool
from fedfactor.engines.round import Clients
from fedfactor.linalg.cuda.device_rows import takes_half


@dataclass(frozen=True, slots=True)
class LocalEngine(Carrier):
    """Runs every client on this machine.

    Parameters
    ----------
    backend : {"threads", "processes"}
        Threads share the data and suit kernels that let go of the interpreter lock, as ours do; processes suit client
        code that holds it. Both give the same bits.
    workers : int, optional
        Most threads that work at a time, and so clients served at a time; by default as many as the process was given
        (see :func:`fedfactor.core.threads.thread_limit`). Where there are fewer clients, each client's
        products use several.
    """

    backend: Literal["threads", "processes"] = "threads"
    workers: int | None = setting("", default=None, at_least=1)

    simulation: ClassVar[bool] = True
    channels: ClassVar[bool] = True

    def _carry(self, asked: Asked) -> Run:
        algorithm = asked.algorithm
        federation = asked.federation
        meta = federation.prepare(algorithm.domain, takes_half(algorithm))
        check_fit(algorithm, meta)
        if not callable(asked.participation):  # a share that cannot be is refused before any work
            participants(asked.participation, Round(asked.seed, 0), meta.clients)
        # Threads that feed one GPU fight for the interpreter lock, and the GPU does one thing after the other anyway.
        on_card = getattr(federation.shard(federation.names[0]).X, "is_cuda", False)
        workers, threads = self._share_out(1 if on_card else len(federation))
        # before a cap for each client is in force
        kept = Checkpoint.of(asked.checkpoint)
        allowed = self._allowed()
        with limit_threads(threads):
            clients = self._clients(algorithm, federation, meta, workers, threads, on_card)
            try:
                mark = fingerprint(algorithm, federation, meta, asked.seed, threads) if kept else None
                loop = asked.loop(
                    meta,
                    clients,
                    kept=kept,
                    mark=mark,
                    server_threads=allowed,  # the server works alone
                )
                return loop.finish(loop.run(), threads, federation.feature_names)
            finally:
                clients.close()

    def _allowed(self) -> int:
        """Return how many threads may work at once, those of products and of the server included."""
        return thread_limit() if self.workers is None else min(self.workers, thread_limit())

    def _share_out(self, n_clients: int) -> tuple[int, int]:
        """Return how many clients are served at a time, and by how many threads each."""
        # More workers than threads only when asked for: then they take turns.
        workers = min(thread_limit() if self.workers is None else self.workers, n_clients)
        return workers, max(1, self._allowed() // workers)

    def _clients(
        self, algorithm: Algorithm, federation: Federation, meta: Meta, workers: int, threads: int, on_card: bool
    ) -> Clients:
        if self.backend == "threads":
            # Rows that go to the GPU block by block are more than a recording could hold.
            plays = on_card and all(hasattr(federation.shard(name).X, "data_ptr") for name in federation.names)
            return ThreadPool(algorithm, federation, meta, workers, threads, plays=plays)
        from fedfactor.engines.local.process_pool import ProcessPool

        return ProcessPool(algorithm, federation, meta, workers, threads)
