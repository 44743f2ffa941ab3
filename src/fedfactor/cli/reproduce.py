"""``fedfactor reproduce``: run a paper's experiments again."""

from __future__ import annotations

import inspect
import pkgutil
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import typer

from fedfactor import experiments
from fedfactor.cli.console import Debug, console, polite

Name = Annotated[str, typer.Argument(help="Name of the experiments; without one, they are listed.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Folder for tables, figures and cells. [NAME-out]")]
Full = Annotated[bool, typer.Option("--full", help="Sizes like the paper's: hours instead of minutes.")]
Only = Annotated[list[str] | None, typer.Option("--only", help="Only this study; may be given several times.")]
Device = Annotated[str | None, typer.Option(help="Where to compute (cuda), where the experiments offer it.")]
Seeds = Annotated[int | None, typer.Option(min=1, help="Seeds for each setting, where the experiments offer it.")]


def names() -> tuple[str, ...]:
    """List the experiments that come with the library.

    Examples
    --------
    >>> "fnmf" in names()
    True
    """
    return tuple(sorted(found.name for found in pkgutil.iter_modules(experiments.__path__) if found.ispkg))


def reproduce(
    name: Name = "",
    out: Out = None,
    full: Full = False,
    only: Only = None,
    seeds: Seeds = None,
    device: Device = None,
    debug: Debug = False,
) -> None:
    """Run a paper's experiments: tables and figures in a folder. A run that was broken off goes on where it stopped."""
    screen = console()
    with polite(debug):
        if not name:
            screen.print("Experiments: " + ", ".join(names()) + ". Run one with: fedfactor reproduce NAME")
            return
        if name not in names():
            raise ValueError(f"No experiments are called {name!r}. Known are {', '.join(names())}.")
        work = import_module(f"fedfactor.experiments.{name}.run").reproduce
        options: dict[str, Any] = {
            "full": full,
            "only": tuple(only or ()),
            "say": lambda line: screen.print(line, markup=False),
        }
        offered = inspect.signature(work).parameters
        if seeds is not None:
            if "seeds" not in offered:
                raise ValueError(f"The experiments {name!r} choose their seeds themselves. Leave --seeds out.")
            options["seeds"] = seeds
        if device is not None:
            if "device" not in offered:
                raise ValueError(f"The experiments {name!r} have no choice of device. Leave --device out.")
            options["device"] = device
        folder = work(Path(f"{name}-out") if out is None else out, **options)
        tables = ", ".join(sorted(path.name for path in folder.glob("*.md"))) or "no table"
        screen.print(f"Written to {folder}: {tables}.")
