"""What a run left about itself in ``run.json``: read back, and refused when it is no such record."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.core.atomic_files import read_json
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import DataError
from fedfactor.core.missing_policies import parse_missing
from fedfactor.core.pytree import is_mapping
from fedfactor.io.preprocessing import Preprocess
from fedfactor.io.result_folder import FORMAT, read_run, shared_folder

_SAID = ("format", "algorithm", "settings", "seed", "rounds")
_OF_ALL = ("status", "bytes_up", "bytes_down")
_OF_ONE = ("bytes_sent", "letters")  # a party of a federation knows what it sent itself
_KINDS: dict[str, Any] = {
    "algorithm": str,
    "settings": dict,
    "seed": int,
    "rounds": int,
    "relative_error": (float, int, type(None)),
    "bytes_up": int,
    "bytes_down": int,
    "seconds": (float, int),
    "bytes_sent": int,
    "letters": int,
    "asked": (dict, type(None)),
    "preprocess": (dict, type(None)),
    "errors": (dict, type(None)),
    "worst_client": (dict, type(None)),
    "owners": (dict, type(None)),
    "history": (list, type(None)),
    "privacy": (dict, type(None)),
    "quality": (dict, type(None)),
    "notes": (list, type(None)),
}


@dataclass(frozen=True, slots=True)
class Preprocessed:
    """What was done to the rows of a run, to be done to new rows: steps, and the weights that all clients' sums gave.

    Examples
    --------
    >>> Preprocessed(Preprocess.parse(["scale max"]), np.array([0.5, 0.1])).apply(np.array([[2.0, 10.0]]))
    array([[1., 1.]])
    """

    plan: Preprocess
    weights: np.ndarray | None = None

    @classmethod
    def of(cls, kept: Any, n_features: int, where: object = "The result") -> Preprocessed | None:
        """Read the entry of a record; None when nothing was done."""
        if kept is None:
            return None
        try:
            plan = Preprocess.parse(kept["steps"])
            weights = None if kept.get("weights") is None else np.asarray(kept["weights"], np.float64)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{where} does not say how rows were preprocessed ({error}).") from None
        if plan.weighing and (weights is None or weights.shape != (n_features,)):
            raise DataError(
                f"{where} lacks the {n_features} column weights of {plan.weighing!r}, without which new rows cannot be "
                "brought to the scale of the components. Write the results again with fedfactor results."
            )
        return cls(plan, weights) if plan.words else None

    def apply(self, X: Any) -> Any:
        """Do it to new rows."""
        return self.plan.apply(X, self.weights)

    def undo(self, X: Any) -> Any:
        """Return dense rows to the units that new rows have."""
        return self.plan.undo(X, self.weights)

    def apply_all(self, federation: Federation) -> Federation:
        """Do it to new rows of all clients."""
        shards = {name: federation.shard(name) for name in federation.names}
        return Federation({name: replace(shard, X=self.apply(shard.X)) for name, shard in shards.items()})

    def record(self) -> dict[str, Any]:
        """Plain data, as a record keeps it."""
        return {"steps": self.plan.words, "weights": None if self.weights is None else self.weights.tolist()}


def read_record(folder: Path, *, published: bool = False) -> dict[str, Any]:
    """Read what a run left about itself, all of it or what may be published; refuse what is no such record."""
    path = shared_folder(folder) / "run.json"
    record = read_run(folder)
    if published and is_mapping(record):
        # Whose result it is and how much that party sent are no figures made of rows.
        own = {name: record[name] for name in ("party", *_OF_ONE) if name in record}
        record = {**own, **read_json(path, "Give a folder written by fedfactor fit.")}
    known: dict[str, Any] = dict(record) if is_mapping(record) else {}
    number = known.get("format", FORMAT)  # without one it is damaged, which the next check reports
    if number != FORMAT:
        raise DataError(
            f"{path} is of format {str(number)[:40]}, which another version writes; this one reads {FORMAT}. "
            "Install that version, or run fedfactor fit again."
        )
    lacking = [name for name in (*_SAID, *(_OF_ONE if "party" in known else _OF_ALL)) if name not in known]
    if lacking:
        raise DataError(f"{path} does not say {lacking[0]!r}: it is no record of a run. Run fedfactor fit again.")
    wrong = [name for name, kind in _KINDS.items() if name in known and not isinstance(known[name], kind)]
    if wrong:
        raise DataError(
            f"{path} says {wrong[0]} = {str(known[wrong[0]])[:40]!r}, which cannot be: it is damaged. Run fedfactor "
            "fit again."
        )
    return known


def missing_of(record: dict[str, Any]) -> float | str | None:
    """Return what marked missing cells in a run."""
    return parse_missing(part_of(record, "asked").get("missing_values"))


def part_of(record: dict[str, Any], name: str) -> dict[str, Any]:
    """Return a part of a record, empty where the record has none."""
    found: dict[str, Any] | None = record.get(name)
    return found or {}
