"""Was it worth joining? Alone against together, on rows of one's own that took no part; nothing of it is sent."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedfactor.core.algorithm import LocalFactors
from fedfactor.core.client_data import Shard
from fedfactor.core.errors import DataError
from fedfactor.core.wire import from_bytes
from fedfactor.engines.run import run
from fedfactor.evaluation.metrics.reconstruction import relative_error
from fedfactor.federation.row_loading import prepare_rows
from fedfactor.federation.terms import Terms
from fedfactor.network.client import COLUMNS, RemoteClient
from fedfactor.network.client_storage import ClientFolder

KEPT_OUT = "kept_out"
"""Folder of the rows that take no part, in a party's own."""


@dataclass(frozen=True, slots=True)
class Worth:
    """What a party finds on rows that took no part.

    Parameters
    ----------
    rows : int
        How many they are.
    joint, alone : float
        Relative error with the components of all, and with those of one's own rows alone; rank and settings are equal.
    use : array of shape (n_components,)
        Share of each of the common components in what is explained of these rows.
    """

    rows: int
    joint: float
    alone: float
    use: np.ndarray

    def words(self) -> str:
        """Return it as a sentence."""
        gain = 100 * (1 - self.joint / self.alone) if self.alone else 0.0
        if abs(gain) < 1:
            said = "about the same: what you gain, if anything, is not in this error"
        else:
            said = f"together is {abs(gain):.1f} % {'better' if gain > 0 else 'WORSE'} for you"
        return f"{self.rows} rows that took no part: error {self.joint:.4f} together, {self.alone:.4f} alone; {said}."


def divide(shard: Shard, share: float) -> tuple[Shard, Shard]:
    """Draw rows that take no part; they cannot be derived from the run's seed."""
    if not 0 < share <= 0.5:
        raise DataError(f"--keep-out {share:g} must be above 0 and at most 0.5.")
    order = np.random.default_rng(secrets.randbits(128)).permutation(shard.n_rows)
    out = max(1, round(share * shard.n_rows))
    return shard.take(np.sort(order[out:])), shard.take(np.sort(order[:out]))


def worth(folder: Path, data: Path | None = None) -> Worth:
    """Compare, at a party after a run, the common components with those of its own rows alone.

    Parameters
    ----------
    folder : Path
        The party's folder.
    data : Path, optional
        Rows that took no part; by default those that ``join --keep-out`` set aside.
    """
    store = ClientFolder(folder)
    file = folder / "result" / "factors.safetensors"
    if not file.exists():
        raise DataError(f"{folder} holds no result yet: compare when a run has ended.")
    mine = RemoteClient(store)
    joint: LocalFactors = from_bytes(file.read_bytes())["factors"]
    tested = _tested(store, data)
    settled = run(mine.algorithm, {"alone": mine.shard}, rounds=mine.agreement.rounds, seed=mine.agreement.seed)
    use = np.abs(_fold(mine.algorithm, tested, joint)).sum(0)
    return Worth(
        tested.n_rows,
        _error(mine.algorithm, tested, joint),
        _error(mine.algorithm, tested, settled.factors["alone"]),
        use / max(float(use.sum()), np.finfo(float).tiny),
    )


def _tested(store: ClientFolder, data: Path | None) -> Shard:
    """Open the rows that took no part, as the run would have seen them: weighted, or without rare columns."""
    place = store.folder / KEPT_OUT
    if data is not None:
        import json

        terms = Terms.of(json.loads((store.folder / "signed.json").read_bytes())["terms"])
        ClientFolder.make(place.with_name(f"{KEPT_OUT}_given"), store.agreement, prepare_rows(data, terms, "new rows"))
        place = place.with_name(f"{KEPT_OUT}_given")
    elif not (place / "agreement.json").exists():
        raise DataError(
            "No rows were kept out. Give some that took no part with --rows FILE, or join with --keep-out 0.1 "
            "--replace-data before the next run."
        )
    columns = store.folder / COLUMNS
    if columns.exists():
        (place / COLUMNS).write_bytes(columns.read_bytes())
    return RemoteClient(ClientFolder(place)).shard


def _fold(algorithm: Any, shard: Shard, factors: LocalFactors) -> Any:
    return np.asarray(algorithm.fold_in(shard.X, factors, shard.mask))


def _error(algorithm: Any, shard: Shard, factors: LocalFactors) -> float:
    return relative_error(shard.X, _fold(algorithm, shard, factors), np.asarray(factors.V), shard.mask)
