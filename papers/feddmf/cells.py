"""Figures, each made once and written down as soon as it is there."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedfactor.algorithms import FedDMF
from papers.feddmf.attributes import measure_attributes
from papers.feddmf.methods import measure
from papers.feddmf.split import movies, split
from papers.kept import file_for, kept

__all__ = ["ATTRIBUTES", "Task", "figure"]

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


def figure(folder: Path, task: Task) -> dict[str, Any]:
    """Read a figure, or make it."""

    def made() -> dict[str, Any]:
        part = split(movies(task.least), seed=task.seed, **task.cut)
        if task.method == ATTRIBUTES:
            return measure_attributes(part, task.least, task.settings, seed=task.seed)
        return measure(part, task.method, task.settings, seed=task.seed)

    return kept(folder, task.key, made)
