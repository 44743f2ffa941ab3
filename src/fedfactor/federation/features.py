"""Agree on columns by name: parties share column names and no rows."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedfactor.core.atomic_files import read_json, write_atomic
from fedfactor.core.errors import DataError
from fedfactor.core.input_validation import is_sparse
from fedfactor.core.printable_text import listed
from fedfactor.core.pytree import is_list, is_mapping
from fedfactor.io.file_content import Reading
from fedfactor.io.read import load
from fedfactor.io.row_matching import blinded, hashes_of_ids, points_of_ids, texts_of_ids

How = Literal["same", "union", "intersection"]


def column_names(path: str | os.PathLike[str], reading: Reading | None = None) -> tuple[str, ...]:
    """Read the column names of a data file; columns without names are called by number, and ids are no columns."""
    reading = reading or Reading()
    if reading.missing_values is None:  # a name is a name, whether or not cells are missing
        reading = replace(reading, missing_values=float("nan"))
    return names_of(load(path, replace(reading, repeated_ids=True)))


def names_of(table: Any) -> tuple[str, ...]:
    """Name the columns of a table; without names of their own they are called ``column 0``, ``column 1``, ..."""
    return table.features or tuple(f"column {j}" for j in range(table.X.shape[1]))


def hashed_rows(path: str | os.PathLike[str], reading: Reading, key: bytes) -> dict[str, str]:
    """Return, for each row id of a data file, its keyed hash as hexadecimal digits, in the order of the rows."""
    ids = _row_ids(path, load(path, reading))
    hashes = hashes_of_ids(ids, key)
    return {each.strip(): digest.tobytes().hex() for each, digest in zip(ids, hashes, strict=True)}


def blinded_rows(path: str | os.PathLike[str], reading: Reading, secret: bytes) -> list[str]:
    """Return each row id of a data file as a blinded point, in an order that hides that of the rows."""
    return sorted(_blinded_ids(path, reading, secret))


def _blinded_ids(path: str | os.PathLike[str], reading: Reading, secret: bytes) -> dict[str, str]:
    """Map blinded points to the ids that they stand for."""
    ids = texts_of_ids(_row_ids(path, load(path, reading)))
    points = (point.hex() for point in blinded(points_of_ids(ids), secret))
    return dict(zip(points, ids, strict=True))


def blind_again(names: Sequence[str], secret: bytes) -> list[str]:
    """Blind the list of another party, whose order is kept."""
    try:
        points = [bytes.fromhex(name) for name in names]
    except ValueError:
        raise DataError(
            "The list holds names that are no blinded ids. Ask for what fedfactor features wrote."
        ) from None
    return [point.hex() for point in blinded(points, secret)]


def row_names(path: str | os.PathLike[str], reading: Reading, names: Sequence[str], secret: bytes) -> dict[str, str]:
    """Return, for each row id of a data file, its name in the file's list, once all other parties have blinded it."""
    own = _blinded_ids(path, reading, secret)
    if len(own) != len(names):
        raise DataError(f"{path} has {len(own)} rows, but the list has {len(names)} names. Give the list of this file.")
    return {own[point]: name for point, name in zip(sorted(own), names, strict=True)}


def row_names_of(table: Any, path: str | os.PathLike[str], reading: Reading) -> tuple[str, ...]:
    """Return what all parties call the rows of a table, by the party's own file of row names."""
    ids = _row_ids(path, table)
    if reading.row_names is None:
        raise DataError(
            "Parties hold columns of the same rows. Give --row-names: the file that fedfactor features wrote."
        )
    known = read_json(reading.row_names, "Make it with: fedfactor features --split columns")
    if not is_mapping(known) or not all(isinstance(name, str) for name in known.values()):
        raise DataError(
            f"{reading.row_names} does not map ids to names. Make it with: fedfactor features --split columns"
        )
    lacking = next((each for each in texts_of_ids(ids) if each not in known), None)
    if lacking is not None:
        raise DataError(f"{reading.row_names} has no name for row {lacking!r} of {path}. Write it again for this file.")
    return tuple(known[each] for each in texts_of_ids(ids))


