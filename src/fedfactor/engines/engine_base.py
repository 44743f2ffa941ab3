"""What engines take, once: the arguments of ``run``, and that callbacks are notified of the end in any case."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fedfactor.core.algorithm import Algorithm, Meta
from fedfactor.core.client_data import Federation
from fedfactor.core.parameters import check_settings
from fedfactor.core.run import Run
from fedfactor.engines.callbacks import Callbacks
from fedfactor.engines.client_sampling import Participation
from fedfactor.engines.engine import AnyCallback, rounds_of
from fedfactor.engines.round import Clients, Rounds

if TYPE_CHECKING:
    from fedfactor.privacy.pipeline import Channel


@dataclass(frozen=True, slots=True)
class Asked:
    """What an engine is asked to run."""

    algorithm: Algorithm
    federation: Federation
    rounds: int
    seed: int
    participation: Participation
    checkpoint: Any
    told: Callbacks
    channel: Channel | Callable[[Meta], Channel] | None

    def meeting(self, meta: Meta) -> Asked:
        """Make the channel, where that had to wait until the clients are known."""
        return replace(self, channel=self.channel(meta)) if callable(self.channel) else self

    def loop(self, meta: Meta, clients: Clients, *, rounds: int | None = None, **more: Any) -> Rounds:
        """Make the rounds, with what an engine adds: where they are kept, threads of the server."""
        channel: Any = self.channel
        return Rounds(
            self.algorithm,
            meta,
            clients,
            self.rounds if rounds is None else rounds,
            self.seed,
            participation=self.participation,
            channel=channel,
            callbacks=self.told,
            **more,
        )


class Carrier:
    """An engine that runs all rounds from within one call."""

    __slots__ = ()

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
        channel: Channel | Callable[[Meta], Channel] | None = None,
    ) -> Run:
        """Run all rounds; resume when ``checkpoint`` holds an unfinished run of the same kind."""
        told = Callbacks(callbacks)
        run = None
        try:
            check_settings(self)
            most = rounds_of(algorithm, rounds)
            run = self._carry(Asked(algorithm, federation, most, seed, participation, checkpoint, told, channel))
            return run
        finally:
            told.end(run)

    def _carry(self, asked: Asked) -> Run:
        raise NotImplementedError
