"""``fedfactor split``: cut one big file into parts for several owners or ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedfactor.cli.console import Debug, polite, size


def split(
    source: Annotated[Path, typer.Argument(help="One matrix: .npy, or .npz with a CSR matrix.", show_default=False)],
    out: Annotated[Path, typer.Argument(help="Folder for the parts.", show_default=False)],
    parts: Annotated[int, typer.Option("--parts", "-n", help="How many parts.", show_default=False)],
    grid: Annotated[bool, typer.Option("--grid", help="Write blocks of columns, too, as dsanls needs them.")] = False,
    debug: Debug = False,
) -> None:
    """Cut a file into parts, piece by piece: it may be larger than memory.

    Example: fedfactor split big.npy parts/ -n 8
    """
    with polite(debug):
        from fedfactor.io.split_files import split_file

        files = split_file(source, out, parts, grid=grid)
    typer.echo(f"{out}: {len(files)} files, {size(sum(path.stat().st_size for path in files))}.")
