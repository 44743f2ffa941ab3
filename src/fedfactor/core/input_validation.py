"""Look at a client's rows once, when they are opened, so that nothing later has to."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from fedfactor.core.algorithm import Domain, Meta
from fedfactor.core.errors import DataError
from fedfactor.core.id_columns import looks_like_ids, names_ids
from fedfactor.core.memory_mapped import read_ahead
from fedfactor.core.threads import for_blocks

_BLOCK = 1 << 22
"""Cells that are looked at in one go: they stay in cache between the first look and the second."""


def is_sparse(X: Any) -> bool:
    """Return whether a value is a SciPy sparse matrix or array, without importing SciPy."""
    return hasattr(X, "nnz") and hasattr(X, "tocsr")


def library(X: Any) -> str:
    """Name the library whose arrays a matrix multiplies with: SciPy's sparse matrices go with NumPy."""
    name = getattr(X, "library", None) or type(X).__module__.split(".")[0]
    return "numpy" if name == "scipy" else name


def dtype_name(X: Any) -> str:
    """Name of the dtype without its namespace: ``float32`` for NumPy and torch alike."""
    return str(X.dtype).rsplit(".", 1)[-1]


def wake_card(X: Any) -> None:
    """Let torch load its linear algebra for a GPU here and now: loaded first by several threads at once, it fails."""
    if getattr(X, "is_cuda", False):
        torch = sys.modules["torch"]
        two = torch.eye(2, device=X.device)
        torch.linalg.eigvalsh(two)
        torch.linalg.svd(two)
        torch.linalg.qr(two)


def as_matrix(data: Any) -> tuple[Any, tuple[str, ...] | None]:
    """Turn rows into a floating matrix and its column names; copies only when the dtype or the layout demands it."""
    refuse_masked(data)
    features: tuple[str, ...] | None = None
    if is_named(data):
        names = data.var_names if hasattr(data, "var_names") else data.features
        features = None if names is None else tuple(map(str, names))
        data = data.X
    if is_sparse(data):
        X = _summed(data.tocsr())
    elif is_frame(data):
        features = _column_names(data.columns)
        check_frame(data)
        X = _frame_values(data)
    elif hasattr(data, "detach") or (hasattr(data, "__cuda_array_interface__")):
        X = data
    else:
        X = np.asarray(data)
    if len(X.shape) != 2:
        raise DataError(
            f"Expected 2D array, got {len(X.shape)}D array instead: rows × features are needed. Reshape your data: "
            "X.reshape(1, -1) makes one row of one sample."
        )
    return _as_floating(X), features


def is_frame(data: Any) -> bool:
    """Return whether a value is a data frame of pandas or polars, without importing either."""
    return hasattr(data, "columns") and hasattr(data, "to_numpy")


def is_named(data: Any) -> bool:
    """Return whether a value is a matrix with names: a table of a reader, or AnnData."""
    return hasattr(data, "X") and (hasattr(data, "var_names") or hasattr(data, "row_ids"))


def row_ids_of(data: Any) -> tuple[str, ...] | None:
    """Row ids that come with the rows: those of a table, cell names of AnnData, an index that was set explicitly."""
    if is_named(data):
        found = data.obs_names if hasattr(data, "obs_names") else data.row_ids
        return None if found is None else tuple(map(str, found))
    index = getattr(data, "index", None)
    if not is_frame(data) or index is None or not hasattr(index, "dtype"):
        return None
    bare = getattr(index, "name", None) is None and str(index.dtype).startswith(("int", "uint"))
    return None if bare else tuple(map(str, index))


