"""Commands within the process of a test."""

from __future__ import annotations

import functools
from typing import Any

import click.testing
import typer

command = functools.cache(typer.main.get_command)
"""The commands of an app, put together once: with forty of them that takes longer than most commands themselves."""


class CliRunner(click.testing.CliRunner):
    """Typer's runner, which would put all commands together for each one."""

    def invoke(self, app: Any, args: Any = None, **settings: Any) -> click.testing.Result:
        return super().invoke(command(app), args, **settings)
