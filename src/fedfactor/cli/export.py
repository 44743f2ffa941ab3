"""``fedfactor export``: components and factors of a finished run as a table that other programs read."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Annotated

import typer

from fedfactor.cli.console import Debug, polite
from fedfactor.cli.shared_options import Folder
from fedfactor.core.atomic_files import write_atomic
from fedfactor.core.errors import DataError
from fedfactor.io.formats import endings

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
    from fedfactor.saved_models.table_export import Parts, holds_both
    from fedfactor.saved_models.table_export import export as write

    with polite(debug):
        write(folder, out, rows=rows, owner=owner)
        found = Parts.of(folder)
    if rows or owner is not None or holds_both(out):
        count = len(found.stacked(owner)[0])
        both = f" and V of {found.V.shape[1]} features" if holds_both(out) else ""
        typer.echo(f"{out}: U of {count} rows{both}, readable by you only.")
    else:
        typer.echo(f"{out}: V, {found.V.shape[1]} features × {len(found.V)} components.")


def write_tables(folder: Path, comma: bool = False) -> list[Path]:
    """Write V, and U of each owner that is there, as CSV files beside a result, for spreadsheets."""
    from fedfactor.io.result_folder import owner_to_file
    from fedfactor.saved_models.table_export import Parts
    from fedfactor.saved_models.table_export import export as write

    made = [write(folder, folder / "shared" / "components.csv")]
    for owner in Parts.of(folder).factors:
        try:
            made.append(write(folder, (folder / "private" / owner_to_file(owner)).with_suffix(".csv"), owner=owner))
        except DataError:  # not every method has one U for each row
            continue
    for table in made:
        for_spreadsheets(table, comma)
    return made


def for_spreadsheets(table: Path, comma: bool) -> None:
    """Mark a table as UTF-8 where it holds more than plain letters, which Excel would take for others.

    With ``comma`` numbers have a decimal comma and cells are separated by semicolons: where people write numbers so, a
    spreadsheet takes 1.5 for the first of May, and a line with commas for a single cell.
    """
    text = table.read_bytes().decode("utf-8", "surrogatepass")
    if comma:
        head, *rows = csv.reader(io.StringIO(text, newline=""))
        numbers = [name.startswith("component_") for name in head]
        made = io.StringIO()
        writer = csv.writer(made, delimiter=";", lineterminator="\n")
        writer.writerow(head)
        for row in rows:
            writer.writerow([c.replace(".", ",") if n else c for c, n in zip(row, numbers, strict=True)])
        text = made.getvalue()
    mark = "" if text.isascii() else "\ufeff"
    write_atomic(table, (mark + text).encode("utf-8", "surrogatepass"))
