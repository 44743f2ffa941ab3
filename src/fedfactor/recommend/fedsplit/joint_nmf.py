"""Item factors of many clients, stacked: what a client does before it sends its own, and how a server joins them."""

from __future__ import annotations

import numpy as np

from fedfactor.core.pytree import Array
from fedfactor.linalg.missing_values import masked_step, masked_sums, solve_rows_masked
from fedfactor.linalg.nndsvd import nndsvd
from fedfactor.linalg.nnls import multiplicative_step, solve_rows
from fedfactor.linalg.products import as_like
from fedfactor.recommend.rating_model import FLOOR

__all__ = ["far_off", "fill_unrated", "joint_factors", "outliers", "row_rms"]


def fill_unrated(V: Array, rated: Array, how: str, rng: np.random.Generator | None = None) -> np.ndarray:
    """Replace the factors of items without ratings here, which are still the random start.

    Parameters
    ----------
    V : array of shape (k, m)
    rated : bool array of shape (m,)
    how : {"draw", "mean", "keep"}
        ``"draw"``: each entry drawn again from those of the same component among rated items, and moved a little, so
        that no entry distinguishes rated from unrated for sure. ``"mean"``: the component's mean over rated items,
        which says exactly which items are unrated. ``"keep"``: leave the start.
    rng : Generator
        For ``"draw"``.

    Examples
    --------
    >>> fill_unrated(np.array([[1.0, 3.0, 9.0]]), np.array([True, True, False]), "mean")
    array([[1., 3., 2.]])
    """
    where = np.flatnonzero(rated)
    blank = np.flatnonzero(~np.asarray(rated))
    if how == "keep" or not len(where) or not len(blank):
        return V
    V = np.array(V)
    if how == "mean":
        V[:, blank] = V[:, where].mean(axis=1, keepdims=True)
        return V
    assert rng is not None, "entries are drawn by a generator"
    for row in V:
        drawn = row[where[rng.integers(len(where), size=len(blank))]]
        # A plain copy would repeat another entry bit by bit, and so give itself away; many rated entries lie on the
        # floor, and there a moved one would.
        row[blank] = np.where(np.abs(drawn) <= FLOOR, drawn, drawn * rng.uniform(0.9, 1.1, len(blank)))
    return V


def row_rms(V: Array) -> np.ndarray:
    """Return the root mean square of each row of V as a column; 1 for a row of zeros.

    Examples
    --------
    >>> row_rms(np.array([[2.0, 2.0], [0.0, 0.0]]))
    array([[2.],
           [1.]])
    """
    size = np.sqrt(np.mean(np.square(V), axis=1, keepdims=True))
    return np.where(size > 0, size, 1).astype(V.dtype)


def outliers(sizes: Array, limit: float) -> np.ndarray:
    """Mark what is not finite, or more than `limit` times the median.

    Examples
    --------
    >>> outliers([1.0, 2.0, 1.5, 900.0, np.nan], 20)
    array([False, False, False,  True,  True])
    """
    sizes = np.asarray(sizes, dtype=float)
    fine = np.isfinite(sizes)
    if not fine.any():
        return ~fine
    usual = float(np.median(sizes[fine]))
    return ~fine | (sizes > limit * usual) if usual > 0 else ~fine


def far_off(values: Array, limit: float) -> np.ndarray:
    """Mark what is not finite, or further from the median than `limit` times the usual distance.

    Examples
    --------
    >>> far_off([3.5, 3.6, 3.4, 60.0], 20)
    array([False, False, False,  True])
    """
    values = np.asarray(values, dtype=float)
    fine = np.isfinite(values)
    if not fine.any():
        return ~fine
    middle = float(np.median(values[fine]))
    usual = max(float(np.median(np.abs(values[fine] - middle))), 0.01 * abs(middle))
    with np.errstate(invalid="ignore"):
        return ~fine | (np.abs(values - middle) > limit * usual)


def joint_factors(
    S: Array,
    n_components: int,
    *,
    mask: Array | None = None,
    solver: str = "hals",
    iterations: int = 200,
    tol: float = 1e-5,
    seed: int = 0,
) -> tuple[np.ndarray, np.ndarray, float]:
    r"""Factor stacked item factors: ``S ≈ M V``.

    Parameters
    ----------
    S : array of shape (rows, m)
        The rows of all clients' V, one below the other.
    n_components : int
        Rank of the joint factors.
    mask : bool array of shape (rows, m), optional
        Which entries count.
    solver : {"hals", "multiplicative"}
        Coordinate descent, or the multiplicative updates of the paper: V (its W) first, then M (its Hᵀ), without a
        tolerance and five times as many of them. A mask is for coordinate descent.
    iterations : int
        Alternations at most; each solves M, then V, by coordinate descent.
    tol : float
        Stop when an alternation moves V by less than this share of its norm.
    seed : int
        For the start.

    Returns
    -------
    M : array of shape (rows, n_components)
    V : array of shape (n_components, m)
    error : float
        ``‖S − M V‖ / ‖S‖`` over the entries that count.

    Notes
    -----
    Starts from NNDSVD with its zeros filled by a hundredth of the mean. Coordinate descent minimises the same
    objective as multiplicative updates, in fewer steps.

    Examples
    --------
    >>> M, V, error = joint_factors(np.outer([1.0, 2.0, 3.0], [1.0, 2.0, 0.5]), 1)
    >>> bool(error < 1e-6)
    True
    """
    M, V = _start(S if mask is None else np.where(mask, S, 0), n_components, seed)
    multiplicative = solver == "multiplicative" and mask is None
    for _ in range(5 * iterations if multiplicative else 0):
        V = multiplicative_step(V.T, M.T @ M, S.T @ M).T
        M = multiplicative_step(M, V @ V.T, S @ V.T)
    for _ in range(0 if multiplicative else iterations):
        old = V
        if mask is None:
            M = solve_rows(M, V @ V.T, S @ V.T, sweeps=2)
            V = solve_rows(V.T, M.T @ M, S.T @ M, sweeps=2).T
        else:
            M = solve_rows_masked(M, S, mask, V, sweeps=2)
            N, D, _ = masked_sums(M, S, mask, V)
            V, _ = masked_step(V, M.T @ M, N, D, sweeps=2)
        if np.linalg.norm(V - old) <= tol * np.linalg.norm(V):
            break
    left = S - M @ V
    if mask is not None:
        left = np.where(mask, left, 0)
        S = np.where(mask, S, 0)
    size = float(np.linalg.norm(S))
    return as_like(M, S), np.ascontiguousarray(V), float(np.linalg.norm(left)) / size if size > 0 else 0.0


def _start(S: Array, k: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    least = max(float(S.mean()) * 0.01, 1e-9)
    if k <= min(S.shape):
        M, V = nndsvd(S, k, seed=seed)
    else:  # fewer stacked rows than components: nothing to take singular vectors from
        rng = np.random.default_rng(seed)
        M, V = (as_like(rng.random(shape), S) for shape in ((S.shape[0], k), (k, S.shape[1])))
    return np.maximum(M, as_like(least, S)), np.maximum(V, as_like(least, S))
