"""File formats: one file here and one line in the list below for each.

A format's module has ``read(path, reading) -> Content`` and, where its line says so, ``write(path, rows)``. It is
imported when a file of that kind is met. What columns mean (ids, text, long tables) is decided in ``io/tables.py``.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from fedfactor.core.errors import DataError


class Format(NamedTuple):
    """A kind of file: how its names end, which module reads it, and whether that module writes it too."""

    module: str
    endings: tuple[str, ...]
    writes: bool = False

    def load(self) -> Any:
        """Import the module."""
        return import_module(f"{__name__}.{self.module}")


FORMATS = (
    Format("delimited_text", (".csv", ".tsv", ".csv.gz", ".tsv.gz"), writes=True),
    Format("excel", (".xlsx",)),
    Format("parquet", (".parquet",), writes=True),
    Format("feather", (".feather", ".arrow"), writes=True),
    Format("npy", (".npy",), writes=True),
    Format("npz", (".npz",)),
    Format("h5ad", (".h5ad",), writes=True),
    Format("h5ad", (".h5", ".hdf5")),  # any HDF5 file with one matrix in it
    Format("matrix_market", (".mtx", ".mtx.gz")),
)


def endings(*, writes: bool = False) -> tuple[str, ...]:
    """List the endings that can be read, or written; without those that only add ``.gz``.

    Examples
    --------
    >>> ".csv" in endings(), ".npz" in endings(writes=True)
    (True, False)
    """
    return tuple(
        ending for each in FORMATS if each.writes or not writes for ending in each.endings if not ending.endswith(".gz")
    )


def format_of(path: Path, *, writes: bool = False) -> tuple[Format, str]:
    """Find the format of a file by its ending.

    Examples
    --------
    >>> format_of(Path("a/st.mary.CSV.gz"))[1]
    '.csv.gz'
    """
    name = path.name.lower()
    found = [
        (each, ending)
        for each in FORMATS
        if each.writes or not writes
        for ending in each.endings
        if name.endswith(ending) and len(name) > len(ending)
    ]
    if not found:
        verb = "can be written" if writes else "names a known format"
        raise DataError(f"{path} has no ending that {verb}. Use one of {', '.join(endings(writes=writes))}.")
    return max(found, key=lambda each: len(each[1]))
