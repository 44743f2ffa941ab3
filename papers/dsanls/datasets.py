"""The data of the studies: dense images, sparse words, a sparse graph, and a planted matrix that needs no file."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from fedfactor.datasets.loading import available, load_dataset

__all__ = ["NAMES", "load", "planted", "present"]

NAMES = {
    "planted": None,
    "faces": "cbcl_faces",
    "fashion": "fashion_mnist",
    "newsgroups": "newsgroups",
    "coauthors": "ca_grqc",
}
"""Name here → name in :func:`fedfactor.data.load_dataset`."""


def planted(n: int = 200, m: int = 300, k: int = 8, seed: int = 0) -> np.ndarray:
    """Draw a matrix of rank k with 60 % zeros in its factors and a little noise; its floor is an error of 0.0286.

    Examples
    --------
    >>> planted().shape
    (200, 300)
    """
    rng = np.random.default_rng(seed)
    U, V = rng.random((n, k)), rng.random((m, k))
    U *= rng.random(U.shape) > 0.6
    V *= rng.random(V.shape) > 0.6
    return U @ V.T + 0.05 * rng.random((n, m))


def present() -> list[str]:
    """Name the sets that are here."""
    here = available()
    return [name for name, known in NAMES.items() if known is None or here.get(known, False)]


def load(name: str, full: bool) -> Any:
    """Load a set in single precision; without ``full`` a few thousand rows of it."""
    known = NAMES[name]
    if known is None:
        return planted()
    X = load_dataset(known).X
    X = sparse.csr_array(X, dtype=np.float32) if sparse.issparse(X) else np.asarray(X, np.float32)
    top = float(X.max())
    X = X / np.float32(top) if not sparse.issparse(X) else X
    return X if full else X[:4000]
