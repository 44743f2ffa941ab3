"""One training epoch of MovieLens latest-small, all 9,724 movies, four sampled zeros for each one, batches of 2048,
takes at most five seconds of processor time for both clients together, and drawing the zeros less than a tenth of it.

Processor time, because a shared machine's clock says little. The same seed gives the same bits.
"""

from __future__ import annotations

import time

import numpy as np

from fedfactor.algorithms import FedDMF
from fedfactor.core.algorithm import Round
from fedfactor.core.pytree import leaves
from fedfactor.recommend.feddmf.messages import Anchor
from fedfactor.recommend.feddmf.negative_sampling import ones_of, training_cells
from papers.feddmf.split import movies, split


def claim() -> dict:
    part = split(movies(1))
    federation, algorithm = part.federation(), FedDMF()
    meta = federation.prepare(algorithm.domain)
    others = np.random.default_rng(0).normal(0, 0.05, (len(part.common), 32)).astype(np.float32)
    down = Anchor(part.common, others, np.ones(len(part.common), np.float32), np.int64(0), np.bool_(False))
    total, drawing, same = 0.0, 0.0, True
    for name in federation.names:
        shard, at = federation.shard(name), Round(0, 1, name)
        state = algorithm.init_client(shard, meta, at)
        algorithm.client_step(shard, state, down, at)  # wakes torch
        began = time.process_time()
        one, _ = algorithm.client_step(shard, state, down, at)
        total += time.process_time() - began
        began = time.process_time()
        ones = ones_of(shard.X, shard.held)
        cells, _ = training_cells(ones, shard.n_rows * len(shard.held), 4, at.rng("x"))
        drawing += time.process_time() - began
        two, _ = algorithm.client_step(shard, state, down, at)
        same &= all(a.tobytes() == b.tobytes() for (_, a), (_, b) in zip(leaves(one), leaves(two), strict=True))
    figures = {
        "seconds_of_processor": total,
        "seconds_drawing": drawing,
        "cells_of_last_client": len(cells),
        "same_bits": same,
    }
    return {**figures, "holds": bool(total <= 5 and drawing < 0.1 * total + 0.1 and same)}
