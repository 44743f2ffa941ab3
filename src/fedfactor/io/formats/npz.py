"""NumPy's and SciPy's ``.npz``: a sparse matrix, or arrays by name."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from fedfactor.core.errors import DataError
from fedfactor.io.file_content import Content, Reading, refuse_bomb
from fedfactor.io.npz_members import Member, csr_members
from fedfactor.io.scratch_files import is_large


def read(path: Path, reading: Reading) -> Content:
    """Read SciPy's sparse matrix, or the array ``X``, or the only array; ``features`` and ``rows`` are names."""
    try:
        large = is_large(_check_members(path, reading.max_bytes))
        with np.load(path, allow_pickle=False) as file:
            names = {name: file[name].tolist() for name in ("features", "rows") if name in file.files}
            if reading.rows is not None:
                names |= {"rows": names["rows"][slice(*reading.rows)]} if "rows" in names else {}
                return _content(checked_csr(path, csr_members(path).rows(*reading.rows)), names)
            if "format" in file.files and "shape" in file.files:
                if large and file["format"].item() in ("csr", b"csr"):
                    return _content(checked_csr(path, csr_members(path).whole()), names)
                return _content(checked_csr(path, sparse.load_npz(path)), names)
            key = "X" if "X" in file.files else file.files[0] if len(file.files) == 1 else None
            if key is None:
                held = ", ".join(sorted(file.files)) or "nothing at all"
                raise DataError(
                    f"{path} holds not one array, and none is named 'X': {held}. "
                    "Save the matrix under the name X: numpy.savez_compressed(path, X=matrix)."
                )
            if not large:
                return _content(file[key], names)
            with Member(path, key) as member:
                return _content(member.whole(), names)
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


def count_rows(path: Path, reading: Reading) -> int:
    """Count the rows of a sparse matrix without reading it."""
    return csr_members(path).shape[0]


def _check_members(path: Path, max_bytes: int | None) -> int:
    """Compare the declared size of each member with what the archive stores, before reading any of it; add up."""
    with zipfile.ZipFile(path) as archive:
        unfolded = sum(info.file_size for info in archive.infolist())
        refuse_bomb(path, unfolded, max_bytes)
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
    return unfolded


def _content(X: Any, names: dict[str, Any]) -> Content:
    features, rows = ([str(name) for name in names[key]] if key in names else None for key in ("features", "rows"))
    return Content(X, features, rows, order=features or [])


def checked_csr(path: Path, X: Any) -> sparse.csr_array:
    """Look at every index of a sparse matrix, and add up cells that are stored twice."""
    X = sparse.csr_array(X)
    try:
        # SciPy does not look at the indices on loading; a wrong one would read foreign memory in the first product.
        X.check_format(full_check=True)
    except ValueError as error:
        raise DataError(f"{path} is not a sound sparse matrix ({error}). Export it again.") from error
    if not (X.has_canonical_format or X.data.flags.writeable):
        X = X.copy()  # a map of the file cannot be changed
    X.sum_duplicates()
    return X
