"""Figures in one file each, so that a run that was broken off goes on where it stopped."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["Store"]


class Store:
    """A folder of figures by what they are figures of."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, key: dict[str, Any], make: Callable[[], Any]) -> Any:
        """Return the figures under a key, from their file if it is there, else made and written at once."""
        name = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:16]
        path = self.folder / f"{name}.json"
        if not path.exists():
            draft = path.with_suffix(".part")
            draft.write_text(json.dumps({"key": key, "figures": make()}))
            os.replace(draft, path)
        return json.loads(path.read_text())["figures"]
