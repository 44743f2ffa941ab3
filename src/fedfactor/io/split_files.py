"""Cut one big file into parts, row by row, without ever holding it in memory."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from fedfactor.core.atomic_files import write_atomic
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import DataError
from fedfactor.core.grid import GridShard, even_bounds
from fedfactor.core.input_validation import as_real
from fedfactor.io.npz_members import CsrWriter, Member, csr_members

__all__ = ["GRID_FILE", "is_grid", "open_grid", "split_file"]

GRID_FILE = "grid.json"
CHUNK = 1 << 22
"""Cells, or stored cells, that are in memory at one time: some tens of megabytes."""


def split_file(
    source: str | os.PathLike[str], out: str | os.PathLike[str], parts: int, *, grid: bool = False
) -> list[Path]:
    """Write the rows of one matrix as several files, and with ``grid`` its columns, too.

    Parameters
    ----------
    source : path
        ``.npy`` (mapped), or ``.npz`` with a CSR matrix of SciPy or one array, packed or not.
    out : path
        A folder, made if missing; it must not hold parts already.
    parts : int
        How many.
    grid : bool
        Write a block of rows and a block of columns for each part, and ``grid.json``: what DSANLS needs. Together they
        take twice the room of the source.

    Returns
    -------
    list of Path
        The files.

    Notes
    -----
    Memory: about forty megabytes, and one number for each row of a sparse matrix.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/big.npy", np.arange(12.0).reshape(4, 3))
    ...     files = split_file(f"{folder}/big.npy", f"{folder}/parts", 2)
    ...     [path.name for path in files], np.load(files[1]).tolist()
    (['part-0.npy', 'part-1.npy'], [[6.0, 7.0, 8.0], [9.0, 10.0, 11.0]])
    """
    source = Path(source)
    out = Path(out)
    if not source.is_file():
        raise DataError(f"{source} is not there, or is a folder. Give one data file.")
    if source.suffix not in (".npy", ".npz"):
        raise DataError(f"{source} cannot be split without reading it whole. Save it as .npy or as a CSR .npz first.")
    if out.exists() and any(out.glob("part-*")):
        raise DataError(f"{out} already holds parts. Give an empty or a new folder.")
    members = csr_members(source) if source.suffix == ".npz" else None
    shape = members.shape if members else _dense_shape(source)
    if not 1 <= parts <= min(shape):
        raise DataError(f"{shape[0]} × {shape[1]} cells cannot be cut into {parts} parts of rows and columns.")
    out.mkdir(parents=True, exist_ok=True)
    names = [f"part-{i:0{len(str(parts - 1))}d}" for i in range(parts)]
    rows = even_bounds(shape[0], parts)
    columns = even_bounds(shape[1], parts)
    ending = ".npz" if members else ".npy"
    files = [out / (f"{name}.rows{ending}" if grid else f"{name}{ending}") for name in names]
    blocks = [out / f"{name}.columns{ending}" for name in names] if grid else []
    if members:
        _split_sparse(members, files, blocks, rows, columns)
    else:
        _split_dense(source, files, blocks, rows, columns)
    if grid:
        about = [
            {"name": name, "rows": rows[i : i + 2], "columns": columns[i : i + 2], "ending": ending}
            for i, name in enumerate(names)
        ]
        write_atomic(out / GRID_FILE, json.dumps({"shape": list(shape), "parts": about}, indent=1).encode(), 0o644)
    return files + blocks


def _dense_shape(path: Path) -> tuple[int, int]:
    X = _mapped(path)
    if X.ndim != 2:
        raise DataError(f"{path} holds {X.ndim} dimensions, but rows × columns are needed.")
    return int(X.shape[0]), int(X.shape[1])


def _mapped(path: Path) -> Any:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # a damaged header is parsed as Python, and fails in as many ways
        raise DataError(f"{path} is not a readable .npy array ({error}). Write it again with numpy.save.") from error


def _pieces(start: int, stop: int, width: int) -> Iterator[tuple[int, int]]:
    step = max(1, CHUNK // max(1, width))
    for first in range(start, stop, step):
        yield first, min(first + step, stop)


def _split_dense(source: Path, files: list[Path], blocks: list[Path], rows: list[int], columns: list[int]) -> None:
    X = _mapped(source)
    dtype = as_real(np.zeros((1, 1), X.dtype), str(source)).dtype
    make = np.lib.format.open_memmap
    wide = [make(path, "w+", dtype, (len(X), columns[i + 1] - columns[i])) for i, path in enumerate(blocks)]
    for i, path in enumerate(files):
        # Sketches read columns of a block of rows, so these lie together.
        shape = (rows[i + 1] - rows[i], X.shape[1])
        part = make(path, "w+", dtype, shape, fortran_order=bool(blocks))
        for first, last in _pieces(rows[i], rows[i + 1], X.shape[1]):
            piece = np.asarray(X[first:last])
            part[first - rows[i] : last - rows[i]] = piece
            for j, block in enumerate(wide):
                block[first:last] = piece[:, columns[j] : columns[j + 1]]
        part.flush()
    for block in wide:
        block.flush()


def _split_sparse(source: Any, files: list[Path], blocks: list[Path], rows: list[int], columns: list[int]) -> None:
    m = source.shape[1]
    indptr = source.indptr()
    with ExitStack() as stack:
        indices, data = (stack.enter_context(Member(source.path, name)) for name in ("indices", "data"))
        wide = [stack.enter_context(CsrWriter(path, columns[i + 1] - columns[i])) for i, path in enumerate(blocks)]
        for i, path in enumerate(files):
            with CsrWriter(path, m) as part:
                for first, last in _even_pieces(indptr, rows[i], rows[i + 1]):
                    counts = np.diff(indptr[first : last + 1])
                    where = indices.take(int(counts.sum()))
                    what = data.take(int(counts.sum()))
                    if where.size and not (0 <= int(where.min()) and int(where.max()) < m):
                        raise DataError(f"{source.path} is not a sound sparse matrix: a column lies outside 0 to {m}.")
                    part.add(counts, where, what)
                    for j, block in enumerate(wide):
                        block.add_inside(counts, where, what, columns[j], columns[j + 1])


def _even_pieces(indptr: np.ndarray, start: int, stop: int) -> Iterator[tuple[int, int]]:
    """Cut rows into pieces of about equally many stored cells, one row at least."""
    first = start
    while first < stop:
        least: np.ndarray = indptr[first] + CHUNK
        last = int(np.searchsorted(indptr, least, side="right")) - 1
        last = min(max(last, first + 1), stop)
        yield first, last
        first = last


def is_grid(folder: str | os.PathLike[str]) -> bool:
    """Return whether a folder holds the blocks of a grid."""
    return (Path(folder) / GRID_FILE).is_file()


def open_grid(folder: str | os.PathLike[str]) -> Federation:
    """Make a federation of the blocks that :func:`split_file` wrote; each node's blocks are opened when first needed.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(f"{folder}/big.npy", np.ones((4, 6)))
    ...     _ = split_file(f"{folder}/big.npy", f"{folder}/parts", 2, grid=True)
    ...     open_grid(f"{folder}/parts").shard("part-1").bounds
    (2, 4, 3, 6)
    """
    folder = Path(folder)
    try:
        about = json.loads((folder / GRID_FILE).read_bytes())
        parts = {str(part["name"]): partial(_load_block, folder, part) for part in about["parts"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder / GRID_FILE} is not readable ({error}). Run fedfactor split --grid again.") from None
    return Federation(parts)


def _load_block(folder: Path, part: dict[str, Any]) -> GridShard:
    from fedfactor.io.read import load_table

    rows = load_table(folder / f"{part['name']}.rows{part['ending']}").X
    if sparse.issparse(rows):
        rows = rows.tocsc()  # sketches read columns of it; turned before the other block is there, to spare memory
    columns = load_table(folder / f"{part['name']}.columns{part['ending']}").X
    shard = GridShard(rows, columns=columns, row_start=int(part["rows"][0]), column_start=int(part["columns"][0]))
    if shard.bounds != (*part["rows"], *part["columns"]):
        raise DataError(f"The blocks of {part['name']} in {folder} do not have the sizes that {GRID_FILE} says.")
    return shard
