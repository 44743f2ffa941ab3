"""What a private run must know before it starts, and pays for: how many rows there are, and how long they are."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from fedfactor.core.federation import Federation
from fedfactor.core.protocol import Round
from fedfactor.kernels.clipping import doubles, row_squares
from fedfactor.privacy.channel import PlainSum, Site
from fedfactor.privacy.noise import Gaussian
from fedfactor.privacy.outbox import Outbox
from fedfactor.privacy.parcel import Parcel
from fedfactor.privacy.secure_sum import SecureSum

__all__ = ["SENSITIVITY", "noisy_sum", "row_survey"]

SENSITIVITY = math.sqrt(2)
"""A row adds one to the count and one to a bin."""

_EDGES = 2.0 ** (np.arange(-80, 161) / 4)  # quarter octaves from 1e-6 to 1e12; longer rows fall in the last bin


def noisy_sum(
    vectors: Mapping[str, np.ndarray],
    noise: Gaussian,
    secure: SecureSum | None,
    run: bytes,
    seed: int | None,
    outbox: Outbox | None = None,
) -> np.ndarray:
    """Sum vectors of all clients with noise, outside any round; what was sent before a crash is sent again."""
    names, at = sorted(vectors), Round(0, -1)
    size = (next(iter(vectors.values())).size, 0)
    box = PlainSum(names) if secure is None else secure.open(names, at, size, run, seed, None, None)
    for name in names:
        site = Site(name, at, len(names), None, seed)
        parcel = outbox.find(site) if outbox else None
        if parcel is None:
            parcel = noise.encode(Parcel(np.asarray(vectors[name], np.float64), ()), site)
            if outbox:
                outbox.keep(site, parcel)
        box.take(name, parcel)
    return noise.decode(box.total(), names, None).floats


def row_survey(
    federation: Federation,
    noise: Gaussian,
    secure: SecureSum | None,
    run: bytes,
    seed: int | None,
    outbox: Outbox | None = None,
) -> tuple[float, float]:
    """Estimate the number of rows and the length that nine rows in ten do not exceed, from one noisy histogram."""
    vectors: dict[str, np.ndarray] = {}
    for name in federation.names:
        lengths = np.sqrt(row_squares(doubles(federation.shard(name).X)))
        bins = np.minimum(np.searchsorted(_EDGES, lengths), _EDGES.size - 1)
        counts = np.bincount(bins, minlength=_EDGES.size)
        vectors[name] = np.concatenate([[lengths.size], counts])
    total = noisy_sum(vectors, noise, secure, run, seed, outbox)
    spread = (
        noise.noise_multiplier * noise.sensitivity * (1 if noise.share == "distributed" else math.sqrt(len(vectors)))
    )
    rows = max(float(total[0]), 1.0)
    bins = np.where(total[1:] > 2 * spread, total[1:], 0.0)
    if not bins.any():
        return rows, 1.0  # too few rows for this noise to see: any bound is as good
    upto = np.cumsum(bins) / bins.sum()
    return rows, float(_EDGES[int(np.argmax(upto >= 0.9))])
