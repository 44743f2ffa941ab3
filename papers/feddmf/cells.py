"""Figures, each made once and written down as soon as it is there; several at a time where that is asked for."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedfactor.algorithms import FedDMF
from papers.feddmf.attributes import measure_attributes
from papers.feddmf.methods import measure
from papers.feddmf.split import movies, split
from papers.kept import file_for, kept

__all__ = ["ATTRIBUTES", "Task", "figure", "fill"]

ATTRIBUTES = "attributes"


@dataclass(frozen=True, slots=True)
class Task:
    """One method on one split: movies of at least so many ratings, the cut, the settings, the seed of both."""

    least: int
    seed: int
    cut: dict[str, Any]
    method: str
    settings: dict[str, Any]

    @property
    def key(self) -> list[dict[str, Any]]:
        """Everything that shapes the figure, the algorithm's defaults included."""
        return [asdict(self), {name: getattr(FedDMF(), name) for name in FedDMF.__dataclass_fields__}]

    def path(self, folder: Path) -> Path:
        """Name the file of the figure."""
        return file_for(folder, self.key)

    @property
    def cost(self) -> float:
        """Guess how long it takes, in passes over the data: long ones are best begun first."""
        each = self.settings.values() if self.method == ATTRIBUTES else (self.settings,)
        return sum(s.get("runs", 1) * s.get("epochs", 0) * (1.5 if s.get("pooled") else 1) for s in each) / self.least


def figure(folder: Path, task: Task) -> dict[str, Any]:
    """Read a figure, or make it."""

    def made() -> dict[str, Any]:
        part = split(movies(task.least), seed=task.seed, **task.cut)
        if task.method == ATTRIBUTES:
            return measure_attributes(part, task.least, task.settings, seed=task.seed)
        return measure(part, task.method, task.settings, seed=task.seed)

    return kept(folder, task.key, made)


def fill(folder: Path, tasks: Iterable[Task], jobs: int, say: Callable[[str], None]) -> None:
    """Make all figures that are missing in as many processes as asked for, the longest first."""
    missing = {path: task for task in tasks if not (path := task.path(folder)).exists()}
    order = sorted(missing.values(), key=lambda task: -task.cost)
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = {pool.submit(figure, folder, task): task for task in order}
        for done, future in enumerate(as_completed(waiting), 1):
            future.result()
            say(f"{done} of {len(order)}: {waiting[future].method} (seed {waiting[future].seed})")
