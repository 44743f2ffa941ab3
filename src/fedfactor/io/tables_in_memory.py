"""Tables in memory: frames, Arrow tables, AnnData, plain and sparse matrices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fedfactor.core.errors import DataError
from fedfactor.core.id_columns import names_ids
from fedfactor.core.input_validation import is_frame, is_named, is_sparse, refuse_masked, row_ids_of, stored_cells
from fedfactor.io.file_content import Content, Reading
from fedfactor.io.long_tables import long_names


def content_of(source: Any, reading: Reading) -> Content:
    """Take apart whatever holds rows and columns."""
    refuse_masked(source)
    if is_named(source):
        return _named(source, reading)
    if is_sparse(source):
        return Content(source.tocsr())
    if is_frame(source):
        return _frame(source, reading)
    if hasattr(source, "__arrow_c_stream__"):
        return _arrow(source, reading)
    if isinstance(source, (str, bytes)) or not hasattr(source, "__len__"):
        raise DataError(f"A {type(source).__name__} is no table. Give a path, a frame, an Arrow table or a matrix.")
    X = np.asarray(source)
    if X.dtype == object:
        raise DataError("The rows are not a matrix of numbers. Give each row equally many numbers, or a data frame.")
    return Content(X)


def _named(source: Any, reading: Reading) -> Content:
    X = source.X
    said = []
    if reading.layer is not None:
        layers = getattr(source, "layers", {})
        if reading.layer not in layers:
            raise DataError(f"There is no layer {reading.layer!r}; there are {', '.join(layers) or 'none'}.")
        X = layers[reading.layer]
        said = [f"layer {reading.layer}"]
    names = source.var_names if hasattr(source, "var_names") else source.features
    features = None if names is None else [str(name) for name in names]
    X = X.tocsr() if is_sparse(X) else np.asarray(X)
    return Content(X, features, row_ids_of(source), order=features or [], said=said)


def _frame(frame: Any, reading: Reading) -> Content:
    names = [str(name) for name in frame.columns]
    reading.check("The table", names)
    cells = long_names(names, reading)
    stored = stored_cells(frame)
    if stored is not None:
        return Content(stored, names, row_ids_of(frame), order=names)
    texts: dict[str, Callable[[], Sequence[str]]] = {}
    numbers: list[str] = []
    columns: list[np.ndarray] = []
    for name, key in zip(names, frame.columns, strict=True):
        values = frame[key].to_numpy()
        if values.dtype.kind in "mM":  # no numbers; in a long table they state which line is the later
            values = values.astype(str)
        whole = values.dtype.kind in "iu"
        text = values.dtype.kind in "OUST"
        if not reading.takes(name) and name != reading.id:
            if not (reading.may_name_rows(name, text and name == names[0]) and (text or whole)):
                continue
        if name == reading.id or (whole and (names_ids(name) or name in cells)):
            texts[name] = lambda values=values: [str(value) for value in values.tolist()]
        elif values.dtype.kind in "biuf":
            numbers.append(name)
            columns.append(values)
        elif text:
            texts[name] = lambda values=values: ["" if _absent(value) else str(value) for value in values.tolist()]
        else:
            raise DataError(
                f"The column {name!r} holds {values.dtype} values, but a factorisation needs real numbers. Leave it "
                f"out: drop=[{name!r}]."
            )
    n = len(frame)
    X = np.column_stack(columns) if columns else np.zeros((n, 0))
    index = row_ids_of(frame) if reading.id is None else None
    id_name = None if index is None else getattr(frame.index, "name", None)
    return Content(X, numbers, index, None if id_name is None else str(id_name), texts, names)


def _absent(value: Any) -> bool:
    return value is None or type(value).__name__ == "NAType" or value != value


def _arrow(source: Any, reading: Reading) -> Content:
    from fedfactor.io.formats import arrow

    table = arrow.need_arrow("An Arrow table in memory").table(source)

    def batches(names: Sequence[str]) -> Iterator[tuple[int, Any]]:
        yield 0, table.select(list(names))

    return arrow.content_of("The table", table.schema, table.num_rows, batches, reading)
