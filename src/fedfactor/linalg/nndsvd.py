"""A deterministic start for non-negative factors from the leading singular vectors."""

from __future__ import annotations

import numpy as np

from fedfactor.core.pytree import Array
from fedfactor.linalg.products import as_like, cross, sums

__all__ = ["nndsvd", "randomized_svd"]


def nndsvd(X: Array, n_components: int, *, seed: int = 0) -> tuple[Array, Array]:
    """Return a non-negative start (U, V) from the signs and sizes of the leading singular vectors.

    Parameters
    ----------
    X : array or sparse matrix, shape (n, m)
        Non-negative.
    n_components : int
        At most ``min(n, m)``.
    seed : int
        Seed of the random projection.

    Returns
    -------
    U : array, shape (n, k)
    V : array, shape (k, m)

    Notes
    -----
    The work is that of eight rounds of an alternating method with k + 10 components; no copy of `X` is made.

    References
    ----------
    .. [1] C. Boutsidis, E. Gallopoulos, "SVD based initialization: A head start for nonnegative matrix factorization",
       Pattern Recognition 41 (2008). doi:10.1016/j.patcog.2007.09.010

    Examples
    --------
    >>> import numpy as np
    >>> U, V = nndsvd(np.array([[1.0, 2.0], [2.0, 4.0]]), 1)
    >>> (U @ V).round(6)
    array([[1., 2.],
           [2., 4.]])
    """
    n, m = X.shape
    if not 1 <= n_components <= min(n, m):
        raise ValueError(
            f"nndsvd takes one singular vector per component, so n_components must lie in 1..min(n, m) = {min(n, m)}, "
            f"got {n_components}. Take fewer components, or a random start."
        )
    left, sizes, right = randomized_svd(X, n_components, seed=seed)
    U = np.zeros_like(left)
    V = np.zeros_like(right)
    for t in range(n_components):
        u, v = _dominant_part(left[:, t], right[t]) if t else (np.abs(left[:, 0]), np.abs(right[0]))
        lengths = np.linalg.norm(u), np.linalg.norm(v)
        if min(lengths) > 0:
            scale = np.sqrt(sizes[t] * lengths[0] * lengths[1])
            U[:, t], V[t] = scale / lengths[0] * u, scale / lengths[1] * v
    # Entries this small are rounding of zeros; left in, they would keep alive what should be absent.
    U[U < 1e-6] = 0
    V[V < 1e-6] = 0
    return as_like(U, X), as_like(V, X)


def _dominant_part(u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the positive or the negative halves of a singular pair, whichever product is larger."""
    positive = np.maximum(u, 0), np.maximum(v, 0)
    negative = np.maximum(-u, 0), np.maximum(-v, 0)
    weigh = [np.linalg.norm(a) * np.linalg.norm(b) for a, b in (positive, negative)]
    return positive if weigh[0] > weigh[1] else negative


def randomized_svd(
    X: Array, n_components: int, *, seed: int = 0, oversample: int = 10, iterations: int = 7
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the leading singular triplets ``(left, sizes, right)`` as float64 NumPy arrays, by subspace iteration.

    Examples
    --------
    >>> import numpy as np
    >>> randomized_svd(np.diag([3.0, 2.0, 1.0]), 2)[1].round(6)
    array([3., 2.])
    """
    n, m = X.shape
    width = min(n_components + oversample, n, m)
    basis = np.random.default_rng(seed).standard_normal((width, m))
    left, reduced = _project(X, basis)
    for _ in range(iterations):
        left, reduced = _project(X, np.linalg.qr(reduced.T)[0].T)
    small, sizes, right = np.linalg.svd(reduced, full_matrices=False)
    return (left @ small)[:, :n_components], sizes[:n_components], right[:n_components]


def _project(X: Array, basis: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return an orthonormal basis Q of X basisᵀ, and Qᵀ X."""
    left = np.linalg.qr(_doubles(cross(X, as_like(basis, X))))[0]
    return left, _doubles(sums(as_like(left, X), X))


def _doubles(A: Array) -> np.ndarray:
    return as_like(A, np.empty(0))