def check_frame(frame: Any) -> None:
    """Refuse a frame with a column of identifiers, or of text: the first would be factored, the second cannot be."""
    for name in frame.columns:
        column = frame[name]
        if len(getattr(column, "shape", ())) != 1:  # two columns of one name are refused elsewhere
            return
        values = column.to_numpy()
        if values.dtype.kind in "mM":  # polars would hand out its dates as numbers
            raise DataError(
                f"The column {name!r} holds dates or times, not numbers. Leave it out, fedfactor.read(frame, "
                f"drop=[{name!r}]), or turn it into a number that means something, such as days since a day."
            )
        if values.dtype.kind in "OUST":
            _refuse_text(frame, name, values)
        elif values.dtype.kind in "iuf" and isinstance(name, str) and names_ids(name) and looks_like_ids(name, values):
            raise DataError(
                f"The column {name!r} looks like identifiers: its name says so, and no two rows share a value. They "
                f"would be factored, and sums over them sent. Make it the index, frame.set_index({name!r}), or drop "
                "it; if it is a measurement, rename it."
            )


def _refuse_text(frame: Any, name: Any, values: Any) -> None:
    for place, value in enumerate(values.tolist()):
        if isinstance(value, str):
            try:
                float(value)
            except ValueError:
                raise DataError(
                    f"The values are not numbers: column {name!r} holds {value!r} (could not convert string to float) "
                    f"in row {place}. fedfactor.read(frame) takes ids and yes/no columns apart by itself, and "
                    f"drop=[{name!r}] there leaves a column out; or encode it."
                ) from None


def refuse_masked(data: Any) -> None:
    """Refuse NumPy's masked arrays: turned into a plain one, such an array shows what its mask hides."""
    if isinstance(data, np.ma.MaskedArray):
        raise DataError(
            "This is a masked array, whose mask would be lost. Fill the masked cells with NaN, X.filled(numpy.nan), "
            "and pass missing_values=numpy.nan."
        )


def check_parts(X: Any, mask: Any, features: tuple[str, ...] | None, *, grid: bool = False) -> Any:
    """Validate a shard that was constructed directly; return X with each cell stored once, by rows unless of a grid."""
    if len(getattr(X, "shape", ())) != 2:
        raise DataError("The X of a shard must be a matrix, rows × features. Use Shard.of(rows), which makes one.")
    if features is not None and len(features) != X.shape[1]:
        raise DataError(f"The shard names {len(features)} features but has {X.shape[1]} columns. Name each column.")
    if mask is not None and not isinstance(mask, str) and tuple(mask.shape) != tuple(X.shape):
        raise DataError(f"The mask of a shard has shape {tuple(mask.shape)}, its X {tuple(X.shape)}. Mark every cell.")
    if not is_sparse(X):
        return X
    return _summed(X if X.format == "csr" or (grid and X.format == "csc") else X.tocsr())


def _summed(X: Any) -> Any:
    """Add up cells that are stored more than once, in a copy: a square of their sum is no sum of their squares.

    Numbers behind the last cell, which SciPy allows, are left out, and a column that is not there is refused: loops do
    not look before they write.
    """
    count = int(X.indptr[-1])
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    elif count < max(len(X.data), len(X.indices)):
        X = type(X)((X.data[:count], X.indices[:count], X.indptr), shape=X.shape)
    lines = X.shape[1 if X.format == "csr" else 0]
    if len(X.indices) and not (0 <= X.indices.min() and X.indices.max() < lines):
        wrong = X.indices.max() if X.indices.min() >= 0 else X.indices.min()
        raise DataError(
            f"A cell of the sparse matrix is stored at place {wrong}, but the matrix has {lines}, counted from 0. "
            "Build the matrix again; X.check_format(full_check=True) of SciPy describes the defect."
        )
    return X


def _column_names(columns: Any) -> tuple[str, ...] | None:
    names = list(columns)
    if not all(isinstance(name, str) for name in names):
        # scikit-learn's habit: only text is a name; a default integer index is none.
        return None
    check_unique(names)
    return tuple(names)


def check_unique(names: Sequence[Any]) -> None:
    """Refuse two columns of one name."""
    if len(set(names)) < len(names):
        twice = next(name for position, name in enumerate(names) if name in names[:position])
        raise DataError(f"The column name {twice!r} occurs more than once. Give every feature its own name.")


