"""What a private run must know before it starts, and pays for: how many rows there are, and how long they are."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from fedfactor.core.algorithm import Round
from fedfactor.core.client_data import Federation
from fedfactor.core.flattened_upload import Parcel
from fedfactor.core.transforms import Opening, PlainSum, Site
from fedfactor.linalg.row_clipping import observed, row_squares
from fedfactor.privacy.noise import Gaussian
from fedfactor.privacy.secure_aggregation.transform import SecureSum
from fedfactor.privacy.sent_uploads import Outbox

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
    names = sorted(vectors)
    at = Round(0, -1)
    size = (next(iter(vectors.values())).size, 0)
    box = PlainSum() if secure is None else secure.open(Opening(names, at, size, run, seed))
    for name in names:
        site = Site(name, at, len(names), None, seed)
        parcel = outbox.find(site) if outbox else None
        if parcel is None:
            parcel = noise.encode(Parcel(np.asarray(vectors[name], np.float64), ()), site)
            if outbox:
                outbox.keep(site, parcel)
        box.take(name, parcel)
    if outbox:
        outbox.release(at, names)
    return noise.decode(box.total(), names, None).floats


def row_survey(
    federation: Federation,
    noise: Gaussian,
    secure: SecureSum | None,
    run: bytes,
    seed: int | None,
    outbox: Outbox | None = None,
) -> tuple[float, float]:
    """Estimate the number of rows and the length that nine rows in ten do not exceed, from one noisy histogram.

    Rows of zeros (those beyond a subject's cap among them) are not counted: they contribute nothing in any round.
    """
    vectors: dict[str, np.ndarray] = {}
    for name in federation.names:
        shard = federation.shard(name)
        lengths = np.sqrt(row_squares(observed(shard.X, shard.mask)))
        lengths = lengths[lengths > 0]
        bins = np.minimum(np.searchsorted(_EDGES, lengths), _EDGES.size - 1)
        vectors[name] = np.concatenate([[lengths.size], np.bincount(bins, minlength=_EDGES.size)])
    total = noisy_sum(vectors, noise, secure, run, seed, outbox)
    parts = len(vectors) / (noise.honest if noise.share == "distributed" else 1)
    spread = noise.noise_multiplier * noise.sensitivity * math.sqrt(parts)
    rows = max(float(total[0]), 1.0)
    return rows, _bound(total[1:], spread, rows)


def _bound(counts: np.ndarray, spread: float, rows: float) -> float:
    """Find nine tenths of the rows among the bins that stand out from the noise.

    Were bins of mere noise counted, a few of the many far above every row would move the bound by octaves. Bins are
    joined, two, four, eight or sixteen at a time, until those that stand out hold half of the rows.
    """
    for width in (1, 2, 4, 8, 16):
        starts = np.arange(0, counts.size, width)
        sums = np.add.reduceat(counts, starts)
        sums = np.where(sums > 4 * spread * math.sqrt(width), sums, 0.0)
        if 2 * sums.sum() >= rows:
            last = int(np.argmax(np.cumsum(sums) >= 0.9 * sums.sum()))
            return float(_EDGES[min(starts[last] + width, counts.size) - 1])
    return 1.0  # too few rows for this noise to see: any bound is as good
