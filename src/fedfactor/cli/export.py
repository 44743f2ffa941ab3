"""``fedfactor export``: components and factors of a finished run as a table that other programs read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fedfactor.cli.console import Debug, polite
from fedfactor.cli.options import Folder
from fedfactor.core.errors import DataError
from fedfactor.data.formats import endings

Target = Annotated[
    Path, typer.Option("--out", "-o", help=f"The table: {' '.join(endings(writes=True))}.", show_default=False)
]


def export(
    folder: Folder,
    out: Target,
    rows: Annotated[bool, typer.Option("--rows", help="U with its row ids, instead of V.")] = False,
    owner: Annotated[str | None, typer.Option(help="U of this owner only.", show_default=False)] = None,
    debug: Debug = False,
) -> None:
    """Write V, one line for each feature, or with --rows U, one line for each row with its id.

    An .h5ad file has room for both: U in obsm, V in varm, what made them in uns. Where several owners' rows go into one
    table, ids begin with the owner's name. U is private: pass on only what is yours.

    Examples: fedfactor export out/ -o components.csv; fedfactor export out/ --rows --owner north -o u.parquet
    """
    from fedfactor.saved.table import Parts, holds_both
    from fedfactor.saved.table import export as write

    with polite(debug):
        write(folder, out, rows=rows, owner=owner)
        found = Parts.of(folder)
    if rows or owner is not None or holds_both(out):
        count = len(found.stacked(owner)[0])
        both = f" and V of {found.V.shape[1]} features" if holds_both(out) else ""
        typer.echo(f"{out}: U of {count} rows{both}, readable by you only.")
    else:
        typer.echo(f"{out}: V, {found.V.shape[1]} features × {len(found.V)} components.")


def write_tables(folder: Path) -> list[Path]:
    """Write V, and U of each owner that is there, as CSV files beside a result, for spreadsheets."""
    from fedfactor.data.results import owner_to_file
    from fedfactor.saved.table import Parts
    from fedfactor.saved.table import export as write

    made = [write(folder, folder / "shared" / "components.csv")]
    for owner in Parts.of(folder).factors:
        try:
            made.append(write(folder, (folder / "private" / owner_to_file(owner)).with_suffix(".csv"), owner=owner))
        except DataError:  # not every method has one U for each row
            continue
    return made
