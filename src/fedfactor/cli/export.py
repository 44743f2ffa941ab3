"""``fedfactor export``: components and factors of a finished run as a table that other programs read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from fedfactor.cli.console import Debug, polite
from fedfactor.cli.options import Folder
from fedfactor.core.errors import DataError
from fedfactor.data.content import Rows, write_rows
from fedfactor.data.formats import endings, format_of
from fedfactor.data.record import read_record

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
    from fedfactor.data.results import read_components

    with polite(debug):
        format_of(out, writes=True)
        V, features = read_components(folder)
        record = read_record(folder)
        names = tuple(f"component_{t}" for t in range(len(V)))
        about = {"algorithm": str(record["algorithm"]), "seed": str(record["seed"])}
        both = out.name.lower().endswith(".h5ad")
        if rows or owner is not None or both:
            U, ids = _stacked(folder, owner, len(V))
            columns = features or tuple(f"column_{j}" for j in range(V.shape[1]))
            write_rows(out, Rows(U, names, ids, "row", V, columns, None, about))
            said = (
                f"U of {len(U)} rows" + (f" and V of {V.shape[1]} features" if both else "") + ", readable by you only"
            )
        else:
            ids = features or tuple(map(str, range(V.shape[1])))
            write_rows(out, Rows(np.ascontiguousarray(V.T), names, ids, "feature", None, None, None, about))
            said = f"V, {V.shape[1]} features × {len(V)} components"
    typer.echo(f"{out}: {said}.")


def write_tables(folder: Path) -> list[Path]:
    """Write V, and U of each owner that is there, as CSV files beside a result, for spreadsheets."""
    from fedfactor.data.results import owner_from_file, read_components

    V, features = read_components(folder)
    names = tuple(f"component_{t}" for t in range(len(V)))
    ids = features or tuple(map(str, range(V.shape[1])))
    made = [folder / "shared" / "components.csv"]
    write_rows(made[0], Rows(np.ascontiguousarray(V.T), names, ids, "feature", None, None, None, {}))
    for path in sorted((folder / "private").glob("*.safetensors")):
        try:
            U, rows = _stacked(folder, owner_from_file(path.name), len(V))
        except DataError:  # not every method has one U for each row
            continue
        made.append(path.with_suffix(".csv"))
        write_rows(made[-1], Rows(U, names, rows, "row", None, None, None, {}))
    return made


def _stacked(folder: Path, owner: str | None, k: int) -> tuple[Any, tuple[str, ...]]:
    """Put the rows of all owners, or of one, into one table with ids."""
    from fedfactor.data.results import owner_from_file, read_private, read_row_ids

    owners = sorted(owner_from_file(path.name) for path in (folder / "private").glob("*.safetensors"))
    if owner is not None and owner not in owners:
        raise DataError(f"{folder} holds no U of {owner!r}; it has {', '.join(owners) or 'none'}.")
    chosen = owners if owner is None else [owner]
    if not chosen:
        raise DataError(f"{folder} holds no owner's U. Leave --rows out for V, or ask the owners.")
    parts, ids = [], []
    for name in chosen:
        U = read_private(folder, name).get("U")
        if U is None or U.ndim != 2 or U.shape[1] != k:
            raise DataError(f"{folder}: U of {name!r} does not fit the {k} components. Write the results again.")
        own = read_row_ids(folder, name) or tuple(map(str, range(len(U))))
        parts.append(U)
        ids += own if len(chosen) == 1 else [f"{name}/{each}" for each in own]
    return np.concatenate(parts), tuple(ids)
