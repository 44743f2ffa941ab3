"""What can be set of a run beside its algorithm: declared once, for every estimator, and the run that it asks for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from fedfactor.core.algorithm import Algorithm
from fedfactor.core.client_data import Federation
from fedfactor.core.parameters import offers_settings, setting
from fedfactor.core.run import Run
from fedfactor.engines.callbacks import listed, watcher
from fedfactor.engines.checkpoint import Checkpoint
from fedfactor.engines.engine import Engine
from fedfactor.engines.run import run
from fedfactor.linalg.cuda.device_rows import Storage, check_device


@offers_settings
class OnCard:
    """Where rows are worked on."""

    device: str | None = setting(
        'Where rows are worked on: ``"cpu"``, ``"cuda"`` (``"cuda:1"``: the second card); None: where they are. They '
        "go to the card in blocks; what does not fit is sent again in every round. Results come back to where X is.",
        default=None,
        check=False,
        shown='"cpu" or "cuda"',
    )
    storage: Storage | None = setting(
        'How a card keeps dense rows; None: in single precision. ``"bfloat16"`` halves memory and traffic and rounds '
        "every cell by half a per cent at most (see the page on cards).",
        default=None,
    )

    def _place(self) -> dict[str, Any]:
        check_device(self.device, self.storage)
        return {"device": self.device, "storage": self.storage}


@offers_settings
class EveryRun:
    """What every run takes."""

    rounds: int | None = setting("Rounds at most; by default {rounds}.", default=None, at_least=1)
    n_clients: int = setting(
        "Owners to whom {rows} are dealt at random when neither {data} nor ``groups`` says who owns them.",
        default=1,
        at_least=1,
    )
    engine: str | Engine = setting("How messages travel.", default="local")
    privacy: Any = setting(
        'What protects uploads on their way: ``"secure-sum"``, :func:`fedfactor.dp`, ``"median"``; see '
        ":func:`fedfactor.run`. ``run_.privacy`` says who could see what.",
        default=None,
        shown="str, dp(...), transform, or tuple of these",
    )
    random_state: Any = setting(
        "Seed of every stream; None draws one, kept in ``run_.seed``.",
        default=None,
        shown="int, RandomState, Generator or None",
    )
    verbose: int | bool
    callbacks: Any
    checkpoint: Any

    def _run(self, algorithm: Algorithm, federation: Federation, engine: Any, seed: int) -> Run:
        watch = (*watcher(int(self.verbose), type(self).__name__), *listed(self.callbacks))
        # Every start has a folder of its own: they differ in their seed.
        kept = Checkpoint.of(self.checkpoint)
        folder = None if kept is None else replace(kept, folder=Path(kept.folder) / f"seed-{seed}")
        on_card: Any = getattr(self, "_place", dict)
        return run(
            algorithm,
            federation,
            engine=engine,
            rounds=self._exchanges(),
            seed=seed,
            privacy=self.privacy,
            callbacks=watch,
            checkpoint=folder,
            **on_card(),
        )

    def _exchanges(self) -> int | None:
        return self.rounds


@offers_settings
class Progress:
    """What is told while a run goes on."""

    verbose: int | bool = setting(
        "1 or more: a bar on a terminal, lines in the log elsewhere.", default=0, at_least=0, shown="int"
    )
    callbacks: Any = setting(
        "Called after each round with its record; one that returns True ends the run, which keeps what was reached. "
        "Objects may have ``on_start``, ``on_round`` and ``on_end``.",
        default=(),
        check=False,
        shown="sequence of functions or callbacks",
    )
    checkpoint: Any = setting(
        "A folder in which the run is kept after each round. The same ``fit``, with the same ``random_state``, goes on "
        "after it was broken off.",
        default=None,
        check=False,
        shown="path",
    )
