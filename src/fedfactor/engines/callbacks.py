"""Following a run: all callbacks as one, a progress bar on a terminal, lines in a log elsewhere."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from fedfactor.core.algorithm import Algorithm, Meta
from fedfactor.core.run import RoundRecord, Run, owners
from fedfactor.engines.engine import AnyCallback, Callback

logger = logging.getLogger("fedfactor")


def figures(record: RoundRecord) -> str:
    """Write the metrics of a round in one short line."""
    return ", ".join(f"{name.replace('_', ' ')} {value:.5g}" for name, value in record.metrics.items())


def listed(callbacks: Any) -> tuple[AnyCallback, ...]:
    """Take a list of callbacks; refuse what is none, above all a single function.

    Examples
    --------
    >>> listed(print)
    Traceback (most recent call last):
    TypeError: callbacks=<built-in function print> must be a list of functions or Callback objects, such as [print].
    """
    found: tuple[Any, ...] = ()
    whole: Any = callbacks
    if isinstance(callbacks, Iterable) and not isinstance(callbacks, (str, bytes, Callback)):
        found = tuple(whole)
    elif callbacks is not None:
        found = (None,)
    if all(isinstance(each, Callback) or (callable(each) and not isinstance(each, type)) for each in found):
        return found
    raise TypeError(
        f"callbacks={whole!r} must be a list of functions or Callback objects, such as "
        f"[{getattr(whole, '__name__', 'print')}]."
    )


class Callbacks:
    """All callbacks of a run, whether objects or plain functions, behind one call."""

    def __init__(self, callbacks: Sequence[AnyCallback]) -> None:
        self._all = listed(callbacks)

    def __len__(self) -> int:
        """Count them."""
        return len(self._all)

    def mute(self) -> None:
        """Stop notifying: another process does."""
        self._all = ()

    def start(self, algorithm: Algorithm, meta: Meta, rounds: int, first: int) -> None:
        """Notify the callbacks of the start."""
        for callback in self._all:
            if isinstance(callback, Callback):
                callback.on_start(algorithm, meta, rounds, first)

    def round(self, record: RoundRecord) -> bool:
        """Notify the callbacks of a round; return True when one of them requests a stop."""
        answers = [c.on_round(record) if isinstance(c, Callback) else c(record) for c in self._all]
        return any(answer is True for answer in answers)

    def end(self, run: Run | None) -> None:
        """Notify the callbacks of the end."""
        for callback in self._all:
            if isinstance(callback, Callback):
                callback.on_end(run)


class Log(Callback):
    """Writes one line every few rounds to the logger ``fedfactor``."""

    def __init__(self, every: int = 1, level: int = logging.INFO) -> None:
        self.every = every
        self.level = level
        self._rounds = 0

    def on_start(self, algorithm: Algorithm, meta: Meta, rounds: int, first: int) -> None:
        """Return what begins."""
        self._rounds = rounds
        resumed = f", resumed at round {first}" if first else ""
        who = owners(meta.n_clients)
        logger.log(self.level, "%s: %s, %d rounds%s", type(algorithm).__name__, who, rounds, resumed)

    def on_round(self, record: RoundRecord) -> bool | None:
        """Write a line."""
        if (record.index + 1) % self.every == 0 or record.index + 1 == self._rounds:
            told = ", ".join(filter(None, (owners(len(record.participants)), figures(record))))
            logger.log(self.level, "round %d/%d: %s", record.index + 1, self._rounds, told)

    def on_end(self, run: Run | None) -> None:
        """Return how it ended."""
        logger.log(self.level, "run broken off" if run is None else repr(run))


class ProgressBar(Callback):
    """Shows a bar with the error so far; needs a terminal, see :func:`watcher`."""

    def __init__(self, label: str | None = None) -> None:
        self.label = label
        self._progress: Any = None
        self._task: Any = None

    def on_start(self, algorithm: Algorithm, meta: Meta, rounds: int, first: int) -> None:
        """Open the bar."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, TextColumn("{task.fields[figures]}"), transient=True)
        self._task = self._progress.add_task(
            self.label or type(algorithm).__name__, total=rounds, completed=first, figures=""
        )
        self._progress.start()

    def on_round(self, record: RoundRecord) -> bool | None:
        """Advance the bar."""
        self._progress.update(self._task, completed=record.index + 1, figures=figures(record))

    def on_end(self, run: Run | None) -> None:
        """Close the bar."""
        if self._progress is not None:
            self._progress.stop()


def watcher(verbose: int, label: str | None = None) -> tuple[Callback, ...]:
    """Choose what ``verbose`` means here: nothing, a bar on a terminal, or lines in the log."""
    if not verbose:
        return ()
    if sys.stderr.isatty() and sys.stdout.isatty():
        return (ProgressBar(label),)
    if not logger.handlers and not logging.getLogger().handlers:
        logging.basicConfig(format="%(name)s: %(message)s")
    if logger.level == logging.NOTSET:  # else the root's, which is for warnings, would swallow the lines asked for
        logger.setLevel(logging.INFO)
    return (Log(every=1 if verbose > 1 else 10),)
