"""Lists of items as a file, a few users at a time: CSV or Parquet with user, rank, item, score and client."""

from __future__ import annotations

import contextlib
import csv
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.core.errors import DataError
from fedfactor.io.formats.arrow import need_arrow
from fedfactor.io.formats.delimited_text import harmless
from fedfactor.recommend.user_table import UserTable

COLUMNS = ("user", "rank", "item", "score", "owner")
USERS = 4096
"""Users whose lists are in memory at one time."""


def write_lists(path: Path, tables: Mapping[str, UserTable], n: int, rules: dict[str, Any]) -> int:
    """Write the lists of all users of some clients; return how many rows were written."""
    kind = path.suffix.lower()
    if kind not in (".csv", ".parquet"):
        raise DataError(f"{path} must end in .csv or .parquet, which says what to write.")
    write = _write_csv if kind == ".csv" else _write_parquet
    if kind == ".parquet":
        need_arrow(f"Writing {path}")
    # Lists show what users like, so that only the writer may read them; a broken-off run leaves what was there.
    handle, part = tempfile.mkstemp(prefix=f".{path.name[:80]}.", suffix=".part", dir=path.parent)
    os.close(handle)
    try:
        total = write(Path(part), _blocks(tables, n, rules))
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part)
        raise
    return total


def _blocks(tables: Mapping[str, UserTable], n: int, rules: dict[str, Any]) -> Iterator[dict[str, np.ndarray]]:
    for name, table in tables.items():
        for start in range(0, len(table.users), USERS):
            users = table.users[start : start + USERS]
            items, scores = table.recommend(users, n, **rules)
            there = np.isfinite(scores)  # a user with fewer items left has a shorter list
            who, rank = np.nonzero(there)
            if not len(who):  # nothing is left for any of them
                continue
            columns = (users[who], rank + 1, items[there], scores[there], np.full(len(who), name))
            yield dict(zip(COLUMNS, columns, strict=True))


def _write_csv(path: Path, blocks: Iterator[dict[str, np.ndarray]]) -> int:
    total = 0
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for block in blocks:
            columns = (column.tolist() for column in block.values())
            told = ([harmless(cell) if isinstance(cell, str) else cell for cell in column] for column in columns)
            writer.writerows(zip(*told, strict=True))
            total += len(block["rank"])
    return total


def _write_parquet(path: Path, blocks: Iterator[dict[str, np.ndarray]]) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    total = 0
    writer = None
    pq.write_table(pa.table({name: pa.array([], pa.string()) for name in COLUMNS}), path)  # stays if no list has items
    try:
        for block in blocks:
            table = pa.table({name: pa.array(column.tolist()) for name, column in block.items()})
            writer = pq.ParquetWriter(path, table.schema) if writer is None else writer
            writer.write_table(table.cast(writer.schema))
            total += len(block["rank"])
    finally:
        if writer is not None:
            writer.close()
    return total
