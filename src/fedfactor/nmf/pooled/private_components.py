"""Components of one client beside the shared ones."""

from __future__ import annotations

from typing import Any

import numpy as np
from array_api_compat import array_namespace

from fedfactor.core.pytree import Array, is_numpy
from fedfactor.linalg.factors import fit_rows, row_norms, stacked
from fedfactor.linalg.missing_values import Penalty
from fedfactor.linalg.products import as_like, sums
from fedfactor.nmf.pooled.losses.loss import Loss

__all__ = ["fit_with_private", "unexplained"]


def unexplained(X: Array, V: Array, n_components: int, rng: np.random.Generator, mask: Any = None) -> Array:
    """Begin a client's own components with what V leaves unexplained in a few of its rows, of norm 1.

    Begun at random they would compete with V for what all clients share. With missing values, a column's residual is
    the mean over the observed cells of these rows.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, 0.0, 2.0], [2.0, 0.0, 1.0]])
    >>> unexplained(X, np.array([[1.0, 0.0, 0.0]]), 1, np.random.default_rng(0)).tolist()
    [[0.0, 0.0, 1.0]]
    """
    n = X.shape[0]
    U = fit_rows(as_like(np.zeros((n, V.shape[0])), X), X, V, mask, sweeps=20)
    picked = np.zeros((n, n_components))
    for t in range(n_components):
        picked[rng.choice(n, size=max(1, n // 10), replace=False), t] = 1.0
    picked = as_like(picked, X)
    if mask is None:
        left = sums(picked, X) - (picked.T @ U) @ V
    else:
        observed = as_like(mask, X)
        left = picked.T @ (observed * (X - U @ V)) / (1e-12 + picked.T @ observed)
    left = array_namespace(V).clip(left, 0, None)
    return left / row_norms(left)


def fit_with_private(
    loss: Loss,
    U: Array,
    X: Array,
    V: Array,
    Q: Array,
    mask: Any = None,
    *,
    sweeps: int,
    penalty: Penalty,
    turns: int = 2,
) -> tuple[Array, Array]:
    r"""Improve all of a client's own factors, the shared V fixed: ``X ≈ U[:, :k] V + U[:, k:] Q``.

    Parameters
    ----------
    loss : Loss
    U : array, shape (n, k + p)
    X : array or CSR matrix, shape (n, m)
    V, Q : array, shape (k, m) and (p, m)
        Shared components, and the client's own, of the length that the loss gives them.
    mask : as in :func:`~fedfactor.linalg.factors.fit_rows`
    sweeps : int
        Sweeps on U, and on Q, in each turn.
    penalty : Penalty
        What U pays; a weight on its last p columns keeps out of Q what V can explain.
    turns : int
        Alternations between U and Q.

    Returns
    -------
    U, Q : array

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[1.0, 0.0, 2.0], [2.0, 0.0, 1.0]])
    >>> from fedfactor.nmf.pooled.losses import SquaredError
    >>> U, Q = fit_with_private(SquaredError(), np.zeros((2, 2)), X, np.array([[1.0, 0, 0]]), np.array([[0, 0.6, 0.8]]),
    ...                         sweeps=20, penalty=Penalty(), turns=20)
    >>> Q.round(4).tolist()
    [[0.0, 0.0, 1.0]]
    """
    k = V.shape[0]
    for _ in range(turns):
        U = loss.rows(U, X, stacked(V, Q), mask, sweeps=sweeps, pay=penalty)
        Q = loss.private_step(U, X, V, Q, mask, sweeps=sweeps)
        lengths = loss.lengths(Q)
        Q = Q / lengths
        U = array_namespace(U).concat([U[:, :k], U[:, k:] * lengths.T], axis=1)
    return (np.ascontiguousarray(U), np.ascontiguousarray(Q)) if is_numpy(U) else (U, as_like(Q, U))
