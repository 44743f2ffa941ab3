"""What a run leaves on disk: shared components, private factors, and the record of the run."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_to_bytes

import numpy as np
from safetensors import SafetensorError
from safetensors import numpy as safetensors

from fedfactor.core.algorithm import LocalFactors
from fedfactor.core.atomic_files import private_folder, read_json, write_atomic
from fedfactor.core.errors import DataError
from fedfactor.core.pytree import is_list, is_mapping, to_numpy
from fedfactor.core.run import Run
from fedfactor.privacy.publication import split_record

__all__ = [
    "has_results",
    "owner_from_file",
    "owner_to_file",
    "owners_of",
    "private_parts",
    "read_components",
    "read_private",
    "read_row_ids",
    "read_run",
    "row_ids_file",
    "shared_folder",
    "write_factors",
    "write_private",
]

FORMAT = 2
"""Of result folders."""

NOBODY = "(shared)"
"""Under which name a run lies whose folder holds no client's factors, as at a coordinator."""

_SHARED = 0o644  # every party holds the components anyway; U stays at 0600


def write_factors(
    out_dir: str | os.PathLike[str],
    components: np.ndarray,
    *,
    features: Sequence[str] | None = None,
    private: Mapping[str, Any] | None = None,
    run: Mapping[str, Any] | None = None,
    row_ids: Mapping[str, Sequence[str] | None] | None = None,
) -> Path:
    """Write the result of a run, each file in one step.

    Parameters
    ----------
    out_dir : path
        Made if missing. ``shared/`` receives what may be published: ``components.safetensors``, ``features.json`` and
        ``run.json``; ``private/`` (mode 0700, files 0600) what may not: ``<client>.safetensors``, and ``run.json`` with
        what the record holds beside (:func:`~fedfactor.privacy.publication.split_record` decides).
    components : ndarray of shape (k, m)
        The shared factor V.
    features : sequence of str, optional
        Names of the m columns.
    private : mapping of client to U, or to a mapping of named arrays, optional
        What belongs to single clients. Names that are not safe as file names are percent-encoded.
    run : mapping, optional
        The record, as plain values. NaN is written as null, infinities as ``"inf"`` and ``"-inf"``: JSON has neither.
    row_ids : mapping of client to ids or None, optional
        What each client calls its rows, written beside its U as ``private/<client>.rows.json``.

    Returns
    -------
    Path
        The folder.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from fedfactor.io.result_folder import read_components, write_factors
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = write_factors(folder, np.eye(2), features=["a", "b"], private={"north": np.ones((3, 2))})
    ...     V, features = read_components(folder)
    >>> V.shape, features
    ((2, 2), ('a', 'b'))
    """
    components = np.asarray(components)
    if features is not None and len(features) != components.shape[-1]:
        raise DataError(f"{len(features)} feature names were given for {components.shape[-1]} columns of components.")
    out = write_private(out_dir, private or {}, row_ids)
    names = None if features is None else [str(feature) for feature in features]
    shared = out / "shared"
    shared.mkdir(exist_ok=True)
    write_atomic(shared / "features.json", _json(names), _SHARED)
    if run is not None:
        told, own = split_record({"format": FORMAT, **run})
        if own:
            write_atomic(private_folder(out / "private") / "run.json", _json(own), 0o600)
        else:
            (out / "private" / "run.json").unlink(missing_ok=True)
        write_atomic(shared / "run.json", _json(told), _SHARED)
    write_atomic(shared / "components.safetensors", _pack({"components": components}), _SHARED)
    return out


def shared_folder(out_dir: str | os.PathLike[str]) -> Path:
    """Find what may be published in a folder of results: ``shared/``, or the folder itself when that was sent."""
    out = Path(out_dir)
    return out / "shared" if (out / "shared").is_dir() else out


def has_results(out_dir: str | os.PathLike[str]) -> bool:
    """Return whether a folder holds the results of a run."""
    return any((shared_folder(out_dir) / name).exists() for name in ("components.safetensors", "run.json"))


