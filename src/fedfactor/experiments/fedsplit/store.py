"""Figures in one file each, so that a run that was broken off goes on where it stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedfactor.experiments.kept import kept

__all__ = ["Store"]


class Store:
    """A folder of figures by what they are figures of."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, key: dict[str, Any], make: Callable[[], Any]) -> Any:
        """Return the figures under a key, from their file if it is there, else made and written at once."""
        return kept(self.folder, key, lambda: {"key": key, "figures": make()})["figures"]
