"""Where a run of PooledNMF begins that goes on from another: its V, and sums of rows that take no further part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedfactor.core.algorithm import LocalFactors, Meta
from fedfactor.core.client_data import Shard
from fedfactor.core.errors import DataError, IncompatibleError
from fedfactor.core.pytree import Array, to_numpy, tree_map, tree_sum
from fedfactor.linalg.products import as_like, squared_norm
from fedfactor.linalg.single_pass import sums_of_rows
from fedfactor.nmf.pooled.losses import find_loss
from fedfactor.nmf.pooled.losses.squared_error import Sums


@dataclass(frozen=True, slots=True, eq=False)
class Begin:
    """The first V, and the sums of earlier rows whose U is held: all that their squared error depends on as V moves."""

    V: Array
    held: Sums | None = None

    def check(self, algorithm: Any, meta: Meta) -> None:
        """Refuse a V of another shape, and held sums where they would not contain the error of their rows."""
        wanted = (algorithm.n_components, meta.n_features)
        if tuple(self.V.shape) != wanted:
            raise DataError(
                f"The run is to start at {self.V.shape[0]} components of {self.V.shape[1]} features, but it has "
                f"n_components={wanted[0]} and rows of {wanted[1]} features. Start where both are the same."
            )
        if self.held is not None:
            refuse_held(algorithm, masked=meta.masked)


def refuse_held(algorithm: Any, *, masked: bool) -> None:
    """Refuse parameters under which sums do not give the loss of earlier rows under another V."""
    plain = {"alpha_U": 0, "n_private": 0, "weights": "rows", "row_clip": None}
    odd = ["missing cells"] if masked else []
    odd += [] if find_loss(algorithm.loss).squared else [f"loss={algorithm.loss!r}"]
    odd += [
        f"{name}={getattr(algorithm, name)!r}" for name, usual in plain.items() if getattr(algorithm, name) != usual
    ]
    if odd:
        raise IncompatibleError(
            f"With {odd[0]} no sums say what the earlier rows would lose by other components, so further rows cannot "
            "be taken alone. Use warm_start=True and fit earlier and further rows together."
        )


def sums_to_hold(rows: Iterable[tuple[Shard, LocalFactors]], held: Sums | None) -> Sums:
    """Add the sums of rows, with the U that they have now, to those that were held."""
    found = [] if held is None else [held]
    for shard, kept in rows:
        G, A = sums_of_rows(kept.U, shard.X)
        # In main memory, wherever the rows are: a server keeps them between runs.
        found.append(Sums(to_numpy(G), to_numpy(A), total=np.float64(squared_norm(shard.X))))
    return tree_sum(found)


def in_units(held: Sums, units: Array) -> Sums:
    """Return held sums after V was divided by these lengths, and U multiplied: ``UV`` is what it was."""
    lengths = as_like(units, held.G)[:, None]
    return replace(held, G=held.G * lengths * lengths.T, A=held.A * lengths)


def beside_held(sums: Sums, held: Sums) -> Sums:
    """Add held sums to those of the clients who take part."""
    return tree_map(lambda now, before: now + as_like(before, now), sums, held)
