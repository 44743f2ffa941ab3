"""FELB with the settings of the paper on 2^16 × 500 cells and 64 clients takes minutes on this machine, and the time
per client does not grow with the number of clients.

Every client has 1,024 rows; 16 clients are timed beside 64. Data are single precision, ten tiles, 5 % flips.
"""

from __future__ import annotations

import time

import numpy as np

import fedfactor
from fedfactor.algorithms import FELB
from fedfactor.datasets.boolean_tiles import even_tiles


def seconds(clients: int) -> tuple[float, float, float]:
    data = even_tiles(1024 * clients, 500, 10, clients, flips=0.05, seed=0)
    owners = {name: X.astype(np.float32) for name, X in data.owners.items()}
    fedfactor.run(FELB(10), {"a": owners["00"]}, rounds=1, seed=0)  # compiles
    began = time.perf_counter()
    run = fedfactor.run(FELB(10), owners, seed=0)
    spent = time.perf_counter() - began
    return spent, float(run.score.sse / run.score.total), data.floor


def claim() -> dict:
    few, loss_few, _ = seconds(16)
    many, loss_many, floor = seconds(64)
    return {
        "seconds, 16 clients": round(few, 1),
        "seconds, 64 clients (2^16 rows)": round(many, 1),
        "seconds per client, 16": round(few / 16, 3),
        "seconds per client, 64": round(many / 64, 3),
        "loss, 16 and 64": [round(loss_few, 4), round(loss_many, 4)],
        "floor, 64": round(floor, 4),
        "holds": bool(many < 1800 and many / 64 < 1.25 * few / 16),
    }
