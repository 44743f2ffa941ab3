"""AnnData's ``.h5ad``: X or a layer in, factors out. Read with h5py, piece by piece; written with anndata itself.

Other HDF5 files are read alike: the matrix that ``--layer`` names, or ``X``, or the only one there, with the names of
its columns and rows in ``features`` and ``rows`` beside it, if they are there.

Reading needs the matrix and two lists of names, which h5py gives without loading the rest of the file (annotations,
graphs, other layers), and without following links to other files. It is done in a process of its own: on some damaged
files the HDF5 library never returns. What lies in the file in one piece is mapped from it, the rest from scratch files.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from fedfactor.core.errors import DataError, MissingExtraError
from fedfactor.io.file_content import Content, Reading, Rows
from fedfactor.io.formats.hdf5_process import names_in
from fedfactor.io.formats.npz import checked_csr

KEY = "fedfactor"
"""Name of what is written: ``obsm["X_fedfactor"]``, ``varm["fedfactor"]``, ``uns["fedfactor"]``."""

# seconds, and bytes a second that a file may take
_PATIENCE = 60.0
_SPEED = 2e6


def read(path: Path, reading: Reading) -> Content:
    """Read X, or a layer, with the names of cells and genes."""
    _need("h5py", f"Reading {path}")
    with tempfile.TemporaryDirectory(prefix="fedfactor-") as folder:
        about = _in_a_process(path, reading, Path(folder))
        parts = [_mapped(path, Path(folder), part) for part in about["parts"]]
        if about["layout"] == "dense":
            X: Any = parts[0]
        else:
            make = sparse.csr_array if about["layout"] == "csr" else sparse.csc_array
            X = _sound(path, lambda: make(tuple(parts), shape=tuple(about["shape"])))
    features = about["var"]
    rows = about["obs"]
    if features is not None and rows is not None and X.shape != (len(rows), len(features)):
        raise DataError(
            f"{path} names {len(rows)} cells and {len(features)} genes, but the matrix is {X.shape[0]} × {X.shape[1]}. "
            "Write it again with anndata."
        )
    said = [] if reading.layer is None else [f"layer {reading.layer}"]
    return Content(X, features, rows, order=features or [], said=said)


def count_rows(path: Path, reading: Reading) -> int:
    """Count the rows without reading them."""
    _need("h5py", f"Reading {path}")
    with tempfile.TemporaryDirectory(prefix="fedfactor-") as folder:
        return int(_in_a_process(path, replace(reading, rows=(0, 0)), Path(folder))["rows"])


def _in_a_process(path: Path, reading: Reading, folder: Path) -> dict[str, Any]:
    """Let another process look at the file, and put what cannot be mapped into a folder."""
    asked = json.dumps({"layer": reading.layer, "max_bytes": reading.max_bytes, "rows": reading.rows})
    command = [sys.executable, "-m", "fedfactor.io.formats.hdf5_process", str(path), str(folder), asked]
    seen = os.environ | {"PYTHONPATH": os.pathsep.join(entry or "." for entry in sys.path)}
    limit = _PATIENCE + path.stat().st_size / _SPEED
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=seen, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        raise DataError(
            f"{path} is damaged: the HDF5 library did not come to an end with it in {limit:.0f} s. Write it again with "
            "anndata."
        ) from None
    answer = folder / "about.json"
    if done.returncode or not answer.exists():
        raise DataError(
            f"{path} is damaged: the HDF5 library ended with {done.returncode}. Write it again with anndata."
        )
    about = json.loads(answer.read_bytes())
    if "wrong" in about:
        raise DataError(about["wrong"])
    return about


def _mapped(path: Path, folder: Path, part: dict[str, Any]) -> np.ndarray:
    if "offset" in part:
        return np.memmap(path, np.dtype(part["dtype"]), "r", part["offset"], tuple(part["shape"]))
    return np.load(folder / part["file"], mmap_mode="r", allow_pickle=False)  # stays readable when its name is gone


def _sound(path: Path, make: Any) -> sparse.csr_array:
    try:
        X = make()
        X.check_format(full_check=True)  # before anything follows an index
    except (ValueError, IndexError, TypeError) as error:
        raise DataError(f"{path} is not a sound sparse matrix ({error}). Write it again with anndata.") from error
    return checked_csr(path, X.tocsr())


def _need(package: str, why: str) -> Any:
    try:
        return import_module(package)
    except ImportError as error:
        raise MissingExtraError.named(package, "cells", why) from error


def write(path: Path, rows: Rows) -> None:
    """Write U to ``obsm``, V to ``varm``, what made them to ``uns``; beside the data when those were an ``.h5ad``."""
    anndata = _need("anndata", f"Writing {path}")
    h5py = _need("h5py", f"Writing {path}")
    import pandas as pd

    handle, draft = tempfile.mkstemp(prefix=f".{path.name[:80]}.", suffix=".part", dir=path.parent)
    os.close(handle)  # made with mode 0600
    try:
        if rows.source is not None and rows.source.name.lower().endswith(".h5ad"):
            shutil.copyfile(rows.source, draft)
            _add(anndata, h5py, Path(draft), rows)
        else:
            names = [str(i) for i in range(len(rows.X))] if rows.row_ids is None else list(rows.row_ids)
            columns = [] if rows.columns is None else list(rows.columns)
            with pd.option_context("future.infer_string", False):  # anndata 0.12 cannot write the strings of pandas 3
                made = anndata.AnnData(
                    sparse.csr_matrix((len(rows.X), len(columns)), dtype=np.float32),
                    obs=pd.DataFrame(index=pd.Index(names, dtype=object)),
                    var=pd.DataFrame(index=pd.Index(columns, dtype=object)),
                )
                made.obsm[f"X_{KEY}"] = np.asarray(rows.X)
                if columns:
                    made.varm[KEY] = np.asarray(rows.components).T
                made.uns[KEY] = dict(rows.about)
                made.write_h5ad(draft)
        os.replace(draft, path)
    finally:
        if os.path.exists(draft):
            os.unlink(draft)


def _add(anndata: Any, h5py: Any, path: Path, rows: Rows) -> None:
    """Add factors to a copy of the data, in place: the matrix is not loaded."""
    with h5py.File(path, "r+") as file:
        genes = names_in(h5py, path, file, "var", Reading())
        V = np.full((len(genes), len(rows.X[0])), 0.0, np.asarray(rows.components).dtype)
        place = {name: j for j, name in enumerate(rows.columns or genes)}
        known = [i for i, name in enumerate(genes) if name in place]
        V[known] = np.asarray(rows.components).T[[place[genes[i]] for i in known]]
        for group, key, value in (("obsm", f"X_{KEY}", np.asarray(rows.X)), ("varm", KEY, V), ("uns", KEY, rows.about)):
            if group not in file:
                anndata.io.write_elem(file, group, {})
            if key in file[group]:
                del file[group][key]
            anndata.io.write_elem(file[group], key, dict(value) if group == "uns" else value)
