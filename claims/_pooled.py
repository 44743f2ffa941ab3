"""What the claims about PooledNMF share."""

from __future__ import annotations

import warnings

import numpy as np
from scipy import sparse
from sklearn.decomposition import NMF
from sklearn.exceptions import ConvergenceWarning


def best_of_three(X: np.ndarray | sparse.csr_array, rank: int, iterations: int = 500) -> float:
    """Relative error of the best of three starts of scikit-learn on pooled rows: nndsvda and two random ones."""
    norm = sparse.linalg.norm(X) if sparse.issparse(X) else np.linalg.norm(X)
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        for init, seed in (("nndsvda", 0), ("random", 0), ("random", 1)):
            model = NMF(rank, init=init, random_state=seed, max_iter=iterations).fit(X)
            found.append(float(model.reconstruction_err_ / norm))
    return min(found)
