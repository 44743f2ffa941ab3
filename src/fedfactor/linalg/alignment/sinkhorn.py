"""Entropic optimal transport between two small sets of masses."""

from __future__ import annotations

import numpy as np

__all__ = ["transport"]

_LARGEST = 1e100
"""Scalings beyond this are moved into the potentials, where they cannot overflow."""

_LEAST = 1e-290
"""What is divided by is never less."""


def transport(
    cost: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
    epsilon: float,
    iterations: int = 100,
    tol: float = 1e-9,
) -> np.ndarray:
    r"""Find the transport plan of least cost plus ε times negative entropy (Sinkhorn's algorithm).

    .. math:: \min_{P \ge 0} \langle P, C\rangle + \varepsilon \sum P (\log P - 1),
       \quad P 1 = r, \; P^\top 1 = c

    Parameters
    ----------
    cost : ndarray, shape (k, l)
    rows, columns : ndarray, shape (k,) and (l,)
        Positive masses with the same sum.
    epsilon : float
        Softness, in the unit of the cost; towards 0 the plan becomes an assignment.
    iterations : int
        Most iterations.
    tol : float
        Stop when no column's mass is off by more than this share.

    Returns
    -------
    P : ndarray, shape (k, l)
        Its rows sum to `rows` exactly, its columns to `columns` as far as the iterations went.

    Notes
    -----
    The kernel ``exp((f + g − C)/ε)`` is rebuilt from the potentials f, g whenever a scaling grows large, which keeps
    the accuracy of the log domain while most iterations are two products of a matrix with a vector. Potentials start
    from the row minima and then the column minima of the cost, so that every row and column of the kernel has a 1.

    References
    ----------
    .. [1] B. Schmitzer, "Stabilized sparse scaling algorithms for entropy regularized transport problems", SIAM J. Sci.
       Comput. 41 (2019). doi:10.1137/16M1106018

    Examples
    --------
    >>> import numpy as np
    >>> one = np.ones(2)
    >>> transport(np.array([[1.0, 0.0], [0.0, 1.0]]), one, one, epsilon=0.05).round(6)
    array([[0., 1.],
           [1., 0.]])
    """
    if not epsilon > 0:
        raise ValueError(f"epsilon={epsilon} must be positive. For a hard plan use the assignment.")
    f = cost.min(axis=1)
    g = (cost - f[:, None]).min(axis=0)
    kernel = np.exp((f[:, None] + g[None, :] - cost) / epsilon)
    u = np.ones_like(f)
    v = np.ones_like(g)
    for _ in range(iterations):
        u = rows / np.maximum(kernel @ v, _LEAST)
        mass = np.maximum(u @ kernel, _LEAST)
        done = np.abs(v * mass - columns).max() <= tol * columns.max()
        v = columns / mass
        if done:
            break
        if max(u.max(), v.max()) > _LARGEST or min(u.min(), v.min()) < 1 / _LARGEST:
            f = f + epsilon * np.log(u)
            g = g + epsilon * np.log(v)
            kernel = np.exp((f[:, None] + g[None, :] - cost) / epsilon)
            u = np.ones_like(f)
            v = np.ones_like(g)
    P = kernel * v[None, :]
    return P * (rows / np.maximum(P.sum(axis=1), _LEAST))[:, None]
