"""A process that looks at an HDF5 file for another one; it imports little, so that it starts quickly."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.core.errors import DataError
from fedfactor.io.file_content import Reading, refuse_bomb

_NAMES = 256  # read at a time: text in HDF5 may refer to one place many times
_EACH = 64  # bytes that one name takes in memory, beside its letters
# bytes that may be taken, and for each byte of the file
_ROOM = 56 << 20
_TIMES = 16
_BLOCK = 1 << 20  # numbers copied at a time


def main(path: Path, folder: Path, asked: str) -> None:
    """Look at a file in this process and state what was found."""
    reading = Reading(**json.loads(asked))
    try:
        about = _look(path, folder, reading)
    except DataError as error:
        about = {"wrong": str(error)}
    except Exception as error:  # HDF5 reports damage with many types of exceptions
        about = {"wrong": f"{path} is not a readable .h5ad file ({error}). Write it again with anndata."}
    (folder / "about.json").write_text(json.dumps(about))


def _look(path: Path, folder: Path, reading: Reading) -> dict[str, Any]:
    import h5py

    _bound_memory(path)
    with h5py.File(path, "r") as file:
        plain = not path.name.lower().endswith(".h5ad") and not {"obs", "var"} <= set(file)
        where = "X" if reading.layer is None else f"layers/{reading.layer}"
        node = _at(h5py, path, file, _matrix_in(h5py, path, file, reading) if plain else where)
        if isinstance(node, h5py.Dataset):
            shape = node.shape
            first, last = _wanted(path, node, shape, reading)
            about: dict[str, Any] = {"layout": "dense", "parts": [_part(path, folder, node, reading, first, last)]}
        else:
            kind = str(node.attrs.get("encoding-type", ""))
            shape = tuple(int(size) for size in node.attrs.get("shape", ()))
            if kind not in ("csr_matrix", "csc_matrix") or len(shape) != 2:
                raise DataError(f"{path}: {node.name} is no matrix but {kind or 'something else'}. Write it as CSR.")
            parts = [_at(h5py, path, node, name) for name in ("data", "indices", "indptr")]
            first, last = _wanted(path, node, shape, reading)
            if reading.rows is None:
                told = [_part(path, folder, part, reading) for part in parts]
            elif kind == "csc_matrix":
                raise DataError(f"{path} is stored by columns, so rows cannot be read alone. Write it as CSR.")
            else:
                told = _some_rows(path, folder, parts, reading, first, last)
            about = {"layout": kind[:3], "shape": (last - first, shape[1]), "parts": told}
        sizes = {"obs": int(shape[0]), "var": int(shape[1])}
        if plain:
            beside = {"obs": "rows", "var": "features"}
            names = {
                part: _words(h5py, path, file, beside[part], reading, size) if beside[part] in file else None
                for part, size in sizes.items()
            }
        else:
            names = {part: names_in(h5py, path, file, part, reading, size) for part, size in sizes.items()}
        obs = names["obs"]
        return about | names | {"obs": None if obs is None else obs[first:last], "rows": int(shape[0])}


def _matrix_in(h5py: Any, path: Path, file: Any, reading: Reading) -> str:
    """Return where the matrix of a file lies that is no AnnData: where requested, in ``X``, or in the only one
    there.
    """
    if reading.layer is not None:
        return reading.layer.strip("/")
    # A link to elsewhere is not looked through: what cannot be opened here is no matrix of this file.
    own = [name for name in file if isinstance(file.get(name, getlink=True), h5py.HardLink)]
    found = [name for name in own if isinstance(file[name], h5py.Dataset) and len(file[name].shape or ()) == 2]
    if "X" in found or len(found) == 1:
        return "X" if "X" in found else found[0]
    there = ", ".join(file) or "nothing"
    raise DataError(f"{path} holds {len(found)} matrices ({there}). Name one: --layer PATH/IN/FILE.")


def _bound_memory(path: Path) -> None:
    """Let this process take little more than the file is large: damaged sizes made the HDF5 library take gigabytes.

    Maps of scratch files do not count. Where the system cannot bound memory, nothing is.
    """
    with contextlib.suppress(OSError, ImportError, ValueError, IndexError):
        import resource

        taken = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
        most = taken + _ROOM + _TIMES * path.stat().st_size
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        known = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
        resource.setrlimit(resource.RLIMIT_DATA, (min([most, *known]), hard))


def _wanted(path: Path, node: Any, shape: Any, reading: Reading) -> tuple[int, int]:
    """Return the first row to be read, and the one after the last."""
    if shape is None or len(shape) != 2:
        raise DataError(f"{path}: {node.name} has {len(shape or ())} dimensions, but rows × columns are needed.")
    return (0, int(shape[0])) if reading.rows is None else (reading.rows[0], reading.rows[1])


def _some_rows(path: Path, folder: Path, parts: Any, reading: Reading, first: int, last: int) -> list[dict[str, Any]]:
    """Take some rows of a CSR matrix: only what belongs to them is read."""
    data, indices, indptr = parts
    starts = np.asarray(indptr[first : last + 1]) if last > first else np.zeros(1, np.int64)
    if (np.diff(starts) < 0).any() or starts[0] < 0:
        raise DataError(f"{path} is not a sound sparse matrix: its rows do not follow each other.")
    told = [_part(path, folder, part, reading, int(starts[0]), int(starts[-1])) for part in (data, indices)]
    np.save(folder / "indptr.npy", starts - starts[0])
    return [*told, {"file": "indptr.npy"}]


def _part(
    path: Path, folder: Path, node: Any, reading: Reading, first: int = 0, last: int | None = None
) -> dict[str, Any]:
    """Return where an array, or some of its rows, lies in the file, or copy it out block by block."""
    dtype = node.dtype
    whole = node.shape
    if whole is None or dtype.kind not in "biuf":
        raise DataError(f"{path}: {node.name} holds {dtype} values, but a factorisation needs real numbers.")
    last = int(whole[0]) if last is None else last
    if not 0 <= first <= last <= whole[0]:
        raise DataError(f"{path}: {node.name} has {whole[0]} lines, too few for the matrix. Write it again.")
    shape = (last - first, *(int(each) for each in whole[1:]))
    wide = int(np.prod(shape[1:], dtype=object)) * dtype.itemsize
    size = shape[0] * wide
    offset = node.id.get_offset() if node.chunks is None and not node.compression else None
    if offset is not None and size and offset + last * wide <= path.stat().st_size:
        return {"offset": int(offset) + first * wide, "dtype": dtype.str, "shape": list(shape)}
    refuse_bomb(path, size, reading.max_bytes)
    name = f"{len(list(folder.iterdir()))}.npy"
    if not size:
        np.save(folder / name, np.empty(shape, dtype))
        return {"file": name}
    found = np.lib.format.open_memmap(folder / name, "w+", dtype, shape)
    step = max(1, _BLOCK // max(1, int(np.prod(shape[1:]))))
    for start in range(0, shape[0], step):
        found[start : start + step] = node[first + start : min(first + start + step, last)]
    found.flush()
    return {"file": name}


def _at(h5py: Any, path: Path, file: Any, where: str) -> Any:
    """Find a part of the file, without following a link out of it."""
    node = file
    for name in where.split("/"):
        if name not in node:
            there = ", ".join(node) or "nothing"
            raise DataError(
                f"{path} has no {where!r}; beside it there is {there}. Name a layer that is there: --layer."
            )
        if not isinstance(node.get(name, getlink=True), h5py.HardLink):
            raise DataError(
                f"{path}: {where!r} is a link to somewhere else, which is not followed. Copy the file whole."
            )
        node = node[name]
    if isinstance(node, h5py.Dataset) and (node.is_virtual or node.external):
        raise DataError(f"{path}: {where!r} is kept in other files, which are not read. Copy the file whole.")
    return node


def names_in(h5py: Any, path: Path, file: Any, part: str, reading: Reading, expected: int | None = None) -> list[str]:
    """Read the names of rows or columns."""
    table = _at(h5py, path, file, part)
    key = table.attrs.get("_index", "_index")
    return _words(h5py, path, table, key.decode() if isinstance(key, bytes) else str(key), reading, expected, part)


def _words(
    h5py: Any, path: Path, file: Any, where: str, reading: Reading, expected: int | None, part: str | None = None
) -> list[str]:
    """Read a list of names, some at a time."""
    node = _at(h5py, path, file, where)
    part = part or where
    if node.shape is None or len(node.shape) != 1 or (expected is not None and node.shape[0] != expected):
        raise DataError(
            f"{path}: {part!r} does not name the {expected} lines of the matrix. Write it again with anndata."
        )
    # Names that were never written take no room in a file: count them before the first one is read.
    refuse_bomb(
        path, node.shape[0] * (_EACH + (node.dtype.itemsize if node.dtype.kind == "S" else 0)), reading.max_bytes
    )
    found: list[str] = []
    size = 0
    for start in range(0, node.shape[0], _NAMES):
        values = node[start : start + _NAMES]
        words = [each.decode("utf-8") if isinstance(each, bytes) else str(each) for each in values.tolist()]
        size += sum(map(len, words)) + _EACH * len(words)
        refuse_bomb(path, size, reading.max_bytes)
        found += words
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
