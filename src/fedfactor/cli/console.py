"""How the command line speaks: one console, one way to fail, sizes and times that people can read."""

from __future__ import annotations

import errno
import sys
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated, Any

import typer

from fedfactor.core.errors import FedfactorError
from fedfactor.core.printable_text import printable

Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of a mistake.")]

_NOTES: list[str] = []

DECISION = 2
ATTENTION = 3
RETRY = 75
"""``EX_TEMPFAIL`` of sysexits.h."""
EXIT_CODES = {
    0: "success",
    1: 'the answer at a prompt was "no"; `audit`: an attack refuted the claim',
    DECISION: "a person must correct or decide something: invalid input, changed terms, an unknown key",
    ATTENTION: "`status`, `federation check`, `start --wait`: attention needed; `audit`: an attack was not tested",
    RETRY: "temporary: the same command may succeed later (port in use, disk full, server unreachable)",
}
"""Meaning of each exit code of the command line."""

_PASSING = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EIO,
    errno.EROFS,
    errno.EADDRINUSE,
    errno.EAGAIN,
    errno.ETIMEDOUT,
    errno.ECONNREFUSED,
    errno.ECONNRESET,
    errno.ENETUNREACH,
    errno.EHOSTUNREACH,
)
"""Errors of the operating system that may pass by themselves."""

_PIPE_WIDTH = 120
"""Width of tables that go to a file or a pipe, which have none of their own."""


def console(quiet: bool = False) -> Any:
    """Make the console that a command prints to; a quiet one swallows everything."""
    from rich.console import Console  # here, so that --help stays quick

    return Console(quiet=quiet, highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)


@contextmanager
def polite(debug: bool = False) -> Generator[None]:
    """Turn an error into one line on standard error and an exit code, and a warning into a line of its own."""
    _NOTES.clear()
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _noted
            yield
    except (FedfactorError, ValueError, OSError, MemoryError) as error:
        if debug:
            raise
        said = str(error)
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            said += ". The disk is full: make room, and give the same command again. What was reached is kept."
        if isinstance(error, OSError) and error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
            said += (
                ". This account cannot write or read there: mount the folder writable (systemd: ReadWritePaths=), or "
                "change its owner, and give the same command again."
            )
        if isinstance(error, MemoryError):
            said = f"There is not enough memory. {said or 'Python says no more'}. Take smaller settings, or fewer rows."
        typer.echo(_shown(f"Error: {said}"), err=True)
        passing = error.errno in _PASSING if isinstance(error, OSError) else getattr(error, "passing", False)
        raise typer.Exit(RETRY if passing else DECISION) from None


def _noted(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    """Print a warning without the place in the source that it comes from."""
    if str(message) not in _NOTES:
        _NOTES.append(str(message))
    typer.echo(_shown(f"Note: {message}"), err=True)


def notes() -> list[str]:
    """Return the different warnings that the running command has printed, for its report."""
    return list(_NOTES)


def _shown(text: str) -> str:
    """Keep the lines of a message, and nothing else that moves a cursor: it may quote a file of another party."""
    return "\n".join(map(printable, text.splitlines()))


def size(n_bytes: float) -> str:
    """Write a number of bytes for people.

    Examples
    --------
    >>> size(812), size(8_070_000)
    ('812 B', '8.07 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 1000:
            return f"{n_bytes:.0f} B" if unit == "B" else f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} TB"


def duration(seconds: float) -> str:
    """Write a time for people.

    Examples
    --------
    >>> duration(0.204), duration(75)
    ('0.20 s', '75 s')
    """
    return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.0f} s"
