"""Who did what at the coordinator: a file that only grows, each line bound to all before it."""

from __future__ import annotations

import getpass
import os
import time
from pathlib import Path
from typing import Any

from fedfactor.core.hash_chain import Chain

JOURNAL = "journal.jsonl"


class Journal:
    """The coordinator's log of deeds: founded, let in, agreed, served, started, stopped, and how each run ended.

    Parameters
    ----------
    folder : Path
        The server's folder; the log is ``journal.jsonl`` in it.
    """

    def __init__(self, folder: Path) -> None:
        self._chain = Chain(folder / JOURNAL)

    def write(self, deed: str, **about: Any) -> None:
        """Add a line: what was done, when, by which account of this machine, and by which person.

        The person is ``FEDFACTOR_OPERATOR``, or who called ``sudo``; several persons share an account often.
        """
        person = os.environ.get("FEDFACTOR_OPERATOR") or os.environ.get("SUDO_USER")
        if person:
            about = {"operator": person[:100], **about}
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        with self._chain.alone():
            self._chain.append({"time": now, "by": _account(), "deed": deed, **about})

    def lines(self) -> list[dict[str, Any]]:
        """Return all lines, oldest first, or raise when they are not those that were written."""
        return self._chain.lines()


def _account() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may run under a number without a name
        return "unknown"
