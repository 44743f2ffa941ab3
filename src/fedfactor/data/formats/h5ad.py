"""AnnData's ``.h5ad``: X or a layer in, factors out. Read with h5py, piece by piece; written with anndata itself.

Reading needs the matrix and two lists of names, which h5py gives without loading the rest of the file (annotations,
graphs, other layers), and without following links to other files.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from fedfactor.core.errors import DataError, MissingExtraError
from fedfactor.data.content import Content, Reading, Rows, refuse_bomb
from fedfactor.data.formats.npz import checked_csr

KEY = "fedfactor"
"""Name of what is written: ``obsm["X_fedfactor"]``, ``varm["fedfactor"]``, ``uns["fedfactor"]``."""

_NAMES = 256  # read at a time: text in HDF5 may refer to one place many times


def read(path: Path, reading: Reading) -> Content:
    """Read X, or a layer, with the names of cells and genes; what lies in the file in one piece is mapped, not read."""
    h5py = _need("h5py", f"Reading {path}")
    try:
        with h5py.File(path, "r") as file:
            where = "X" if reading.layer is None else f"layers/{reading.layer}"
            X = _matrix(h5py, path, _at(h5py, path, file, where), reading)
            features, rows = (_names(h5py, path, file, part, reading) for part in ("var", "obs"))
    except DataError:
        raise
    except Exception as error:  # HDF5 tells of damage in many ways
        raise DataError(f"{path} is not a readable .h5ad file ({error}). Write it again with anndata.") from error
    said = [] if reading.layer is None else [f"layer {reading.layer}"]
    said.append(f"row ids: cells ({len(rows):,})")
    return Content(X, features, rows, order=features, said=said)


def _need(package: str, why: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingExtraError.named(package, "cells", why) from error


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


def _matrix(h5py: Any, path: Path, node: Any, reading: Reading) -> Any:
    if isinstance(node, h5py.Dataset):
        return _array(path, node, reading)
    kind, shape = str(node.attrs.get("encoding-type", "")), tuple(int(size) for size in node.attrs.get("shape", ()))
    if kind not in ("csr_matrix", "csc_matrix") or len(shape) != 2:
        raise DataError(f"{path}: {node.name} is no matrix but {kind or 'something else'}. Write it as CSR or dense.")
    parts = [_array(path, _at(h5py, path, node, name), reading) for name in ("data", "indices", "indptr")]
    refuse_bomb(path, sum(part.nbytes for part in parts) + shape[0] * 8, reading.max_bytes)
    if len(parts[2]) != shape[kind == "csc_matrix"] + 1 or len(parts[0]) != len(parts[1]):
        raise DataError(f"{path}: the parts of {node.name} do not fit together. Write it again with anndata.")
    X = (sparse.csr_array if kind == "csr_matrix" else sparse.csc_array)(tuple(parts), shape=shape)
    X.check_format(full_check=True)
    return checked_csr(path, X.tocsr())


def _array(path: Path, node: Any, reading: Reading) -> np.ndarray:
    """Map what lies in one piece; read the rest block by block."""
    dtype, shape = node.dtype, node.shape
    if shape is None or dtype.kind not in "biuf":
        raise DataError(f"{path}: {node.name} holds {dtype} values, but a factorisation needs real numbers.")
    size = int(np.prod(shape, dtype=object)) * dtype.itemsize
    offset = node.id.get_offset() if node.chunks is None and not node.compression else None
    if offset is not None and offset + size <= path.stat().st_size and size:
        return np.memmap(path, dtype, "r", offset, shape)
    refuse_bomb(path, size, reading.max_bytes)
    found = np.empty(shape, dtype)
    step = max(1, (1 << 22) // max(1, int(np.prod(shape[1:]))))
    for start in range(0, shape[0] if shape else 0, step):
        found[start : start + step] = node[start : start + step]
    return found


def _names(h5py: Any, path: Path, file: Any, part: str, reading: Reading) -> list[str]:
    table = _at(h5py, path, file, part)
    key = table.attrs.get("_index", "_index")
    node = _at(h5py, path, table, key.decode() if isinstance(key, bytes) else str(key))
    if node.shape is None or len(node.shape) != 1:
        raise DataError(f"{path}: the names in {part!r} are no list. Write the file again with anndata.")
    found: list[str] = []
    size = 0
    for start in range(0, node.shape[0], _NAMES):
        values = node[start : start + _NAMES]
        words = [each.decode("utf-8") if isinstance(each, bytes) else str(each) for each in values.tolist()]
        size += sum(map(len, words)) + 64 * len(words)
        refuse_bomb(path, size, reading.max_bytes)
        found += words
    return found


def write(path: Path, rows: Rows) -> None:
    """Write U to ``obsm``, V to ``varm``, what made them to ``uns``; beside the data when those were an ``.h5ad``."""
    anndata, h5py = _need("anndata", f"Writing {path}"), _need("h5py", f"Writing {path}")
    import pandas as pd

    handle, draft = tempfile.mkstemp(prefix=f".{path.name[:80]}.", suffix=".part", dir=path.parent)
    os.close(handle)  # made with mode 0600
    try:
        if rows.source is not None and rows.source.name.lower().endswith(".h5ad"):
            shutil.copyfile(rows.source, draft)
            _add(anndata, h5py, Path(draft), rows)
        else:
            names = [str(i) for i in range(len(rows.X))] if rows.row_ids is None else list(rows.row_ids)
            columns = [] if rows.columns is None else list(rows.columns)
            with pd.option_context("future.infer_string", False):  # anndata 0.12 cannot write the strings of pandas 3
                made = anndata.AnnData(
                    sparse.csr_matrix((len(rows.X), len(columns)), dtype=np.float32),
                    obs=pd.DataFrame(index=pd.Index(names, dtype=object)),
                    var=pd.DataFrame(index=pd.Index(columns, dtype=object)),
                )
                made.obsm[f"X_{KEY}"] = np.asarray(rows.X)
                if columns:
                    made.varm[KEY] = np.asarray(rows.components).T
                made.uns[KEY] = dict(rows.about)
                made.write_h5ad(draft)
        os.replace(draft, path)
    finally:
        if os.path.exists(draft):
            os.unlink(draft)


def _add(anndata: Any, h5py: Any, path: Path, rows: Rows) -> None:
    """Add factors to a copy of the data, in place: the matrix is not loaded."""
    with h5py.File(path, "r+") as file:
        genes = _names(h5py, path, file, "var", Reading())
        V = np.full((len(genes), len(rows.X[0])), 0.0, np.asarray(rows.components).dtype)
        place = {name: j for j, name in enumerate(rows.columns or genes)}
        known = [i for i, name in enumerate(genes) if name in place]
        V[known] = np.asarray(rows.components).T[[place[genes[i]] for i in known]]
        for group, key, value in (("obsm", f"X_{KEY}", np.asarray(rows.X)), ("varm", KEY, V), ("uns", KEY, rows.about)):
            if group not in file:
                anndata.io.write_elem(file, group, {})
            if key in file[group]:
                del file[group][key]
            anndata.io.write_elem(file[group], key, dict(value) if group == "uns" else value)