def stored_cells(frame: Any) -> Any | None:
    """Return the cells of a frame whose columns are all sparse as CSR; None where unstored ones are not zeros.

    pandas fills with NaN unless requested otherwise: such cells are unknown, and are written out.
    """
    kinds = list(getattr(frame, "dtypes", []))
    if not kinds or not all(getattr(kind, "fill_value", None) == 0 for kind in kinds):
        return None
    return frame.sparse.to_coo().tocsr()


def _frame_values(frame: Any) -> Any:
    stored = stored_cells(frame)
    if stored is not None:
        return stored
    if all(hasattr(kind, "fill_value") for kind in getattr(frame, "dtypes", [0])):
        frame = frame.sparse.to_dense()
    values = frame.to_numpy()
    if values.dtype != object or not hasattr(frame, "isna"):
        return values
    # Columns with a missing-value marker of their own come as objects; NaN means the same.
    return np.where(frame.isna().to_numpy(), np.nan, values)


def _as_floating(X: Any) -> Any:
    kind = dtype_name(X)
    if kind in ("float32", "float64"):
        return as_real(X) if isinstance(X, np.ndarray) or is_sparse(X) else X
    if hasattr(X, "detach"):
        if kind in ("bfloat16", "float16") and X.is_cuda:
            return X  # kept until it is known whether the method can work on half the bytes
        small = kind in ("float16", "bfloat16", "uint8", "int8", "int16", "bool")
        return X.float() if small else X.double()
    if X.dtype.kind in "OUT":  # numbers that are written as text may be read
        try:
            return X.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(f"The values are not numbers ({error}). Encode or drop such columns first.") from None
    return as_real(X)


def real_dtype(kind: str, size: int) -> str:
    """Name the floating type for values of a kind (NumPy's letter) and a size in bytes: the one rule of the package.

    Floats keep their precision. float32 holds every integer up to 2**24, so 8- and 16-bit integers and booleans lose
    nothing in it and take half the memory of float64; other integers become float64.

    Examples
    --------
    >>> real_dtype("u", 1), real_dtype("i", 4), real_dtype("f", 2)
    ('float32', 'float64', 'float32')
    """
    return "float32" if size <= 2 or (kind == "f" and size == 4) else "float64"


def fits_single(X: Any) -> bool:
    """Return whether :func:`real_dtype` keeps rows in single precision, where scikit-learn would double them."""
    kinds = list(X.dtypes) if is_frame(X) and hasattr(X, "dtypes") else [getattr(X, "dtype", None)]
    return bool(kinds) and all(
        isinstance(kind, np.dtype) and kind.kind in "biuf" and real_dtype(kind.kind, kind.itemsize) == "float32"
        for kind in kinds
    )


def as_real(X: Any, where: str = "") -> Any:
    """Bring an array or a sparse matrix to the floating type that :func:`real_dtype` names.

    Parameters
    ----------
    X : ndarray or sparse matrix
        Any numeric dtype.
    where : str
        What to call the data in an error.

    Returns
    -------
    ndarray or sparse matrix
        ``X`` itself where it was float32 or float64 in native byte order, else a copy.

    Examples
    --------
    >>> as_real(np.array([[0, 255]], dtype="uint8"), "pixels").dtype
    dtype('float32')
    """
    kind = X.dtype.kind
    if kind not in "biuf":
        what = {"M": "dates", "m": "spans of time", "c": "complex numbers"}.get(kind, str(X.dtype))
        remedy = "Use X.real, or the magnitudes abs(X)" if kind == "c" else "Encode or drop them first"
        raise DataError(
            f"{f'{where}: the' if where else 'The'} values are not real numbers but {what} ({X.dtype}): "
            f"{'Complex data not supported. ' if kind == 'c' else ''}{remedy}."
        )
    real: Any = X.astype(real_dtype(kind, X.dtype.itemsize), copy=False)
    # A cast map is no map any more, though NumPy keeps calling it one.
    if real is not X and isinstance(real, np.memmap):
        return np.asarray(cast("Any", real))
    return real


