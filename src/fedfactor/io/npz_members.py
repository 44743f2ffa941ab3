"""Members of ``.npz`` files, read and written piece by piece."""

from __future__ import annotations

import os
import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from scipy import sparse

from fedfactor.core.errors import DataError
from fedfactor.io.scratch_files import is_large, room

_PIECE = 1 << 22  # entries that are unpacked in one go

__all__ = ["CsrMembers", "CsrWriter", "Member", "csr_members"]


class Member:
    """One array of an ``.npz``, taken from its beginning, so many entries at a time."""

    def __init__(self, path: Path, name: str) -> None:
        self._archive = zipfile.ZipFile(path)
        self._file = self._archive.open(f"{name}.npy")
        version = np.lib.format.read_magic(self._file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        self.shape, turned, self.dtype = read(self._file)
        self._path = path
        self._order: Literal["C", "F"] = "F" if turned else "C"
        if self.dtype.hasobject:
            raise DataError(f"{path}: {name} holds Python objects, which are never loaded. Save numbers.")
        self._what = f"{path}: {name}"

    def take(self, count: int) -> np.ndarray:
        """Read the next entries."""
        data = self._file.read(count * self.dtype.itemsize)
        if len(data) < count * self.dtype.itemsize:
            raise DataError(f"{self._what} is cut short. Copy or export the file again.")
        return np.frombuffer(data, self.dtype)

    def whole(self) -> np.ndarray:
        """Read all entries; of a large array map them where they lie, or put them on disk, unpacked.

        What is mapped is not compared with the archive's checksum: that would read it all.
        """
        count = int(np.prod(self.shape))
        raw = self._archive.fp
        if not is_large(count * self.dtype.itemsize):
            return self.take(count).reshape(self.shape, order=self._order)
        info = self._archive.getinfo(self._file.name)
        if info.compress_type == zipfile.ZIP_STORED and raw is not None:
            start = info.header_offset
            raw.seek(start + 26)  # the lengths of a member's name and extras in its own header
            lengths = np.frombuffer(raw.read(4), "<u2")
            start += 30 + int(lengths.sum()) + self._file.tell()
            return np.memmap(self._path, self.dtype, "r", start, self.shape, self._order)
        out = room((count,), self.dtype)
        for start in range(0, count, _PIECE):
            stop = min(start + _PIECE, count)
            out[start:stop] = self.take(stop - start)
        return out.reshape(self.shape, order=self._order)

    def skip(self, count: int) -> None:
        """Pass over the next entries."""
        self._file.seek(count * self.dtype.itemsize, os.SEEK_CUR)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        self._file.close()
        self._archive.close()


@dataclass(frozen=True, slots=True)
class CsrMembers:
    """A CSR matrix in an ``.npz``, not yet read."""

    path: Path
    shape: tuple[int, int]

    def indptr(self) -> np.ndarray:
        """Read where each row begins; the only part that is held whole."""
        with Member(self.path, "indptr") as member:
            found = member.take(int(np.prod(member.shape)))
        if found.size != self.shape[0] + 1 or found[0] != 0 or (np.diff(found) < 0).any():
            raise DataError(f"{self.path} is not a sound sparse matrix: its rows do not follow each other.")
        return found

    def whole(self) -> sparse.csr_array:
        """Read all rows; a large matrix is mapped."""
        found: list[np.ndarray] = []
        for name in ("data", "indices"):
            with Member(self.path, name) as member:
                found.append(member.whole())
        return sparse.csr_array((*found, self.indptr()), shape=self.shape)

    def rows(self, first: int, last: int) -> sparse.csr_array:
        """Read some rows: what lies before them is passed over, and what lies behind is not looked at."""
        indptr = self.indptr()[first : last + 1]
        found: list[np.ndarray] = []
        for name in ("data", "indices"):
            with Member(self.path, name) as member:
                member.skip(int(indptr[0]))
                found.append(member.take(int(indptr[-1] - indptr[0])))
        return sparse.csr_array((*found, indptr - indptr[0]), shape=(last - first, self.shape[1]))


def csr_members(path: Path) -> CsrMembers:
    """Look at a CSR matrix without reading it; refuse other contents."""
    try:
        with np.load(path, allow_pickle=False) as file:
            if "format" not in file.files or "shape" not in file.files:
                raise DataError(f"{path} holds no sparse matrix. Save a dense one as .npy, which can be mapped.")
            kind = file["format"].item()
            shape = file["shape"]
    except DataError:
        raise
    except Exception as error:  # zip, zlib and NumPy's header each fail in their own way
        raise DataError(f"{path} is not a readable .npz ({error}). Export it again.") from error
    if (kind.decode() if isinstance(kind, bytes) else str(kind)) != "csr":
        raise DataError(
            f"{path} is a sparse matrix in another layout than CSR. Save X.tocsr() with scipy.sparse.save_npz."
        )
    return CsrMembers(path, (int(shape[0]), int(shape[1])))


class CsrWriter:
    """Writes a CSR matrix row after row, into an unpacked ``.npz`` that SciPy reads."""

    def __init__(self, path: Path, n_columns: int) -> None:
        self._path = path
        self._columns = n_columns
        self._indices = tempfile.TemporaryFile(dir=path.parent)
        self._data = tempfile.TemporaryFile(dir=path.parent)
        self._counts: list[np.ndarray] = []
        self._dtype: np.dtype | None = None

    def add(self, counts: np.ndarray, indices: np.ndarray, data: np.ndarray) -> None:
        """Append rows: how many cells each has, in which columns, and what they hold."""
        self._dtype = data.dtype
        self._counts.append(counts.astype(np.int64))
        self._indices.write(np.ascontiguousarray(indices, np.int32).data)
        self._data.write(np.ascontiguousarray(data).data)

    def add_inside(self, counts: np.ndarray, indices: np.ndarray, data: np.ndarray, start: int, stop: int) -> None:
        """Append rows, but only their cells in columns ``start:stop``."""
        inside = (indices >= start) & (indices < stop)
        rows = np.repeat(np.arange(counts.size), counts)[inside]
        self.add(np.bincount(rows, minlength=counts.size), indices[inside] - start, data[inside])

    def _finish(self) -> None:
        counts = np.concatenate(self._counts) if self._counts else np.zeros(0, np.int64)
        indptr = np.concatenate(([0], np.cumsum(counts)))
        kind = np.int32 if indptr[-1] < 2**31 else np.int64
        shape = np.array([counts.size, self._columns], np.int64)
        small = {"indptr": indptr.astype(kind), "format": np.array(b"csr"), "shape": shape}
        with zipfile.ZipFile(self._path, "w", zipfile.ZIP_STORED) as archive:
            for name, array in small.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, array, allow_pickle=False)
            for name, raw, dtype in (("indices", self._indices, np.dtype(np.int32)), ("data", self._data, self._dtype)):
                head = {"descr": (dtype or np.dtype(float)).str, "fortran_order": False, "shape": (int(indptr[-1]),)}
                raw.seek(0)
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array_header_1_0(member, head)
                    shutil.copyfileobj(raw, member)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is None:
            self._finish()
        self._indices.close()
        self._data.close()
