"""The reader: from files, and from tables in memory, to tables, shards and federations."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.core.client_data import Federation, Shard
from fedfactor.core.column_scales import column_sums, needs_bins
from fedfactor.core.errors import DataError, MissingExtraError
from fedfactor.core.grid import BlockShard, Bounds, even_bounds, grid_blocks
from fedfactor.core.input_validation import check_features, is_sparse
from fedfactor.core.missing_policies import split_missing
from fedfactor.core.pytree import tree_map, tree_sum
from fedfactor.io.common_columns import common_columns
from fedfactor.io.file_content import Missing, Reading
from fedfactor.io.formats import format_of
from fedfactor.io.long_tables import long_names, sorted_ids
from fedfactor.io.preprocessing import DECLARED, Preprocess
from fedfactor.io.tables import Table, finish_table

__all__ = ["load_shard", "load_table", "open_blocks", "open_files", "owner_name", "owner_names", "read"]

_log = logging.getLogger("fedfactor.data")
"""Logs, at level INFO, how each table was interpreted: one line a table."""


def read(
    source: Any,
    *,
    id: str | None = None,
    columns: Iterable[str] = (),
    drop: Iterable[str] = (),
    sep: str | None = None,
    decimal: str | None = None,
    missing_values: Missing = None,
    layer: str | None = None,
    long: bool | None = None,
    repeated_ids: bool = False,
    max_bytes: int | None = None,
) -> Table:
    r"""Read one client's rows: the same reader for every command, every format, and tables in memory.

    Parameters
    ----------
    source : path, data frame, Arrow table, AnnData, array or sparse matrix
        A file whose ending names its format: ``.csv`` and ``.tsv`` (also ``.gz``; separator and decimal sign are found,
        yes/no and True/False are 1/0, empty or NA is NaN), ``.parquet``, ``.feather`` and ``.arrow`` (a frame's index
        names the rows), ``.h5ad``, ``.npy`` (mapped, not read), ``.npz`` and ``.h5`` (SciPy's sparse matrix in the
        first, or the array ``X``, or the only one; with names ``features`` and ``rows`` beside it), ``.mtx`` (also
        ``.gz``). Or a table in memory: of pandas, of polars, or of any library with Arrow's interface; AnnData; a
        plain or sparse matrix.
    id : str, optional
        The column that names the rows; ``"none"``: no column does, whatever it looks like. By default a column whose
        name means ids, or a first column of text.
    columns, drop : iterable of str
        Columns to take, and to leave out; ``*`` and ``?`` stand for any letters.
    sep, decimal : str, optional
        Separator and decimal sign of text files.
    missing_values : None, nan, number or "unstored"
        Only ``nan`` lets NaN pass. The values are left as they are: a :class:`~fedfactor.Federation` sets missing cells
        apart.
    layer : str, optional
        For AnnData: the layer to take instead of X.
    long : bool, optional
        Whether the table has one line for each cell (``user, item, rating``); by default its column names decide.
    repeated_ids : bool
        Whether several rows may share an id.
    max_bytes : int, optional
        What the file may unfold to in memory; by default 1 GB or fifty times its size on disk, whichever is more.

    Returns
    -------
    Table
        ``X`` float32 or float64: 8- and 16-bit integers, booleans and float16 become float32, other integers float64.
        ``said`` describes in one line how it was interpreted.

    Raises
    ------
    DataError
        The file is missing, damaged, empty, not numeric, asks for too much memory, or its row ids are not unique.
    MissingExtraError
        Parquet without pyarrow, or ``.h5ad`` without h5py.

    Notes
    -----
    What looks like an identifier is never a feature unless `columns` names it or `id` is ``"none"``: it becomes the row
    ids, which the line states. Pickled content is never loaded. Memory: the matrix and a few columns or rows. An
    integer ``.npy`` is read and cast.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "north.csv")
    ...     _ = path.write_text("patient_id;age;weight\n17;31;60,5\n4;44;72\n9;50;81,5\n")
    ...     table = read(path)
    >>> table.features, table.row_ids, table.X.shape
    (('age', 'weight'), ('17', '4', '9'), (3, 2))
    >>> table.said.partition("north.csv: ")[2]
    '3 rows × 2 columns; cells apart by semicolons; decimal comma; row ids: patient_id.'
    """
    reading = Reading(
        id, tuple(columns), tuple(drop), sep, decimal, missing_values, layer, long, repeated_ids, max_bytes
    )
    if isinstance(source, (str, os.PathLike)):
        return load(os.fspath(source), reading)
    from fedfactor.io.tables_in_memory import content_of

    return _told(finish_table("The table", content_of(source, reading), reading))


def load(path: str | os.PathLike[str], reading: Reading | None = None) -> Table:
    """Read a file with the options of a :class:`Reading`."""
    return _told(_read(Path(path), reading or Reading()))


def _read(path: Path, reading: Reading) -> Table:
    kind, _ = format_of(path)
    try:
        if not path.is_file():
            raise DataError(f"{path} is {'a folder' if path.is_dir() else 'not there'}. Give the path of a data file.")
        return finish_table(path, kind.load().read(path, reading), reading)
    except (DataError, MissingExtraError):
        raise
    except PermissionError as error:
        raise DataError(f"{path} may not be read by this user. Change its permissions or its owner.") from error
    except MemoryError as error:
        raise DataError(f"{path} does not fit into memory. Split it, or read fewer columns.") from error
    except Exception as error:  # whatever a damaged file makes a library raise, the file is what is wrong
        raise DataError(f"{path} is damaged ({type(error).__name__}: {error}). Copy or export it again.") from error


def load_for(path: str | os.PathLike[str], features: Sequence[str] | None, reading: Reading) -> Table:
    r"""Read a file for a use that knows its columns: those are taken, by name, and whatever else there is left out.

    Parameters
    ----------
    path : path
        The file.
    features : sequence of str or None
        The columns wanted; None: all, by position.
    reading : Reading
        As in :func:`read`.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "a.csv")
    ...     _ = path.write_text("name,b,note,a\nanna,1,x,2\nbert,3,y,4\n")
    ...     load_for(path, ("a", "b"), Reading()).features
    ('b', 'a')
    """
    if features is None or reading.columns or reading.drop:
        return load(path, reading)
    if not hasattr(format_of(Path(path))[0].load(), "names"):  # names are known only once all is read
        table = load(path, reading)
        if table.features is None or len(table.features) == len(features) or not set(features) <= set(table.features):
            return table
        position = {name: j for j, name in enumerate(table.features)}
        return replace(table, X=table.X[:, [position[name] for name in features]], features=tuple(features))
    if not _is_long(Path(path), reading):
        return load(path, replace(reading, columns=tuple(features)))
    table = load(path, reading)
    place = {name: j for j, name in enumerate(features)}
    columns = np.array([place.get(name, -1) for name in table.features or ()])
    X = table.X.tocoo()
    known = columns[X.coords[1]] >= 0
    cells = (X.data[known], (X.coords[0][known], columns[X.coords[1][known]]))
    wide = type(table.X)(type(X)(cells, shape=(X.shape[0], len(features))))
    return replace(table, X=wide, features=tuple(features))


def _told(table: Table) -> Table:
    _log.info("%s", table.said)
    return table


def load_table(path: str | os.PathLike[str], *, missing_values: Missing = None, max_bytes: int | None = None) -> Table:
    """Read one client's rows from a file: :func:`read` with two of its options.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/a.npz", X=np.eye(3), features=["x", "y", "z"])
    ...     load_table(f"{folder}/a.npz").features
    ('x', 'y', 'z')
    """
    return load(path, Reading(missing_values=missing_values, max_bytes=max_bytes))


def load_shard(
    path: str | os.PathLike[str],
    *,
    missing_values: Missing = None,
    max_bytes: int | None = None,
    reading: Reading | None = None,
) -> Shard:
    """Read one client's rows from a file as a shard, with missing cells set apart.

    Parameters
    ----------
    path, missing_values, max_bytes
        As in :func:`read`.
    reading : Reading, optional
        All options at once, instead of these.

    Returns
    -------
    Shard
        Rows, mask of observed cells, column names and row ids.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from fedfactor.io.read import load_shard
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(f"{folder}/a.npz", X=np.eye(3), features=["x", "y", "z"])
    ...     load_shard(f"{folder}/a.npz").features
    ('x', 'y', 'z')
    """
    return shard_of(load(path, reading or Reading(missing_values=missing_values, max_bytes=max_bytes)))


def shard_of(table: Table) -> Shard:
    """Set missing cells apart."""
    X, mask = split_missing(table.X, table.missing_values)
    return Shard(X, mask, table.features, row_ids=table.row_ids, id_name=table.id_name)


def open_files(
    paths: Iterable[str | os.PathLike[str]],
    *,
    missing_values: Missing = None,
    max_bytes: int | None = None,
    reading: Reading | None = None,
    steps: Sequence[str] = (),
) -> Federation:
    """Make a federation of files, one client each, named after the file and read when first needed.

    Parameters
    ----------
    paths : iterable of path
        One file per client.
    missing_values, max_bytes, reading
        As in :func:`load_shard`.
    steps : sequence of str
        Preprocessing, in the words of :data:`~fedfactor.io.preprocessing.STEPS`. Steps that depend on all clients'
        columns read every file once more, at once.

    Returns
    -------
    Federation
        Its clients open their own file, also in a worker process. Long tables are read at once, because their columns
        are those of all clients together.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from fedfactor.io.read import open_files
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("north", "south"):
    ...         np.save(f"{folder}/{name}.npy", np.ones((2, 3)))
    ...     federation = open_files([f"{folder}/north.npy", f"{folder}/south.npy"])
    ...     federation.names, federation.n_rows
    (('north', 'south'), 4)
    """
    owners = owner_names(paths)
    reading = reading or Reading(missing_values=missing_values, max_bytes=max_bytes)
    openers: dict[str, Any] = {name: partial(load_shard, path, reading=reading) for name, path in owners.items()}
    if any(_is_long(path, reading) for path in owners.values()):
        openers = _widened({name: opener() for name, opener in openers.items()})
    elif reading.how is not None:
        openers = common_columns({name: opener() for name, opener in openers.items()}, reading.how)
    return _federation(openers, reading, steps)


def open_blocks(
    path: str | os.PathLike[str],
    parts: int | tuple[int, int],
    *,
    reading: Reading | None = None,
    steps: Sequence[str] = (),
) -> Federation:
    """Make a federation of one file, cut into blocks of rows: each block is a client, and read where it is worked on.

    Parameters
    ----------
    path : path
        ``.npy``, ``.npz`` with a CSR matrix, ``.h5ad`` (dense or CSR), ``.h5`` or ``.parquet``: formats in which some
        rows can be read without the others.
    parts : int, or (int, int)
        How many blocks of rows; their sizes differ by one row at most. Or the lines of a grid, as GridNMF takes it:
        its blocks have some of the columns each, and may be empty.
    reading, steps
        As in :func:`open_files`. Blocks of a grid have no whole rows, and so no missing cells and no steps.

    Returns
    -------
    Federation
        Clients are named after the file and the number of the block, or its place on the grid.

    Notes
    -----
    A block of a grid is cut out of rows that are read a part at a time, each with as many cells as the block: a node
    holds its own block, and for a moment as much again. Of a mapped ``.npy`` nothing but the block is read.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/big.npy", np.arange(10.0).reshape(5, 2))
    ...     federation = open_blocks(f"{folder}/big.npy", 2)
    ...     federation.names, federation.shard("big-1").X.tolist()
    (('big-0', 'big-1'), [[6.0, 7.0], [8.0, 9.0]])
    """
    path = Path(path)
    reading = reading or Reading()
    if not isinstance(parts, int):
        return _open_grid(path, parts, reading, steps)
    rows = _count_rows(path, reading)
    if not 1 <= parts <= rows:
        raise DataError(f"{path} has {rows} rows, which cannot be cut into {parts} parts.")
    bounds = even_bounds(rows, parts)
    stem = owner_name(path)
    openers = {
        f"{stem}-{i:0{len(str(parts - 1))}d}": partial(load_shard, path, reading=replace(reading, rows=(first, last)))
        for i, (first, last) in enumerate(pairwise(bounds))
    }
    return _federation(openers, reading, steps)


def _count_rows(path: Path, reading: Reading) -> int:
    if not path.is_file():
        raise DataError(f"{path} is not there, or is a folder. Give one data file.")
    count = getattr(format_of(path)[0].load(), "count_rows", None)
    if count is None or _is_long(path, reading):
        raise DataError(
            f"{path} cannot be read in parts: rows must be found without reading those before them. Use .npy, a CSR "
            ".npz, .h5ad, .h5 or .parquet, or one file for each owner."
        )
    try:
        return count(path, reading)
    except (DataError, MissingExtraError):
        raise
    except Exception as error:  # as in load: whatever a damaged file makes a library raise
        raise DataError(f"{path} is damaged ({type(error).__name__}: {error}). Copy or export it again.") from error


def shape_of(path: str | os.PathLike[str], reading: Reading | None = None) -> tuple[int, int]:
    """Return the rows and columns of a file that can be read in parts; one row of it is read.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/big.npy", np.ones((5, 2)))
    ...     shape_of(f"{folder}/big.npy")
    (5, 2)
    """
    path = Path(path)
    reading = reading or Reading()
    rows = _count_rows(path, reading)
    return rows, int(_read(path, replace(reading, rows=(0, min(1, rows)))).X.shape[1])


def _open_grid(path: Path, grid: tuple[int, int], reading: Reading, steps: Sequence[str]) -> Federation:
    if steps or reading.missing_values is not None:
        raise DataError(
            "Blocks of a grid have no whole rows: nothing can be done to them before the first round, and no cell may "
            "be missing. Leave options such as --missing and --scale out."
        )
    shape = shape_of(path, reading)
    stem = owner_name(path)
    blocks = grid_blocks(shape, grid).items()
    return Federation({f"{stem}-{name}": partial(_load_block, path, reading, shape, grid, *at) for name, at in blocks})


def _load_block(
    path: Path, reading: Reading, shape: tuple[int, int], grid: tuple[int, int], place: tuple[int, int], bounds: Bounds
) -> BlockShard:
    first, last, left, right = bounds
    cuts = even_bounds(last - first, grid[1])  # so many rows have as many cells as the block
    pieces = [(first + a, first + b) for a, b in pairwise(cuts) if a < b]
    table = _read(path, replace(reading, rows=(0, 1)))
    X: Any = table.X[:0, left:right] if is_sparse(table.X) else np.empty((last - first, right - left), table.X.dtype)
    found = [X]
    ids = list[str]()
    for a, b in pieces:
        table = _read(path, replace(reading, rows=(a, b)))
        ids += table.row_ids or ()
        if is_sparse(X):
            found.append(table.X[:, left:right])
        else:
            X[a - first : b - first] = table.X[:, left:right]
    if is_sparse(X):
        from scipy.sparse import vstack

        X = vstack(found, format="csr")
    names: dict[str, Any] = {"features": table.features, "row_ids": tuple(ids) or None, "id_name": table.id_name}
    return BlockShard(X, **names, position=place, starts=(first, left), width=shape[1])


def _federation(openers: dict[str, Any], reading: Reading, steps: Sequence[str]) -> Federation:
    plan = Preprocess.parse(steps)
    if plan.declared:
        raise DataError(
            f"{DECLARED!r} is for a federation.toml, whose [units] declare ranges. Here take 'scale rms', or, for a "
            "private run, divide the columns of the files by public constants."
        )
    if not steps:
        return Federation(openers, missing_values=reading.missing_values)
    weights, features = _survey(plan, openers) if plan.survey else (None, None)
    prepared = {name: partial(_prepared, source, plan, weights, features) for name, source in openers.items()}
    federation = Federation(prepared, missing_values=reading.missing_values)
    federation.preprocess = {"steps": plan.words, "weights": None if weights is None else weights.tolist()}
    return federation


def _is_long(path: Path, reading: Reading) -> bool:
    """Return whether a file is a long table by its header alone; an unreadable file is reported when it is opened."""
    names = getattr(format_of(path)[0].load(), "names", None)
    if names is None or reading.long is False:
        return False
    try:
        return bool(long_names(names(path, reading), reading))
    except Exception:
        return False


def _widened(shards: dict[str, Shard]) -> dict[str, Shard]:
    """Bring long tables to the columns of all clients together."""
    features = [shard.features for shard in shards.values()]
    if any(names is None for names in features):
        return shards
    everything, _ = sorted_ids([name for names in features for name in names or ()])
    place = {name: j for j, name in enumerate(everything)}
    found: dict[str, Shard] = {}
    for name, shard in shards.items():
        X: Any = shard.X
        if not is_sparse(X):
            return shards  # one long table and one that is not: their names will not agree, which is reported
        columns = np.array([place[each] for each in shard.features or ()], X.indices.dtype)
        wide = type(X)((X.data, columns[X.indices], X.indptr), shape=(X.shape[0], len(everything)))
        wide.sort_indices()
        found[name] = replace(shard, X=wide, features=tuple(everything))
    return found


def _survey(plan: Preprocess, openers: dict[str, Any]) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Add up all clients' columns, each client's in turn, as a federation does before its first round."""
    total: Any = None
    first = ""
    reference = None
    for name in sorted(openers):
        shard = _prepared(openers[name], plan, None, None)
        if total is None:
            first = name
            reference = shard.features
        order = check_features(name, shard.features, first, reference)
        sums = column_sums(shard.X, shard.mask, bins=needs_bins(plan.survey))
        if order is not None:
            sums = tree_map(partial(_turned, np.asarray(order)), sums)
        if total is not None and len(sums.sums) != len(total.sums):
            raise DataError(
                f"Owner {name!r} has {len(sums.sums)} columns but {first!r} has {len(total.sums)}. All owners must "
                "have the same features in the same columns."
            )
        total = sums if total is None else tree_sum([total, sums])
    return total.weights(plan.survey), reference


def _turned(order: np.ndarray, leaf: np.ndarray) -> np.ndarray:
    return leaf[..., order] if leaf.ndim else leaf


def _prepared(source: Any, plan: Preprocess, weights: np.ndarray | None, features: tuple[str, ...] | None) -> Shard:
    shard: Any = source() if callable(source) else source
    if weights is not None and features is not None and shard.features is not None and shard.features != features:
        place = {name: j for j, name in enumerate(features)}
        weights = weights[[place[name] for name in shard.features]]
    return replace(shard, X=plan.apply(shard.X, weights))


def owner_name(path: str | os.PathLike[str]) -> str:
    """Name a client after its file, without the ending.

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
    >>> from fedfactor.io.read import owner_name
    >>> owner_name("data/st.mary.csv.gz")
    'st.mary'
    """
    path = Path(path)
    return path.name[: -len(format_of(path)[1])]


def owner_names(paths: Iterable[str | os.PathLike[str]]) -> dict[str, Path]:
    """Name the clients of several files, and refuse two files for one name.

    Parameters
    ----------
    paths : iterable of path
        One file per client.

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
    >>> from fedfactor.io.read import owner_names
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