def check_values(
    name: str,
    X: Any,
    mask: Any,
    domain: Domain,
    features: tuple[str, ...] | None = None,
    row_ids: tuple[str, ...] | None = None,
) -> float:
    """Raise when a value is not finite or lies outside what the algorithm takes; return the largest magnitude.

    Names of columns and rows, where they are known, help the client to find the cell.
    """
    X = getattr(X, "rows", X)  # those that a GPU sees block by block are looked at where they lie
    values = X.data if is_sparse(X) else X.values() if "sparse_csr" in str(getattr(X, "layout", "")) else X
    if math.prod(values.shape) == 0:
        return 0.0
    if mask is not None and not isinstance(mask, str) and not bool(mask.any()):
        raise DataError(f"Owner {name!r} has no observed cell at all. Leave it out.")
    low, high = _extremes(values)
    if not (math.isfinite(low) and math.isfinite(high)):
        kind = "NaN" if math.isnan(low) or math.isnan(high) else "infinity"
        remedy = (
            "pass missing_values=numpy.nan if NaN marks missing cells, or fill them" if kind == "NaN" else "clip them"
        )
        where = _place(X, lambda part: ~np.isfinite(part), features, row_ids)
        raise DataError(f"Input X contains {kind} (owner {name!r}{where}), which no factor can explain: {remedy}.")
    if domain != Domain.REAL and low < 0:
        raise DataError(
            f"Negative values in data passed: owner {name!r} has {low:g}"
            f"{_place(X, lambda part: part == low, features, row_ids)}, but the factors are non-negative. Shift or "
            "clip the data, drop the column, or take a method for real data."
        )
    if domain == Domain.BINARY and not _is_binary(values):
        raise DataError(
            f"Owner {name!r} has values other than 0 and 1 (up to {high:g}). Threshold the data first; estimators do "
            "so with binarize=0.5 or the like."
        )
    largest = max(abs(low), abs(high))
    if not _squares_fit(values, largest, dtype_name(X)):
        raise DataError(
            f"Owner {name!r} has values up to {largest:g}, whose squares do not fit into {dtype_name(X)}. Take larger "
            "units, or double precision if this is single."
        )
    return largest


