"""The folder of a run: what may be written there, how a run is taken up again, what is left at the end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfactor.algorithm_names import RECOMMENDERS
from fedfactor.core.client_data import Federation
from fedfactor.core.errors import CheckpointError, DataError
from fedfactor.core.run import Run
from fedfactor.core.wire import read_header
from fedfactor.engines.checkpoint import Checkpoint
from fedfactor.engines.mpi.checkpoints import progress
from fedfactor.io.result_folder import (
    has_results,
    owner_to_file,
    owners_of,
    private_parts,
    row_ids_file,
    write_factors,
)


@dataclass(frozen=True, slots=True)
class Place:
    """An output folder. While ``checkpoint/`` is there, the run is unfinished."""

    out: Path
    every: int = 10

    @property
    def checkpoint(self) -> Checkpoint:
        """Where the unfinished run is kept."""
        return Checkpoint(self.out / "checkpoint", self.every)

    @property
    def unfinished(self) -> bool:
        """Whether a run waits to be taken up again."""
        return self.checkpoint.file.exists() or progress(self.checkpoint.folder) is not None

    def check(self, overwrite: bool) -> None:
        """Refuse a folder whose results would be lost. Nothing is touched."""
        if self.out.exists() and not self.out.is_dir():
            raise DataError(f"{self.out} is a file, but results need a folder. Choose another with -o.")
        if self.every < 1:
            raise ValueError(f"--checkpoint-every {self.every} must be at least 1.")
        if has_results(self.out) and not overwrite and not self.unfinished:
            raise DataError(
                f"{self.out} already holds a finished run. Choose another folder with -o, or "
                "replace it with --overwrite."
            )

    def clear(self) -> None:
        """Forget an unfinished run; finished results stay until new ones replace them."""
        if self.checkpoint.folder.exists():
            shutil.rmtree(self.checkpoint.folder)

    def saved(self) -> tuple[int, int] | None:
        """Return the seed of the unfinished run and its next round, or None when there is none."""
        if not self.unfinished:
            return None
        file = self.checkpoint.file
        if not file.exists():
            return progress(self.checkpoint.folder)
        try:
            about = json.loads(read_header(file.read_bytes(), limit=1 << 30)[1]["about"])
            return int(about["fingerprint"]["seed"]), int(about["next_round"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{file} is damaged ({error}). Start again with --overwrite.") from None

    def write(
        self,
        run: Run,
        federation: Federation,
        asked: Mapping[str, Any],
        *,
        unfinished: bool = False,
        gain: Mapping[str, tuple[float, float]] | None = None,
        quality: Mapping[str, Any] | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        """Write all results, then drop the checkpoint: at every moment a killed command can go on or has finished.

        The checkpoint of an unfinished run stays, so that it can go on. `gain`: each owner's error on rows held out,
        alone and together. `quality`: what :func:`~fedfactor.evaluation.fit_quality.fit_quality` measured. `notes`:
        warnings about the data, for the report.
        """
        private = private_parts(run)
        owners: dict[str, dict[str, Any]] = {name: {"rows": federation.shard(name).n_rows} for name in federation.names}
        for name, about in owners_of(run).items():
            owners[name] |= about
        for name, (alone, together) in (gain or {}).items():
            owners[name] |= {"kept_aside": {"alone": alone, "together": together}}
        record = {**run.summary(), "asked": dict(asked), "owners": owners, "preprocess": federation.preprocess}
        record |= ({"quality": dict(quality)} if quality else {}) | ({"notes": list(notes)} if notes else {})
        ids = {name: federation.shard(name).row_ids for name in private}
        write_factors(self.out, run.V, features=run.feature_names, private=private, run=record, row_ids=ids)
        kept = {"run.json"} | {owner_to_file(name) for name in private} | {row_ids_file(name) for name in private}
        if type(run.algorithm).__name__ in RECOMMENDERS:
            from fedfactor.saved_models.estimator_folder import model_file, recommender_of, write_models

            write_models(recommender_of(run, federation), self.out)
            kept |= {model_file(name) for name in private}
        for old in (self.out / "private").glob("*.*"):
            if old.name not in kept:  # an owner of the run that was overwritten
                old.unlink()
        if not unfinished:
            self.clear()
