"""Logs that operators can keep: every line with its time in UTC, files of bounded size, as text or as JSON.

A line of text may be an :class:`Event`, whose fields programs find in the JSON form: level, event, run, round, party,
duration in seconds, bytes.
"""

from __future__ import annotations

import json
import logging
import logging.handlers
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

MOST = 5 << 20
KEPT = 4
"""Bytes of one file, and how many older ones are kept beside it."""

JSON = "FEDFACTOR_JSON_LOGS"
"""Environment variable: one JSON object a line when it is set."""


_COLOUR = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
"""Codes with which terminals are coloured; they do not belong in files."""


class Event(str):
    """A line for people, with fields for programs.

    Parameters
    ----------
    text : str
    event : str
        What happened, in one word or two, always the same for the same kind of thing.
    level : {"info", "warning", "error"}
    **fields
        Further fields of the JSON form; those that are None or empty are left out.

    Examples
    --------
    >>> line = Event("Round 4 of 12.", "round", run="a1", round=4, party=None)
    >>> line, line.fields
    ('Round 4 of 12.', {'level': 'info', 'event': 'round', 'run': 'a1', 'round': 4})
    """

    fields: dict[str, Any]

    def __new__(cls, text: str, event: str, level: str = "info", **fields: Any) -> Event:
        """Make a line with fields."""
        made = super().__new__(cls, text)
        made.fields = {"level": level, "event": event} | {k: v for k, v in fields.items() if v not in (None, "")}
        return made


def as_object(line: str, now: str | None = None) -> str:
    """Write a line as one JSON object; one that is no event gets its level from its first word."""
    time_of = now or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    level = {"Warning": "warning", "Error": "error"}.get(line.partition(":")[0], "info")
    fields = line.fields if isinstance(line, Event) else {"level": level, "event": "message"}
    return json.dumps({"time": time_of, **fields, "message": _COLOUR.sub("", line)}, ensure_ascii=False)


class _Owned(logging.handlers.RotatingFileHandler):
    """Writes files that only their client may read."""

    _complained = False

    def handleError(self, record: logging.LogRecord) -> None:
        """Report once that a log cannot be written, and continue: the run matters more than its log."""
        error = sys.exc_info()[1]
        if not self._complained and isinstance(error, OSError):
            self._complained = True
            print(f"Note: {self.baseFilename} cannot be written ({error.strerror}).", file=sys.stderr)

    def _open(self) -> Any:
        return open(self.baseFilename, self.mode, encoding="utf-8", errors="replace", opener=_private)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


class _Lines(logging.Formatter):
    converter = time.gmtime

    def format(self, record: logging.LogRecord) -> str:
        """Put the time before the text, or both into an object."""
        now = self.formatTime(record, "%Y-%m-%dT%H:%M:%SZ")
        assert isinstance(record.args, tuple)
        line = record.args[0]
        assert isinstance(line, str)
        return as_object(line, now) if os.environ.get(JSON) else f"{now} {_COLOUR.sub('', line)}"


class LogFile:
    r"""One log with its older files ``NAME.1``, ``NAME.2``, ...

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     log = LogFile(Path(folder) / "events.log")
    ...     log.write("north is connected.")
    ...     log.close()
    ...     (Path(folder) / "events.log").read_text().partition(" ")[2]
    'north is connected.\n'
    """

    def __init__(self, path: Path, most: int = MOST, kept: int = KEPT) -> None:
        self._handler = _Owned(path, maxBytes=most, backupCount=kept, delay=True)
        self._handler.setFormatter(_Lines())

    def write(self, line: str) -> None:
        """Add a line."""
        self._handler.emit(logging.LogRecord("", logging.INFO, "", 0, "%s", (line,), None))

    def close(self) -> None:
        """Let go of the file."""
        self._handler.close()


class _Complaints(logging.Handler):
    """Writes what a logger gets to a log, each line of a traceback with its time."""

    def __init__(self, log: LogFile) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Add a record."""
        for line in self.format(record).splitlines():
            self._log.write(Event(line, "library", record.levelname.lower(), source=record.name))


def pump(source: IO[bytes], path: Path) -> None:
    """Copy the output of a process into a log until it ends."""
    log = LogFile(path)
    try:
        for line in source:
            log.write(line.decode(errors="replace").rstrip("\n"))
    finally:
        log.close()
        source.close()


def both(shown: Callable[[str], Any], path: Path) -> Callable[[str], None]:
    """Make a function that shows a line and keeps it in a log, where this library's own complaints go from now on, too.

    What they are about is described in plain words as well: a terminal need not show how the program came to a refusal.
    """
    log = LogFile(path)
    own = logging.getLogger("fedfactor")
    own.handlers = [_Complaints(log)]
    own.propagate = False

    def say(line: str) -> None:
        log.write(line)
        shown(line)

    return say
