"""A result folder read back as a run: factors, history, errors by client; no estimator is needed for it."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor import algorithms
from fedfactor.core.algorithm import Algorithm, LocalFactors, Score
from fedfactor.core.errors import DataError
from fedfactor.core.parameters import check_settings, settings_of_class
from fedfactor.core.pytree import is_list, is_mapping
from fedfactor.core.run import RoundRecord, Run
from fedfactor.io.result_folder import NOBODY, owner_from_file, read_components, read_private, shared_folder
from fedfactor.io.run_record import part_of, read_record
from fedfactor.privacy.publication import seal

__all__ = ["load_run"]


def load_run(folder: str | os.PathLike[str]) -> Run:
    """Read a result back as a run: factors, history, errors by client.

    Examples
    --------
    >>> import tempfile, numpy as np, fedfactor
    >>> from fedfactor.saved_models.run_folder import load_run
    >>> X = np.random.default_rng(0).random((30, 6))
    >>> model = fedfactor.PooledNMF(2, rounds=5, tol=0, random_state=0).fit({"a": X[:10], "b": X[10:]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     load_run(fedfactor.save(model, folder)).rounds
    5
    """
    return read_result(Path(folder))[1]


def read_result(out: Path) -> tuple[dict[str, Any], Run]:
    """Read the record of a result, and its run."""
    V, features = read_components(out)
    record = read_record(out)
    method = method_of(record, out, V.shape[0])
    factors = _factors(out, V)
    try:
        history = tuple(_round(each) for each in record.get("history") or ())
        scores = _scores(record, list(factors))
    except (TypeError, KeyError, AttributeError, ValueError) as error:
        raise DataError(f"{out / 'run.json'} is damaged ({error}). Write the results again.") from None
    run = Run(
        method,
        int(record["seed"]),
        record.get("status", "rounds"),
        history,
        factors or {NOBODY: LocalFactors(np.empty((0, V.shape[0]), V.dtype), V)},
        scores,
        {},
        record.get("environment") or {},
        features,
        record.get("privacy") if part_of(record, "privacy").get("mode", "none") != "none" else None,
    )
    return record, seal(run)


def _factors(out: Path, V: np.ndarray) -> dict[str, LocalFactors]:
    """Read what lies in the folder of each client's own part."""
    owners = [owner_from_file(path.name) for path in sorted((out / "private").glob("*.safetensors"))]
    parts = {owner: read_private(out, owner) for owner in owners}
    return {
        owner: LocalFactors(own["U"], V, V_private=own.get("V_private"), U_private=own.get("U_private"))
        for owner, own in parts.items()
        if "U" in own
    }


def _round(said: dict[str, Any]) -> RoundRecord:
    lists = {"participants": tuple(said["participants"]), "rejected": tuple(said.get("rejected", ()))}
    about: dict[str, Any] = {"seconds": math.nan, "metrics": {}, **said, **lists}
    return RoundRecord(**about)


def method_of(record: dict[str, Any], out: Path, rank: int) -> Algorithm:
    """Make the algorithm that a record names, with its settings; a record that leaves out the rank has the V's."""
    if record["algorithm"] not in dir(algorithms):
        raise other_version(out, f"fedfactor has no algorithm {str(record['algorithm'])[:40]!r}.", record)
    kind = getattr(algorithms, record["algorithm"])
    known = {each.name: each for each in settings_of_class(kind, offered=False)}
    for name in record["settings"]:
        if name not in known:  # it may change what new rows come to: not left out in silence
            raise other_version(out, f"{record['algorithm']} has no setting {str(name)[:40]!r}.", record)
    try:
        # What a run found beside numbers, such as a V to start at, is in the record by its digest alone.
        told = {
            key: plain_value(value)
            for key, value in record["settings"].items()
            if known[key].set_by != "run" or not isinstance(value, dict)
        }
        method = kind(**(({"n_components": rank} if "n_components" in known else {}) | told))
        check_settings(method)
    except (TypeError, ValueError) as error:
        raise other_version(out, error, record) from None
    return method


def other_version(out: Path, why: Exception | str, record: dict[str, Any]) -> DataError:
    """Report that a record cannot be used, which version wrote it, and the way out."""
    made = record.get("environment")
    by = made.get("fedfactor", "none") if is_mapping(made) else "none"  # as from a source tree on the path
    version = "another version" if by == "none" else f"fedfactor {str(by)[:20]}"
    return DataError(
        f"{shared_folder(out) / 'run.json'}: {why} It was written by {version}, or is damaged. Read it with the "
        "version that wrote it, or run fedfactor fit again."
    )


def _scores(record: dict[str, Any], names: list[str]) -> dict[str, Score]:
    """Rebuild errors by client; where only relative errors are known, every client counts alike."""
    owners = part_of(record, "owners")
    if not owners:
        errors = record.get("errors") or {name: record.get("relative_error") for name in names or [NOBODY]}
        owners = {name: {"relative_error": error} for name, error in errors.items()}

    def score(about: dict[str, Any]) -> Score:
        if "squared_error" in about:
            return Score.of(about["squared_error"], about["cells"], about["squared_total"])
        error = about.get("relative_error")
        return Score.of(math.nan if error is None else float(error) ** 2, 1, 1)

    return {name: score(about) for name, about in owners.items()}


def plain_value(value: Any) -> Any:
    """Turn a setting as a record keeps it into what it was."""
    if is_list(value):
        return tuple(plain_value(each) for each in value)
    return float(value) if value in ("inf", "-inf") else value
