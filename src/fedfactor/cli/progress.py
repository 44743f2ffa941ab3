"""A bar with the time left, for commands that make several runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

import typer


@contextmanager
def bar(label: str, quiet: bool = False) -> Generator[Callable[[int, int, str], None]]:
    """Give a function (done, of, words): a bar on a terminal, a line each time elsewhere, nothing when quiet.

    Examples
    --------
    >>> with bar("rank", quiet=True) as told:
    ...     told(1, 3, "error 0.1")
    """
    if quiet:
        yield lambda done, of, words: None
        return
    if not sys.stderr.isatty():
        yield lambda done, of, words: typer.echo(f"run {done} of {of}: {words}", err=True)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    shown = Progress(*columns, TextColumn("{task.fields[words]}"), console=Console(stderr=True), transient=True)
    task = shown.add_task(label, total=None, words="")
    with shown:
        yield lambda done, of, words: shown.update(task, completed=done, total=of, words=words)
