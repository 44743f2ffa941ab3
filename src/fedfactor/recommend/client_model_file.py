"""What one client keeps of a fitted recommender, as a file: arrays and plain text, nothing that could run."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from scipy import sparse

from fedfactor.core.errors import DataError
from fedfactor.core.parameters import with_tuples
from fedfactor.core.wire import from_bytes, to_bytes

FORMAT = "fedfactor recommender 1"


@dataclass(frozen=True, slots=True, eq=False)
class OwnerModel:
    """A recommender with the users and ratings of one client.

    Attributes
    ----------
    kind, owner : str
        The class of the estimator, and whose model it is.
    settings : dict
        Parameters of the estimator; those that are no plain values are not written.
    scale, rounds, seed, status
        Of the estimator and its run.
    factors : LocalFactors
        What the client has.
    users, items, support : ndarray
        Ids, and how many ratings each item has.
    seen : CSR matrix
        The client's ratings.
    """

    kind: str
    owner: str
    settings: dict[str, Any]
    scale: tuple[float, float] | None
    rounds: int
    seed: int
    status: str
    factors: Any
    users: np.ndarray
    items: np.ndarray
    support: np.ndarray
    seen: Any

    def write(self, path: Path) -> None:
        """Write a file that only its writer can read."""
        settings: dict[str, Any] = {}
        for key, value in self.settings.items():
            try:
                settings[key] = json.loads(json.dumps(value))
            except TypeError:  # an engine, a seed's generator, what protects uploads: matters of fit
                continue
        about = {
            "format": FORMAT,
            "class": self.kind,
            "owner": self.owner,
            "settings": settings,
            "scale": self.scale,
            "rounds": self.rounds,
            "seed": self.seed,
            "status": self.status,
        }
        seen = self.seen
        arrays: dict[str, Any] = {
            "about": np.frombuffer(json.dumps(about).encode(), np.uint8),
            "factors": np.frombuffer(to_bytes(self.factors), np.uint8),
            "users": _plain(self.users),
            "items": _plain(self.items),
            "support": np.asarray(self.support),
            "data": seen.data,
            "indices": seen.indices,
            "indptr": seen.indptr,
            "shape": np.asarray(seen.shape),
        }
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            np.savez(file, **arrays)

    @classmethod
    def read(cls, path: Path, kind: str) -> OwnerModel:
        """Read the model of an estimator of one class; refuse another's."""
        try:
            with np.load(path, allow_pickle=False) as found:
                parts = {key: found[key] for key in found.files}
            about = json.loads(parts["about"].tobytes())
            made = about.get("class")
            form = about.get("format")
        except (OSError, EOFError, BadZipFile, ValueError, KeyError, AttributeError) as error:
            raise DataError(f"{path} is no file that save wrote ({error}).") from None
        if form == FORMAT and made != kind:
            raise DataError(f"{path} holds a {str(made)[:40]}, not a {kind}. Read it with {str(made)[:40]}.load.")
        try:
            if form != FORMAT:
                raise ValueError(f"it says {str(form)[:40]!r}, not {FORMAT!r}")
            return cls._of(kind, about, parts)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise other_version(path, error) from None

    @classmethod
    def _of(cls, kind: str, about: dict[str, Any], parts: dict[str, np.ndarray]) -> OwnerModel:
        settings = with_tuples(about["settings"])
        cells = (parts["data"], parts["indices"], parts["indptr"])
        return cls(
            kind,
            about["owner"],
            settings,
            None if about["scale"] is None else tuple(about["scale"]),
            about["rounds"],
            about["seed"],
            about["status"],
            from_bytes(parts["factors"].tobytes()),
            parts["users"],
            parts["items"],
            parts["support"],
            sparse.csr_array(cells, shape=tuple(parts["shape"])),
        )


def other_version(path: Path, error: Exception) -> DataError:
    """Return an error for a file that this version does not write, with the remedy."""
    return DataError(
        f"{path} does not hold what this version of fedfactor writes ({error}). Another version wrote it, or it is "
        "damaged: read it with the version that wrote it, or fit and save again."
    )


def _plain(ids: np.ndarray) -> np.ndarray:
    """Return ids as an array of numbers or of text, not of objects."""
    found = np.asarray(ids.tolist())
    if found.dtype == object or found.tolist() != ids.tolist():
        raise DataError("Ids of several kinds cannot be written down. Use numbers, or text, for all of them.")
    return found
