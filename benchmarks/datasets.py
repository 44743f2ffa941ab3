"""The matrices that are timed, all in single precision."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedfactor.datasets.loading import available, load_dataset

RANK = 20

SETS: dict[str, str | None] = {
    "dense 4000x2000": None,
    "fashion-mnist": "fashion_mnist",
    "20 newsgroups": "newsgroups",
    "mouse bladder": "mouse_bladder",
}
"""Label in the tables, and the name of the real data (None: made here)."""

OTHERS = {"CBCL faces": "cbcl_faces", "Yale faces": "yale_faces", "mushrooms": "mushroom"}
"""Sets on which nothing was ever tuned."""


def dense() -> np.ndarray:
    """Make 4,000 x 2,000 cells from 20 components with gamma(1/2) entries and one-sided noise of a tenth of the mean.

    Sparser planted factors are found so fast that only the sixth digit of the error is left to compare.
    """
    rng = np.random.default_rng(0)
    U, V = (rng.gamma(0.5, 1, shape).astype(np.float32) for shape in ((4000, RANK), (RANK, 2000)))
    X = U @ V
    return X + np.float32(0.1 * X.mean()) * np.abs(rng.standard_normal(X.shape, dtype=np.float32))


def load(label: str) -> Any | None:
    """Return a matrix, or None when its file is not in the data folder."""
    name = (SETS | OTHERS)[label]
    if name is None:
        return dense()
    if not available()[name]:
        return None
    X = load_dataset(name).X.astype(np.float32)
    # Pixels as shares of full brightness; counts stay counts.
    return X / np.float32(255) if name in ("fashion_mnist", "cbcl_faces", "yale_faces") else X