def _extremes(values: Any) -> tuple[float, float]:
    """Return the least and the largest value, NaN where there is one; NumPy's are read once, block by block."""
    if library(values) != "numpy" or len(values) < 2:
        return float(values.min()), float(values.max())
    rows = max(1, _BLOCK * len(values) // math.prod(values.shape))
    blocks = -(-len(values) // rows)
    found = np.empty((blocks, 2))

    def look(place: int, _: int) -> None:
        arrive(place)
        block = values[place * rows : (place + 1) * rows]
        found[place] = block.min(), block.max()

    with read_ahead(blocks, lambda place: [values[place * rows : (place + 1) * rows]]) as arrive:
        for_blocks(look, blocks, 1)
    return float(found.min()), float(found.max())


def _place(
    X: Any, wrong: Callable[[Any], Any], features: tuple[str, ...] | None, row_ids: tuple[str, ...] | None
) -> str:
    """Return in which row and column the first wrong cell lies; nothing for arrays that NumPy does not hold."""
    if is_sparse(X):
        cells = X.tocoo()
        found = np.flatnonzero(wrong(cells.data))
        if not len(found):
            return ""
        row = int(cells.coords[0][found[0]])
        column = int(cells.coords[1][found[0]])
    elif library(X) == "numpy":
        cell = next(((i, int(hits[0])) for i in range(len(X)) if len(hits := np.flatnonzero(wrong(X[i])))), None)
        if cell is None:
            return ""
        row, column = cell
    else:
        return ""
    who = f"row {row}" if row_ids is None else f"row {row} (id {row_ids[row]!r})"
    what = str(column) if features is None else repr(features[column])
    return f" in {who}, column {what}"


def check_scale(largest: float, dtype: str) -> None:
    """Refuse data whose squares would all vanish: every factor would then look right."""
    if 0 < largest and largest * largest < float(np.finfo(dtype).smallest_normal):
        raise DataError(
            f"No value of any owner exceeds {largest:g}, whose square is nothing in {dtype}. Take smaller units."
        )


def _squares_fit(values: Any, largest: float, dtype: str) -> bool:
    most = float(np.finfo(dtype).max) if dtype in ("float32", "float64") else math.inf
    if largest * largest <= most / math.prod(values.shape):  # nearly always: no second look is needed
        return True
    share = values / largest
    return largest * math.sqrt(float((share * share).sum())) <= math.sqrt(most)


def _is_binary(values: Any) -> bool:
    return bool(((values == 0) | (values == 1)).all())


def check_features(
    name: str, features: tuple[str, ...] | None, first: str, reference: tuple[str, ...] | None
) -> Sequence[int] | None:
    """Compare column names of two clients; return the columns in the first one's order when only the order differs."""
    if features == reference:
        return None
    if features is None or reference is None:
        named, bare = (first, name) if features is None else (name, first)
        raise DataError(
            f"Owner {named!r} names its features but owner {bare!r} does not, so it is unknown whether the columns "
            "agree. Name them for all owners, or for none."
        )
    here = set(features)
    there = set(reference)
    only = {first: [f for f in reference if f not in here], name: [f for f in features if f not in there]}
    if any(only.values()):
        told = "; ".join(
            f"{_listed(names)} {'is' if len(names) == 1 else 'are'} known only to {who!r}"
            for who, names in only.items()
            if names
        )
        raise DataError(
            f"Feature names of owners {name!r} and {first!r} clash: {told}. Agree on one set of columns first: leave "
            "columns out that not all have (--how intersection), or add those that are lacking (--how union)."
        )
    position = {feature: index for index, feature in enumerate(features)}
    return [position[feature] for feature in reference]


def _listed(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(map(repr, names[:most])) + more


def check_tiling(
    bounds: Sequence[tuple[int, int, int, int] | None], n_features: int, places: Sequence[tuple[int, int] | None] = ()
) -> None:
    """Refuse blocks that overlap or leave a part of the matrix out; None stands for a client of rows alone.

    Places on a grid, where blocks have them, must be taken once, and those in one line have the same bounds.
    """
    if all(each is None for each in bounds):
        return
    found = [each for each in bounds if each is not None]
    on_grid = [each for each in places if each is not None]
    if len(found) < len(bounds) or 0 < len(on_grid) < len(bounds):
        raise DataError("Some owners bring blocks of a grid and some bring rows alone. Bring one kind.")
    if on_grid and len(set(on_grid)) < math.prod(len({place[axis] for place in on_grid}) for axis in (0, 1)):
        raise DataError(f"The blocks at {sorted(on_grid)} of a grid leave a place out, or take one twice.")
    n_rows = max(each[1] for each in found)
    for what, axis, size in (("rows", 0, n_rows), ("columns", 1, n_features)):
        line = [place[axis] for place in on_grid] or range(len(found))
        once = {(i, each[2 * axis], each[2 * axis + 1]) for i, each in zip(line, found, strict=True)}
        spans = sorted((start, stop) for _, start, stop in once)
        ends = [0, *(stop for _, stop in spans)]
        if [start for start, _ in spans] != ends[:-1] or ends[-1] != size:
            raise DataError(
                f"The blocks of {what} {spans} do not cover 0 to {size} once. Write them again with fedfactor split."
            )


def check_rank(n_components: int, meta: Meta) -> None:
    """Refuse a rank that the data cannot carry."""
    most = meta.n_features if meta.n_rows is None else min(meta.n_features, meta.n_rows)
    if not 1 <= n_components <= most or n_components != int(n_components):
        rows = "" if meta.n_rows is None else f" and {meta.n_rows} rows in all"
        raise DataError(
            f"n_components={n_components} must be a whole number from 1 to {most}: there are {meta.n_features} "
            f"features{rows}, and a higher rank would only copy the data."
        )
