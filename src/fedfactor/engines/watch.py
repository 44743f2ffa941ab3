"""All callbacks of a run behind one voice."""

from __future__ import annotations

from collections.abc import Sequence

from fedfactor.core.protocol import Algorithm, Meta
from fedfactor.core.run import RoundRecord, Run
from fedfactor.engines.base import AnyCallback, Callback


class Watchers:
    """Speaks to all callbacks, whether objects or plain functions."""

    def __init__(self, callbacks: Sequence[AnyCallback]) -> None:
        self._all = callbacks

    def start(self, algorithm: Algorithm, meta: Meta, rounds: int, first: int) -> None:
        """Tell the start."""
        for callback in self._all:
            if isinstance(callback, Callback):
                callback.on_start(algorithm, meta, rounds, first)

    def round(self, record: RoundRecord) -> bool:
        """Tell one round; True when somebody asks to stop."""
        answers = [c.on_round(record) if isinstance(c, Callback) else c(record) for c in self._all]
        return any(answer is True for answer in answers)

    def end(self, run: Run | None) -> None:
        """Tell the end."""
        for callback in self._all:
            if isinstance(callback, Callback):
                callback.on_end(run)
