"""A fitted recommender of one owner as a file: arrays and plain text, nothing that could run."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from fedfactor.core.errors import DataError
from fedfactor.core.protocol import Score
from fedfactor.core.run import Run
from fedfactor.core.wire import from_bytes, to_bytes

FORMAT = "fedfactor recommender 1"


def write_model(model: Any, name: str, path: Path) -> None:
    """Write what one owner keeps, readable by its writer alone."""
    table = model._table(name)
    seen, settings = table.seen, {}
    for key, value in model.get_params(deep=False).items():
        try:
            settings[key] = json.loads(json.dumps(value))
        except TypeError:  # an engine, a seed's generator, what protects uploads: matters of fit
            continue
    about = {
        "format": FORMAT, "class": type(model).__name__, "owner": name, "settings": settings, "scale": model.scale_,
        "rounds": model.n_iter_, "seed": model.run_.seed, "status": model.run_.status,
    }  # fmt: skip
    arrays = {
        "about": np.frombuffer(json.dumps(about).encode(), np.uint8),
        "factors": np.frombuffer(to_bytes(model.run_.factors[name]), np.uint8),
        "users": _plain(table.users), "items": _plain(table.items), "support": np.asarray(model.support_),
        "data": seen.data, "indices": seen.indices, "indptr": seen.indptr, "shape": np.asarray(seen.shape),
    }  # fmt: skip
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        np.savez(file, **arrays)


def read_model(cls: Any, path: Path) -> Any:
    """Make the model that was written."""
    try:
        with np.load(path, allow_pickle=False) as found:
            parts = {key: found[key] for key in found.files}
        about = json.loads(parts["about"].tobytes())
    except (OSError, ValueError, KeyError) as error:
        raise DataError(f"{path} is no file that save wrote ({error}).") from None
    if about.get("format") != FORMAT or about.get("class") != cls.__name__:
        raise DataError(f"{path} holds a {about.get('class')}, not a {cls.__name__}.")
    settings = {key: tuple(value) if isinstance(value, list) else value for key, value in about["settings"].items()}
    model, name = cls(**settings), about["owner"]
    algorithm = model._algorithm()
    kept = from_bytes(parts["factors"].tobytes())
    model.run_ = Run(algorithm, about["seed"], about["status"], (), {name: kept}, {name: Score.of(0, 0, 0)}, None)
    model.n_iter_, model.items_, model.components_ = about["rounds"], parts["items"], kept.V
    model.users_, model.client_factors_ = {name: parts["users"]}, {name: kept.U}
    model.scale_ = None if about["scale"] is None else tuple(about["scale"])
    model.support_, model._homes, model.n_rejected_ = parts["support"], None, 0
    cells = (parts["data"], parts["indices"], parts["indptr"])
    seen = sparse.csr_array(cells, shape=tuple(parts["shape"]))
    model.tables_ = {name: model._make_table(kept.U, kept.V, seen, parts["users"], kept)}
    return model


def _plain(ids: np.ndarray) -> np.ndarray:
    """Return ids as an array of numbers or of text, not of objects."""
    found = np.asarray(ids.tolist())
    if found.dtype == object or found.tolist() != ids.tolist():
        raise DataError("Ids of several kinds cannot be written down. Use numbers, or text, for all of them.")
    return found
