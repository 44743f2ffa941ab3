"""Readers of array files: NumPy, SciPy sparse, Matrix Market, Parquet. Each returns (X, features, rows)."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy import io as scipy_io
from scipy import sparse

from fedfactor.core.errors import DataError, MissingExtraError
from fedfactor.data.table import refuse_bomb, refuse_duplicates

__all__ = ["read_mtx", "read_npy", "read_npz", "read_parquet"]

_CELLS = 1 << 20  # cells of a Parquet file decoded at one time


def read_npy(path: Path, max_bytes: int | None) -> tuple[Any, None, None]:
    """Map a ``.npy`` file read-only. Nothing is read until it is used; ``max_bytes`` has no meaning here."""
    if path.stat().st_size == 0:
        raise DataError(f"{path} is empty (0 bytes). Write it again with numpy.save.")
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False), None, None
    except (ValueError, EOFError, OSError) as error:
        raise DataError(
            f"{path} is not a readable .npy array ({error}). It may be cut short, or hold Python objects, which are "
            "never loaded. Write it again with numpy.save from a numeric array."
        ) from error


def read_npz(path: Path, max_bytes: int | None) -> tuple[Any, Any, Any]:
    """Read SciPy's CSR, or the array ``X`` (with optional names ``features`` and ``rows``), or the only array."""
    try:
        _check_members(path, max_bytes)
        with np.load(path, allow_pickle=False) as file:
            if "format" in file.files and "shape" in file.files:
                return _checked_csr(path, sparse.load_npz(path)), None, None
            key = "X" if "X" in file.files else file.files[0] if len(file.files) == 1 else None
            if key is None:
                held = ", ".join(sorted(file.files)) or "nothing at all"
                raise DataError(
                    f"{path} holds not one array, and none is named 'X': {held}. "
                    "Save the matrix under the name X: numpy.savez_compressed(path, X=matrix)."
                )
            features, rows = (file[name] if name in file.files else None for name in ("features", "rows"))
            return file[key], features, rows
    except DataError:
        raise
    except (
        ValueError,
        EOFError,
        OSError,
        KeyError,
        TypeError,
        NotImplementedError,
        zipfile.BadZipFile,
        MemoryError,
    ) as error:
        raise DataError(
            f"{path} is not a readable .npz ({type(error).__name__}: {error}). It may be cut short, or hold Python "
            "objects, which are never loaded. Write it again with numpy.savez or scipy.sparse.save_npz."
        ) from error
    except Exception as error:  # lzma.LZMAError, zlib.error: a damaged member, whatever packed it
        raise DataError(f"{path} is damaged ({type(error).__name__}: {error}). Copy or export it again.") from error


def _check_members(path: Path, max_bytes: int | None) -> None:
    """Compare what each member says it holds with what the archive really stores, before reading any of it."""
    with zipfile.ZipFile(path) as archive:
        refuse_bomb(path, sum(info.file_size for info in archive.infolist()), max_bytes)
        for info in archive.infolist():
            with archive.open(info) as member:
                version = np.lib.format.read_magic(member)
                read_header = (
                    np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
                )
                shape, _, dtype = read_header(member)
                declared = member.tell() + int(np.prod(shape, dtype=object)) * dtype.itemsize
            if dtype.hasobject:
                raise DataError(
                    f"{path}: member {info.filename} holds Python objects, which are never loaded. Save numbers."
                )
            if declared != info.file_size:
                raise DataError(
                    f"{path}: member {info.filename} says it holds {declared:,} bytes but stores {info.file_size:,}. "
                    "The file is damaged or forged: export it again."
                )


def _checked_csr(path: Path, X: Any) -> sparse.csr_array:
    X = sparse.csr_array(X)
    try:
        # SciPy does not look at the indices on loading; a wrong one would read foreign memory in the first product.
        X.check_format(full_check=True)
    except ValueError as error:
        raise DataError(f"{path} is not a sound sparse matrix ({error}). Export it again.") from error
    X.sum_duplicates()
    return X


def read_mtx(path: Path, max_bytes: int | None) -> tuple[Any, None, None]:
    """Read a Matrix Market file, plain or ``.gz``; coordinates become CSR."""
    try:
        n, m, stored, layout, *_ = scipy_io.mminfo(path)  # by path: an open plain file can abort the interpreter
        refuse_bomb(path, n * m * 8 if layout == "array" else stored * 16 + n * 8, max_bytes)
        X = scipy_io.mmread(path)
    except DataError:
        raise
    except (ValueError, OSError, EOFError, TypeError, OverflowError, MemoryError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path} is not a readable Matrix Market file ({error}). Write it again with scipy.io.mmwrite."
        ) from error
    return (_checked_csr(path, X) if sparse.issparse(X) else X), None, None


def read_parquet(path: Path, max_bytes: int | None) -> tuple[np.ndarray, list[str], list[str] | None]:
    """Read numeric columns a few at a time into one matrix; a first column of text, or a frame's index, names rows."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise MissingExtraError.named("pyarrow", "data", f"Reading {path}") from error
    try:
        with pq.ParquetFile(path, memory_map=True) as file:
            return _fill_from_parquet(path, file, pa.types, max_bytes)
    except (pa.ArrowException, OSError, MemoryError) as error:
        raise DataError(f"{path} is not a readable Parquet file ({error}). Export it again.") from error


def _fill_from_parquet(
    path: Path, file: Any, types: Any, max_bytes: int | None
) -> tuple[np.ndarray, list[str], list[str] | None]:
    schema, n = file.schema_arrow, file.metadata.num_rows
    refuse_duplicates(path, schema.names)
    ids = next((field.name for i, field in enumerate(schema) if _names_rows(i, field, types)), None)
    fields = [field for field in schema if field.name != ids]
    dtype = _real_dtype(path, fields, types)
    refuse_bomb(path, n * len(fields) * dtype.itemsize, max_bytes)
    names = [field.name for field in fields]
    X, rows, start = np.empty((n, len(names)), dtype), [], 0
    for group in range(file.num_row_groups):
        stop = start + file.metadata.row_group(group).num_rows
        # A few columns at a time: decoding all of a wide row group at once takes several times the matrix.
        step = max(1, _CELLS // max(1, stop - start))
        for j in range(0, len(names), step):
            part = file.read_row_group(group, columns=names[j : j + step], use_threads=False)
            for i, name in enumerate(names[j : j + step], start=j):
                X[start:stop, i] = part.column(name).to_numpy()  # nulls arrive as NaN or None: both are NaN here
        if ids is not None:
            rows += map(str, file.read_row_group(group, columns=[ids]).column(ids).to_pylist())
        start = stop
    return X, names, None if ids is None else rows


def _real_dtype(path: Path, fields: list[Any], types: Any) -> np.dtype:
    """Apply the rule of :func:`~fedfactor.data.table.as_real` to all columns, and refuse what is not a number."""
    wide = False
    for field in fields:
        kind = field.type
        if not (types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind)):
            raise DataError(
                f"{path}: column {field.name!r} holds {kind} values, but a factorisation needs real numbers. "
                "Drop it or encode it as numbers (only a first column of text is read as row ids)."
            )
        wide = wide or (kind.bit_width > 16 and not types.is_float32(kind))
    return np.dtype(np.float64 if wide else np.float32)


def _names_rows(position: int, field: Any, types: Any) -> bool:
    if types.is_dictionary(field.type):
        return position == 0 and types.is_string(field.type.value_type)
    text = types.is_string(field.type) or types.is_large_string(field.type)
    return (text and position == 0) or field.name == "__index_level_0__"
