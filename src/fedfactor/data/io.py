"""From files to tables, shards and federations. The format follows from the file's ending."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from fedfactor.core.checks import split_missing
from fedfactor.core.errors import DataError
from fedfactor.core.federation import Federation, Shard
from fedfactor.data import formats, text
from fedfactor.data.table import Table, finish_table

__all__ = ["Table", "load_shard", "load_table", "open_files", "owner_name", "owner_names"]

Missing = float | str | None

_READERS: dict[str, Callable[[Path, int | None], tuple[Any, Any, Any]]] = {
    ".npy": formats.read_npy,
    ".npz": formats.read_npz,
    ".parquet": formats.read_parquet,
    ".mtx": formats.read_mtx,
    ".mtx.gz": formats.read_mtx,
    ".csv": text.read_text,
    ".csv.gz": text.read_text,
    ".tsv": text.read_text,
    ".tsv.gz": text.read_text,
}


def load_table(path: str | os.PathLike[str], *, missing_values: Missing = None, max_bytes: int | None = None) -> Table:
    r"""Read one owner's rows from a file.

    Parameters
    ----------
    path : path
        ``.npy`` (mapped, not read), ``.npz`` (SciPy's CSR; or the array ``X``, with optional names ``features`` and
        ``rows``; or the only array), ``.csv``, ``.tsv`` and their ``.gz`` (header = features; a first column that is
        not all numbers = row ids; empty or NA = NaN), ``.parquet`` (needs the extra ``data``), ``.mtx``, ``.mtx.gz``.
    missing_values : None, nan, number or "unstored"
        Only ``nan`` lets NaN pass. The values are left as they are: a :class:`~fedfactor.core.federation.Federation`
        sets missing cells apart.
    max_bytes : int, optional
        What the file may unfold to in memory; by default 1 GB or fifty times its size on disk, whichever is more.

    Returns
    -------
    Table
        ``X`` float32 or float64: 8- and 16-bit integers, booleans and float16 become float32, other integers float64.

    Raises
    ------
    DataError
        The file is missing, damaged, empty, not numeric, or asks for too much memory.
    MissingExtraError
        Parquet without pyarrow.

    Notes
    -----
    Pickled content is never loaded. Memory: the matrix and a few columns or rows. An integer ``.npy`` is read and cast.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> from fedfactor.data.io import load_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "north.csv")
    ...     _ = path.write_text("id,age,weight\nanna,31,60.5\nbert,44,72\n")
    ...     table = load_table(path)
    >>> table.features, table.rows, table.X.shape
    (('age', 'weight'), ('anna', 'bert'), (2, 2))
    """
    path = Path(path)
    reader = _READERS[_ending(path)]
    try:
        if not path.is_file():
            raise DataError(f"{path} is {'a folder' if path.is_dir() else 'not there'}. Give the path of a data file.")
        X, features, rows = reader(path, max_bytes)
    except PermissionError as error:
        raise DataError(f"{path} may not be read by this user. Change its permissions or its owner.") from error
    return finish_table(path, X, features, rows, missing_values)


def load_shard(path: str | os.PathLike[str], *, missing_values: Missing = None, max_bytes: int | None = None) -> Shard:
    """Read one owner's rows from a file as a shard, with missing cells set apart.

    Parameters
    ----------
    path, missing_values, max_bytes
        As in :func:`load_table`.

    Returns
    -------
    Shard
        Rows, mask of observed cells and column names.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from fedfactor.data.io import load_shard
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/a.npz", X=np.eye(3), features=["x", "y", "z"])
    ...     load_shard(f"{folder}/a.npz").features
    ('x', 'y', 'z')
    """
    table = load_table(path, missing_values=missing_values, max_bytes=max_bytes)
    X, mask = split_missing(table.X, missing_values)
    return Shard(X=X, mask=mask, features=table.features)


def open_files(
    paths: Iterable[str | os.PathLike[str]], *, missing_values: Missing = None, max_bytes: int | None = None
) -> Federation:
    """Make a federation of files, one owner each, named after the file and read when first needed.

    Parameters
    ----------
    paths : iterable of path
        One file per owner.
    missing_values, max_bytes
        As in :func:`load_table`.

    Returns
    -------
    Federation
        Its owners open their own file, also in a worker process.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from fedfactor.data.io import open_files
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("north", "south"):
    ...         np.save(f"{folder}/{name}.npy", np.ones((2, 3)))
    ...     federation = open_files([f"{folder}/north.npy", f"{folder}/south.npy"])
    ...     federation.names, federation.n_rows
    (('north', 'south'), 4)
    """
    owners = owner_names(paths)
    openers = {
        name: partial(load_shard, path, missing_values=missing_values, max_bytes=max_bytes)
        for name, path in owners.items()
    }
    return Federation(openers, missing_values=missing_values)


def owner_name(path: str | os.PathLike[str]) -> str:
    """Name an owner after its file, without the ending.

    Parameters
    ----------
    path : path
        A file of a known format.

    Returns
    -------
    str
        The name.

    Examples
    --------
    >>> from fedfactor.data.io import owner_name
    >>> owner_name("data/st.mary.csv.gz")
    'st.mary'
    """
    path = Path(path)
    return path.name[: -len(_ending(path))]


def owner_names(paths: Iterable[str | os.PathLike[str]]) -> dict[str, Path]:
    """Name the owners of several files, and refuse two files for one name.

    Parameters
    ----------
    paths : iterable of path
        One file per owner.

    Returns
    -------
    dict of str to Path
        In the order given.

    Raises
    ------
    DataError
        If two files give the same name.

    Examples
    --------
    >>> from fedfactor.data.io import owner_names
    >>> list(owner_names(["a.csv", "b.npy"]))
    ['a', 'b']
    """
    owners: dict[str, Path] = {}
    for path in map(Path, paths):
        name = owner_name(path)
        if name in owners:
            raise DataError(
                f"{owners[name]} and {path} both belong to an owner called {name!r}. Rename one of the files."
            )
        owners[name] = path
    return owners


def _ending(path: Path) -> str:
    name = path.name.lower()
    known = [ending for ending in _READERS if name.endswith(ending) and len(name) > len(ending)]
    if not known:
        raise DataError(f"{path} has no ending that names a known format. Use one of {', '.join(_READERS)}.")
    return max(known, key=len)
