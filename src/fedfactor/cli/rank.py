"""``fedfactor rank``: choose the number of components by cells that owners hold out."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from fedfactor.cli.console import Debug, console, polite
from fedfactor.cli.fit import dask_engine, refuse_scattered, refuse_scheduler
from fedfactor.cli.parameter_parsing import build, data_files
from fedfactor.cli.progress import bar
from fedfactor.cli.reading_options import reads
from fedfactor.cli.shared_options import (
    Algorithm,
    Device,
    Engine,
    Files,
    Network,
    Quiet,
    Rounds,
    Scheduler,
    Seed,
    Set,
)
from fedfactor.io.file_content import Reading
from fedfactor.io.uneven_columns import warn_of_scales

Ranks = Annotated[str, typer.Option("--ranks", "-k", help="Candidates, such as 2-10 or 5,10,20.", show_default=False)]
Share = Annotated[float, typer.Option(help="Share of each owner's cells that is hidden.")]
Repeats = Annotated[int, typer.Option(help="How often, each time with other cells.")]
Out = Annotated[
    Path | None, typer.Option("--out", "-o", help="File for the curve (.json); none by default.", show_default=False)
]


@reads()
def rank(
    files: Files,
    ranks: Ranks,
    algorithm: Algorithm = "pooled-nmf",
    share: Share = 0.1,
    repeats: Repeats = 3,
    rounds: Rounds = None,
    seed: Seed = None,
    settings: Set = None,
    device: Device = None,
    engine: Engine = Network.local,
    scheduler: Scheduler = None,
    out: Out = None,
    quiet: Quiet = False,
    debug: Debug = False,
    *,
    reading: Callable[..., Reading],
    steps: tuple[str, ...],
) -> None:
    """Choose the number of components: each owner hides cells, all factor the rest, the sums of errors decide.

    Each of FILES holds the rows of one owner; a folder stands for the files in it. Counts: --set loss=kullback-leibler.
    Zeros and ones: -a pooled-bmf.

    Example: fedfactor rank north.csv south.csv -k 2-10
    """
    from fedfactor.io.read import open_files
    from fedfactor.selection import select_rank

    with polite(debug):
        refuse_scattered(engine)
        chosen, seed, first = _engine(engine, scheduler, seed)
        quiet = quiet or not first
        out = out if first else None
        if out is not None and not out.parent.is_dir():  # reported before the runs, not after
            raise ValueError(f"-o {out}: there is no folder {out.parent}. Make it first.")
        candidates = parse_ranks(ranks)
        method = build(algorithm, {"n_components": candidates[0]}, settings or ())
        federation = open_files(data_files(files), reading=reading(), steps=steps)
        federation.prepare(method.domain)
        warn_of_scales(federation)

        with bar("rank", quiet) as told:

            def progress(done: int, of: int, error: float) -> None:
                told(done, of, f"held-out error {error:.4f}")

            found = select_rank(
                federation,
                candidates,
                algorithm=method,
                share=share,
                repeats=repeats,
                rounds=rounds,
                seed=seed,
                device=device,
                engine=chosen,
                progress=progress,
            )
        if out is not None:
            out.write_text(json.dumps(found.summary(), indent=2) + "\n")
    if first:
        _tell(found, type(method).__name__, quiet)


def _tell(found: Any, method: str, quiet: bool) -> None:
    """Print the curve and the recommendation; a quiet command prints the number only."""
    if quiet:
        typer.echo(found.recommended)
        return
    console().print(_table(found))
    typer.echo(f"Recommended rank: {found.recommended} (least error: {found.best}).")
    if found.searched_with != method:
        typer.echo(
            f"Note: {method} needs complete rows, so {found.searched_with} searched: its components are "
            "of the same kind.",
            err=True,
        )
    if found.scaled:
        typer.echo("Note: columns were scaled for the search. Fit with --scale rms, or the rank may not fit.", err=True)
    if found.at_edge:
        typer.echo(f"Note: {found.at_edge}", err=True)


def _engine(engine: Network, scheduler: str | None, seed: int | None) -> tuple[Any, int | None, bool]:
    """Make the engine; say the seed that all ranks share, and whether this process is the one that speaks."""
    if engine is Network.dask:
        return dask_engine(scheduler, "ordered"), seed, True
    refuse_scheduler(scheduler)
    if engine is Network.local:
        return "local", seed, True
    from fedfactor.engines.mpi.collectives import Collectives
    from fedfactor.engines.mpi.engine import MPIEngine, load_mpi

    MPI = load_mpi()
    world = Collectives(MPI, MPI.COMM_WORLD)
    world.check_size(None)
    shared = int(world.tell_all(secrets.randbits(63) if seed is None else seed))
    return MPIEngine(size=world.size, reduction="ordered"), shared, world.rank == 0


def parse_ranks(text: str) -> list[int]:
    """Read ``2-10``, ``5,10,20`` or both mixed.

    Examples
    --------
    >>> parse_ranks("2-4,10")
    [2, 3, 4, 10]
    """
    found: set[int] = set()
    for word in text.split(","):
        first, dash, last = word.strip().partition("-")
        try:
            found |= set(range(int(first), int(last if dash else first) + 1))
        except ValueError:
            raise ValueError(f"--ranks {text!r} is not known. Write 2-10, or 5,10,20.") from None
    if not found or min(found) < 1:
        raise ValueError(f"--ranks {text!r} names no rank from 1 upwards. Write 2-10, or 5,10,20.")
    return sorted(found)


def _table(found: Any) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for head in ("rank", "held-out error", "lowest", "highest", "error of used cells"):
        table.add_column(head, justify="right")
    for place, candidate in enumerate(found.ranks):
        errors = found.errors[:, place]
        figures = (errors.mean(), errors.min(), errors.max(), found.fitted[:, place].mean())
        mark = " ←" if candidate == found.recommended else ""
        table.add_row(f"{candidate}{mark}", *(f"{figure:.4f}" for figure in figures))
    return table