def read_run(out_dir: str | os.PathLike[str]) -> Any:
    """Read the record of a run, with what is private of it where that is at hand."""
    record = read_json(shared_folder(out_dir) / "run.json", "Give a folder written by fedfactor fit.")
    own = Path(out_dir) / "private" / "run.json"
    if not is_mapping(record) or not own.exists():
        return record
    kept = read_json(own)
    return {**record, **({name: v for name, v in kept.items() if name != "history"} if is_mapping(kept) else {})}


def write_private(
    out_dir: str | os.PathLike[str],
    private: Mapping[str, Any],
    row_ids: Mapping[str, Sequence[str] | None] | None = None,
) -> Path:
    """Write what belongs to single clients, and nothing else: the part of a process that holds some of them.

    Parameters
    ----------
    out_dir, private, row_ids
        As in :func:`write_factors`.

    Returns
    -------
    Path
        The folder.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = write_private(folder, {"north": np.ones((3, 2))})
    ...     read_private(folder, "north")["U"].shape
    (3, 2)
    """
    files = {owner_to_file(owner): factors for owner, factors in private.items()}  # names fail before any file
    out = Path(out_dir)
    out.mkdir(parents=True, exist_ok=True)
    if files:
        folder = private_folder(out / "private")
        for name, factors in files.items():
            write_atomic(folder / name, _pack(factors if is_mapping(factors) else {"U": factors}), 0o600)
        for owner in private:
            ids = (row_ids or {}).get(owner)
            if ids is not None:
                write_atomic(folder / row_ids_file(owner), _json(list(ids)), 0o600)
            else:
                (folder / row_ids_file(owner)).unlink(missing_ok=True)  # of a run that was overwritten
    return out


def read_components(out_dir: str | os.PathLike[str]) -> tuple[np.ndarray, tuple[str, ...] | None]:
    """Read the shared factor and its column names back.

    Parameters
    ----------
    out_dir : path
        A folder written by :func:`write_factors`.

    Returns
    -------
    V : ndarray of shape (k, m)
        The components.
    features : tuple of str or None
        Names of the m columns.

    Raises
    ------
    DataError
        If the files are missing, damaged, or do not fit together.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from fedfactor.io.result_folder import read_components, write_factors
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     read_components(write_factors(folder, np.eye(2)))[1] is None
    True
    """
    out = shared_folder(out_dir)
    if not (out / "components.safetensors").exists():
        lacks = "" if Path(out_dir).exists() else "there is no such folder; "
        raise DataError(
            f"{out_dir} holds no result ({lacks}components.safetensors was looked for). Give a folder that fedfactor "
            "fit, fedfactor results or fedfactor.save wrote."
        )
    V = _unpack(out / "components.safetensors").get("components")
    if V is None or V.ndim != 2:
        raise DataError(
            f"{out / 'components.safetensors'} holds no matrix named 'components'. Was it written by write_factors?"
        )
    names = read_json(out / "features.json") if (out / "features.json").exists() else None
    if names is not None and (not is_list(names) or len(names) != V.shape[1]):
        raise DataError(f"{out / 'features.json'} does not name the {V.shape[1]} columns. Write the results again.")
    return V, None if names is None else tuple(map(str, names))


def read_private(out_dir: str | os.PathLike[str], owner: str) -> dict[str, np.ndarray]:
    """Read what belongs to one client.

    Parameters
    ----------
    out_dir : path
        A folder written by :func:`write_factors`.
    owner : str
        The client's name.

    Returns
    -------
    dict of str to ndarray
        Its arrays by name; the row factor is ``"U"``.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> from fedfactor.io.result_folder import read_private, write_factors
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     out = write_factors(folder, np.eye(2), private={"a/b": np.ones((3, 2))})
    ...     read_private(out, "a/b")["U"].shape
    (3, 2)
    """
    return _unpack(Path(out_dir) / "private" / owner_to_file(owner))


