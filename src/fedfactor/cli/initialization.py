"""Where a fit on files begins: at the components of an earlier result, or several starts of which the best counts."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import typer

from fedfactor.core.algorithm import Algorithm
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import DataError
from fedfactor.io.preprocessing import Preprocess
from fedfactor.io.result_folder import read_components, shared_folder
from fedfactor.io.run_record import part_of, read_record


@dataclass(frozen=True, slots=True)
class Parent:
    """A result whose components a run starts at."""

    folder: Path
    V: np.ndarray
    features: tuple[str, ...] | None
    record: dict[str, Any]

    @classmethod
    def read(cls, folder: Path, steps: Sequence[str]) -> Parent:
        """Read a result of PooledNMF whose rows were prepared as those of now; refuse others."""
        V, features = read_components(folder)
        record = read_record(folder)
        if record["algorithm"] != "PooledNMF":
            raise ValueError(
                f"--from starts at components of pooled-nmf, but {folder} was made by {str(record['algorithm'])[:40]}. "
                "Leave --from out."
            )
        before: list[str] = list(part_of(record, "preprocess").get("steps") or ())
        now = list(Preprocess.parse(steps).words)
        if before != now:
            raise ValueError(
                f"The rows of {folder} were prepared by {', '.join(before) or 'nothing'}, these by "
                f"{', '.join(now) or 'nothing'}: components of one do not fit the other. Give the same options."
            )
        return cls(folder, V, features, record)

    @property
    def lineage(self) -> dict[str, Any]:
        """What the new record says of this result: the checksum names it, wherever it lies."""
        data = (shared_folder(self.folder) / "components.safetensors").read_bytes()
        return {
            "components": f"sha256:{hashlib.sha256(data).hexdigest()}",
            **{key: self.record[key] for key in ("algorithm", "seed", "rounds")},
        }

    def begin(self, method: Any, federation: Federation) -> Algorithm:
        """Let the algorithm start at these components, with columns matched by name and in the units of these rows."""
        from fedfactor.nmf.pooled.warm_start import Begin

        V = self.V
        names = federation.feature_names
        if names is not None and self.features is not None:
            places = {name: place for place, name in enumerate(self.features)}
            lacking = [name for name in names if name not in places]
            gone = [name for name in self.features if name not in set(names)]
            if lacking or gone:
                which = f"lacks the column {lacking[0]!r}" if lacking else f"has a column {gone[0]!r} that is not here"
                raise DataError(
                    f"{self.folder} {which}, so its components cannot be a start. Give files with the same columns "
                    "(--columns, --drop), or leave --from out."
                )
            order = np.array([places[name] for name in names])
            V = V[:, order]
        else:
            m: int = V.shape[1]
            order = np.arange(m)
        before, now = ((kept or {}).get("weights") for kept in (self.record.get("preprocess"), federation.preprocess))
        if before is not None and now is not None:
            weights = np.asarray(before, V.dtype)[order]
            V = V * np.divide(np.asarray(now, V.dtype), weights, out=np.zeros_like(weights), where=weights > 0)
        return replace(method, begin=Begin(V))


def starts_asked(
    method: Algorithm, parent: Parent | None, n_init: int | None, *, local: bool, privacy: Any
) -> list[Algorithm]:
    """List what is run, start by start; refuse a start at another result, and several, where they have no place."""
    from fedfactor.engines.restarts import RESTARTED, starts_of
    from fedfactor.privacy.dp import refuse_repeats

    name = type(method).__name__
    if name in RESTARTED:
        refuse_repeats(privacy, n_init or 1, f"--n-init {n_init}")
        starts = starts_of(method, n_init, private=privacy is not None)
    elif n_init is not None:
        raise ValueError(f"{name} has no further starts: its result is one. Leave --n-init out.")
    else:
        starts = [method]
    if not local and (parent is not None or len(starts) > 1):
        option = "--from" if parent is not None else "--n-init"
        one = " (with n_private give --n-init 1)" if len(starts) > 1 else ""
        raise ValueError(f"{option} belongs to --engine local. Leave it out{one}, or use that engine.")
    if parent is not None:
        _check_parent(method, n_init, privacy)
    return starts


def _check_parent(method: Algorithm, n_init: int | None, privacy: Any) -> None:
    """Refuse a start at another result where it has no place."""
    from fedfactor.privacy.dp import refuse_start

    if type(method).__name__ != "PooledNMF":
        raise ValueError(f"--from starts pooled-nmf, not {type(method).__name__}. Leave it out.")
    if n_init is not None:
        raise ValueError("--from is one start, and --n-init asks for several. Leave one of them out.")
    refuse_start(privacy, "--from")


def best_run(starts: list[Algorithm], federation: Any, *, seed: int | None, quiet: bool, **options: Any) -> Any:
    """Run from several starts, and keep the best run; nothing is kept before all are done."""
    from fedfactor.engines.callbacks import watcher
    from fedfactor.engines.restarts import best_of
    from fedfactor.engines.run import run

    def one(place: int, method: Algorithm, seed: int) -> Any:
        watch = watcher(int(not quiet), f"start {place + 1} of {len(starts)}")
        return run(method, federation, split="rows", seed=seed, callbacks=watch, **options)

    try:
        return best_of(starts, secrets.randbits(63) if seed is None else seed, one)
    except KeyboardInterrupt:
        typer.echo("Interrupted. Nothing is kept: of several starts no checkpoint is written.", err=True)
        raise typer.Exit(130) from None
