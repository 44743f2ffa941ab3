"""``fedfactor reproduce``: run the studies of a paper, and write its tables and figures."""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
from pathlib import Path
from typing import Annotated, Any

import typer

from fedfactor.cli.console import Debug, console, polite

Paper = Annotated[str, typer.Argument(help="The paper, by the name of its folder under fedfactor.experiments.")]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="Folder for tables and figures; reproduce-PAPER if none.")
]
Full = Annotated[bool, typer.Option("--full", help="The sizes of the paper: hours instead of minutes.")]
Only = Annotated[list[str] | None, typer.Option("--only", help="A study to run; may be given more than once.")]


def reproduce(paper: Paper, out: Out = None, full: Full = False, only: Only = None, debug: Debug = False) -> None:
    """Run the studies of a paper. Figures that the folder holds already are not made again."""
    with polite(debug):
        study = find(paper)
        screen = console()
        folder = study.reproduce(
            out or Path(f"reproduce-{paper}"),
            full=full,
            only=tuple(only or ()),
            say=lambda line: screen.print(line, markup=False),
        )
        screen.print(f"Tables and figures are in {folder}.", markup=False)


def papers() -> tuple[str, ...]:
    """Name the papers that can be reproduced: the folders of ``fedfactor.experiments`` that have a ``run`` module.

    Examples
    --------
    >>> "felb" in papers()
    True
    """
    from fedfactor import experiments

    found = (entry.name for entry in pkgutil.iter_modules(experiments.__path__) if entry.ispkg)
    return tuple(name for name in found if importlib.util.find_spec(f"fedfactor.experiments.{name}.run"))


def find(paper: str) -> Any:
    """Import the studies of a paper."""
    if paper not in papers():
        raise ValueError(f"There is no paper {paper!r}. Use one of {', '.join(papers())}.")
    return importlib.import_module(f"fedfactor.experiments.{paper}.run")
