"""How a party's requests to the server go, for `status`, a page, a look before a run."""

from __future__ import annotations

import json
import time
from pathlib import Path

from fedfactor.core.atomic_files import write_atomic

CONNECTION = "connection.json"
"""File in a party's folder with the outcome of the last request to the server."""


class ConnectionStatus:
    """Writes down how requests to the server go: when that changes, and otherwise every few seconds.

    Parameters
    ----------
    file : path
        Where.
    """

    EVERY = 5.0

    def __init__(self, file: Path) -> None:
        self._file = file
        self._last = ""
        self._when = 0.0
        self._since = time.time()

    def write(self, status: int = 0, error: str = "") -> None:
        """Write down that a request went through, or what was wrong with it."""
        now = time.time()
        said = f"{status} {error}"
        if said != self._last:
            self._since = now
        elif now - self._when < self.EVERY:
            return
        self._last = said
        self._when = now
        about = {"connected": not error, "time": now, "since": self._since, "status": status, "error": error[:500]}
        write_atomic(self._file, json.dumps(about).encode())


def is_foreign(text: str) -> bool:
    """Return whether a certificate is of another authority, and not only too old or made out for another name."""
    return not any(mark in text.lower() for mark in ("expired", "not yet valid", "mismatch", "not valid for"))