def read_row_ids(out_dir: str | os.PathLike[str], owner: str) -> tuple[str, ...] | None:
    """Read what a client calls its rows; None when they had no ids.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = write_private(folder, {"north": np.ones((2, 1))}, {"north": ["anna", "bert"]})
    ...     read_row_ids(folder, "north")
    ('anna', 'bert')
    """
    path = Path(out_dir) / "private" / row_ids_file(owner)
    if not path.exists():
        return None
    found = read_json(path)
    if not is_list(found):
        raise DataError(f"{path} is not a list of row ids. Write the results again.")
    return tuple(map(str, found))


def row_ids_file(owner: str) -> str:
    """Name the file of a client's row ids."""
    return owner_to_file(owner).removesuffix(".safetensors") + ".rows.json"


def owner_to_file(owner: str) -> str:
    """Turn an owner's name into a safe file name; :func:`owner_from_file` turns it back.

    Parameters
    ----------
    owner : str
        Any text but the empty one.

    Returns
    -------
    str
        Percent-encoded, with the ending ``.safetensors``.

    Examples
    --------
    >>> from fedfactor.io.result_folder import owner_to_file
    >>> owner_to_file("../Köln")
    '%2E.%2FK%C3%B6ln.safetensors'
    """
    name = quote(str(owner).encode("utf-8", "surrogateescape"), safe="")
    name = "%2E" + name[1:] if name.startswith(".") else name
    if not name or len(name) > 200:
        raise DataError(
            f"An owner's name must have 1 to 200 characters when percent-encoded, but this has {len(name)}. Shorten it."
        )
    return f"{name}.safetensors"


def owner_from_file(name: str) -> str:
    """Turn a file name made by :func:`owner_to_file` back into the owner's name.

    Parameters
    ----------
    name : str
        File name, with or without its folder.

    Returns
    -------
    str
        The client's name.

    Examples
    --------
    >>> from fedfactor.io.result_folder import owner_from_file
    >>> owner_from_file("%2E.%2FK%C3%B6ln.safetensors")
    '../Köln'
    """
    return unquote_to_bytes(Path(name).name.removesuffix(".safetensors")).decode("utf-8", "surrogateescape")


def owners_of(run: Run) -> dict[str, Any]:
    """Write the record's entries of each client; in a private run no client's own error is published."""
    rows: dict[str, dict[str, Any]] = {
        name: {"rows": len(kept.U) * kept.first_of(1)} for name, kept in run.factors.items()
    }
    if run.privacy is not None:
        return rows
    for name, score in run.scores.items():
        rows.setdefault(name, {})
        rows[name] |= {
            "relative_error": score.relative_error,
            "squared_error": float(score.sse),
            "cells": float(score.n),
            "squared_total": float(score.total),
        }
    return rows


def private_parts(run: Run) -> dict[str, dict[str, Any]]:
    """Name what belongs to each client: its rows of U, and components that only it has."""
    return {name: _own(kept) for name, kept in run.factors.items() if name != NOBODY and kept.first_of(1)}


def _own(kept: LocalFactors) -> dict[str, Any]:
    arrays = {"U": kept.U, "U_private": kept.U_private, "V_private": kept.V_private}
    return {name: to_numpy(array) for name, array in arrays.items() if array is not None}


def _pack(arrays: Mapping[str, Any]) -> bytes:
    # safetensors writes the buffer as it lies in memory: a transposed view must be laid out first.
    return safetensors.save({name: np.ascontiguousarray(array) for name, array in arrays.items()})


def _unpack(path: Path) -> dict[str, np.ndarray]:
    try:
        return safetensors.load(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}). Give the folder of a finished run.") from error
    except (SafetensorError, ValueError, KeyError) as error:
        raise DataError(f"{path} is not a sound safetensors file ({error}). Write the results again.") from error


def _json(value: Any) -> bytes:
    return (json.dumps(_plain(value), indent=2, allow_nan=False, ensure_ascii=False) + "\n").encode(
        "utf-8", "surrogatepass"
    )


def _plain(value: Any) -> Any:
    if is_mapping(value):
        return {str(key): _plain(item) for key, item in value.items()}
    if hasattr(value, "tolist"):
        value = value.tolist()
    if is_list(value):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value
