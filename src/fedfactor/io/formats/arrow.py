"""Tables that Arrow knows: columns with types, a frame's index among them. Shared by the formats that Arrow reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.core.errors import DataError, MissingExtraError
from fedfactor.core.id_columns import names_ids
from fedfactor.core.input_validation import real_dtype
from fedfactor.io.file_content import Content, Reading, refuse_bomb
from fedfactor.io.long_tables import long_names
from fedfactor.io.scratch_files import room

_CELLS = 1 << 20  # cells decoded at one time

Batches = Callable[[Sequence[str]], Iterator[tuple[int, Any]]]
"""Gives the columns named, piece by piece: the first row of the piece, and a table or batch of Arrow."""


def need_arrow(why: str) -> Any:
    """Import Arrow, or raise with the command that installs it."""
    try:
        import pyarrow
    except ImportError as error:
        raise MissingExtraError.named("pyarrow", "data", why) from error
    return pyarrow


def content_of(where: Path | str, schema: Any, n: int, batches: Batches, reading: Reading) -> Content:
    """Fill a matrix with the columns of numbers; leave columns of text until they are asked for."""
    types = need_arrow(f"Reading {where}").types
    names = list(schema.names)
    refuse_duplicates(where, names)
    reading.check(str(where), names)
    index = _index(where, schema)
    cells = long_names(names, reading)
    numbers: list[str] = []
    texts: list[str] = []
    widths: list[str] = []
    for field in schema:
        kind = field.type.value_type if types.is_dictionary(field.type) else field.type
        text = types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)
        text = text or types.is_temporal(kind)  # no numbers; in a long table they state which line is the later
        if field.name == index or field.name == reading.id:
            texts.append(field.name)
        elif not reading.takes(field.name):
            if reading.may_name_rows(field.name, text and field.name == names[0]) and (text or types.is_integer(kind)):
                texts.append(field.name)
        elif text or (types.is_integer(kind) and (names_ids(field.name) or field.name in cells)):
            texts.append(field.name)  # ids as text: no digit of theirs is lost
        elif types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind):
            numbers.append(field.name)
            floating = "f" if types.is_floating(kind) else "i"
            widths.append(real_dtype(floating, 8 if types.is_decimal(kind) else max(1, kind.bit_width // 8)))
        elif types.is_null(kind):
            numbers.append(field.name)
            widths.append("float32")
        else:
            raise DataError(
                f"{where}: column {field.name!r} holds {kind} values, but a factorisation needs real numbers. Leave it "
                f"out (--drop {field.name}), or encode it as numbers."
            )
    dtype = np.dtype("float32" if widths and all(width == "float32" for width in widths) else "float64")
    if isinstance(where, Path):
        refuse_bomb(where, n * max(1, len(numbers)) * dtype.itemsize, reading.max_bytes)
    X = room((n, len(numbers)), dtype)
    # A few columns at a time take least memory; into a file whole rows are written, batch by batch.
    step = len(numbers) or 1 if isinstance(X, np.memmap) else max(1, _CELLS // max(1, n))
    for j in range(0, len(numbers), step):
        for start, part in batches(numbers[j : j + step]):
            for i, name in enumerate(numbers[j : j + step], start=j):
                X[start : start + part.num_rows, i] = _values(part.column(name), types)
    limit = where if isinstance(where, Path) else None
    read: dict[str, Callable[[], Sequence[str]]] = {name: _reader(name, batches, limit, reading) for name in texts}
    found = Content(X, numbers, texts=read, order=names)
    if index is not None and reading.id is None:
        found.row_ids = read.pop(index)()
        found.id_name = None if index.startswith("__index_level_") else index
    return found


def _values(column: Any, types: Any) -> np.ndarray:
    """Bring one column to floats; what is absent becomes NaN."""
    if types.is_null(column.type):
        return np.full(len(column), np.nan)
    if types.is_decimal(column.type) or types.is_dictionary(column.type):
        column = column.cast("float64")
    # Without missing cells integers arrive as integers, and with them as floats or objects: both go into the matrix.
    return column.to_numpy() if hasattr(column, "chunks") else column.to_numpy(zero_copy_only=False)


def _reader(name: str, batches: Batches, limit: Path | None, reading: Reading) -> Callable[[], list[str]]:
    def read() -> list[str]:
        found: list[str] = []
        size = 0
        for _, part in batches([name]):
            column = part.column(name)
            size += _text_bytes(column)
            if limit is not None:
                refuse_bomb(limit, size + 64 * len(column), reading.max_bytes)
            found += ("" if value is None else str(value) for value in column.to_pylist())
        return found

    return read


def _text_bytes(column: Any) -> int:
    """Count the bytes that a column takes once each cell is text of its own, without making it so."""
    import pyarrow as pa
    import pyarrow.compute as pc

    total = 0
    for chunk in getattr(column, "chunks", [column]):
        kind = chunk.type
        if pa.types.is_dictionary(kind):
            # By name: Arrow makes its functions at run time, and type checkers do not know them.
            sizes = pc.call_function("binary_length", [chunk.dictionary]) if len(chunk.dictionary) else None
            lengths = None if sizes is None else np.asarray(pc.fill_null(sizes, 0))
            codes = np.asarray(pc.fill_null(chunk.indices, 0))
            total += 0 if lengths is None else int(lengths.astype(np.int64)[codes].sum())
        else:
            total += int(chunk.nbytes)
    return total


def refuse_duplicates(where: object, names: Sequence[str]) -> None:
    """Refuse a table in which two columns share a name."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(
                f"{where} names the column {name!r} more than once. Owners' columns are matched by name, so every name "
                "must be unique: rename or drop the duplicates."
            )
        seen.add(name)


def _index(where: object, schema: Any) -> str | None:
    """Name the column that was a frame's index, when pandas wrote one."""
    metadata: dict[bytes, bytes] = schema.metadata or {}
    noted = metadata.get(b"pandas")
    if noted is None:
        return "__index_level_0__" if "__index_level_0__" in schema.names else None
    columns = json.loads(noted).get("index_columns", [])
    names = [name for name in columns if isinstance(name, str) and name in schema.names]
    if len(names) > 1:
        raise DataError(
            f"{where} was written with an index of {len(names)} levels ({', '.join(names)}). Write it again with "
            f"one: frame.reset_index().set_index({names[0]!r})."
        )
    return names[0] if names else None
