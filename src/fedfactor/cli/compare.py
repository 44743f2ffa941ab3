"""``fedfactor compare``: several methods on the same owners, beside going alone and pooling all rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fedfactor.algorithm_names import algorithm_names
from fedfactor.cli.console import Debug, console, polite, size
from fedfactor.cli.parameter_parsing import build, data_files
from fedfactor.cli.progress import bar
from fedfactor.cli.reading_options import reads
from fedfactor.cli.shared_options import Device, Files, Quiet, Rank, Rounds, Set, Stored
from fedfactor.io.file_content import Reading
from fedfactor.io.uneven_columns import warn_of_scales

Methods = Annotated[
    list[str] | None,
    typer.Option(
        "--algorithm", "-a", help=f"May be given again: {', '.join(algorithm_names())}.", autocompletion=algorithm_names
    ),
]


USUAL = ("pooled-nmf", "fedavg-nmf", "one-shot-nmf")


@reads()
def compare(
    files: Files,
    rank: Rank = None,
    algorithm: Methods = None,
    share: Annotated[float, typer.Option(help="Share of each owner's rows (of ratings: cells) held out.")] = 0.2,
    seeds: Annotated[int, typer.Option(help="How often, each time with another split and start.", min=1)] = 3,
    rounds: Rounds = None,
    settings: Set = None,
    device: Device = None,
    storage: Stored = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for compare.json and compare.svg.", show_default=False)
    ] = None,
    quiet: Quiet = False,
    debug: Debug = False,
    *,
    reading: Callable[..., Reading],
    steps: tuple[str, ...],
) -> None:
    """Compare methods on rows that owners hold out, the same for all, with every owner alone and all rows pooled.

    By default pooled-nmf, fedavg-nmf and one-shot-nmf, as far as they can take the rows. --set applies to every method
    that has the setting.

    Example: fedfactor compare north.csv south.csv west.csv -k 5 -a pooled-nmf -a fedavg-nmf -o compared
    """
    from fedfactor.io.read import open_files
    from fedfactor.selection import compare as run_all

    with polite(debug):
        if out is not None and out.exists() and not out.is_dir():
            raise ValueError(f"-o {out} is a file, but two files go there. Name a folder.")
        methods = _methods(algorithm or USUAL, rank, settings or ())
        federation = open_files(data_files(files), reading=reading(), steps=steps)
        methods = {name: each for name, each in methods.items() if _can(each, name, federation, given=bool(algorithm))}
        warn_of_scales(federation)
        with bar("compare", quiet) as told:

            def progress(done: int, of: int, name: str, error: float) -> None:
                told(done, of, f"{name}: {error:.4f}")

            found = run_all(
                federation,
                methods,
                share=share,
                seeds=range(seeds),
                rounds=rounds,
                progress=progress,
                device=device,
                storage=None if storage is None else storage.value,
            )
        if out is not None:
            _write(out, found)
    console(quiet).print(_table(found))
    if not quiet:
        _tell(found, list(methods), out)


def _methods(names: Sequence[str], rank: int | None, settings: Sequence[str]) -> dict[str, Any]:
    odd = [name for name in names if name in ("alone", "pooled")]
    if odd:
        raise ValueError(f"{odd[0]} is always among them: leave it out.")
    return {name: build(name, {"n_components": rank}, settings) for name in dict.fromkeys(names)}


def _tell(found: Any, methods: Sequence[str], out: Path | None) -> None:
    """Say below the table what it is about, who is better off alone, and what was written."""
    typer.echo(f"Relative error of {found.kept_aside} that owners held out, mean of {len(found.seeds)} splits.")
    several = len(found.errors["alone"]) > 1
    for name in methods:
        losers = found.losers(name)
        if losers and several:
            typer.echo(f"With {name}, better off alone: {', '.join(losers)}.")
    if out is not None:
        typer.echo(
            f"Written: {out / 'compare.json'}" + (f", {out / 'compare.svg'}" if (out / "compare.svg").exists() else "")
        )


def _can(method: Any, name: str, federation: Any, *, given: bool) -> bool:
    """Return whether a method can take the rows, before any is run; one that was asked for by name must."""
    from fedfactor.core.errors import IncompatibleError
    from fedfactor.engines.engine import check_fit

    try:
        check_fit(method, federation.prepare(method.domain))
    except IncompatibleError as error:
        if given or name == USUAL[0]:
            raise
        typer.echo(f"Note: without {name}. {str(error).partition('.')[0]}.", err=True)
        return False
    return True


def _write(out: Path, found: Any) -> None:
    from fedfactor.core.atomic_files import write_atomic
    from fedfactor.core.errors import MissingExtraError
    from fedfactor.plots import panels, plot_comparison

    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / "compare.json", (json.dumps(found.summary(), indent=2) + "\n").encode(), 0o644)
    try:
        ax = plot_comparison(found.errors, ax=panels(1, width=7, height=1.2 + 0.4 * len(found.errors))[0])
    except MissingExtraError as error:
        typer.echo(f"Note: no figure. {error}", err=True)
        return
    ax.figure.savefig(out / "compare.svg")


def _table(found: Any) -> Any:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    table.add_column("method")
    for head in ("all owners", "spread", "worst owner", "", "owners send", "seconds"):
        table.add_column(head, justify="right")
    for name, errors in found.totals.items():
        who, worst = found.worst(name)
        sent = size(found.traffic[name]) if found.traffic[name] else "all rows" if name == "pooled" else "nothing"
        spread = f"±{errors.std():.4f}" if len(errors) > 1 else ""
        table.add_row(
            name, f"{errors.mean():.4f}", spread, f"{worst:.4f}", who[:20], sent, f"{found.seconds[name]:.2f}"
        )
    return table
