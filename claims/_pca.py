"""What the claims about PooledPCA share: data sets, and rows dealt to ten clients."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.datasets import load_digits

CLIENTS = 10


def _folder() -> Path:
    return Path(os.environ["FEDFACTOR_DATA"])


def _images(name: str) -> np.ndarray:
    return np.load(_folder() / "images" / f"{name}.npz")["X"].astype(np.float64)


def _sparse(path: str) -> sparse.csr_array:
    return sparse.csr_array(sparse.load_npz(_folder() / path), dtype=np.float64)


def _single_cells() -> np.ndarray:
    return _sparse("gene/pbmc68k_reduced_log.npz").toarray()


DENSE: dict[str, Callable[[], Any]] = {
    "Fashion-MNIST": lambda: _images("fashion_mnist_20k"),
    "CBCL faces": lambda: _images("cbcl_faces_19x19"),
    "ORL faces": lambda: _images("orl_faces_32x32"),
    "PBMC cells": _single_cells,
    "digits": lambda: load_digits().data.astype(np.float64),
}
SPARSE: dict[str, Callable[[], Any]] = {
    "mushrooms": lambda: _sparse("binary/mushroom.npz"),
    "roles (APJ)": lambda: _sparse("binary/role_apj.npz"),
    "roles (Americas)": lambda: _sparse("binary/role_americas_small.npz"),
}
WIDE: dict[str, Callable[[], Any]] = {
    "Reuters": lambda: _sparse("text/reuters395_bow.npz"),
    "20 Newsgroups": lambda: _sparse("text/20newsgroups_bow.npz"),
    "bladder cells": lambda: _sparse("gene/mouse_bladder_counts.npz"),
}
"""Sparse sets with more columns than a Gram matrix is sent for."""


def splits(X: Any) -> dict[str, dict[str, Any]]:
    """Deal the rows to ten clients in four ways: at random, in order, by the sum of each row, and in unequal parts."""
    n = X.shape[0]
    shuffled = np.random.default_rng(0).permutation(n)
    by_sum = np.argsort(np.asarray(X.sum(axis=1)).ravel(), kind="stable")
    equal = np.linspace(0, n, CLIENTS + 1).astype(int)[1:-1]
    unequal = np.unique(np.round(n * 0.6 ** np.arange(CLIENTS - 1, 0, -1)).astype(int).clip(1))
    ways = {
        "random": (shuffled, equal),
        "in order": (np.arange(n), equal),
        "by sum": (by_sum, equal),
        "unequal": (shuffled, unequal),
    }
    return {
        way: {f"{i:02d}": X[part] for i, part in enumerate(np.split(order, cuts))}
        for way, (order, cuts) in ways.items()
    }


def angle(V: np.ndarray, W: np.ndarray) -> float:
    """Return the sine of the largest angle between two spaces that are spanned by orthonormal rows."""
    return float(np.linalg.norm(W - (W @ V.T) @ V, 2))
