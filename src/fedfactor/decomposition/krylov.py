"""Leading eigenvectors of a matrix that is only known by its products with a few directions (block Krylov space)."""

from __future__ import annotations

import numpy as np
import scipy.linalg

from fedfactor.core.pytree import Array
from fedfactor.decomposition.second_moments import with_positive_peaks

__all__ = ["eigenvectors_within", "next_directions", "orthonormal_rows"]

RANK_TOLERANCE = 1e-10
"""Directions that are shorter than this, relative to the longest one, after what is known was subtracted carry no
information.
"""


def orthonormal_rows(W: Array, known: Array | None = None) -> np.ndarray:
    """Return orthonormal rows that span what the rows of W add to orthonormal rows that are known.

    Examples
    --------
    >>> orthonormal_rows(np.array([[3.0, 4.0], [6.0, 8.0]])).round(3)
    array([[0.6, 0.8]])
    >>> orthonormal_rows(np.ones((1, 2)), known=np.eye(2)).shape
    (0, 2)
    """
    W = np.asarray(W, np.float64)
    largest = float(np.sqrt((W * W).sum(axis=1)).max(initial=0.0))
    if known is not None:
        known = np.asarray(known, np.float64)
        for _ in range(2):  # once is not enough in floating point, twice is
            W = W - (W @ known.T) @ known
    if not largest > 0:
        return np.zeros((0, W.shape[1]))
    V, R, _ = scipy.linalg.qr(W.T, mode="economic", pivoting=True)
    kept = int((np.abs(np.diag(R)) > RANK_TOLERANCE * largest).sum())
    return with_positive_peaks(V[:, :kept].T)


def next_directions(Q: Array, Y: Array, block: int) -> np.ndarray:
    """Return the directions to multiply with next: what the last products add to all directions so far.

    Parameters
    ----------
    Q, Y : array of shape (t, m)
        Orthonormal directions so far, and their products ``Q C``.
    block : int
        How many of the last products are new.

    Returns
    -------
    array of shape (at most block, m)
        Without rows when the products lie within the directions: these are then all that matters.
    """
    return orthonormal_rows(np.asarray(Y)[-block:], Q)


def eigenvectors_within(Q: Array, Y: Array, k: int, precision: float) -> tuple[np.ndarray, np.ndarray]:
    r"""Estimate the k largest eigenvalues of a positive semidefinite C, and their eigenvectors, from ``Y = Q C``.

    They are those of the Nyström approximation :math:`Y^\top (Q C Q^\top)^{-1} Y`, which is at least as close as the
    best one within the directions (Rayleigh–Ritz) and costs nothing more.

    Parameters
    ----------
    Q, Y : array of shape (t, m)
        Orthonormal directions, and their products with C.
    k : int
        At most t.
    precision : float
        Relative size of rounding in Y.

    Returns
    -------
    values : array of shape (k,)
        The largest first; at most those of C.
    vectors : array of shape (k, m)

    References
    ----------
    .. [1] J. A. Tropp, A. Yurtsever, M. Udell, V. Cevher, "Fixed-rank approximation of a positive-semidefinite matrix
       from streaming data", NeurIPS 2017. arXiv:1706.05736

    Examples
    --------
    >>> C = np.diag([3.0, 1.0, 0.0])
    >>> eigenvectors_within(np.eye(3)[:2], C[:2], 1, 1e-16)
    (array([3.]), array([[1., 0., 0.]]))
    """
    Q = np.asarray(Q, np.float64)
    Y = np.asarray(Y, np.float64)
    T = (Y @ Q.T + Q @ Y.T) / 2
    shift = precision * np.sqrt(len(Q)) * float(np.linalg.norm(Y))
    try:
        L = scipy.linalg.cholesky(T + shift * np.eye(len(T)), lower=True, check_finite=False)
    except scipy.linalg.LinAlgError:  # noise, or rounding, took away definiteness: stay within the directions
        values, W = np.linalg.eigh(T)
        return np.maximum(values[::-1][:k], 0.0), with_positive_peaks((W[:, ::-1].T @ Q)[:k])
    B = scipy.linalg.solve_triangular(L, Y + shift * Q, lower=True, check_finite=False)
    _, sizes, V = np.linalg.svd(B, full_matrices=False)
    return np.maximum(sizes[:k] ** 2 - shift, 0.0), with_positive_peaks(V[:k])
