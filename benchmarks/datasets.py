"""The matrices that are timed, all in single precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedfactor.data.fetch import available, load_dataset
from fedfactor.data.synthetic import planted_nmf

RANK = 20

SETS: dict[str, str | None] = {
    "dense 4000x2000": None,
    "fashion-mnist": "fashion_mnist",
    "20 newsgroups": "newsgroups",
    "mouse bladder": "mouse_bladder",
}
"""Label in the tables, and the name of the real data (None: made here)."""


def dense() -> np.ndarray:
    """Make 4,000 x 2,000 cells from 20 planted components with 10 % noise."""
    return planted_nmf(4000, 2000, RANK, noise=0.1, seed=0, dtype=np.float32).X


def load(label: str) -> Any | None:
    """Return a matrix, or None when its file is not in the data folder."""
    name = SETS[label]
    if name is None:
        return dense()
    if not available()[name]:
        return None
    X = load_dataset(name).X.astype(np.float32)
    # Pixels as shares of full brightness; counts stay counts.
    return X / np.float32(255) if name == "fashion_mnist" else X


def openers(labels: list[str]) -> dict[str, Callable[[], Any | None]]:
    """Pair each label with the function that loads it, so that one matrix is held at a time."""
    return {label: lambda label=label: load(label) for label in labels}