def _row_ids(path: str | os.PathLike[str], table: Any) -> tuple[str, ...]:
    if table.row_ids is None:
        raise DataError(f"{path} has no column of row ids. Name it: --id COLUMN.")
    return tuple(map(str, table.row_ids))


def write_names(path: str | os.PathLike[str], names: Sequence[str]) -> Path:
    """Write column names, and nothing else, to a file that may be sent to the coordinator."""
    return write_atomic(path, (json.dumps(list(names), indent=0, ensure_ascii=False) + "\n").encode(), mode=0o644)


def read_names(path: str | os.PathLike[str]) -> tuple[str, ...]:
    """Read what :func:`write_names` wrote."""
    names: list[str] = read_json(path, "Make it with: fedfactor features")
    if not is_list(names) or not names or any(type(name) is not str for name in names):
        raise DataError(f"{path} is not a list of names. Make it with: fedfactor features")
    if len(set(names)) < len(names):
        raise DataError(f"{path} names a column twice. Give every column its own name.")
    return tuple(names)


def agree(owners: Mapping[str, Sequence[str]], how: How = "same") -> tuple[str, ...]:
    """Find the columns that all clients will use.

    Parameters
    ----------
    owners : mapping of str to sequence of str
        Column names of each client.
    how : {"same", "union", "intersection"}
        All must have the same columns (in any order); or the union of all columns; or their intersection.

    Returns
    -------
    tuple of str
        Sorted, unless all clients have them in one order.

    Examples
    --------
    >>> agree({"north": ["age", "weight"], "south": ["weight", "height"]}, "union")
    ('age', 'height', 'weight')
    >>> agree({"north": ["age", "weight"], "south": ["weight", "height"]}, "intersection")
    ('weight',)
    """
    if not owners:
        raise DataError("No party's columns were given.")
    lists = [tuple(names) for names in owners.values()]
    if all(names == lists[0] for names in lists):
        return lists[0]
    sets = [set(names) for names in lists]
    everything = sets[0].union(*sets)
    common = sets[0].intersection(*sets)
    if how == "same" and everything != common:
        odd = sorted(everything - common)
        known = (f"{name!r} only at {', '.join(who for who, names in owners.items() if name in names)}" for name in odd)
        raise DataError(
            f"The owners' columns differ in {len(odd)} names: {listed(known, 12)}. "
            "Use --how intersection to keep the common ones, or --how union to keep all."
        )
    if not common and how == "intersection":
        raise DataError("No column is common to all owners. Compare how they spell their names.")
    return tuple(sorted(everything if how == "union" else common))


def arrange(
    X: Any, names: Sequence[str], agreed: Sequence[str], *, how: How, absent: str = "zero"
) -> tuple[Any, np.ndarray | None]:
    """Bring columns into the agreed order; return them and a mask of cells that exist when absent ones are missing."""
    position = {name: j for j, name in enumerate(names)}
    lacking = [name for name in agreed if name not in position]
    extra = [name for name in names if name not in set(agreed)]
    wrong: list[str] = []
    if lacking and how != "union":
        wrong.append(f"{len(lacking)} agreed columns are not in this file: {listed(map(repr, lacking), 12)}.")
    if extra and how != "intersection":
        wrong.append(f"{len(extra)} columns of this file are not among those agreed: {listed(map(repr, extra), 12)}.")
    if wrong:
        raise DataError(" ".join([*wrong, "Rename or drop them in the file, or agree on columns again."]))
    order = np.array([position.get(name, -1) for name in agreed], np.int64)
    there = order >= 0
    if there.all():
        return (X if np.array_equal(order, np.arange(len(names))) else X[:, order]), None
    if is_sparse(X):
        from scipy.sparse import csr_array

        # One empty column more, which all absent ones are taken from.
        X = csr_array((X.data, X.indices, X.indptr), shape=(X.shape[0], X.shape[1] + 1))
        X = X[:, np.where(there, order, X.shape[1] - 1)]
    else:
        X = np.where(there, X[:, np.maximum(order, 0)], np.zeros((), X.dtype))
    mask = np.broadcast_to(there, X.shape) if absent == "missing" else None
    return X, mask
