"""Binary factorization by penalty (Zhang et al.): multiplicative updates, then thresholds from a grid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from fedfactor.boolean import bit_matrix as bits
from fedfactor.boolean.solvers.result import Clock, Factored
from fedfactor.boolean.solvers.thresholds import search_thresholds
from fedfactor.core.pytree import Array
from fedfactor.linalg.products import as_like, cross, gram, gram_rows, sums

__all__ = ["zhang"]
_TINY = 1e-12


def zhang(
    X: Array,
    k: int,
    *,
    rng: np.random.Generator,
    lam: float = 1.0,
    growth: float = 1.0,
    max_iter: int = 1000,
    full_grid: bool = False,
    time_limit: float | None = None,
) -> Factored:
    r"""Factor a Boolean matrix by penalised NMF.

    .. math:: \min_{U, V \ge 0} \tfrac12\|X - UV\|^2 + \tfrac{\lambda}{2}\|U^2 - U\|^2 + \tfrac{\lambda}{2}\|V^2 - V\|^2

    Parameters
    ----------
    X : array or sparse matrix of 0 and 1, shape (n, m)
    k : int
        Components.
    rng : Generator
        Draws the start, uniform on [0, 1], then balanced: each component's largest entry is alike in U and V.
    lam, growth : float
        Penalty, and its growth in each iteration (up to 1e10).
    max_iter : int
        Multiplicative updates of both factors.
    full_grid : bool
        Search all 100 × 100 thresholds instead of coarse, then fine.
    time_limit : float, optional
        Seconds for updates and grid together.

    Returns
    -------
    Factored
        Thresholds are chosen for this matrix alone; the FELB paper chooses one pair for all clients, which would take a
        further exchange.

    References
    ----------
    .. [1] Z. Zhang, T. Li, C. Ding, X. Zhang, "Binary matrix factorization with applications", ICDM 2007.
       doi:10.1109/ICDM.2007.99

    Examples
    --------
    >>> import numpy as np
    >>> X = np.kron(np.eye(2), np.ones((4, 3)))
    >>> found = zhang(X, 2, rng=np.random.default_rng(0), max_iter=200)
    >>> bool(((found.U @ found.V > 0) == X).all())
    True
    """
    if not (lam >= 0 and growth > 0):
        raise ValueError(f"lam={lam} must not be negative, and growth={growth} must be positive.")
    clock = Clock(time_limit)
    U = rng.random((X.shape[0], k))
    V = rng.random((k, X.shape[1]))
    top_U = U.max(axis=0, initial=_TINY)
    top_V = V.max(axis=1, initial=_TINY)
    balance = np.sqrt(top_V / top_U)
    U = as_like(U * balance, X)
    V = as_like(V / balance[:, None], X)
    steps = 0
    for steps in range(1, max_iter + 1):  # noqa: B007, stored in the result
        V = _update(V.T, gram(U), sums(U, X).T, lam).T
        U = _update(U, gram_rows(V), cross(X, V), lam)
        lam = min(lam * growth, 1e10)
        if clock.over():
            break
    host = np.empty(0)
    found = search_thresholds(bits.pack(X), as_like(U, host), as_like(V, host), full=full_grid, clock=clock)
    return replace(found, n_iter=steps)


def _update(W: Array, G: Array, B: Array, lam: float) -> Array:
    square = W * W
    return W * (B + 3 * lam * square) / (W @ G + 2 * lam * square * W + lam * W + _TINY)
