"""A process that looks at an HDF5 file for another one; it imports little, so that it starts quickly."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.core.errors import DataError
from fedfactor.data.content import Reading, refuse_bomb

_NAMES = 256  # read at a time: text in HDF5 may refer to one place many times


def main(path: Path, folder: Path, asked: str) -> None:
    """Look at a file in this process and tell what was found."""
    reading = Reading(**json.loads(asked))
    try:
        about = _look(path, folder, reading)
    except DataError as error:
        about = {"wrong": str(error)}
    except Exception as error:  # HDF5 tells of damage in many ways
        about = {"wrong": f"{path} is not a readable .h5ad file ({error}). Write it again with anndata."}
    (folder / "about.json").write_text(json.dumps(about))


def _look(path: Path, folder: Path, reading: Reading) -> dict[str, Any]:
    import h5py

    with h5py.File(path, "r") as file:
        node = _at(h5py, path, file, "X" if reading.layer is None else f"layers/{reading.layer}")
        if isinstance(node, h5py.Dataset):
            about: dict[str, Any] = {"layout": "dense", "parts": [_part(path, folder, node, reading)]}
            shape = node.shape
        else:
            kind = str(node.attrs.get("encoding-type", ""))
            shape = tuple(int(size) for size in node.attrs.get("shape", ()))
            if kind not in ("csr_matrix", "csc_matrix") or len(shape) != 2:
                raise DataError(f"{path}: {node.name} is no matrix but {kind or 'something else'}. Write it as CSR.")
            parts = [_at(h5py, path, node, name) for name in ("data", "indices", "indptr")]
            about = {
                "layout": kind[:3],
                "shape": shape,
                "parts": [_part(path, folder, part, reading) for part in parts],
            }
        if len(shape) != 2:
            raise DataError(f"{path}: {node.name} has {len(shape)} dimensions, but rows × columns are needed.")
        sizes = {"obs": int(shape[0]), "var": int(shape[1])}
        return about | {part: names_in(h5py, path, file, part, reading, size) for part, size in sizes.items()}


def _part(path: Path, folder: Path, node: Any, reading: Reading) -> dict[str, Any]:
    """Say where an array lies in the file, or copy it out block by block."""
    dtype, shape = node.dtype, node.shape
    if shape is None or dtype.kind not in "biuf":
        raise DataError(f"{path}: {node.name} holds {dtype} values, but a factorisation needs real numbers.")
    size = int(np.prod(shape, dtype=object)) * dtype.itemsize
    offset = node.id.get_offset() if node.chunks is None and not node.compression else None
    if offset is not None and size and offset + size <= path.stat().st_size:
        return {"offset": int(offset), "dtype": dtype.str, "shape": [int(each) for each in shape]}
    refuse_bomb(path, size, reading.max_bytes)
    name = f"{len(list(folder.iterdir()))}.npy"
    if not size:
        np.save(folder / name, np.empty(shape, dtype))
        return {"file": name}
    found = np.lib.format.open_memmap(folder / name, "w+", dtype, shape)
    step = max(1, (1 << 22) // max(1, int(np.prod(shape[1:]))))
    for start in range(0, shape[0], step):
        found[start : start + step] = node[start : start + step]
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
    node = _at(h5py, path, table, key.decode() if isinstance(key, bytes) else str(key))
    if node.shape is None or len(node.shape) != 1 or (expected is not None and node.shape[0] != expected):
        raise DataError(
            f"{path}: {part!r} does not name the {expected} lines of the matrix. Write it again with anndata."
        )
    found: list[str] = []
    size = 0
    for start in range(0, node.shape[0], _NAMES):
        values = node[start : start + _NAMES]
        words = [each.decode("utf-8") if isinstance(each, bytes) else str(each) for each in values.tolist()]
        size += sum(map(len, words)) + 64 * len(words)
        refuse_bomb(path, size, reading.max_bytes)
        found += words
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
