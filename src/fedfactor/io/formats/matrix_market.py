"""Matrix Market, plain or ``.gz``.

Read here line by line, because SciPy's compiled reader ends the whole interpreter on some damaged files (SciPy 1.17.1).
NumPy turns the lines into numbers, some thousands at a time.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO

import numpy as np
from scipy import sparse

from fedfactor.core.errors import DataError
from fedfactor.io.file_content import Content, Reading, refuse_bomb
from fedfactor.io.formats.npz import checked_csr

_LONGEST = 1 << 16  # no line of the format is nearly so long, but for comments, which no party needs whole
_LINES = 1 << 16
_KINDS = {"real": 1, "double": 1, "integer": 1, "unsigned-integer": 1, "pattern": 0}
_SHAPES = ("general", "symmetric", "skew-symmetric")


def read(path: Path, reading: Reading) -> Content:
    """Read coordinates as CSR and arrays as dense; what is symmetric is written out."""
    try:
        with gzip.open(path, "rb") if path.suffix.lower() == ".gz" else path.open("rb") as file:
            return Content(_parse(path, _lines(path, file, reading), reading))
    except DataError:
        raise
    except Exception as error:  # gzip, zlib, NumPy's parser: a damaged file, wherever it is noticed
        raise _unreadable(path, error) from error


def _unreadable(path: Path, why: object) -> DataError:
    return DataError(f"{path} is not a readable Matrix Market file ({why}). Write it again with scipy.io.mmwrite.")


def _lines(path: Path, file: IO[bytes] | gzip.GzipFile, reading: Reading) -> Iterator[bytes]:
    """Yield lines that are neither blank nor comments; a line without end is refused before it fills the memory."""
    total = 0
    first = True
    while line := file.readline(_LONGEST):
        total += len(line)
        refuse_bomb(path, total, reading.max_bytes)
        if len(line) == _LONGEST and not line.endswith(b"\n"):
            if not line.startswith(b"%"):
                raise _unreadable(path, f"a line of {_LONGEST:,} characters or more")
            while (rest := file.readline(_LONGEST)) and not rest.endswith(b"\n"):
                total += len(rest)
                refuse_bomb(path, total, reading.max_bytes)
        if first or (line.strip() and not line.startswith(b"%")):
            yield line
        first = False


def _parse(path: Path, lines: Iterator[bytes], reading: Reading) -> np.ndarray | sparse.csr_array:
    head = next(lines, b"").decode("ascii", "replace").lower().split()
    if len(head) != 5 or head[:2] != ["%%matrixmarket", "matrix"]:
        raise _unreadable(path, "its first line must be %%MatrixMarket matrix LAYOUT KIND SYMMETRY")
    layout, kind, symmetry = head[2:]
    if layout not in ("coordinate", "array") or symmetry not in _SHAPES or kind not in _KINDS:
        raise _unreadable(path, f"{layout} {kind} {symmetry}: only real matrices are read")
    if layout == "array" and kind == "pattern":
        raise _unreadable(path, "an array of patterns has no values")
    sizes = [int(word) for word in next(lines, b"").split()]
    if len(sizes) != (3 if layout == "coordinate" else 2) or min(sizes) < 0:
        raise _unreadable(path, "its line of sizes is wrong")
    if layout == "array":
        return _dense(path, lines, sizes[0], sizes[1], symmetry, reading)
    return _sparse(path, lines, sizes, _KINDS[kind], symmetry, reading)


def _numbers(path: Path, lines: Iterator[bytes], width: int, count: int) -> Iterator[np.ndarray]:
    """Yield blocks of lines as numbers, and check that there are as many as announced."""
    found = 0
    while part := list(islice(lines, _LINES)):
        found += len(part)
        if found > count:
            raise _unreadable(path, f"more than the {count:,} entries that it announces")
        words = b" ".join(part).split()
        if len(words) != len(part) * width:
            raise _unreadable(path, f"an entry among the first {found:,} does not have {width} numbers")
        yield np.array(words).astype(np.float64).reshape(-1, width)
    if found < count:
        raise _unreadable(path, f"{found:,} entries where it announces {count:,}; it may be cut short")


def _sparse(
    path: Path, lines: Iterator[bytes], sizes: list[int], valued: int, symmetry: str, reading: Reading
) -> sparse.csr_array:
    n, m, stored = sizes
    refuse_bomb(path, stored * 16 + n * 8, reading.max_bytes)
    rows: list[np.ndarray] = []
    columns: list[np.ndarray] = []
    values: list[np.ndarray] = []
    for block in _numbers(path, lines, 2 + valued, stored):
        i = block[:, 0] - 1
        j = block[:, 1] - 1
        whole = (i == np.trunc(i)) & (j == np.trunc(j)) & (i >= 0) & (i < n) & (j >= 0) & (j < m)
        if not whole.all():
            wrong = block[np.flatnonzero(~whole)[0], :2]
            raise _unreadable(path, f"an entry at row {wrong[0]:g}, column {wrong[1]:g} of a {n} × {m} matrix")
        rows.append(i.astype(np.int64))
        columns.append(j.astype(np.int64))
        values.append(block[:, 2] if valued else np.ones(len(block)))
    i, j = (np.concatenate(part) if part else np.zeros(0, np.int64) for part in (rows, columns))
    x = np.concatenate(values) if values else np.zeros(0)
    if symmetry != "general":
        off = i != j
        sign = -1.0 if symmetry == "skew-symmetric" else 1.0
        i, j, x = np.concatenate([i, j[off]]), np.concatenate([j, i[off]]), np.concatenate([x, sign * x[off]])
        if n != m:
            raise _unreadable(path, f"{symmetry} but {n} × {m}")
    return checked_csr(path, sparse.coo_array((x, (i, j)), shape=(n, m)))


def _dense(path: Path, lines: Iterator[bytes], n: int, m: int, symmetry: str, reading: Reading) -> np.ndarray:
    refuse_bomb(path, n * m * 8, reading.max_bytes)
    if symmetry == "general":
        blocks = [block[:, 0] for block in _numbers(path, lines, 1, n * m)]
        return (np.concatenate(blocks) if blocks else np.zeros(0)).reshape(m, n).T
    if n != m:
        raise _unreadable(path, f"{symmetry} but {n} × {m}")
    skew = symmetry == "skew-symmetric"
    j, i = np.triu_indices(n, int(skew))  # the lower triangle, column by column
    blocks = [block[:, 0] for block in _numbers(path, lines, 1, len(i))]
    X = np.zeros((n, n))
    X[i, j] = np.concatenate(blocks) if blocks else 0.0
    return X + (-X.T if skew else np.tril(X, -1).T)
