"""Parquet, by Arrow: a row group and a few columns at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fedfactor.core.errors import DataError
from fedfactor.io.file_content import Content, Reading, refuse_bomb
from fedfactor.io.formats.arrow import content_of, need_arrow


def read(path: Path, reading: Reading) -> Content:
    """Read columns of numbers into one matrix; a frame's index names the rows."""
    pa = need_arrow(f"Reading {path}")
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path, memory_map=True)
        # Texts that repeat stay a list of different texts and places in it: their size is known before it is paid.
        texts = [field.name for field in schema if pa.types.is_string(field.type)]
        with pq.ParquetFile(path, memory_map=True, read_dictionary=texts) as file:
            about = file.metadata
            groups = range(about.num_row_groups)
            refuse_bomb(path, sum(about.row_group(group).total_byte_size for group in groups), reading.max_bytes)
            wanted, stop = reading.rows or (0, about.num_rows)

            def batches(names: Sequence[str]) -> Iterator[tuple[int, Any]]:
                start = 0
                for group in groups:
                    first, last = max(start, wanted), min(start + about.row_group(group).num_rows, stop)
                    if first < last:  # groups without a wanted row are not read
                        part = file.read_row_group(group, columns=list(names), use_threads=False)
                        yield first - wanted, part.slice(first - start, last - first)
                    start += about.row_group(group).num_rows

            found = content_of(path, file.schema_arrow, stop - wanted, batches, reading)
            # Text is read while the file is open, and only what may be needed.
            kept = {name: read() for name, read in found.texts.items()}
            found.texts = {name: lambda values=values: values for name, values in kept.items()}
            return found
    except DataError:
        raise
    except Exception as error:  # Arrow's own errors, and those of Python where damaged text meets it
        raise DataError(f"{path} is not a readable Parquet file ({error}). Export it again.") from error


def count_rows(path: Path, reading: Reading) -> int:
    """Count the rows without reading them."""
    need_arrow(f"Reading {path}")
    import pyarrow.parquet as pq

    return int(pq.read_metadata(path, memory_map=True).num_rows)


def names(path: Path, reading: Reading) -> list[str]:
    """Read the column names alone."""
    need_arrow(f"Reading {path}")
    import pyarrow.parquet as pq

    return list(pq.read_schema(path, memory_map=True).names)


def write(path: Path, rows: Any) -> None:
    """Write components as columns; ids, where there are some, are the first column."""
    pa = need_arrow(f"Writing {path}")
    import io

    import pyarrow.parquet as pq

    from fedfactor.core.atomic_files import write_atomic

    buffer = io.BytesIO()
    pq.write_table(arrow_table(pa, rows), buffer)
    write_atomic(path, buffer.getvalue())


def arrow_table(pa: Any, rows: Any) -> Any:
    """Make a table of Arrow from rows with names."""
    columns = {} if rows.row_ids is None else {rows.id_name or "row": pa.array(rows.row_ids)}
    columns |= {name: pa.array(rows.X[:, j]) for j, name in enumerate(rows.features)}
    return pa.table(columns)
