"""A figure that took long is written down at once, so that a study that was broken off goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedfactor.core.atomic_files import write_atomic

__all__ = ["Store", "file_for", "kept"]


def file_for(folder: Path, key: Any, prefix: str = "") -> Path:
    """Name the file of a figure after everything that shapes it."""
    text = json.dumps(key, sort_keys=True, default=str)
    return folder / f"{prefix}{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


def kept(folder: Path, key: Any, make: Callable[[], Any], prefix: str = "") -> Any:
    """Return the figures under a key: from their file if it is there, else made and written.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = kept(Path(folder), {"rank": 3}, lambda: {"loss": 0.5})
    ...     again = kept(Path(folder), {"rank": 3}, lambda: {"loss": 0.9})
    >>> first, again
    ({'loss': 0.5}, {'loss': 0.5})
    """
    path = file_for(folder, key, prefix)
    if not path.exists():
        write_atomic(path, json.dumps(make(), default=str).encode(), 0o644)
    return json.loads(path.read_bytes())


class Store:
    """A folder of figures by what they are figures of."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, key: dict[str, Any], make: Callable[[], Any]) -> Any:
        """Return the figures under a key, from their file if it is there, else made and written at once."""
        return kept(self.folder, key, lambda: {"key": key, "figures": make()})["figures"]
