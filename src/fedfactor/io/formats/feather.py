"""Arrow's own files, ``.feather`` and ``.arrow``: mapped, a batch at a time."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedfactor.core.atomic_files import write_atomic
from fedfactor.core.errors import DataError
from fedfactor.io.file_content import Content, Reading, refuse_bomb
from fedfactor.io.formats.arrow import content_of, need_arrow
from fedfactor.io.formats.parquet import arrow_table


def read(path: Path, reading: Reading) -> Content:
    """Read columns of numbers into one matrix; a frame's index names the rows."""
    pa = need_arrow(f"Reading {path}")
    try:
        with pa.memory_map(str(path)) as source:
            file = pa.ipc.open_file(source)
            parts: list[tuple[int, Any]] = []
            rows = 0
            size = 0
            for i in range(file.num_record_batches):
                part = file.get_batch(i)
                part.validate(full=True)  # a damaged file may point anywhere
                size += part.nbytes
                refuse_bomb(path, size, reading.max_bytes)
                parts.append((rows, part))
                rows += part.num_rows

            def batches(names: Sequence[str]) -> Iterator[tuple[int, Any]]:
                for start, part in parts:
                    yield start, part.select(list(names))

            found = content_of(path, file.schema, rows, batches, reading)
            kept = {name: read() for name, read in found.texts.items()}
            found.texts = {name: lambda values=values: values for name, values in kept.items()}
            return found
    except DataError:
        raise
    except Exception as error:
        raise DataError(f"{path} is not a readable Arrow file ({error}). Export it again.") from error


def names(path: Path, reading: Reading) -> list[str]:
    """Read the column names alone."""
    pa = need_arrow(f"Reading {path}")
    with pa.memory_map(str(path)) as source:
        return list(pa.ipc.open_file(source).schema.names)


def write(path: Path, rows: Any) -> None:
    """Write components as columns; ids, where there are some, are the first column."""
    pa = need_arrow(f"Writing {path}")
    buffer = io.BytesIO()
    table = arrow_table(pa, rows)
    with pa.ipc.new_file(buffer, table.schema) as file:
        file.write_table(table)
    write_atomic(path, buffer.getvalue())
